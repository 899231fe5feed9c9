"""Search for the settings of a model: ``pip install "everypair[tune]"``, which brings Optuna."""

from everypair.tuning.result import Tuning
from everypair.tuning.run import tune
from everypair.tuning.spaces import default_space

__all__ = ["Tuning", "default_space", "tune"]
