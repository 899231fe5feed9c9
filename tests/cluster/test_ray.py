"""Fits in the actors of a Ray cluster of two simulated nodes; skipped where Ray is not installed."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sharded
from sharded import fit_in_threads

import everypair as ep

ray: Any = pytest.importorskip("ray", reason="Ray is not installed (the extra 'cluster')")

pytestmark = [pytest.mark.more, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    from ray.cluster_utils import Cluster

    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 100 * 2**20})
        nodes.add_node(num_cpus=1, object_store_memory=100 * 2**20)
        environment = {"env_vars": {name: os.environ[name] for name in ("PYTHONPATH", "NUMBA_CACHE_DIR") if name in os.environ}}
        ray.init(address=nodes.address, log_to_driver=False, logging_level=logging.ERROR, runtime_env=environment)
    yield
    ray.shutdown()
    nodes.shutdown()


def test_a_fit_in_actors_is_that_of_processes(cluster: None, tmp_path: Path) -> None:
    data = sharded.shards(tmp_path)

    def make(epochs: int = 3) -> ep.Recommender:
        return ep.Recommender(ep.FM(factors=4, epochs=epochs), context=[ep.UserId(), ep.Attributes("country"), ep.Previous()])

    expected, _ = fit_in_threads(make(), data, tmp_path / "threads")
    on = ep.Ray(processes=2, threads=1)
    found = make().fit(data, on=on, checkpoint=tmp_path / "job")
    for name, value in expected.model.parameters_.items():
        assert found.model.parameters_[name].tobytes() == value.tobytes()
    assert len(on.counts_) == 2
    assert on.counts_[0].sent > 0
    with pytest.raises(ValueError, match="all combinations"):
        ep.Recommender(ep.PARAFAC(factors=2, combinations="all", unobserved_weight=0.1), context=[ep.UserId(), ep.Previous()]).fit(
            data, on=on
        )
