"""The models (MF, FM, ...): classes with scikit-learn's conventions on top of the towers and the solver."""

from everypair.models.base import NotFittedError
from everypair.models.baselines import CoView, Popularity
from everypair.models.fit_state import CutShortWarning
from everypair.models.fm import FM
from everypair.models.mf import MF
from everypair.models.mfsi import MFSI
from everypair.models.separable import Separable
from everypair.models.tensor import PARAFAC, Tucker

__all__ = ["FM", "MF", "MFSI", "PARAFAC", "CoView", "CutShortWarning", "NotFittedError", "Popularity", "Separable", "Tucker"]
