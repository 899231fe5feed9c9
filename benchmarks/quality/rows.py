"""The data sets, what is tried on each, and figures that others printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.quality import problems
from benchmarks.quality.problems import TAGGED, Problem

Space = dict[str, tuple[float, float]]

# Ranges in which settings are looked for (see everypair.tuning.search).
PAIRS: Space = {"all_pairs": (1.0, 100.0), "shrinkage": (0.02, 0.5), "popularity_exponent": (0.05, 0.8)}
EVENTS: Space = {"all_pairs": (2.0, 100.0), "shrinkage": (0.01, 0.3), "popularity_exponent": (0.1, 0.9), "fade": (0.03, 0.4)}
TRIPLES: Space = {"all_pairs": (1.0, 100.0), "shrinkage": (0.0005, 0.1), "popularity_exponent": (0.05, 0.8)}
ALL_TRIPLES: Space = {"unobserved_weight": (3e-8, 3e-5), "regularization": (0.0003, 0.3)}
PLAIN: Space = {"regularization": (0.001, 1.0)}  # the core of Tucker takes part in every score: L2 that grows would be all there is
FEWER = 6  # trials, where one thing alone is looked for
STRUCTURE = ("model", "context", "item")


class Contender(NamedTuple):
    """A model with what it is told, and what of it is tuned (nothing: it has no settings)."""

    name: str
    settings: dict[str, Any]
    space: Space
    untuned: bool = True  # whether to fit it with default settings, too
    trials: int | None = None  # None: as many as the row has

    @property
    def structure(self) -> dict[str, Any]:
        """What a user who tunes nothing says."""
        return {name: self.settings[name] for name in STRUCTURE if name in self.settings}


class Variant(NamedTuple):
    """The first contender with other settings: ``times`` multiplies what was tuned, ``space`` is what is tuned anew."""

    changes: dict[str, Any]
    times: dict[str, float] = {}
    space: Space = {}


class Row(NamedTuple):
    """A data set with its protocol, metrics, contenders (the first is ours), and figures that others printed.

    ``variants`` of the first contender, after it was tuned, tell what each ingredient brings. ``aims``: figures to reach.
    """

    name: str
    read: Callable[[Path, int], Problem]
    files: tuple[str, ...]
    protocol: str
    metrics: tuple[str, ...]
    tuned: str
    published: dict[str, tuple[float | None, ...]]
    contenders: tuple[Contender, ...]
    aims: dict[str, float] = {}
    variants: dict[str, Variant] = {}
    trials: int = 14
    epochs: int = 16


# contenders


def matrix(factors: int) -> Contender:
    """MF of users and items."""
    return Contender(f"MF, k = {factors}", {"model": "MF", "context": ["user"], "factors": factors}, PAIRS)


def uniform(contender: Contender) -> Contender:
    """The same, with all unobserved pairs of one weight, and fewer trials: it has less to tune."""
    space = {name: bounds for name, bounds in contender.space.items() if name != "popularity_exponent"}
    settings = {**contender.settings, "popularity_exponent": 0.0}
    return Contender(f"{contender.name}, one weight", settings, space, untuned=False, trials=FEWER)


def sequence(factors: int, *context: str, item: tuple[str, ...] = ("item",)) -> Contender:
    """Linear in user, items before and history; items by their id, or with attributes."""
    told = {"model": "MFSI", "context": list(context), "item": list(item), "factors": factors}
    return Contender(f"{' + '.join([*context, *item[1:]])}, k = {factors}", told, EVENTS)


def machine(factors: int, context: str, *item: str) -> Contender:
    """A factorization machine of user, item and these attributes of both."""
    described = ["item", *(f"attributes:{name},kind=category" for name in item)]
    told = {"model": "FM", "context": ["user", _levels(context)], "item": described, "factors": factors}
    return Contender(f"FM, k = {factors}", told, PAIRS)


def tagging(name: str, model: str, space: Space, **settings: Any) -> Contender:
    """A model of users, what they tag, and tags; tensors, whose steps cost more, have fewer trials."""
    told = {"model": model, "context": ["user", _levels(TAGGED)], **settings}
    return Contender(name, told, space, untuned=model == "FM", trials=FEWER if model in ("PARAFAC", "Tucker") else None)


def counted(name: str, model: str, context: str) -> Contender:
    """A baseline without settings."""
    return Contender(name, {"model": model, "context": [context]}, {}, untuned=False)


def _levels(columns: str) -> str:
    return f"attributes:{columns},kind=category"


# what each ingredient brings

UNIFORM = Variant({"popularity_exponent": 0.0}, space={name: PAIRS[name] for name in ("all_pairs", "shrinkage")})
PLAIN_L2 = Variant({"regularization_exponent": 0.0}, space={"regularization": (0.1, 100.0)})
NEGATIVES = {
    "all unobserved pairs weigh the same (tuned anew)": UNIFORM,
    "unobserved pairs weigh ten times as much": Variant({}, times={"unobserved_weight": 10.0}),
    "unobserved pairs weigh a tenth": Variant({}, times={"unobserved_weight": 0.1}),
    "plain L2 (tuned anew)": PLAIN_L2,
}


def sizes(*factors: int) -> dict[str, Variant]:
    return {f"k = {k}": Variant({"factors": k}) for k in factors}


def ingredients(contender: Contender) -> dict[str, Variant]:
    """The same without each of them, or with more of it."""
    told, items = contender.settings["context"], contender.settings["item"]
    found = {f"without {name}": Variant({"context": [other for other in told if other != name]}) for name in told}
    if "user" not in told:
        found["with user"] = Variant({"context": ["user", *told]})
    if len(items) > 1:
        found["without attributes of items"] = Variant({"item": ["item"]})
    return {
        **found,
        "history without decay": Variant({"fade": 0.0}),
        "with the item before the previous one": Variant({"context": [*told, "previous:back=2"]}),
        **NEGATIVES,
        **sizes(64, 128, 512),
    }


# the data sets

LAST_OUT = (
    "Each user's last event is the test, and all items that the user does not have are ranked. The event before it is tuned on, "
    "never trained on, and part of the history that is known at the test. One item is relevant: the hit rate is the recall."
)
PAIRS_OUT = "Published split: the items of each user's test pairs among all that are not in the training part."
HITS = ("hit_rate@5", "hit_rate@10", "hit_rate@20", "ndcg@5", "ndcg@10", "ndcg@20")
TO_TEN = ("ndcg@5", "hit_rate@5", "ndcg@10", "hit_rate@10")
MOVIES = sequence(256, "user", "previous", "history")
PRODUCTS = sequence(256, "previous", "history", item=("item", "attributes"))
GOODS = sequence(128, "previous", "history", item=("item", "attributes"))
SMALL_MATRIX, POPULARITY = matrix(64), counted("Popularity", "Popularity", "user")
EVENTS_FILE, SPLIT_FILES = ("interactions",), ("train", "test")

ROWS = [
    Row(
        "movielens-1m",
        problems.sequences,
        EVENTS_FILE,
        LAST_OUT,
        TO_TEN,
        "ndcg@10",
        {"BERT4Rec (asash/bert4rec_repro)": (None, None, 0.1516, 0.2821)},
        (MOVIES, SMALL_MATRIX),
        {"ndcg@10": 0.1516, "hit_rate@10": 0.2821},
        ingredients(MOVIES),
    ),
    Row(
        "s3rec-beauty",
        problems.sequences,
        (*EVENTS_FILE, "items"),
        LAST_OUT,
        TO_TEN,
        "ndcg@10",
        {
            "SASRec (TIGER, Table 1)": (0.0249, 0.0387, 0.0318, 0.0605),
            "TIGER (Table 1)": (0.0321, 0.0454, 0.0384, 0.0648),
        },
        (PRODUCTS, SMALL_MATRIX),
        {"ndcg@10": 0.0440, "hit_rate@10": 0.0754},
        ingredients(PRODUCTS),
    ),
    Row(
        "s3rec-sports",
        problems.sequences,
        (*EVENTS_FILE, "items"),
        LAST_OUT,
        TO_TEN,
        "ndcg@10",
        {},
        (GOODS, SMALL_MATRIX),
        {"ndcg@10": 0.0251, "hit_rate@10": 0.0455},
        {name: variant for name, variant in ingredients(GOODS).items() if name.startswith(("without", "history", "k = 64"))},
        trials=10,
    ),
    Row(
        "lightgcn-gowalla",
        problems.pairs,
        SPLIT_FILES,
        PAIRS_OUT,
        ("recall@20", "ndcg@20"),
        "ndcg@20",
        {
            "MF-BPR (BARS)": (0.1627, 0.1378),
            "EASE (BARS)": (0.1765, 0.1467),
            "LightGCN (BARS)": (0.1820, 0.1547),
            "UltraGCN (BARS)": (0.1862, 0.1580),
            "SimpleX (BARS)": (0.1872, 0.1557),
        },
        (matrix(512), uniform(matrix(1024))),
        {"recall@20": 0.1765, "ndcg@20": 0.1467},
        {**NEGATIVES, **sizes(64, 128, 256)},
    ),
    Row(
        "lcfn-movielens-1m",
        problems.pairs,
        SPLIT_FILES,
        PAIRS_OUT,
        ("f1@5", "f1@10", "f1@20", "ndcg@5", "ndcg@10", "ndcg@20"),
        "ndcg@20",
        {
            "ENMF (its readme)": (0.1239, 0.1512, 0.1640, 0.2457, 0.2475, 0.2656),
            "LCFN (ENMF's readme)": (0.1213, 0.1482, 0.1625, 0.2427, 0.2429, 0.2603),
        },
        (matrix(128),),
        {"ndcg@20": 0.2656},
        {**NEGATIVES, **sizes(64, 256)},
    ),
    Row(
        "ncf-movielens-1m",
        problems.pairs_with_negatives,
        (*SPLIT_FILES, "test_negatives"),
        "Published split: each user's last item against the 99 published negatives. One held-out item of each user against 99 "
        "random ones is tuned on.",
        ("hit_rate@10", "ndcg@10"),
        "ndcg@10",
        {"iALS d=64 (Rendle et al. 2021)": (0.722, 0.445), "iALS d=192 (irspack)": (0.7310, 0.4521)},
        (matrix(192),),
        {"hit_rate@10": 0.722, "ndcg@10": 0.445},
        {**NEGATIVES, **sizes(64, 128)},
    ),
    Row(
        "frappe-cfm",
        problems.contexts,
        SPLIT_FILES,
        "Published split of events with their contexts: each event of the test is a query, and all items are ranked, since users "
        "come back to what they have. A twentieth of the training events is tuned on.",
        HITS,
        "ndcg@10",
        {},
        (machine(64, "daytime,weekday,isweekend,homework,weather,country,city", "cost"), SMALL_MATRIX, POPULARITY),
    ),
    Row(
        "ensfm-movielens-1m",
        problems.contexts,
        SPLIT_FILES,
        "Published split: each user's last item among all that are not in the training part. The last one of the training part is "
        "tuned on.",
        HITS,
        "ndcg@10",
        {},
        (machine(64, "gender,age,occupation", "genre"), SMALL_MATRIX, POPULARITY),
    ),
    Row(
        "movielens-10m-tags",
        problems.acts,
        ("tags",),
        "Tags for a user and a film: whole acts of tagging, all tags of a user for a film, are held out (a tenth, drawn at "
        "random), and all tags are ranked. An unobserved pair is a tag that was not given in an act, or, with all combinations, "
        "any triple of user, film and tag that is not there.",
        ("recall@5", "ndcg@5", "recall@10", "ndcg@10"),
        "ndcg@10",
        {},
        (
            tagging("FM, k = 64", "FM", PAIRS, factors=64),
            tagging("PITF, k = 64", "PITF", PAIRS, factors=64),
            tagging("PARAFAC, k = 64", "PARAFAC", TRIPLES, factors=64),
            tagging("PARAFAC, k = 64, all combinations", "PARAFAC", ALL_TRIPLES, factors=64, combinations="all"),
            tagging("Tucker, k = 24", "Tucker", {"all_pairs": (1.0, 100.0)} | PLAIN, factors=24, regularization_exponent=0.0),
            tagging(
                "Tucker, k = 24, all combinations",
                "Tucker",
                ALL_TRIPLES | PLAIN,
                factors=24,
                combinations="all",
                regularization_exponent=0.0,
            ),
            counted("most popular tags of the film", "CoView", _levels(TAGGED)),
            counted("most popular tags", "Popularity", "user"),
        ),
    ),
]


def choose(data: Path, names: Sequence[str]) -> list[Row]:
    """The rows of these names, or all whose data are there."""
    known = {row.name: row for row in ROWS}
    for name in names:
        if name not in known:
            raise ValueError(f"there is no row {name!r}; there are {', '.join(known)}.")
    there = [row for row in ROWS if not _absent(data, row)]
    for name in names:
        if absent := _absent(data, known[name]):
            raise FileNotFoundError(f"{data} has no {' and no '.join(absent)}.")
    if not there:
        files = "; ".join(f"{row.name}/ with {', '.join(f'{file}.parquet' for file in row.files)}" for row in ROWS)
        raise FileNotFoundError(f"{data} has none of the data sets: {files}.")
    return [row for row in there if not names or row.name in names]


def left_out(data: Path, chosen: Sequence[Row], names: Sequence[str]) -> dict[str, list[str]]:
    """The rows that nobody named and that cannot be run, with the files that are missing."""
    return {} if names else {row.name: _absent(data, row) for row in ROWS if row not in chosen}


def _absent(data: Path, row: Row) -> list[str]:
    """The files of a row that are not there."""
    paths = (Path(row.name) / f"{file}.parquet" for file in row.files)
    return [str(path) for path in paths if not (data / path).exists()]
