"""Matrix factorization by EveryPair and by other libraries: the same loss in the units of each, with its best solver settings.

Each takes a CSR matrix of ones, and imports its library on construction.
"""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.speed.loss import SharedLoss


class Factors(NamedTuple):
    """Fitted factors: scores are ``scale`` times their products."""

    phi: np.ndarray
    psi: np.ndarray
    scale: float = 1.0


class EpochState(NamedTuple):
    """The state after an epoch. ``objective``: the exact objective if the library computes it, else None."""

    factors: Callable[[], Factors]
    objective: float | None


EpochCallback = Callable[[EpochState], Any]  # returns whether to stop, for libraries that can


class MFContender(ABC):
    """Matrix factorization by one solver of one library."""

    name: str
    module: str  # name to import
    distribution: str  # name to install
    blas: int | None = None  # BLAS threads, as the project recommends
    watched: bool = True  # whether the library has a callback after each epoch
    settings: str = ""  # for the report

    def __init__(self, loss: SharedLoss, factors: int, threads: int) -> None:
        self.loss, self.factors, self.threads = loss, factors, threads

    @abstractmethod
    def fit(self, matrix: Any, epochs: int, after: EpochCallback = lambda state: None) -> Factors:
        """Fit from random initial values."""


class EveryPairMF(MFContender):
    """This library."""

    name, module, distribution = "EveryPair", "everypair", "everypair"
    settings = "defaults"

    def fit(self, matrix: Any, epochs: int, after: EpochCallback = lambda state: None) -> Factors:
        from everypair.models import MF
        from everypair.models.mixins import PAPER

        unobserved, strength = self.loss
        loss = {"unobserved_weight": unobserved, "regularization": strength, **PAPER}
        model = MF(self.factors, epochs=epochs, n_threads=self.threads, **loss)
        model.fit(matrix, callback=lambda m, epoch: after(EpochState(lambda: Factors(m.phi_, m.psi_), epoch.objective)))
        return Factors(model.phi_, model.psi_)


class ImplicitMF(MFContender):
    """https://github.com/benfred/implicit: unobserved pairs have weight 1, so all else is divided by alpha0."""

    name, module, distribution, blas = "implicit CG", "implicit", "implicit", 1
    settings = "conjugate gradients, 3 steps"

    def __init__(self, loss: SharedLoss, factors: int, threads: int) -> None:
        super().__init__(loss, factors, threads)
        self._als = importlib.import_module("implicit.cpu.als")

    def fit(self, matrix: Any, epochs: int, after: EpochCallback = lambda state: None) -> Factors:
        unobserved, strength = self.loss
        model = self._als.AlternatingLeastSquares(
            self.factors, regularization=strength / unobserved, iterations=epochs, num_threads=self.threads, random_state=0
        )
        now = EpochState(lambda: Factors(model.user_factors, model.item_factors), None)
        model.fit(matrix * np.float32(1.0 / unobserved), show_progress=False, callback=lambda *args: after(now))
        return now.factors()


class IrspackMF(MFContender):
    """https://github.com/tohtsky/irspack: "original" loss, where an observed pair has weight alpha0 + x; nu = 0 is plain L2."""

    module, distribution = "irspack", "irspack"
    solver: str

    def __init__(self, loss: SharedLoss, factors: int, threads: int) -> None:
        super().__init__(loss, factors, threads)
        self._irspack = importlib.import_module("irspack")

    def fit(self, matrix: Any, epochs: int, after: EpochCallback = lambda state: None) -> Factors:
        unobserved, strength = self.loss
        model = self._irspack.IALSRecommender(
            matrix * np.float32(1.0 - unobserved),
            n_components=self.factors,
            alpha0=unobserved,
            reg=strength,
            nu=0.0,
            loss_type="ORIGINAL",
            solver_type=self.solver,
            n_threads=self.threads,
        )
        model.start_learning()
        core = model.trainer.core_trainer
        now = EpochState(lambda: Factors(core.user, core.item), None)
        for _ in range(epochs):
            model.run_epoch()
            after(now)
        return now.factors()


class IrspackCG(IrspackMF):
    """irspack by conjugate gradients."""

    name, solver, settings = "irspack CG", "CG", "conjugate gradients, 3 steps"


class IrspackBlocks(IrspackMF):
    """irspack by iALS++ (blocks of dimensions)."""

    name, solver, settings = "irspack iALS++", "IALSPP", "blocks of 64 dimensions"


class CmfrecMF(MFContender):
    """https://github.com/david-cortes/cmfrec, with the settings that its documentation recommends for fast fitting.

    Unobserved pairs have weight 1, so all else is divided by alpha0. Its Cholesky solver minimises the documented loss: an observed
    pair has weight 1 + alpha x. Its conjugate gradients converge to something else, the solution of
    (J + (alpha + 1) sum psi psi' + lambda) phi = alpha sum psi: an observed pair has weight c = alpha + 2, and its y is
    g = alpha / c instead of 1. Factors times sqrt(g) fit g y as factors fit y, and their L2 is g times as large: so with
    alpha = c - 2 and lambda times g, its factors divided by sqrt(g) minimise our loss.

    It has no callback after epochs. Its project recommends no number of BLAS threads; with one it is as fast or faster.
    """

    name, module, distribution, blas, watched = "cmfrec CG", "cmfrec", "cmfrec", 1, False
    settings = "conjugate gradients, 3 steps, single precision, no final Cholesky step"

    def __init__(self, loss: SharedLoss, factors: int, threads: int) -> None:
        super().__init__(loss, factors, threads)
        self._cmfrec = importlib.import_module("cmfrec")

    def fit(self, matrix: Any, epochs: int, after: EpochCallback = lambda state: None) -> Factors:
        unobserved, strength = self.loss
        alpha, g = 1.0 / unobserved - 2.0, 1.0 - 2.0 * unobserved
        model = self._cmfrec.CMF_implicit(
            k=self.factors,
            lambda_=g * strength / unobserved,
            alpha=alpha,
            apply_log_transf=False,
            use_cg=True,
            finalize_chol=False,
            use_float=True,
            precompute_for_predictions=False,
            produce_dicts=False,
            verbose=False,
            niter=epochs,
            nthreads=self.threads,
            random_state=1,
        )
        model.fit(matrix.tocoo())
        return Factors(model.A_, model.B_, 1.0 / g)


OURS = EveryPairMF.name
PEERS: dict[str, type[MFContender]] = {peer.name: peer for peer in (ImplicitMF, IrspackCG, IrspackBlocks, CmfrecMF)}
ALL: dict[str, type[MFContender]] = {OURS: EveryPairMF, **PEERS}


def why_unavailable(contender: type[MFContender]) -> str | None:
    """Why a contender cannot run here, or None."""
    return why_missing(contender.module, contender.distribution)


def why_missing(module: str, distribution: str) -> str | None:
    """Why a library cannot be used, or None."""
    installed = importlib.util.find_spec(module) is not None
    return None if installed else f"not installed (pip install {distribution})"
