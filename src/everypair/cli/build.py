"""Builds datasets, recommenders and splits from the options of a command."""

from __future__ import annotations

import inspect
from typing import Any

import click

from everypair.cli.options import PROTOCOLS, SPLIT_ARGUMENTS, section_of
from everypair.cli.output import note
from everypair.cluster import Processes, Ray, Shards
from everypair.cluster.processes import Placement
from everypair.data import Dataset
from everypair.evaluation import ColdStart, Cutoff, LeaveLast, RandomPerUser, Split, given
from everypair.evaluation.splits import Splitter
from everypair.recommender import Recommender
from everypair.runtime.wording import named

SPLITTERS: dict[str, type[Splitter]] = dict(zip(PROTOCOLS, (LeaveLast, Cutoff, ColdStart, RandomPerUser), strict=True))
FILES = ("train", "test", "tune")


def dataset(ctx: click.Context) -> Dataset:
    """The dataset of the tables given; prints its notes."""
    options = section_of(ctx, "data")
    if "interactions" not in options:
        raise click.UsageError(
            f"Give the table of interactions, as in 'everypair {ctx.info_name} plays.csv', or 'interactions' in [data]."
        )
    result = Dataset(**options)
    for text in result.notes:
        note(text)
    return result


def shards(ctx: click.Context) -> Shards:
    """The folder of shards given in place of tables."""
    options = section_of(ctx, "data")
    if "interactions" not in options:
        raise click.UsageError(
            f"Give the folder of shards, as in 'everypair {ctx.info_name} shards/', or 'interactions' in [data]."
        )
    others = options.keys() - {"interactions"}
    if others:
        raise click.UsageError(
            f"{named(min(others), 'Dataset')} belongs to 'everypair shard': the folder of shards has its columns."
        )
    return Shards(options["interactions"])


def placement(text: str) -> Placement:
    """Where a fit of shards runs: "processes:4", or "ray"."""
    kind, _, n = text.partition(":")
    if kind == "processes" and n.isdecimal() and int(n):
        return Processes(int(n))
    if kind == "ray" and (not n or (n.isdecimal() and int(n))):
        return Ray(processes=int(n) if n else None)
    raise click.UsageError(f"--on must be processes:N, ray or ray:N, with a number of processes N, got {text!r}.")


def recommender(ctx: click.Context) -> Recommender:
    """A recommender with the model and recipes given, not fitted."""
    from everypair.recommend.recipe_syntax import MODELS

    options = section_of(ctx, "model")
    name = options.pop("name", "fm")
    arguments = inspect.signature(MODELS[name]).parameters
    for key in options:
        if key not in arguments:
            known = ", ".join(map(_option, arguments)) or "none"
            raise click.UsageError(f"{name} has no option {named(key)}; it has {known}.")
    settings: dict[str, Any] = section_of(ctx, "recommender")
    return Recommender(MODELS[name](**options), **settings)


def _option(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def splitter(ctx: click.Context, protocol: str | None = None) -> Splitter:
    """The splitter of a protocol (by default that of --protocol), with the options given."""
    options = {key: value for key, value in section_of(ctx, "split").items() if key not in FILES}
    name = protocol or options.get("protocol", PROTOCOLS[0])
    options.pop("protocol", None)
    arguments = inspect.signature(SPLITTERS[name]).parameters
    for key in options:
        if SPLIT_ARGUMENTS[key] not in arguments:
            raise click.UsageError(f"{name} takes no {named(SPLIT_ARGUMENTS[key], 'Splitter')}: leave it out.")
    return SPLITTERS[name](**{SPLIT_ARGUMENTS[key]: value for key, value in options.items()})


def split(ctx: click.Context) -> Split:
    """A split by a protocol, or the published one of --train and --test; prints its notes."""
    options = section_of(ctx, "split")
    if not options.keys() & set(FILES):
        result = splitter(ctx).split(dataset(ctx))
    else:
        if "train" not in options or "test" not in options:
            raise click.UsageError("A published split needs --train and --test together.")
        data = section_of(ctx, "data")
        others = options.keys() - {*FILES, "tune_share", "seed"}
        if others or "interactions" in data:
            other = min(others, default="interactions")
            replaced = named(SPLIT_ARGUMENTS[other], "Splitter") if other in SPLIT_ARGUMENTS else named(other)
            raise click.UsageError(f"{named('train')} and {named('test')} replace {replaced}: leave it out.")
        result = given(**options, **data)
    for text in result.notes:
        note(text)
    return result
