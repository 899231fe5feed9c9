"""The data sets, what is tried on each, and figures that others printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from everypair.experiments.quality import problems
from everypair.experiments.quality.problems import Problem

# Ranges in which settings are looked for (see everypair.evaluation.search).
PAIRS = {"unobserved_weight": (0.002, 1.0), "shrinkage": (0.01, 0.5)}
CONTEXTS = {"unobserved_weight": (0.0005, 0.5), "shrinkage": (0.005, 0.3)}
EVENTS = {"unobserved_weight": (0.0001, 0.05), "shrinkage": (0.01, 0.2), "fade": (0.01, 0.4)}


class Contender(NamedTuple):
    """A model with what it is told, and what of it is tuned (nothing: it has no settings)."""

    name: str
    settings: dict[str, Any]
    space: dict[str, tuple[float, float]]
    untuned: bool = True  # whether to fit it with default settings, too


class Row(NamedTuple):
    """A data set with its protocol, metrics, contenders (the first is ours), and figures that others printed.

    ``variants`` change settings of the first contender after it was tuned: what each ingredient brings. ``aims``: figures to reach.
    """

    name: str
    read: Callable[[Path, int], Problem]
    metrics: tuple[str, ...]
    tuned: str
    published: dict[str, tuple[float | None, ...]]
    contenders: tuple[Contender, ...]
    aims: dict[str, float] = {}
    variants: dict[str, dict[str, Any]] = {}
    trials: int = 12
    epochs: int = 16


def matrix(factors: int) -> Contender:
    """MF of users and items."""
    return Contender(f"MF, k = {factors}", {"model": "MF", "context": ["user"], "factors": factors}, PAIRS)


def sequence(factors: int, *context: str, item: tuple[str, ...] = ("item",)) -> Contender:
    """Linear in user, items before and history; items by their id, or with attributes."""
    told = {"model": "MFSI", "context": list(context), "item": list(item), "factors": factors}
    return Contender(f"{'+'.join(context)}, k = {factors}", told, EVENTS)


def machine(factors: int, context: str, item: str) -> Contender:
    """A factorization machine of user, item and these attributes of both."""
    told = {"context": ["user", f"attributes:{context},kind=category"], "item": ["item", f"attributes:{item},kind=category"]}
    return Contender(f"FM, k = {factors}", {"model": "FM", **told, "factors": factors}, CONTEXTS)


POPULARITY = Contender("Popularity", {"model": "Popularity", "context": ["user"]}, {}, untuned=False)


def plain(contender: Contender) -> Contender:
    """With the same L2 for every feature, however often it occurs."""
    space = {**contender.space, "regularization": (0.1, 30.0)}
    del space["shrinkage"]
    return Contender(f"{contender.name}, plain L2", {**contender.settings, "regularization_exponent": 0.0}, space, untuned=False)


def leaving_out(contender: Contender, smaller: int, larger: int) -> dict[str, dict[str, Any]]:
    """What each ingredient brings: the same without it, or with more of it. ``times`` multiplies what was tuned."""
    told, items = contender.settings["context"], contender.settings["item"]
    without = {f"without {name}": {"context": [other for other in told if other != name]} for name in told}
    variants = {
        **without,
        "history without decay": {"fade": 0.0},
        "history of the last 20": {"last": 20},
        "previous of order 2": {"context": [*told, "previous:back=2"]},
        "weight of unobserved pairs times 10": {"times": {"unobserved_weight": 10.0}},
        "weight of unobserved pairs over 10": {"times": {"unobserved_weight": 0.1}},
        f"k = {smaller}": {"factors": smaller},
        f"k = {larger}": {"factors": larger},
    }
    if "user" not in told:
        variants["with user"] = {"context": ["user", *told]}
    if len(items) > 1:
        variants["without attributes of items"] = {"item": ["item"]}
    return variants


THREE = ("hit_rate@5", "hit_rate@10", "hit_rate@20", "ndcg@5", "ndcg@10", "ndcg@20")
APPS = machine(64, "daytime,weekday,isweekend,homework,weather,country,city", "cost")
LENGTHS = ("ndcg@5", "hit_rate@5", "ndcg@10", "hit_rate@10")
MOVIES = sequence(256, "user", "previous", "history")
BEAUTY = sequence(256, "previous", "history", item=("item", "attributes"))

ROWS = [
    Row(
        "movielens-1m",
        problems.sequences,
        LENGTHS,
        "ndcg@10",
        {"BERT4Rec (asash/bert4rec_repro)": (None, None, 0.1516, 0.2821)},
        (MOVIES, plain(MOVIES), matrix(64)),
        {"ndcg@10": 0.1516, "hit_rate@10": 0.2821},
        leaving_out(MOVIES, 64, 512),
    ),
    Row(
        "s3rec-beauty",
        problems.sequences,
        LENGTHS,
        "ndcg@10",
        {
            "SASRec (TIGER, Table 1)": (0.0249, 0.0387, 0.0318, 0.0605),
            "TIGER (Table 1)": (0.0321, 0.0454, 0.0384, 0.0648),
        },
        (BEAUTY,),
        {"ndcg@10": 0.0440, "hit_rate@10": 0.0754},
        leaving_out(BEAUTY, 64, 512),
    ),
    Row(
        "s3rec-sports",
        problems.sequences,
        LENGTHS,
        "ndcg@10",
        {},
        (BEAUTY,),
        {"ndcg@10": 0.0251, "hit_rate@10": 0.0455},
        leaving_out(BEAUTY, 64, 512),
    ),
    Row(
        "lcfn-movielens-1m",
        problems.pairs,
        ("f1@5", "f1@10", "f1@20", "ndcg@5", "ndcg@10", "ndcg@20"),
        "ndcg@20",
        {
            "ENMF (its readme)": (0.1239, 0.1512, 0.1640, 0.2457, 0.2475, 0.2656),
            "LCFN (ENMF's readme)": (0.1213, 0.1482, 0.1625, 0.2427, 0.2429, 0.2603),
        },
        (matrix(128),),
        {"ndcg@20": 0.2656},
    ),
    Row(
        "lightgcn-gowalla",
        problems.pairs,
        ("recall@20", "ndcg@20"),
        "ndcg@20",
        {
            "MF-BPR (BARS)": (0.1627, 0.1378),
            "EASE (BARS)": (0.1765, 0.1467),
            "LightGCN (BARS)": (0.1820, 0.1547),
            "UltraGCN (BARS)": (0.1862, 0.1580),
            "SimpleX (BARS)": (0.1872, 0.1557),
        },
        (matrix(512),),
        {"recall@20": 0.1765, "ndcg@20": 0.1467},
    ),
    Row(
        "ncf-movielens-1m",
        problems.pairs_with_negatives,
        ("hit_rate@10", "ndcg@10"),
        "ndcg@10",
        {"iALS d=64 (Rendle et al. 2021)": (0.722, 0.445), "iALS d=192 (irspack)": (0.7310, 0.4521)},
        (matrix(192),),
        {"hit_rate@10": 0.722, "ndcg@10": 0.445},
    ),
    Row("frappe-cfm", problems.contexts, THREE, "ndcg@10", {}, (APPS, matrix(64)._replace(space=CONTEXTS), POPULARITY)),
    Row(
        "ensfm-movielens-1m",
        problems.contexts,
        THREE,
        "ndcg@10",
        {},
        (machine(64, "gender,age,occupation", "genre"), matrix(64)._replace(space=CONTEXTS), POPULARITY),
    ),
]


def choose(data: Path, names: Sequence[str]) -> list[Row]:
    """The rows of these names, or all whose data are there."""
    known = {row.name: row for row in ROWS}
    for name in names:
        if name not in known:
            raise ValueError(f"there is no row {name!r}; there are {', '.join(known)}.")
    there = [row for row in ROWS if any((data / row.name / f"{file}.parquet").exists() for file in ("train", "interactions"))]
    missing = [name for name in names if known[name] not in there]
    if missing or not there:
        raise FileNotFoundError(
            f"{data} has no folder {', '.join(missing or known)} with interactions.parquet, or train.parquet and test.parquet."
        )
    return [row for row in there if not names or row.name in names]
