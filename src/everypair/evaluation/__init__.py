"""Quality of recommendations: splits, metrics, evaluation, early stopping."""

from everypair.evaluation.early_stopping import EarlyStopping
from everypair.evaluation.evaluate import Evaluation, evaluate
from everypair.evaluation.metrics import METRICS
from everypair.evaluation.queries import Queries
from everypair.evaluation.splits import ColdStart, Cutoff, LeaveLast, RandomPerUser, Split, given

__all__ = [
    "METRICS",
    "ColdStart",
    "Cutoff",
    "EarlyStopping",
    "Evaluation",
    "LeaveLast",
    "Queries",
    "RandomPerUser",
    "Split",
    "evaluate",
    "given",
]
