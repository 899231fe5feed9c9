"""The search for settings: ``auto`` for everything, and ``tune`` for a model, with Optuna (``pip install "everypair[tune]"``)."""

from everypair.tuning.auto import Auto, auto
from everypair.tuning.result import Tuning
from everypair.tuning.run import tune
from everypair.tuning.spaces import default_space

__all__ = ["Auto", "Tuning", "auto", "default_space", "tune"]
