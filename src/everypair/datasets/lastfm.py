"""Loader for Last.fm 360K: how often users played artists."""

from __future__ import annotations

import os

import pyarrow as pa

from everypair.data import Dataset
from everypair.data.arrow import pc
from everypair.datasets.folder import files, read_columns

PLAYS = {"user": pa.string(), "mbid": pa.string(), "artist": pa.string(), "plays": pa.int64()}
PROFILES = {"user": pa.string(), "gender": pa.string(), "age": pa.int64(), "country": pa.string(), "signup": pa.string()}
OLDEST = 110  # larger ages are treated as missing
SIGNUP = "%b %d, %Y"  # such as Feb 1, 2007


def lastfm_360k(path: str | os.PathLike[str], *, repeats: str = "sum") -> Dataset:
    """Load Last.fm 360K: ``usersha1-artmbid-artname-plays.tsv`` and ``usersha1-profile.tsv``.

    Items are artists: their id is the MusicBrainz id, or the name where there is none. The number of plays is the weight of an
    event. There are no timestamps.

    Users have ``gender`` ("m", "f"), ``age`` (missing if not from 1 to 110), ``country`` and ``signup``, a date. Items have
    ``artist``, the name (the first in the file if there are several).

    Rows without plays, and rows without an artist, are left out and counted in ``notes``.

    Parameters
    ----------
    path : str or Path
        The unpacked folder.
    repeats : {"sum", "keep", "drop"}
        See :class:`everypair.Dataset`. Some rows have the same user and artist.
    """
    plays_file, profile_file = files(path, "usersha1-artmbid-artname-plays.tsv", "usersha1-profile.tsv")
    table, notes = _played(read_columns(plays_file, PLAYS, "\t"))
    users = _profiles(read_columns(profile_file, PROFILES, "\t"))
    dataset = Dataset(table.drop_columns("artist"), users, _artists(table), weight="plays", repeats=repeats)
    dataset.notes[:0] = notes
    return dataset


def _played(table: pa.Table) -> tuple[pa.Table, list[str]]:
    """The rows with an artist and plays (user, artist, plays, item), and notes on the others."""
    item = pc.if_else(pc.is_valid(table["mbid"]), table["mbid"], table["artist"])
    named = pc.is_valid(item)
    kept = pc.and_(named, pc.greater(pc.fill_null(table["plays"], 0), 0))
    n_named, n_kept = (pc.sum(mask).as_py() or 0 for mask in (named, kept))
    left_out = {"neither artist id nor name": len(table) - n_named, "no plays (0, less, or missing)": n_named - n_kept}
    notes = [f"{n:,} {'row has' if n == 1 else 'rows have'} {what}: left out." for what, n in left_out.items() if n]
    return table.drop_columns("mbid").append_column("item", item).filter(kept), notes


def _artists(table: pa.Table) -> pa.Table:
    """The first name of each item; on one thread, since "first" depends on the order."""
    first = table.group_by("item", use_threads=False).aggregate([("artist", "first")])
    return pa.table({"item": first["item"], "artist": first["artist_first"]})


def _profiles(table: pa.Table) -> pa.Table:
    """Profiles with implausible ages removed and signup dates parsed."""
    plausible = pc.and_(pc.greater(table["age"], 0), pc.less_equal(table["age"], OLDEST))
    signup = pc.strptime(table["signup"], format=SIGNUP, unit="s", error_is_null=True)
    columns = {name: table[name] for name in PROFILES}
    return pa.table(columns | {"age": pc.if_else(plausible, table["age"], None), "signup": signup.cast(pa.date32())})
