"""What default settings give, and what others would: metrics on the parts that are tuned on, with k = 64.

    python bench/defaults.py --data DIR [--rows s3rec-beauty] [--popularity 0 0.3] [--decay 1 0.8]

DIR has the folders of published data that `everypair benchmark quality` reads.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path
from typing import Any

from everypair.evaluation import evaluate
from everypair.experiments.quality.contenders import make
from everypair.experiments.quality.results import STRUCTURE
from everypair.experiments.quality.rows import ROWS, Row

QUERIES = 4_000
ROWS_OF_THE_LOG = ["lightgcn-gowalla", "lcfn-movielens-1m", "ncf-movielens-1m", "s3rec-beauty", "movielens-1m"]


def combinations(row: Row, popularity: list[float], decay: list[float]) -> list[dict[str, Any]]:
    """Settings to try: decay only where there is a history."""
    fades = [1.0 - each for each in decay] if "history" in row.contenders[0].settings["context"] else [None]
    found = itertools.product(popularity, fades)
    return [{"popularity_exponent": p, **({} if fade is None else {"fade": fade})} for p, fade in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", nargs="*", default=ROWS_OF_THE_LOG)
    parser.add_argument("--popularity", nargs="*", type=float, default=[0.0, 0.25, 0.35, 0.5])
    parser.add_argument("--decay", nargs="*", type=float, default=[0.8])
    arguments = parser.parse_args()
    for row in (row for row in ROWS if row.name in arguments.rows):
        problem, first = row.read(arguments.data / row.name, 0), row.contenders[0].settings
        told = {name: first[name] for name in STRUCTURE if name in first}
        queries = problem.tuning.tune.sample(QUERIES, 0)
        for settings in combinations(row, arguments.popularity, arguments.decay):
            began = time.perf_counter()
            recommender = make({**told, **settings}).fit(problem.tuning.train)
            seconds = time.perf_counter() - began
            value = evaluate(recommender, queries, (row.tuned,), exclude_seen=problem.exclude_seen)[row.tuned]
            print(f"{row.name:<20} {settings} {row.tuned} {value:.4f} ({seconds:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
