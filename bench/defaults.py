"""What default settings give, and what others would: metrics on the parts that are tuned on, with k = 64.

    python bench/defaults.py --data DIR [--rows s3rec-beauty] [--popularity 0 0.3] [--decay 1 0.8] [--all-pairs 5 10]
        [--shrinkage 0.03]

DIR has the folders of published data that `everypair benchmark quality` reads. Every combination of what is given is tried; what is
not given is the library's default. The weight of all pairs and shrinkage are those of everypair.tuning.search.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.quality.contenders import make
from benchmarks.quality.rows import ROWS
from everypair.evaluation import evaluate
from everypair.models.tower_model import AUTO
from everypair.tuning.search import ALL_PAIRS, SHRINKAGE, WEIGHT, arguments

QUERIES = 4_000
ROWS_OF_THE_LOG = ["lightgcn-gowalla", "lcfn-movielens-1m", "ncf-movielens-1m", "s3rec-beauty", "movielens-1m"]


def points(tried: dict[str, list[float]]) -> Iterator[dict[str, Any]]:
    """Every combination of the values."""
    for values in itertools.product(*tried.values()):
        yield dict(zip(tried, values, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", nargs="*", default=ROWS_OF_THE_LOG)
    for option in ("--popularity", "--decay", "--all-pairs", "--shrinkage"):
        parser.add_argument(option, nargs="*", type=float, default=[])
    given = parser.parse_args()
    for row in (row for row in ROWS if row.name in given.rows):
        problem, told = row.read(given.data / row.name, 0), row.contenders[0].structure
        fades = [1.0 - decay for decay in given.decay] if "history" in told["context"] else []
        tried = {"popularity_exponent": given.popularity, "fade": fades, ALL_PAIRS: given.all_pairs, SHRINKAGE: given.shrinkage}
        queries, pairs = problem.tuning.tune.sample(QUERIES, 0), make(told).pairs_per_event(problem.tuning.train)
        for point in points({name: values for name, values in tried.items() if values}):
            weight = {} if ALL_PAIRS in point else {WEIGHT: AUTO}
            began = time.perf_counter()
            recommender = make({**told, **arguments({**weight, **point}, pairs)}).fit(problem.tuning.train)
            seconds = time.perf_counter() - began
            value = evaluate(recommender, queries, (row.tuned,), exclude_seen=problem.exclude_seen)[row.tuned]
            print(f"{row.name:<20} {point} {row.tuned} {value:.4f} ({seconds:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
