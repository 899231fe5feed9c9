"""Specifications of the data sets: protocol, metrics, the models tried on each, and published figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.quality import tasks
from benchmarks.quality.tasks import TAGGED, EvaluationTask

Space = dict[str, tuple[float, float]]

# Search spaces (see everypair.tuning.search).
PAIRS: Space = {"all_pairs": (1.0, 100.0), "shrinkage": (0.02, 0.5), "popularity_exponent": (0.05, 0.8)}
EVENTS: Space = {"all_pairs": (2.0, 100.0), "shrinkage": (0.01, 0.3), "popularity_exponent": (0.1, 0.9), "fade": (0.03, 0.4)}
TRIPLES: Space = {"all_pairs": (1.0, 100.0), "shrinkage": (0.0005, 0.1), "popularity_exponent": (0.05, 0.8)}
ALL_TRIPLES: Space = {"unobserved_weight": (3e-8, 3e-5), "regularization": (0.0003, 0.3)}
# Tucker: its core is part of every score, so L2 proportional to the weight would dominate the loss.
PLAIN: Space = {"regularization": (0.001, 1.0)}
FEW_TRIALS = 6  # of small search spaces, and of models whose epochs are expensive
STRUCTURE = ("model", "context", "item")


class ModelSpec(NamedTuple):
    """A model with fixed settings and a search space (empty for baselines, which have no settings)."""

    name: str
    settings: dict[str, Any]
    space: Space
    untuned: bool = True  # whether it is fitted with default settings, too
    trials: int | None = None  # None: as many as the data set specifies

    @property
    def structure(self) -> dict[str, Any]:
        """The settings of a user who tunes nothing: model and recipes."""
        return {name: self.settings[name] for name in STRUCTURE if name in self.settings}


class Variant(NamedTuple):
    """The first model of a data set with other settings: ``times`` multiplies tuned values, ``space`` is tuned again.

    The names of the fields are stored with the results.
    """

    changes: dict[str, Any]
    times: dict[str, float] = {}
    space: Space = {}


class DatasetSpec(NamedTuple):
    """A data set: its files, protocol, metrics, models, and published figures (in the order of the metrics).

    ``variants`` of the first model, after its tuning, show what each ingredient contributes. ``targets``: figures to reach.
    """

    name: str
    read: Callable[[Path, int], EvaluationTask]
    files: tuple[str, ...]
    protocol: str
    metrics: tuple[str, ...]
    tuned_metric: str
    published: dict[str, tuple[float | None, ...]]
    models: tuple[ModelSpec, ...]
    targets: dict[str, float] = {}
    variants: dict[str, Variant] = {}
    trials: int = 14
    epochs: int = 16


# Models


def mf(factors: int) -> ModelSpec:
    """MF of users and items."""
    return ModelSpec(f"MF, k = {factors}", {"model": "MF", "context": ["user"], "factors": factors}, PAIRS)


def with_one_weight(model: ModelSpec) -> ModelSpec:
    """The same model with the same weight for all unobserved pairs, and fewer trials: there is less to tune."""
    space = {name: bounds for name, bounds in model.space.items() if name != "popularity_exponent"}
    settings = {**model.settings, "popularity_exponent": 0.0}
    return ModelSpec(f"{model.name}, one weight", settings, space, untuned=False, trials=FEW_TRIALS)


def mfsi(factors: int, *context: str, item: tuple[str, ...] = ("item",)) -> ModelSpec:
    """Linear in user, previous items and history; items by their id, or with attributes."""
    settings = {"model": "MFSI", "context": list(context), "item": list(item), "factors": factors}
    return ModelSpec(f"{' + '.join([*context, *item[1:]])}, k = {factors}", settings, EVENTS)


def fm(factors: int, context: str, *item: str) -> ModelSpec:
    """A factorization machine of user, item and these attributes of both."""
    items = ["item", *(_categorical(name) for name in item)]
    settings = {"model": "FM", "context": ["user", _categorical(context)], "item": items, "factors": factors}
    return ModelSpec(f"FM, k = {factors}", settings, PAIRS)


def tagging(name: str, model: str, space: Space, **settings: Any) -> ModelSpec:
    """A model of users, movies and tags; tensor models, whose epochs are expensive, have fewer trials."""
    fixed = {"model": model, "context": ["user", _categorical(TAGGED)], **settings}
    return ModelSpec(name, fixed, space, untuned=model == "FM", trials=FEW_TRIALS if model in ("PARAFAC", "Tucker") else None)


def baseline(name: str, model: str, context: str) -> ModelSpec:
    """A model without settings."""
    return ModelSpec(name, {"model": model, "context": [context]}, {}, untuned=False)


def _categorical(columns: str) -> str:
    return f"attributes:{columns},kind=category"


# Variants; their names are stored with the results

ONE_WEIGHT = Variant({"popularity_exponent": 0.0}, space={name: PAIRS[name] for name in ("all_pairs", "shrinkage")})
PLAIN_L2 = Variant({"regularization_exponent": 0.0}, space={"regularization": (0.1, 100.0)})
UNOBSERVED_AND_L2 = {
    "all unobserved pairs weigh the same (tuned anew)": ONE_WEIGHT,
    "unobserved pairs weigh ten times as much": Variant({}, times={"unobserved_weight": 10.0}),
    "unobserved pairs weigh a tenth": Variant({}, times={"unobserved_weight": 0.1}),
    "plain L2 (tuned anew)": PLAIN_L2,
}


def with_factors(*factors: int) -> dict[str, Variant]:
    return {f"k = {k}": Variant({"factors": k}) for k in factors}


def ingredients(model: ModelSpec) -> dict[str, Variant]:
    """The model without each of its recipes, with further ones, and with other weights, L2 and factors."""
    context, item = model.settings["context"], model.settings["item"]
    found = {f"without {name}": Variant({"context": [other for other in context if other != name]}) for name in context}
    if "user" not in context:
        found["with user"] = Variant({"context": ["user", *context]})
    if len(item) > 1:
        found["without attributes of items"] = Variant({"item": ["item"]})
    return {
        **found,
        "history without decay": Variant({"fade": 0.0}),
        "with the item before the previous one": Variant({"context": [*context, "previous:back=2"]}),
        **UNOBSERVED_AND_L2,
        **with_factors(64, 128, 512),
    }


# Data sets

LAST_EVENT = (
    "The test is each user's last event; all items that the user does not have are ranked. Tuning uses the event before it, "
    "which is in the history of the test but never trained on. One item is relevant, so the hit rate equals the recall."
)
TEST_PAIRS = "Published split: the items of each user's test pairs among all that are not in the training part."
HITS = ("hit_rate@5", "hit_rate@10", "hit_rate@20", "ndcg@5", "ndcg@10", "ndcg@20")
TO_TEN = ("ndcg@5", "hit_rate@5", "ndcg@10", "hit_rate@10")
MOVIES = mfsi(256, "user", "previous", "history")
PRODUCTS = mfsi(256, "previous", "history", item=("item", "attributes"))
GOODS = mfsi(128, "previous", "history", item=("item", "attributes"))
SMALL_MF, POPULARITY = mf(64), baseline("Popularity", "Popularity", "user")
EVENTS_FILE, SPLIT_FILES = ("interactions",), ("train", "test")

DATASETS = [
    DatasetSpec(
        name="movielens-1m",
        read=tasks.sequences,
        files=EVENTS_FILE,
        protocol=LAST_EVENT,
        metrics=TO_TEN,
        tuned_metric="ndcg@10",
        published={"BERT4Rec (asash/bert4rec_repro)": (None, None, 0.1516, 0.2821)},
        models=(MOVIES, SMALL_MF),
        targets={"ndcg@10": 0.1516, "hit_rate@10": 0.2821},
        variants=ingredients(MOVIES),
    ),
    DatasetSpec(
        name="s3rec-beauty",
        read=tasks.sequences,
        files=(*EVENTS_FILE, "items"),
        protocol=LAST_EVENT,
        metrics=TO_TEN,
        tuned_metric="ndcg@10",
        published={
            "SASRec (TIGER, Table 1)": (0.0249, 0.0387, 0.0318, 0.0605),
            "TIGER (Table 1)": (0.0321, 0.0454, 0.0384, 0.0648),
        },
        models=(PRODUCTS, SMALL_MF),
        targets={"ndcg@10": 0.0440, "hit_rate@10": 0.0754},
        variants=ingredients(PRODUCTS),
    ),
    DatasetSpec(
        name="s3rec-sports",
        read=tasks.sequences,
        files=(*EVENTS_FILE, "items"),
        protocol=LAST_EVENT,
        metrics=TO_TEN,
        tuned_metric="ndcg@10",
        published={},
        models=(GOODS, SMALL_MF),
        targets={"ndcg@10": 0.0251, "hit_rate@10": 0.0455},
        variants={
            name: variant for name, variant in ingredients(GOODS).items() if name.startswith(("without", "history", "k = 64"))
        },
        trials=10,
    ),
    DatasetSpec(
        name="lightgcn-gowalla",
        read=tasks.pairs,
        files=SPLIT_FILES,
        protocol=TEST_PAIRS,
        metrics=("recall@20", "ndcg@20"),
        tuned_metric="ndcg@20",
        published={
            "MF-BPR (BARS)": (0.1627, 0.1378),
            "EASE (BARS)": (0.1765, 0.1467),
            "LightGCN (BARS)": (0.1820, 0.1547),
            "UltraGCN (BARS)": (0.1862, 0.1580),
            "SimpleX (BARS)": (0.1872, 0.1557),
        },
        models=(mf(512), with_one_weight(mf(1024))),
        targets={"recall@20": 0.1765, "ndcg@20": 0.1467},
        variants={**UNOBSERVED_AND_L2, **with_factors(64, 128, 256)},
    ),
    DatasetSpec(
        name="lcfn-movielens-1m",
        read=tasks.pairs,
        files=SPLIT_FILES,
        protocol=TEST_PAIRS,
        metrics=("f1@5", "f1@10", "f1@20", "ndcg@5", "ndcg@10", "ndcg@20"),
        tuned_metric="ndcg@20",
        published={
            "ENMF (its readme)": (0.1239, 0.1512, 0.1640, 0.2457, 0.2475, 0.2656),
            "LCFN (ENMF's readme)": (0.1213, 0.1482, 0.1625, 0.2427, 0.2429, 0.2603),
        },
        models=(mf(128),),
        targets={"ndcg@20": 0.2656},
        variants={**UNOBSERVED_AND_L2, **with_factors(64, 256)},
    ),
    DatasetSpec(
        name="ncf-movielens-1m",
        read=tasks.pairs_with_negatives,
        files=(*SPLIT_FILES, "test_negatives"),
        protocol="Published split: each user's last item against the 99 published negatives. Tuning uses one held-out item of each "
        "user against 99 random ones.",
        metrics=("hit_rate@10", "ndcg@10"),
        tuned_metric="ndcg@10",
        published={"iALS d=64 (Rendle et al. 2021)": (0.722, 0.445), "iALS d=192 (irspack)": (0.7310, 0.4521)},
        models=(mf(192),),
        targets={"hit_rate@10": 0.722, "ndcg@10": 0.445},
        variants={**UNOBSERVED_AND_L2, **with_factors(64, 128)},
    ),
    DatasetSpec(
        name="frappe-cfm",
        read=tasks.contexts,
        files=SPLIT_FILES,
        protocol="Published split of events with attributes: each event of the test is a query, and all items are ranked, since "
        "users return to items. Tuning uses a twentieth of the training events.",
        metrics=HITS,
        tuned_metric="ndcg@10",
        published={},
        models=(fm(64, "daytime,weekday,isweekend,homework,weather,country,city", "cost"), SMALL_MF, POPULARITY),
    ),
    DatasetSpec(
        name="ensfm-movielens-1m",
        read=tasks.contexts,
        files=SPLIT_FILES,
        protocol="Published split: each user's last item among all that are not in the training part. Tuning uses the last event "
        "of the training part.",
        metrics=HITS,
        tuned_metric="ndcg@10",
        published={},
        models=(fm(64, "gender,age,occupation", "genre"), SMALL_MF, POPULARITY),
    ),
    DatasetSpec(
        name="movielens-10m-tags",
        read=tasks.acts,
        files=("tags",),
        protocol="Tags for a user and a movie: whole acts of tagging (all tags of a user for a movie) are held out, a tenth at "
        "random, and all tags are ranked. An unobserved pair is a tag that was not given in an act; with all combinations, it is "
        "any unobserved triple of user, movie and tag.",
        metrics=("recall@5", "ndcg@5", "recall@10", "ndcg@10"),
        tuned_metric="ndcg@10",
        published={},
        models=(
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
            baseline("most popular tags of the film", "CoView", _categorical(TAGGED)),
            baseline("most popular tags", "Popularity", "user"),
        ),
    ),
]


def choose(data: Path, names: Sequence[str]) -> list[DatasetSpec]:
    """The data sets of these names, or all that the folder has."""
    known = {spec.name: spec for spec in DATASETS}
    for name in names:
        if name not in known:
            raise ValueError(f"there is no data set {name!r} (--rows); choose from {', '.join(known)}.")
        if missing := missing_files(data, known[name]):
            raise FileNotFoundError(f"{data} has no {' and no '.join(missing)}, which {name} needs.")
    available = [spec for spec in DATASETS if not missing_files(data, spec)]
    if not available:
        files = "; ".join(f"{spec.name}/ with {', '.join(f'{file}.parquet' for file in spec.files)}" for spec in DATASETS)
        raise FileNotFoundError(f"{data} has none of the data sets: {files}.")
    return [spec for spec in available if not names or spec.name in names]


def missing_files(data: Path, spec: DatasetSpec) -> list[str]:
    """The files of a data set that the folder lacks."""
    paths = (Path(spec.name) / f"{file}.parquet" for file in spec.files)
    return [str(path) for path in paths if not (data / path).exists()]
