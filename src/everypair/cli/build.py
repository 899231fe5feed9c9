"""From options to what the package takes: data, recommenders, splits."""

from __future__ import annotations

import inspect
from typing import Any

import click

from everypair.cli.options import PROTOCOLS, section_of
from everypair.cli.shell import note
from everypair.data import Dataset
from everypair.evaluation import ColdStart, Cutoff, LeaveLast, RandomPerUser, Split, given
from everypair.evaluation.splits import Splitter
from everypair.recommender import Recommender

SPLITTERS: dict[str, type[Splitter]] = dict(zip(PROTOCOLS, (LeaveLast, Cutoff, ColdStart, RandomPerUser), strict=True))
ARGUMENTS = {"test_share": "test", "tune_share": "tune", "sample": "sample", "seed": "seed"}
FILES = ("train", "test", "tune")


def dataset(ctx: click.Context) -> Dataset:
    """The tables that were given."""
    options = section_of(ctx, "data")
    if "interactions" not in options:
        raise click.UsageError(
            f"Give the table of interactions, as in 'everypair {ctx.info_name} plays.csv', or 'interactions' in [data]."
        )
    made = Dataset(**options)
    for text in made.notes:
        note(text)
    return made


def recommender(ctx: click.Context) -> Recommender:
    """The model and its recipes, not fitted."""
    from everypair.recommend.recipe_syntax import MODELS

    options = section_of(ctx, "model")
    name = options.pop("name", "fm")
    has = inspect.signature(MODELS[name]).parameters
    for key in options:
        if key not in has:
            known = ", ".join(f"--{own.replace('_', '-')}" for own in has) or "none"
            raise click.UsageError(f"{name} has no option --{key.replace('_', '-')}; it has {known}.")
    told: dict[str, Any] = section_of(ctx, "recommender")
    return Recommender(MODELS[name](**options), **told)


def splitter(ctx: click.Context, protocol: str | None = None) -> Splitter:
    """The protocol that was asked for, with the options that it takes."""
    options = {key: value for key, value in section_of(ctx, "split").items() if key not in FILES}
    name = protocol or options.get("protocol", PROTOCOLS[0])
    options.pop("protocol", None)
    takes = inspect.signature(SPLITTERS[name]).parameters
    for key in options:
        if ARGUMENTS[key] not in takes:
            option = "--split-seed" if key == "seed" else f"--{key.replace('_', '-')}"
            raise click.UsageError(f"{name} takes no {option}.")
    return SPLITTERS[name](**{ARGUMENTS[key]: value for key, value in options.items()})


def split(ctx: click.Context) -> Split:
    """Train, tune and test: of a protocol, or as someone else made them."""
    options = section_of(ctx, "split")
    if not options.keys() & set(FILES):
        made = splitter(ctx).split(dataset(ctx))
    else:
        if "train" not in options or "test" not in options:
            raise click.UsageError("A published split is given by --train and --test together.")
        data = section_of(ctx, "data")
        others = options.keys() - {*FILES, "tune_share", "seed"}
        if others or "interactions" in data:
            raise click.UsageError(
                f"--train and --test take the place of {'PLAYS' if 'interactions' in data else '--' + min(others)}."
            )
        made = given(**options, **data)
    for text in made.notes:
        note(text)
    return made
