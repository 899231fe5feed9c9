"""From tables with ids, attributes and times to recommendations for new users: the code of docs/data.md."""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path

import everypair as ep
from everypair.evaluation import LeaveLast, evaluate


def write_tables(folder: Path) -> None:
    """Write three CSV files as an application might have them, with generated data."""
    log = ep.datasets.youtube_like(1_000, 400, seed=0)
    assert log.time is not None
    users, items = log.users.values.to_pylist(), log.items.values.to_pylist()
    age, country = (log.user_table[name].to_pylist() for name in ("age", "country"))
    plays = zip((users[u] for u in log.user), (items[i] for i in log.item), log.time.tolist(), strict=True)
    tables = {
        "plays": [("user", "item", "time"), *plays],
        "users": [("user", "age", "country"), *zip(users, age, country, strict=True)],
        "items": [("item", "category"), *zip(items, log.item_table["category"].to_pylist(), strict=True)],
    }
    for name, rows in tables.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)


def main(folder: Path) -> None:
    # [load]
    dataset = ep.Dataset(folder / "plays.csv", users=folder / "users.csv", items=folder / "items.csv", timestamp="time")
    print(dataset, dataset.notes)
    # [load]
    # [fit]
    recommender = ep.Recommender(
        ep.FM(factors=32),
        context=[ep.UserId(), ep.Attributes("age", "country"), ep.Previous(), ep.History(last=20)],
        item=[ep.ItemId(), ep.Attributes("category")],
    )
    # [fit]
    # [evaluate]
    split = LeaveLast().split(dataset)
    popularity = ep.Recommender(ep.Popularity()).fit(split.train)
    recommender.fit(split.train)
    for name, fitted in {"Popularity": popularity, "FM": recommender}.items():
        result = evaluate(fitted, split.test, ["recall@20", "ndcg@20"])
        low, high = result.interval("ndcg@20")
        print(f"{name:<12} recall@20 {result['recall@20']:.3f}, ndcg@20 {result['ndcg@20']:.3f} (95 %: {low:.3f} to {high:.3f})")
    # [evaluate]
    # [tune]
    template = ep.Recommender(ep.MF())
    tuning = ep.tune(template, dataset, LeaveLast(), "ndcg@20", trials=12, study=folder / "study.db")
    print(tuning)
    tuning.save(folder / "what-mattered.svg")
    for name, mf in {"MF": template, "MF, tuned": tuning.recommender}.items():
        print(f"{name:<12} ndcg@20 {evaluate(mf.fit(split.train), split.test, ['ndcg@20'])['ndcg@20']:.3f}")
    # [tune]
    # [recommend]
    recommender.fit(dataset)
    watched = [dataset.items[3], dataset.items[7]]
    someone = {"country": "DE", "age": "25-34", "history": watched}
    print(recommender.recommend(requests=[someone, {"user": dataset.users[0]}], n=5).to_pylist())
    # [recommend]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        write_tables(Path(place))
        main(Path(place))
