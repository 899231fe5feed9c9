"""Whether a published test is like its training part: test pairs for each training pair, and what settings give on both.

    python bench/shift.py --data DIR/lightgcn-gowalla [--settings K,ALPHA0,LAMBDA,POPULARITY,EPOCHS ...]

If test pairs had been drawn at random, the first would be about the same however popular an item is. For each of the settings, MF
is fitted without the pairs that are tuned on and judged by those, and then fitted on all training pairs and judged by the test.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import everypair as ep
from benchmarks.quality import problems
from everypair.evaluation import Split, evaluate

BOUNDS = (1, 20, 50, 100, 200, 500)
METRICS = ("recall@20", "ndcg@20")


def bands(split: Split) -> None:
    """Test pairs for each training pair."""
    train, test = (np.bincount(items, minlength=split.train.n_items) for items in (split.train.item, split.test.relevant))
    of = np.digitize(train, BOUNDS)
    for j, low in enumerate(BOUNDS, 1):
        above = f"to {BOUNDS[j] - 1}" if j < len(BOUNDS) else "or more"
        print(f"items with {low} {above} training pairs: {test[of == j].sum() / train[of == j].sum():.3f}")
    most = np.argsort(-train)[:15]
    ratios = test[most] / train[most]
    print(f"the fifteen with most: from {ratios.min():.2f} to {ratios.max():.2f}", flush=True)


def judged(settings: str, problem: problems.Problem) -> str:
    """Metrics of what is tuned on, and of the test."""
    k, alpha0, strength, popularity, epochs = (float(number) for number in settings.split(","))
    model = ep.MF(int(k), unobserved_weight=alpha0, regularization=strength, popularity_exponent=popularity, epochs=int(epochs))
    told = []
    for name, split, queries in (("tuning", problem.tuning, problem.tuning.tune), ("test", problem.final, problem.final.test)):
        found = evaluate(ep.Recommender(model).fit(split.train), queries, METRICS)
        told.append(f"{name} {', '.join(f'{metric} {found[metric]:.4f}' for metric in METRICS)}")
    return "; ".join(told)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--settings", nargs="*", default=[])
    given = parser.parse_args()
    problem = problems.pairs(given.data, 0)
    bands(problem.final)
    for settings in given.settings:
        print(f"{settings}: {judged(settings, problem)}", flush=True)


if __name__ == "__main__":
    main()
