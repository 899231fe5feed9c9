"""Datasets: tables of interactions, users and items, with ids encoded as integers."""

from everypair.data.dataset import Dataset
from everypair.data.ids import Ids

__all__ = ["Dataset", "Ids"]
