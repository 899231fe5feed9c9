"""Initial values of matrix factorization: ``python -m benchmarks start``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import everypair as ep
from everypair.evaluation import LeaveLast, Split, evaluate, given

METRIC = "ndcg@20"
EPOCHS = (1, 2, 4, 8, 12, 16)  # after which figures are printed, besides the last
SEEDS = (0, 1)


def compare(folder: Path | None, factors: int, epochs: int, settings: dict[str, Any]) -> None:
    """Print objective and NDCG@20 by epoch, for each seed and standard deviation of the initial values."""
    split = _split(folder)
    deviations = {"0.1 / sqrt(k)": 0.1 / factors**0.5, "1 / sqrt(k)": factors**-0.5, "from the feedback": None}
    for seed in SEEDS:
        for name, std in deviations.items():
            figures: list[str] = []

            def after(recommender: ep.Recommender, epoch: Any, figures: list[str] = figures) -> None:
                if epoch.epoch in (*EPOCHS, epochs):
                    value = evaluate(recommender, split.test, (METRIC,))[METRIC]
                    figures.append(f"{epoch.epoch}: {epoch.objective:,.0f} {value:.4f}")

            model = ep.MF(factors, epochs=epochs, init_std=std, random_state=seed, popularity_exponent=0.0, **settings)
            ep.Recommender(model).fit(split.train, callback=after)
            print(f"seed {seed}, {name:<18} {'; '.join(figures)}", flush=True)


def _split(folder: Path | None) -> Split:
    if folder is None:
        return LeaveLast().split(ep.datasets.youtube_like(5_000, 5_000, seed=0))
    train, test = (pq.read_table(folder / f"{part}.parquet").select(["user", "item"]) for part in ("train", "test"))
    return given(train, test, tune_share=0.0)
