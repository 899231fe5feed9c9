"""Loader for MovieLens: ratings of movies."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa

from everypair.data import Dataset
from everypair.data.arrow import pc
from everypair.datasets.folder import as_utf8, files, holds, names_in, read_columns

NO_GENRES = ["", "(no genres listed)"]
NO_GENRE_100K = "unknown"
YEAR = r"\((?P<year>[0-9]{4})\)\s*(?:\(V\)\s*)?$"  # "(V)" marks videos
NUMBER, STRING = pa.int64(), pa.string()
RATINGS = {"user": NUMBER, "item": NUMBER, "rating": pa.float64(), "timestamp": NUMBER}
RATINGS_CSV = {"userId": NUMBER, "movieId": NUMBER, "rating": pa.float64(), "timestamp": NUMBER}
MOVIES = {"item": NUMBER, "title": STRING, "genres": STRING}
MOVIES_CSV = {"movieId": NUMBER, "title": STRING, "genres": STRING}
USERS_100K = {"user": NUMBER, "age": NUMBER, "gender": STRING, "occupation": STRING, "zip": STRING}
USERS_1M = {"user": NUMBER, "gender": STRING, "age": NUMBER, "occupation": NUMBER, "zip": STRING}
MOVIES_100K = {"item": NUMBER, "title": STRING, "released": STRING, "released on video": STRING, "address": STRING}


def movielens(path: str | os.PathLike[str], *, at_least: float | None = None, repeats: str = "keep") -> Dataset:
    """Load MovieLens 100K, 1M, 10M, 20M, 25M, 32M, latest or latest-small.

    The names of the files show which one it is:

    - 100K: ``u.data``, ``u.user``, ``u.item``, ``u.genre``
    - 1M: ``ratings.dat``, ``movies.dat``, ``users.dat``
    - 10M: ``ratings.dat``, ``movies.dat``
    - 20M and later: ``ratings.csv``, ``movies.csv``

    Items have ``title``, ``year`` (parsed from the end of the title, else missing) and ``genres``, a list: empty for "(no genres
    listed)", and for "unknown" in 100K. Users have ``age``, ``gender``, ``occupation`` and ``zip`` in 100K and 1M. In 1M,
    ``age`` is the lower end of an age band (1 for users under 18) and ``occupation`` a number from 0 to 20, as in its files.

    Parameters
    ----------
    path : str or Path
        The unpacked folder.
    at_least : number, optional
        The smallest rating that counts. None: all events count, and ``rating`` is an attribute of events.
    repeats : {"keep", "sum", "drop"}
        See :class:`everypair.Dataset`.
    """
    names = names_in(path)
    readers = {"u.data": _read_100k, "ratings.dat": _read_dat, "ratings.csv": _read_csv}
    reader = next((reader for name, reader in readers.items() if name in names), None)
    if reader is None:
        raise FileNotFoundError(
            f"{path} must hold u.data (MovieLens 100K), ratings.dat (1M, 10M) or ratings.csv (20M and later). {holds(names)}"
        )
    ratings, users, movies = reader(Path(path))
    rating = None if at_least is None else "rating"
    return Dataset(ratings, users, movies, timestamp="timestamp", rating=rating, at_least=at_least, repeats=repeats)


def _read_100k(folder: Path) -> tuple[pa.Table, pa.Table, pa.Table]:
    data, user, item, genre = files(folder, "u.data", "u.user", "u.item", "u.genre")
    ratings = read_columns(data, RATINGS, "\t")
    users = read_columns(user, USERS_100K, "|", content=as_utf8(user))
    names = read_columns(genre, {"genre": STRING, "number": NUMBER}, "|").sort_by("number")["genre"]
    flags = {f"genre {j}": NUMBER for j in range(len(names))}
    movies = read_columns(item, MOVIES_100K | flags, "|", content=as_utf8(item))
    flagged = np.column_stack([movies[flag].to_numpy() for flag in flags]) * (names.to_numpy() != NO_GENRE_100K)
    return ratings, users, _items(movies, _lists_of_flags(flagged, names))


def _read_dat(folder: Path) -> tuple[pa.Table, pa.Table | None, pa.Table]:
    ratings, movies = files(folder, "ratings.dat", "movies.dat")
    users = folder / "users.dat"
    return _double_colons(ratings, RATINGS), _double_colons(users, USERS_1M) if users.exists() else None, _movies(movies)


def _read_csv(folder: Path) -> tuple[pa.Table, None, pa.Table]:
    ratings, movies = files(folder, "ratings.csv", "movies.csv")
    return read_columns(ratings, RATINGS_CSV, header=True).rename_columns(list(RATINGS)), None, _movies(movies)


def _movies(path: Path) -> pa.Table:
    if path.suffix == ".dat":
        movies = _double_colons(path, MOVIES)
    else:
        movies = read_columns(path, MOVIES_CSV, header=True, content=as_utf8(path)).rename_columns(list(MOVIES))
    genres = pc.fill_null(movies["genres"], "")
    none = pa.scalar([], pa.list_(pa.string()))
    return _items(movies, pc.if_else(pc.is_in(genres, pa.array(NO_GENRES)), none, pc.split_pattern(genres, "|")))


def _double_colons(path: Path, types: dict[str, pa.DataType]) -> pa.Table:
    """A file of columns separated by ``::``."""
    return read_columns(path, types, "\t", content=as_utf8(path).replace(b"::", b"\t"))


def _items(movies: pa.Table, genres: pa.Array | pa.ChunkedArray) -> pa.Table:
    year = pc.struct_field(pc.extract_regex(movies["title"], YEAR), "year").cast(pa.int64())
    return pa.table({"item": movies["item"], "title": movies["title"], "year": year, "genres": genres})


def _lists_of_flags(flags: np.ndarray, names: pa.ChunkedArray) -> pa.Array:
    """For each row, the names of the columns with a nonzero flag."""
    offsets = np.append(0, np.cumsum(np.count_nonzero(flags, axis=1))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), names.take(pa.array(np.nonzero(flags)[1])).combine_chunks())
