"""EveryPair: recommenders that learn from every context-item pair, exactly, at the cost of the observed ones."""

from everypair import testing, towers
from everypair.features import Features
from everypair.feedback import Feedback
from everypair.models import FM, MF, MFSI, PARAFAC, CoView, NotFittedError, Popularity, Separable, Tucker
from everypair.rows import Levels
from everypair.solver import DivergedError, Epoch

__version__ = "0.1.0"

__all__ = [
    "FM",
    "MF",
    "MFSI",
    "PARAFAC",
    "CoView",
    "DivergedError",
    "Epoch",
    "Features",
    "Feedback",
    "Levels",
    "NotFittedError",
    "Popularity",
    "Separable",
    "Tucker",
    "testing",
    "towers",
]
