"""Fits whose data are divided into shards, in several processes: see ``docs/cluster.md``."""

from everypair.cluster.processes import Processes
from everypair.cluster.ray import Ray
from everypair.cluster.shards import Shards

__all__ = ["Processes", "Ray", "Shards"]
