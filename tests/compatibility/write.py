"""Write the folders of the installed version: ``python tests/compatibility/write.py``, once, before a release.

Their place is ``tests/compatibility/<version>/``. They are never written again: a later version must open them as they are.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import everypair as ep

import contents

HERE = Path(__file__).parent
LISTED = 4  # items of the recommendations that are kept


def answers(recommender: ep.Recommender, data: ep.Dataset) -> dict[str, list[Any]]:
    """What it recommends to a user and to requests, to be compared with what it recommends when it is opened again."""
    users = recommender.recommend(users=data.users.values.to_pylist()[:3], n=LISTED, fallback="popular")
    asked = recommender.recommend(requests=contents.requests(data), n=LISTED, fallback="popular")
    return {f"{name} {column}": table[column].to_pylist() for name, table in (("users", users), ("requests", asked))
            for column in ("item", "score")}  # fmt: skip


def main() -> None:
    out, data = HERE / ep.__version__, contents.dataset()
    out.mkdir()
    expected = {}
    for name, recommender in contents.recommenders().items():
        folder = out / "models" / name
        options: dict[str, Any] = {}
        if hasattr(recommender.model, "epochs"):
            options["checkpoint"] = out / "checkpoints" / name
            options["checkpoint"].parent.mkdir(exist_ok=True)
        folder.parent.mkdir(exist_ok=True)
        recommender.fit(data, **options)
        recommender.save(folder)
        expected[name] = answers(recommender, data)
    split = ep.evaluation.LeaveLast().split(data)
    stopped = contents.recommenders()["FM"]
    stopped.fit(split.train, validation=split.tune, metric="ndcg@5", checkpoint=out / "checkpoints" / "validation")
    found = ep.tune(contents.recommenders()["MF"], data, ep.evaluation.LeaveLast(), "ndcg@5", trials=2, study=out / "study.db")
    expected["study"] = {"value": found.best.value, "trials": 2}
    (out / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
