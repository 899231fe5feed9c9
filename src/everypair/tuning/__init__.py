"""Hyperparameter search with Optuna: ``pip install "everypair[tune]"``."""

from everypair.tuning.result import Tuning
from everypair.tuning.run import tune
from everypair.tuning.spaces import default_space

__all__ = ["Tuning", "default_space", "tune"]
