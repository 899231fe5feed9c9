"""How matrix factorization starts: objective and NDCG@20 after each epoch, by start values and seed.

``python bench/start.py --data FOLDER --factors 64``, FOLDER with ``train.parquet`` and ``test.parquet`` (columns user and item);
without it, a log is generated and split. Settings are the same for all starts, so that the test part chooses nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import everypair as ep
from everypair.evaluation import LeaveLast, evaluate
from everypair.evaluation.splits import Split, given


def split(folder: Path | None) -> Split:
    if folder is None:
        return LeaveLast().split(ep.datasets.youtube_like(5_000, 5_000, seed=0))
    train, test = (pq.read_table(folder / f"{part}.parquet").select(["user", "item"]) for part in ("train", "test"))
    return given(train, test, tune_share=0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--factors", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--exponent", type=float, default=1.0, help="regularization_exponent")
    parser.add_argument("--unobserved-weight", type=float, default=0.01)
    parser.add_argument("--regularization", type=float, default=0.01)
    arguments = parser.parse_args()
    parts, k = split(arguments.data), arguments.factors
    settings: dict[str, Any] = {
        "unobserved_weight": arguments.unobserved_weight,
        "regularization": arguments.regularization,
        "regularization_exponent": arguments.exponent,
        "popularity_exponent": 0.0,
    }
    for seed in (0, 1):
        for name, std in {"0.1 / sqrt(k)": 0.1 / k**0.5, "1 / sqrt(k)": k**-0.5, "from the feedback": None}.items():
            told: list[str] = []

            def after(recommender: ep.Recommender, epoch: Any, told: list[str] = told) -> None:
                if epoch.epoch in (1, 2, 4, 8, 12, 16, arguments.epochs):
                    found = evaluate(recommender, parts.test, ("ndcg@20",))["ndcg@20"]
                    told.append(f"{epoch.epoch}: {epoch.objective:,.0f} {found:.4f}")

            model = ep.MF(k, epochs=arguments.epochs, init_std=std, random_state=seed, **settings)
            ep.Recommender(model).fit(parts.train, callback=after)
            print(f"seed {seed}, {name:<18} {'; '.join(told)}", flush=True)


if __name__ == "__main__":
    main()
