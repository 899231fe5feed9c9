"""Fits whose data are divided into shards, in several processes: see ``docs/cluster.md``."""
