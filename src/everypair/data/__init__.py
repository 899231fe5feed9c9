"""Tables with ids of the user's own, attributes and timestamps, and what they become: codes, sequences, levels."""

from everypair.data.dataset import Dataset
from everypair.data.ids import Ids

__all__ = ["Dataset", "Ids"]
