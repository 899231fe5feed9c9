"""EveryPair: recommenders that learn from every context-item pair, exactly, at the cost of the observed ones."""

from everypair import datasets, evaluation, testing, towers
from everypair.answers import FewerItemsWarning
from everypair.contexts import Attributes, History, ItemId, Previous, UserId
from everypair.data import Dataset
from everypair.features import Features
from everypair.feedback import Feedback
from everypair.models import FM, MF, MFSI, PARAFAC, CoView, NotFittedError, Popularity, Separable, Tucker
from everypair.recommender import Recommender
from everypair.rows import Levels
from everypair.solver import DivergedError, Epoch
from everypair.storage import load
from everypair.tuning import tune

__version__ = "0.1.0"

__all__ = [
    "FM",
    "MF",
    "MFSI",
    "PARAFAC",
    "Attributes",
    "CoView",
    "Dataset",
    "DivergedError",
    "Epoch",
    "Features",
    "Feedback",
    "FewerItemsWarning",
    "History",
    "ItemId",
    "Levels",
    "NotFittedError",
    "Popularity",
    "Previous",
    "Recommender",
    "Separable",
    "Tucker",
    "UserId",
    "datasets",
    "evaluation",
    "load",
    "testing",
    "towers",
    "tune",
]
