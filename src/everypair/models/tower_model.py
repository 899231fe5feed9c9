"""``TowerModel``, the base class of models that are an inner product of two towers: settings, fit and fitted attributes."""

from __future__ import annotations

import inspect
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np

from everypair.engine.binding import Initializer
from everypair.engine.cpu import CpuEngine
from everypair.engine.divergence import DivergedError
from everypair.engine.engine import Engine
from everypair.engine.feedback import Feedback, as_feedback
from everypair.engine.initialization import item_vectors
from everypair.engine.regularization import Regularization
from everypair.engine.solver import ICD, Epoch
from everypair.gpu.device import Job, choose, requested
from everypair.gpu.engine import GpuEngine
from everypair.models.assembly import Plan, assemble, check_division, reassemble, set_parameters
from everypair.models.base import Model
from everypair.models.fit_state import FitState, cut_short
from everypair.models.training_run import TrainingRun
from everypair.persistence.checkpoint import checkpoint_of, identity
from everypair.ranking.rank import InnerProducts, ItemVectors, Scores
from everypair.runtime import validation as check
from everypair.runtime.blas import one_blas_thread
from everypair.runtime.group import ALONE, Group, current_group
from everypair.runtime.parallel import Workers, thread_count
from everypair.runtime.wording import named, setting
from everypair.towers import StepSettings, Tower

S = TypeVar("S", bound="TowerModel")

ORDERS = ("side", "dimension")
FIELD_SOLVERS = ("block", "cd")
PARAMETERS = "Parameters\n----------\n"
AUTO = "auto"
AUTO_RATIO = 10.0  # with "auto", the total weight of all pairs over that of the observed ones
FACTORS = "factors : int\n    Number of dimensions k (for Tucker, also one number per variable).\n"


@dataclass(repr=False, eq=False, kw_only=True)
class TowerModel(Model):
    r"""A k-separable model, ``s(c, i) = <phi(c), psi(i)>``, trained on every pair by implicit coordinate descent.

    Parameters
    ----------
    unobserved_weight : float or "auto"
        :math:`\alpha_0`, the weight of an unobserved pair; 0 is coordinate descent on the observed pairs alone. With "auto", all
        pairs together have ten times the weight of the observed pairs, but no pair more than an observed one. "auto" is the default
        of MF, MFSI and FM, which also scale L2 with the weight of a row; other models have fixed numbers.
    regularization : float or dict
        :math:`\lambda`. The keys of a dict are names of parameters, fields, "name.field", and "default".
    regularization_exponent : float
        A row's L2 weight is :math:`\lambda` times its weight in the loss to this power: 0 is plain L2, 1 frequency scaling.
    popularity_exponent : float
        The weight of an unobserved pair is proportional to the popularity of its item (number of observations) to this power, with
        the total unchanged; 0: the same for all. Skipping a popular item is stronger evidence of dislike than skipping an obscure
        one. The default of MF, MFSI and FM is 0.3, of other models 0.
    epochs : int
        Sweeps over all parameters of both sides.
    tol : float
        Stop when the relative decrease of the objective in an epoch is less than this; 0: never.
    step_size : float
        :math:`\eta \in (0, 1]`, by which each Newton step is multiplied.
    block_size : int
        Number of dimensions of a row solved together, for sides with a free vector per context or item (an Embedding) and
        ``order="side"``; no effect elsewhere. 1 is the paper's.
    rotate : bool
        Rotate both sides before sweeps such that the other side's Gram is diagonal: faster, and fewer epochs. MF does so in some
        epochs only. No effect where the towers do not allow it (products, fixed factors, ``order="dimension"``).
    order : {"side", "dimension"}
        All parameters of one side, then all of the other; or both sides dimension by dimension (Algorithms 2 and 3).
    field_solver : {"block", "cd"}
        "block": features are swept in panels of sixteen dimensions; a field with overlapping features is solved as a block. "cd":
        dimension by dimension, and overlapping features one at a time (histories and linear operators as a block on either path):
        slower, to the same objective.
    init_std : float, optional
        Standard deviation of the start values. By default 0.1 / sqrt(k); where a score multiplies three or more parameters (with
        L2, the origin is a local minimum there), such that scores start at magnitude one. MF by default starts each item at the sum
        of random vectors of its contexts instead, which takes fewer epochs to a good objective.
    dtype : {"float32", "float64"}
    random_state : int or None
        Seed; the same seed gives the same bits on any number of threads. Random start values are functions of it, the parameter's
        name, the row's key (its number, or a hash of its id in a :class:`~everypair.Recommender`) and the dimension. None: a new
        seed for each fit.
    n_threads : int or None
        None: one per core.
    device : str, optional
        "cpu"; "cuda" or "cuda:1", a GPU, which is refused with the reason if it cannot be used; or "auto", a GPU if there is one
        that can train the model. None: what the environment variable EVERYPAIR_DEVICE says, else "cpu". Lists of many rows are
        computed on it, too. Fitted models open on any machine.

    Attributes
    ----------
    phi_, psi_ : arrays (n_contexts, K), (n_items, K)
        Vectors of contexts and items: scores are ``phi_ @ psi_.T``. Computed on access.
    parameters_ : dict
        Copies of the parameters by name: the paper's letters, or the names that towers give.
    history_ : list of Epoch
        For each epoch: objective, explicit, implicit, l2, seconds (without compilation).
    unobserved_weight_ : float
        The weight that was used, the mean over items.
    item_weight_ : array or None
        Factor of this weight for each item (from the feedback's ``item_weight`` and ``popularity_exponent``); None: one. The
        objective in ``history_`` is that of ``feedback.by_popularity(popularity_exponent)``, which has these weights.
    device_ : str or None
        The device of the fit, such as "cpu" or "cuda:0"; None for a model that was loaded.
    stop_reason_ : str
        "epochs", "tol", "callback" or "interrupt"; "running" during the fit, and "error" if a callback failed or a checkpoint could
        not be written. After "interrupt" and "error", which cut a fit short, ``repr`` says so.
    """

    unobserved_weight: float | str = 0.01
    regularization: Any = 0.01
    regularization_exponent: float = 0.0
    popularity_exponent: float = 0.0
    epochs: int = 16
    tol: float = 0.0
    step_size: float = 1.0
    block_size: int = 1
    rotate: bool = True
    order: str = "side"
    field_solver: str = "block"
    init_std: float | None = None
    dtype: str = "float32"
    random_state: int | None = 0
    n_threads: int | None = None
    device: str | None = None
    _state: FitState | None = field(default=None, init=False, repr=False)

    @abstractmethod
    def describe_towers(self, contexts: Any, items: Any) -> tuple[Tower, Tower]:
        """The towers of contexts and items, not bound, for data with these columns."""

    def _fit(
        self,
        feedback: Any,
        contexts: Any,
        items: Any,
        *,
        start: Mapping[str, Any] | None = None,
        fixed: Mapping[str, Any] | None = None,
        callback: Callable[[Self, Epoch], Any] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        every: int = 1,
    ) -> Self:
        """Check the arguments, build the towers, run the solver. A call with bad arguments changes nothing."""
        feedback = as_feedback(feedback)
        epochs, tol, n_threads = self.check_settings()
        every = check.integer("every", every, low=1)
        if callback is not None and not callable(callback):
            raise TypeError(f"callback must be callable with (model, epoch), got {callback!r}.")
        stateful: Any = callback if callable(getattr(callback, "resume", None)) else None
        group = current_group()
        folder = None if checkpoint is None else checkpoint_of(checkpoint, every, group)
        with ExitStack() as held, np.errstate(over="ignore", invalid="ignore"):
            workers = held.enter_context(Workers(n_threads, group=group))
            held.enter_context(one_blas_thread())
            solver = self.build_solver(feedback, contexts, items, workers, start, fixed)
            engine = solver.engine
            held.enter_context(engine.active())
            weight = None if engine.feedback.item_weight is None else engine.feedback.item_weight.copy()
            state = FitState(solver.towers, feedback.shape, engine.alpha0, weight, device=engine.device)
            after_epoch = None if callback is None else partial(callback, self)
            run = TrainingRun(solver, state, type(self).__name__, after_epoch, stateful, folder, tol)
            values = {"start": start, "fixed": fixed}
            finished = group.finished
            if finished is None:
                resumed = run.resume(
                    lambda: identity(type(self).__name__, self.get_params(), feedback, solver.towers, values), epochs
                )
            else:
                resumed = run.take_over(finished)
            before, self._state = self._state, state  # before the run, so that callbacks can use the model
            try:
                if resumed is not None and stateful is not None:
                    stateful.resume(self, resumed.callback, resumed.arrays)
                run.run(epochs, resumed)
            except BaseException as error:
                if not state.history or isinstance(error, DivergedError):
                    self._state = before
                else:  # a callback failed, or a checkpoint could not be written: keep the epochs so far
                    state.stop_reason = "error"
                raise
        return self

    def build_solver(
        self,
        feedback: Feedback,
        contexts: Any,
        items: Any,
        workers: Workers,
        start: Mapping[str, Any] | None = None,
        fixed: Mapping[str, Any] | None = None,
    ) -> ICD[Engine]:
        """The solver, with both towers at their start values, on the engine of :attr:`device`."""
        group = workers.group
        feedback = feedback.by_popularity(check.number("popularity_exponent", self.popularity_exponent, low=0.0), group)
        plan = self.plan(self._alpha0(feedback, group))
        towers = assemble(*self.describe_towers(contexts, items), feedback, contexts, items, plan, group)
        if plan.initializer.from_feedback:
            ((name, vectors),) = towers["item"].parameters.items()
            vectors.load(item_vectors(feedback, vectors.shape[1], vectors.value.dtype, plan.initializer.seed, name, workers))
        self._check_order(towers)
        if group.divided:
            check_division(towers, plan.settings, self.order)
        set_parameters("start", start, towers, fixed=False)
        set_parameters("fixed", fixed, towers, fixed=True)
        by_dimension = self.order == "dimension"
        rotate = bool(self.rotate) and not by_dimension
        fit = Job(type(self).__name__, feedback, towers, plan.alpha0, plan.initializer.dtype, self.order, workers.group.size)
        device = choose("cpu" if group.finished is not None else self.device, fit)
        with device.active():
            if device.gpu is not None:
                return ICD(GpuEngine(feedback, towers, plan.alpha0, device.gpu, rotate))
            engine = CpuEngine(feedback, towers, plan.alpha0, plan.initializer.dtype, workers, rotate, by_dimension)
            return ICD(engine, self.order)

    def restore(
        self,
        shape: tuple[int, int],
        columns: Mapping[str, Any],
        parameters: Mapping[str, np.ndarray],
        alpha0: float,
        item_weight: np.ndarray | None,
        history: list[Epoch],
        reason: str,
    ) -> Self:
        """Restore the state of an earlier fit, with parameters in the shape of ``Parameter.value``.

        ``columns``, by side, have no rows: contexts (items) of the fit that were described by columns are not stored.
        """
        towers = self.rebuild_towers(shape, columns, parameters, alpha0)
        self._state = FitState(towers, shape, alpha0, item_weight, history, reason)
        return self

    def rebuild_towers(
        self, shape: tuple[int, int], columns: Mapping[str, Any], parameters: Mapping[str, np.ndarray], alpha0: float
    ) -> dict[str, Tower]:
        """Towers with the parameters of an earlier fit; see :meth:`restore`."""
        described = self.describe_towers(columns.get("context"), columns.get("item"))
        return reassemble(*described, shape, columns, self.plan(alpha0), parameters)

    def check_settings(self) -> tuple[int, float, int]:
        """Check the constructor's arguments that :meth:`plan` does not; returns epochs, tol and the number of threads."""
        self._fixed_weight()
        requested(self.device)
        check.number("popularity_exponent", self.popularity_exponent, low=0.0)
        epochs, tol = check.integer("epochs", self.epochs, low=1), check.number("tol", self.tol, low=0.0)
        return epochs, tol, thread_count(self.n_threads)

    def _fixed_weight(self) -> float | None:
        """``unobserved_weight``, None if it depends on the data."""
        if not isinstance(self.unobserved_weight, str):
            return check.number("unobserved_weight", self.unobserved_weight, low=0.0)
        if self.unobserved_weight != AUTO:
            raise ValueError(f"{named('unobserved_weight')} must be a number or {AUTO!r}, got {self.unobserved_weight!r}.")
        return None

    def _alpha0(self, feedback: Feedback, group: Group = ALONE) -> float:
        """The weight of an unobserved pair."""
        fixed = self._fixed_weight()
        if fixed is not None:
            return fixed
        if self.all_combinations:
            by_data, every = setting("unobserved_weight", AUTO), setting("combinations", "all")
            raise ValueError(f"{by_data} cannot be used with {every}: give a number.")
        m, n = feedback.weights()
        weight = float(np.broadcast_to(feedback.alpha, len(feedback)).sum(dtype=np.float64))
        own = np.array([float(feedback.context_count.sum()), weight, float(m.sum())])  # events are counted before merging
        events, weight, contexts = map(float, group.total(own))
        return weight / events * auto_weight(contexts * float(n.sum()) / events, float(n.max()))

    @property
    def all_combinations(self) -> bool:
        """Whether every combination of levels is a context, observed or not."""
        return "all" in (getattr(of, "combinations", None) for of in (self, getattr(self, "context", None)))

    def plan(self, alpha0: float) -> Plan:
        """The constructor's arguments, checked, as settings of a fit."""
        if self.dtype not in ("float32", "float64", np.float32, np.float64):
            raise ValueError(f"{named('dtype')} must be 'float32' or 'float64', got {self.dtype!r}.")
        if not isinstance(self.rotate, bool | np.bool_):
            raise TypeError(f"{named('rotate')} must be True or False, got {self.rotate!r}.")
        check.choice("order", self.order, ORDERS)
        chosen = np.random.SeedSequence().entropy if self.random_state is None else self.random_state
        seed = check.integer("random_state", chosen, low=0)
        exponent = check.number("regularization_exponent", self.regularization_exponent, low=0.0)
        std = None if self.init_std is None else check.number("init_std", self.init_std, low=0.0, open_low=True)
        return Plan(
            alpha0=alpha0,
            regularization=Regularization(self.regularization, exponent),
            initializer=Initializer(seed, np.dtype(self.dtype), std),
            settings=StepSettings(
                step_size=check.number("step_size", self.step_size, low=0.0, high=1.0, open_low=True),
                block_size=check.integer("block_size", self.block_size, low=1),
                field_solver=check.choice("field_solver", self.field_solver, FIELD_SOLVERS),
            ),
        )

    def _check_order(self, towers: Mapping[str, Tower]) -> None:
        """Check that both towers support the order of sweeps."""
        for side, tower in towers.items() if self.order == "dimension" else ():
            if not tower.capabilities.by_dimension:
                raise ValueError(
                    f"{setting('order', 'dimension')} is not supported by {type(self).__name__}: its {side} tower, {tower!r}, "
                    f"cannot be swept dimension by dimension. Use {setting('order', 'side')}."
                )

    @property
    def state(self) -> FitState:
        """The result of the fit: towers, parameters, history."""
        if self._state is None:
            raise self._not_fitted()
        return self._state

    @property
    def is_fitted(self) -> bool:
        return self._state is not None

    @property
    def history_(self) -> list[Epoch]:
        return self.state.history

    @property
    def stop_reason_(self) -> str:
        return self.state.stop_reason

    @property
    def cut_short(self) -> str | None:
        return cut_short(self.state.stop_reason, len(self.state.history), self.epochs) if self.is_fitted else None

    @property
    def unobserved_weight_(self) -> float:
        return self.state.unobserved_weight

    @property
    def device_(self) -> str | None:
        return self.state.device

    @property
    def item_weight_(self) -> np.ndarray | None:
        return self.state.item_weight

    @property
    def phi_(self) -> np.ndarray:
        return self.state.towers["context"].vectors().rows.copy()

    @property
    def psi_(self) -> np.ndarray:
        return self.state.towers["item"].vectors().rows.copy()

    @property
    def parameters_(self) -> dict[str, np.ndarray]:
        return {name: parameter.show() for name, parameter in self.state.parameters.items()}

    def context_vectors(self, contexts: Any) -> np.ndarray:
        """``phi`` of contexts, known or new, given as to ``fit`` (as row numbers if there are no columns)."""
        return self.state.towers["context"].vectors_of("contexts", contexts)

    def item_vectors(self, items: Any) -> np.ndarray:
        """``psi`` of items, known or new, given as to ``fit`` (as row numbers if there are no columns)."""
        return self.state.towers["item"].vectors_of("items", items)

    def adopt(self, other: Self) -> None:
        self._state = other.state

    def _shape(self) -> tuple[int, int]:
        return self.state.shape

    def _score_pairs(self, context: np.ndarray, item: np.ndarray) -> np.ndarray:
        phi, psi = (self.state.towers[side].vectors_by_row()(rows) for side, rows in (("context", context), ("item", item)))
        return np.einsum("nf,nf->n", phi, psi)

    def _scores(self, context: np.ndarray) -> Scores:
        towers = self.state.towers
        items = ItemVectors(towers["item"].vectors().rows, device=self.device)
        return InnerProducts(towers["context"].vectors_by_row()(context), items)


def auto_weight(pairs: float, largest: float = 1.0) -> float:
    """The weight of an unobserved pair, relative to an observed one, given the number of pairs per observed pair.

    ``largest`` is the largest item weight: no pair may get more weight than an observed one.
    """
    return min(AUTO_RATIO / pairs, 1.0 / largest) if pairs > 0 and largest > 0 else 0.0


def documented(cls: type[S]) -> type[S]:
    """Add the shared arguments and attributes of all tower models to a model's docstring."""
    _, _, shared = inspect.cleandoc(TowerModel.__doc__ or "").partition("\n\n")
    if hasattr(cls, "factors"):
        shared = shared.replace(PARAMETERS, PARAMETERS + FACTORS, 1)
    if cls.__doc__ and shared:  # both are empty under python -OO
        cls.__doc__ = f"{inspect.cleandoc(cls.__doc__)}\n\n{shared}"
    return cls
