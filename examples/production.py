"""From a fit to production: recommendations, new events, files, vectors for search. The code of docs/production.md."""

from __future__ import annotations

import tempfile
from pathlib import Path

import everypair as ep


def main(folder: Path) -> None:
    # [fit]
    dataset = ep.datasets.youtube_like(1_000, 400, seed=0)
    split = ep.evaluation.LeaveLast().split(dataset)
    recommender = ep.Recommender(
        ep.FM(factors=16),
        context=[ep.UserId(), ep.Attributes("country", "age"), ep.Previous(), ep.History(last=20)],
        item=[ep.ItemId(), ep.Attributes("category")],
    )
    recommender.fit(split.train, validation=split.tune, metric="ndcg@20", checkpoint=folder / "checkpoint")
    print(recommender.validation_)
    # [fit]
    # [recommend]
    print(recommender.recommend(users=["u000", "u001"], n=2).to_pylist())
    someone = {"country": "DE", "age": "25-34", "history": ["v007", "v042"]}
    print(recommender.recommend(requests=[someone], n=2).to_pylist())
    # [recommend]
    # [filters]
    recommender.recommend(["u000"], n=5, exclude_seen=False)
    recommender.recommend(["u000"], n=5, allow=["v001", "v002", "v003", "v004", "v005", "v006"], deny=["v002"])
    recommender.recommend(["u000", "u001"], n=1, candidates=[["v001", "v002"], ["v003", "v004"]])
    # [filters]
    # [explain]
    item = recommender.recommend(requests=[someone], n=1)["item"][0].as_py()
    why = recommender.explain(item=item, request=someone)
    print(why)
    why.save(folder / "why.html")
    # [explain]
    # [similar]
    print(recommender.similar_items("v007", n=3)["similar"].to_pylist())
    print(recommender.similar_users("u000", n=3)["similar"].to_pylist())
    # [similar]
    # [update]
    recommender.update({"user": ["u000", "newcomer"], "item": ["v042", "v007"], "timestamp": [2_000_000_000, 2_000_000_000]})
    recommender.add_items({"item": ["brand new"], "category": ["education"]})
    print(recommender.recommend("newcomer", n=3)["item"].to_pylist())
    # [update]
    # [save]
    recommender.save(folder / "model")
    loaded = ep.load(folder / "model")
    assert loaded.recommend("u000").equals(recommender.recommend("u000"))
    # [save]
    # [all]
    loaded.recommend_all(folder / "recommendations.parquet", n=20)
    # [all]
    # [vectors]
    loaded.export_vectors(folder / "items.parquet")
    query = loaded.context_vectors(requests=[someone])  # its inner product with an item's vector is the item's score
    # [vectors]
    assert query.shape == (1, 16 + 2)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
