"""Published results: problems as they are described, settings that no test part has seen, and a report that goes on."""

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
from benchmarks.quality import problems, results, rows, told
from benchmarks.quality.contenders import make
from benchmarks.quality.rows import Contender, Row
from everypair.cli.shell import main
from everypair.evaluation import given as given_split

from remotes import Local


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
    told = {"user": user, "daytime": random.integers(0, 3, 240), "item": item, "cost": item % 2, "age": user % 3}
    for name, at in (("train", slice(0, 200)), ("test", slice(200, 240))):
        write(folder / f"{name}.parquet", **{key: values[at] for key, values in told.items()})


def tag_folder(folder: Path) -> None:
    """Tags of users for films."""
    random = np.random.default_rng(3)
    triples = np.unique(random.integers(0, [12, 9, 8], (400, 3)), axis=0)
    write(folder / "tags.parquet", user=triples[:, 0] + 5, item=triples[:, 1] + 100, tag=triples[:, 2], timestamp=triples[:, 0])


def test_known_at_the_test_is_what_was_tuned_on_and_never_trained_on(tmp_path: Path) -> None:
    sequence_folder(tmp_path)
    tuning, final, exclude_seen = problems.sequences(tmp_path, 0)
    assert tuning is final
    assert exclude_seen
    assert len(final.train) == 30 * 7
    assert np.all(final.test.moments.end - final.test.moments.begin == 8)
    assert np.all(final.test.moments.previous() == final.tune.relevant)


@pytest.mark.parametrize("again", [True, False])
def test_events_with_features_of_their_own(tmp_path: Path, again: bool) -> None:
    context_folder(tmp_path, again)
    tuning, final, exclude_seen = problems.contexts(tmp_path, 0)
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
            past = tuning.tune.moments.items[tuning.tune.moments.begin[q] : tuning.tune.moments.end[q]]
            assert set(past) == set(tuning.train.item[tuning.train.user == user])
    table = pq.read_table(tmp_path / "test.parquet")
    values, index = final.test.moments.attributes["daytime"]
    asked = sorted(zip(final.test.user.tolist(), values.take(pa.array(index)).to_pylist(), strict=True))
    users = {final.train.users[code]: code for code in range(final.train.n_users)}
    assert asked == sorted(zip((users[u] for u in table["user"].to_pylist()), table["daytime"].to_pylist(), strict=True))


def test_acts_of_tagging_are_held_out_whole(tmp_path: Path) -> None:
    tag_folder(tmp_path)
    tuning, final, exclude_seen = problems.acts(tmp_path, 0)
    assert not exclude_seen
    table = pq.read_table(tmp_path / "tags.parquet").select(["user", "item", "tag"]).to_pylist()
    there = {(row["user"], row["item"], row["tag"]) for row in table}

    def trained(split: Any) -> set[tuple[int, int, int]]:
        data = split.train
        columns = data.users.take(data.user), data.event_table["movie"], data.items.take(data.item)
        return set(zip(*(column.to_pylist() for column in columns), strict=True))

    def asked(queries: Any, data: ep.Dataset) -> set[tuple[int, int, int]]:
        values, index = queries.moments.attributes["movie"]
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
    assert asked(problems.acts(tmp_path, 7).final.test, final.train) == test  # whatever is tuned on


def test_ranked_against_the_given_negatives(tmp_path: Path) -> None:
    """Candidates are the user's negatives and what is relevant, and nothing else."""
    split_folder(tmp_path)
    split = given_split(tmp_path / "train.parquet", tmp_path / "test.parquet", tune_share=0.0)
    table = pq.read_table(tmp_path / "test_negatives.parquet")
    lists = problems.given_negatives(split.train, split.test, tmp_path / "test_negatives.parquet")
    negatives = {(u, i) for u, i in zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True)}
    for q, user in enumerate(split.test.user):
        own = split.test.relevant[split.test.bounds[q] : split.test.bounds[q + 1]]
        found = {split.train.items[code] for code in lists.items[lists.begin[q] : lists.end[q]]}
        expected = {item for u, item in negatives if u == split.train.users[user]} & {
            split.train.items[c] for c in range(split.train.n_items)
        }
        assert found == expected | {split.train.items[code] for code in own}
    alike = problems.like_the_test(split.train, split.test, 5, 0)
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
    told = {"model": "MFSI", "context": ["user", "previous:back=2", "history"], "factors": 3, "last": 7, "fade": 0.25}
    made = make({**told, "item": ["item", "attributes:cost,kind=category"]})
    assert made.context == [ep.UserId(), ep.Previous(2), ep.History(last=7, decay=0.75)]
    assert made.item == [ep.ItemId(), ep.Attributes("cost", kind="category")]
    assert made.model.get_params()["factors"] == 3
    assert isinstance(make({"model": "Popularity", "context": ["user"], "epochs": 3}).model, ep.Popularity)
    assert make({"model": "MFSI", "context": ["history"]}).context == [ep.History()]
    pitf = make({"model": "PITF", "context": ["user", "attributes:movie,kind=category"], "factors": 3, "epochs": 2}).model
    assert isinstance(pitf, ep.Separable)
    assert pitf.epochs == 2


FOLDERS = {
    problems.sequences: sequence_folder,
    problems.contexts: lambda folder: context_folder(folder, True),
    problems.acts: tag_folder,
}


def small(row: Row) -> Row:
    """The row with few dimensions, epochs and variants."""

    def fewer(contender: Contender) -> Contender:
        context = [
            text.replace("daytime,weekday,isweekend,homework,weather,country,city", "daytime")
            for text in contender.settings["context"]
        ]
        context = [text.replace("gender,age,occupation", "age") for text in context]
        item = [text.replace("genre", "cost") for text in contender.settings.get("item", ["item"])]
        settings = {**contender.settings, "context": context, "item": item}
        return contender._replace(settings={**settings, "factors": 2} if contender.space else settings)

    variants = {name: variant._replace(changes={**variant.changes, "factors": 2}) for name, variant in row.variants.items()}
    return row._replace(contenders=tuple(map(fewer, row.contenders)), variants=variants, epochs=2)


@pytest.fixture
def small_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Data for all rows, and everything in this process."""
    monkeypatch.setattr(rows, "ROWS", [small(row) for row in rows.ROWS])
    monkeypatch.setattr(results, "Remote", Local)
    for row in rows.ROWS:
        FOLDERS.get(row.read, split_folder)(tmp_path / row.name)
    return tmp_path


def run(*arguments: str) -> Any:
    return CliRunner().invoke(main, list(arguments))


@pytest.mark.full
def test_all_rows(small_rows: Path) -> None:
    out = small_rows / "out" / "benchmarks.md"
    done = run("benchmark", "quality", "--data", str(small_rows), "--trials", "1", "--seeds", "2", "--out", str(out))
    assert done.exit_code == 0, done.output
    page = out.read_text()
    for row in rows.ROWS:
        assert f"### {row.name}" in page
        for name, figures in row.published.items():
            assert name in done.stdout
            assert f"{next(x for x in figures if x is not None):.4f}" in done.stdout
        for contender in row.contenders:
            assert f"| **{contender.name}** |" in page
            own = page.split(f"### {row.name}\n")[1].split("\n### ")[0]
            expected = {told.untuned(other) for other in row.contenders if other.untuned}
            assert (f"| **{told.untuned(contender)}** |" in own) == (told.untuned(contender) in expected)
        for variant in row.variants:
            assert f"| {variant} |" in page
        for metric in row.aims:
            assert f"| {row.name}: {metric} |" in page
        assert (out.with_suffix("") / f"quality-{row.name}.svg").exists()


def test_what_is_there_is_not_measured_again(small_rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Counting(Local):
        def call(self, method: str, **arguments: Any) -> Any:
            asked.append(method)
            return super().call(method, **arguments)

    monkeypatch.setattr(results, "Remote", Counting)
    out = small_rows / "benchmarks.md"
    command = ["benchmark", "quality", "--data", str(small_rows), "--rows", "s3rec-beauty", "--trials", "1", "--out", str(out)]
    assert run(*command, "--seeds", "2").exit_code == 0
    (row,) = (row for row in rows.ROWS if row.name == "s3rec-beauty")
    assert asked.count("tune") == len(row.contenders) + sum(bool(variant.space) for variant in row.variants.values())
    assert asked.count("fit") == len(row.contenders) * (2 + 1) + len(row.variants)
    page = out.read_text()
    asked.clear()
    told = run(*command, "--seeds", "1", "--json")
    assert asked == ["fit"] * len(row.contenders)  # from one seed
    assert out.read_text().count("| **previous + history") == page.count("| **previous + history") == 2
    kept = json.loads(told.stdout)["results"]
    tuned, *_ = (entry["result"]["settings"] for entry in kept if entry["arguments"]["what"] == "tuned")
    (less,) = (e["result"]["settings"] for e in kept if e["arguments"].get("variant") == "unobserved pairs weigh a tenth")
    assert less == {**tuned, "unobserved_weight": 0.1 * tuned["unobserved_weight"], "factors": 2}


@pytest.mark.parametrize(
    ("name", "message"), [("netflix", "there is no row 'netflix'"), ("s3rec-beauty", "has no s3rec-beauty/interactions.parquet")]
)
def test_rows_that_are_not_there(tmp_path: Path, name: str, message: str) -> None:
    done = run("benchmark", "quality", "--data", str(tmp_path), "--rows", name, "--out", str(tmp_path / "b.md"))
    assert done.exit_code != 0
    assert message in done.output
    assert not (tmp_path / "b.md").exists()


@pytest.mark.full
@pytest.mark.skipif("EVERYPAIR_DATA" not in os.environ, reason="EVERYPAIR_DATA does not name a folder of published data")
def test_a_published_row() -> None:
    """With the settings that tuning found (see docs/log.md): above the NDCG@20 of ENMF."""
    data = Path(os.environ["EVERYPAIR_DATA"])
    row = rows.choose(data, ["lcfn-movielens-1m"])[0]
    split = given_split(data / row.name / "train.parquet", data / row.name / "test.parquet", tune_share=0.0)
    model = ep.MF(128, unobserved_weight=0.162, regularization=0.0122, popularity_exponent=0.0, epochs=16)
    found = ep.evaluation.evaluate(ep.Recommender(model).fit(split.train), split.test, ("ndcg@20",))
    assert found["ndcg@20"] > row.aims["ndcg@20"]
