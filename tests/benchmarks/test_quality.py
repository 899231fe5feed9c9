"""The benchmark of quality: tasks follow their protocols, settings never see the test part, and stored results are not repeated."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import everypair as ep
from benchmarks.__main__ import main
from benchmarks.quality import datasets, plan, report, tasks
from benchmarks.quality.datasets import DatasetSpec, ModelSpec
from benchmarks.quality.recommenders import build
from everypair.evaluation import given as given_split

from remotes import LocalWorker


def write(path: Path, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def split_folder(folder: Path) -> None:
    """Pairs to train on and to test on, and negatives."""
    random = np.random.default_rng(0)
    pairs = np.unique(random.integers(0, [40, 30], (900, 2)), axis=0).astype(np.int32)
    held = random.random(len(pairs)) < 0.2
    for name, part in (("train", pairs[~held]), ("test", pairs[held])):
        write(folder / f"{name}.parquet", user=part[:, 0], item=part[:, 1])
    rank = np.tile(np.arange(5), 40)
    write(folder / "test_negatives.parquet", user=np.repeat(np.arange(40), 5), item=random.integers(0, 30, 200), rank=rank)


def sequence_folder(folder: Path) -> None:
    """Users with an order of events, and items with attributes."""
    random = np.random.default_rng(1)
    items = np.concatenate([random.choice(20, 9, replace=False) for _ in range(30)])
    write(folder / "interactions.parquet", user=np.repeat(np.arange(30), 9), item=items, user_order=np.tile(np.arange(9), 30))
    write(folder / "items.parquet", item=np.arange(20), attributes=[[int(i) % 3, 3 + int(i) % 2] for i in range(20)])


def context_folder(folder: Path, again: bool) -> None:
    """Events with features of their own; ``again``: users come back to items."""
    random = np.random.default_rng(2)
    user, item = np.divmod(random.permutation(20 * 15)[:240], 15)
    if again:
        user[200:], item[200:] = user[:40], item[:40]
    columns = {"user": user, "daytime": random.integers(0, 3, 240), "item": item, "cost": item % 2, "age": user % 3}
    for name, at in (("train", slice(0, 200)), ("test", slice(200, 240))):
        write(folder / f"{name}.parquet", **{key: values[at] for key, values in columns.items()})


def tag_folder(folder: Path) -> None:
    """Tags of users for films."""
    random = np.random.default_rng(3)
    triples = np.unique(random.integers(0, [12, 9, 8], (400, 3)), axis=0)
    write(folder / "tags.parquet", user=triples[:, 0] + 5, item=triples[:, 1] + 100, tag=triples[:, 2], timestamp=triples[:, 0])


def test_known_at_the_test_is_what_was_tuned_on_and_never_trained_on(tmp_path: Path) -> None:
    sequence_folder(tmp_path)
    tuning, final, exclude_seen = tasks.sequences(tmp_path, 0)
    assert tuning is final
    assert exclude_seen
    assert len(final.train) == 30 * 7
    assert np.all(final.test.contexts.end - final.test.contexts.begin == 8)
    assert np.all(final.test.contexts.previous() == final.tune.relevant)


@pytest.mark.parametrize("again", [True, False])
def test_events_with_features_of_their_own(tmp_path: Path, again: bool) -> None:
    context_folder(tmp_path, again)
    tuning, final, exclude_seen = tasks.contexts(tmp_path, 0)
    assert exclude_seen is not again
    assert len(final.train) == 200
    assert len(final.test) == 40
    assert len(tuning.train) + len(tuning.tune) == 200
    assert 0 < len(tuning.tune) < 30
    assert set(final.train.item_table.column_names) == {"cost"}
    assert set(final.train.user_table.column_names) == {"age"}
    assert set(final.train.event_table.column_names) == {"daytime"}
    if exclude_seen:  # all that a user is trained on is known, and not ranked
        for q, user in enumerate(tuning.tune.user):
            past = tuning.tune.contexts.items[tuning.tune.contexts.begin[q] : tuning.tune.contexts.end[q]]
            assert set(past) == set(tuning.train.item[tuning.train.user == user])
    table = pq.read_table(tmp_path / "test.parquet")
    values, index = final.test.contexts.attributes["daytime"]
    asked = sorted(zip(final.test.user.tolist(), values.take(pa.array(index)).to_pylist(), strict=True))
    users = {final.train.users[code]: code for code in range(final.train.n_users)}
    assert asked == sorted(zip((users[u] for u in table["user"].to_pylist()), table["daytime"].to_pylist(), strict=True))


def test_acts_of_tagging_are_held_out_whole(tmp_path: Path) -> None:
    tag_folder(tmp_path)
    tuning, final, exclude_seen = tasks.acts(tmp_path, 0)
    assert not exclude_seen
    table = pq.read_table(tmp_path / "tags.parquet").select(["user", "item", "tag"]).to_pylist()
    there = {(row["user"], row["item"], row["tag"]) for row in table}

    def trained(split: Any) -> set[tuple[int, int, int]]:
        data = split.train
        columns = data.users.take(data.user), data.event_table["movie"], data.items.take(data.item)
        return set(zip(*(column.to_pylist() for column in columns), strict=True))

    def asked(queries: Any, data: ep.Dataset) -> set[tuple[int, int, int]]:
        values, index = queries.contexts.attributes["movie"]
        return {
            (data.users[int(user)], values[int(index[q])].as_py(), data.items[int(tag)])
            for q, user in enumerate(queries.user)
            for tag in queries.relevant[queries.bounds[q] : queries.bounds[q + 1]]
        }

    tune, test = asked(tuning.tune, tuning.train), asked(final.test, final.train)
    assert tune
    assert test
    assert trained(final) | test == there
    assert trained(tuning) | tune == trained(final)
    acts = [{triple[:2] for triple in part} for part in (trained(tuning), tune, test)]
    assert sum(map(len, acts)) == len(set.union(*acts))
    assert asked(tasks.acts(tmp_path, 7).final.test, final.train) == test  # whatever is tuned on


def test_ranked_against_the_given_negatives(tmp_path: Path) -> None:
    """Candidates are the user's negatives and what is relevant, and nothing else."""
    split_folder(tmp_path)
    split = given_split(tmp_path / "train.parquet", tmp_path / "test.parquet", tune_share=0.0)
    table = pq.read_table(tmp_path / "test_negatives.parquet")
    lists = tasks.given_negatives(split.train, split.test, tmp_path / "test_negatives.parquet")
    negatives = {(u, i) for u, i in zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True)}
    for q, user in enumerate(split.test.user):
        own = split.test.relevant[split.test.bounds[q] : split.test.bounds[q + 1]]
        found = {split.train.items[code] for code in lists.items[lists.begin[q] : lists.end[q]]}
        expected = {item for u, item in negatives if u == split.train.users[user]} & {
            split.train.items[c] for c in range(split.train.n_items)
        }
        assert found == expected | {split.train.items[code] for code in own}
    alike = tasks.with_random_negatives(split.train, split.test, 5, 0)
    assert alike.candidates is not None
    assert np.all(np.diff(alike.bounds) == 1)
    for q, user in enumerate(alike.user):
        listed = alike.candidates.items[alike.candidates.begin[q] : alike.candidates.end[q]]
        own = split.train.item[split.train.bounds[user] : split.train.bounds[user + 1]]
        held = split.test.relevant[split.test.bounds[q] : split.test.bounds[q + 1]]
        assert alike.relevant[q] in set(listed) & set(held)
        others = set(listed) - {alike.relevant[q]}
        assert len(others) == min(5, split.train.n_items - len(set(own) | set(held)))
        assert not others & (set(own) | set(held))


def test_settings_make_a_recommender() -> None:
    settings = {"model": "MFSI", "context": ["user", "previous:back=2", "history"], "factors": 3, "last": 7, "fade": 0.25}
    made = build({**settings, "item": ["item", "attributes:cost,kind=category"]})
    assert made.context == [ep.UserId(), ep.Previous(2), ep.History(last=7, decay=0.75)]
    assert made.item == [ep.ItemId(), ep.Attributes("cost", kind="category")]
    assert made.model.get_params()["factors"] == 3
    assert isinstance(build({"model": "Popularity", "context": ["user"], "epochs": 3}).model, ep.Popularity)
    assert build({"model": "MFSI", "context": ["history"]}).context == [ep.History()]
    pitf = build({"model": "PITF", "context": ["user", "attributes:movie,kind=category"], "factors": 3, "epochs": 2}).model
    assert isinstance(pitf, ep.Separable)
    assert pitf.epochs == 2


FOLDERS = {
    tasks.sequences: sequence_folder,
    tasks.contexts: lambda folder: context_folder(folder, True),
    tasks.acts: tag_folder,
}


def small(spec: DatasetSpec) -> DatasetSpec:
    """The specification with few dimensions, epochs and variants."""

    def fewer(model: ModelSpec) -> ModelSpec:
        context = [
            text.replace("daytime,weekday,isweekend,homework,weather,country,city", "daytime") for text in model.settings["context"]
        ]
        context = [text.replace("gender,age,occupation", "age") for text in context]
        item = [text.replace("genre", "cost") for text in model.settings.get("item", ["item"])]
        settings = {**model.settings, "context": context, "item": item}
        return model._replace(settings={**settings, "factors": 2} if model.space else settings)

    variants = {name: variant._replace(changes={**variant.changes, "factors": 2}) for name, variant in spec.variants.items()}
    return spec._replace(models=tuple(map(fewer, spec.models)), variants=variants, epochs=2)


@pytest.fixture
def small_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Data for all data sets, and all workers in this process."""
    monkeypatch.setattr(datasets, "DATASETS", [small(spec) for spec in datasets.DATASETS])
    monkeypatch.setattr(datasets, "STRUCTURE", (*datasets.STRUCTURE, "factors"))  # few dimensions for untuned models, too
    monkeypatch.setattr(plan, "MeasuredProcess", LocalWorker)
    for spec in datasets.DATASETS:
        FOLDERS.get(spec.read, split_folder)(tmp_path / spec.name)
    return tmp_path


def run(*arguments: str) -> Any:
    return CliRunner().invoke(main, list(arguments))


def first_of_each_variant(specs: list[DatasetSpec]) -> list[DatasetSpec]:
    """The data sets without variants that an earlier one has."""
    seen: set[str] = set()
    found = []
    for spec in specs:
        found.append(spec._replace(variants={name: v for name, v in spec.variants.items() if name not in seen}))
        seen.update(spec.variants)
    return found


@pytest.mark.full
def test_all_datasets(small_datasets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "DATASETS", first_of_each_variant(datasets.DATASETS))
    out = small_datasets / "out" / "benchmarks.md"
    done = run("quality", "--data", str(small_datasets), "--trials", "1", "--seeds", "1", "--out", str(out))
    assert done.exit_code == 0, done.output
    page = out.read_text()
    for spec in datasets.DATASETS:
        assert f"### {spec.name}" in page
        for name, figures in spec.published.items():
            assert name in done.stdout
            assert f"{next(x for x in figures if x is not None):.4f}" in done.stdout
        for model in spec.models:
            assert f"| **{model.name}** |" in page
            own = page.split(f"### {spec.name}\n")[1].split("\n### ")[0]
            expected = {report.untuned(other) for other in spec.models if other.untuned}
            assert (f"| **{report.untuned(model)}** |" in own) == (report.untuned(model) in expected)
        for variant in spec.variants:
            assert f"| {variant} |" in page
        for metric in spec.targets:
            assert f"| {spec.name}: {metric} |" in page
        assert (out.with_suffix("") / f"quality-{spec.name}.svg").exists()


def test_stored_results_are_not_measured_again(small_datasets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Counting(LocalWorker):
        def call(self, method: str, **arguments: Any) -> Any:
            asked.append(method)
            return super().call(method, **arguments)

    monkeypatch.setattr(plan, "MeasuredProcess", Counting)
    out = small_datasets / "benchmarks.md"
    command = ["quality", "--data", str(small_datasets), "--rows", "s3rec-beauty", "--trials", "1", "--out", str(out)]
    assert run(*command, "--seeds", "2").exit_code == 0
    (spec,) = (spec for spec in datasets.DATASETS if spec.name == "s3rec-beauty")
    assert asked.count("tune") == len(spec.models) + sum(bool(variant.space) for variant in spec.variants.values())
    assert asked.count("fit") == len(spec.models) * (2 + 1) + len(spec.variants)
    page = out.read_text()
    asked.clear()
    done = run(*command, "--seeds", "1", "--json")
    assert asked == ["fit"] * len(spec.models)  # from one seed
    assert out.read_text().count("| **previous + history") == page.count("| **previous + history") == 2
    kept = json.loads(done.stdout)["results"]
    tuned, *_ = (entry["result"]["settings"] for entry in kept if entry["arguments"]["what"] == "tuned")
    (less,) = (e["result"]["settings"] for e in kept if e["arguments"].get("variant") == "unobserved pairs weigh a tenth")
    assert less == {**tuned, "unobserved_weight": 0.1 * tuned["unobserved_weight"], "factors": 2}


@pytest.mark.parametrize(
    ("name", "message"),
    [("netflix", "there is no data set 'netflix'"), ("s3rec-beauty", "has no s3rec-beauty/interactions.parquet")],
)
def test_datasets_that_are_not_available(tmp_path: Path, name: str, message: str) -> None:
    done = run("quality", "--data", str(tmp_path), "--rows", name, "--out", str(tmp_path / "b.md"))
    assert done.exit_code != 0
    assert message in done.output
    assert not (tmp_path / "b.md").exists()


@pytest.mark.full
@pytest.mark.skipif("EVERYPAIR_DATA" not in os.environ, reason="EVERYPAIR_DATA does not name a folder of published data")
def test_a_published_dataset() -> None:
    """With the settings that tuning found (see docs/log.md): above the NDCG@20 of ENMF."""
    data = Path(os.environ["EVERYPAIR_DATA"])
    spec = datasets.choose(data, ["lcfn-movielens-1m"])[0]
    split = given_split(data / spec.name / "train.parquet", data / spec.name / "test.parquet", tune_share=0.0)
    model = ep.MF(128, unobserved_weight=0.162, regularization=0.0122, popularity_exponent=0.0, epochs=16)
    found = ep.evaluation.evaluate(ep.Recommender(model).fit(split.train), split.test, ("ndcg@20",))
    assert found["ndcg@20"] > spec.targets["ndcg@20"]
