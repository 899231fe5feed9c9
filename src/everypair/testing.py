""":func:`check_tower`: checks that a tower, in particular a user's own, is implemented correctly."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from safetensors.numpy import load_file, save_file

from everypair.columns.table import Levels, Rows, as_rows
from everypair.engine.blocks import CORE, PRODUCT, SUM, CoreBlock, FieldBlock, LevelBlock
from everypair.engine.cpu import CpuEngine
from everypair.engine.feedback import Feedback
from everypair.engine.solver import ICD
from everypair.models.separable import Separable
from everypair.runtime import validation as check
from everypair.runtime.blas import one_blas_thread
from everypair.runtime.parallel import SERIAL, Workers
from everypair.towers import Coordinates, Embedding, Smooth, Tower
from everypair.towers.multiplicative import Modes
from everypair.towers.smooth import Entries

N_OTHER, ALPHA0 = 7, 0.3
SLOPE_STEPS, BEND_STEPS, TOLERANCE = (1e-3, 1e-4, 1e-5, 1e-6, 1e-8), (1e-2, 1e-3, 1e-4, 1e-5, 1e-6), 1e-5
SWEEPS = 100  # after which no step on a single entry should lower the objective much


def check_tower(
    tower: Tower, rows: Mapping[str, Any] | None = None, *, n_rows: int = 12, side: str = "context", random_state: int = 0
) -> None:
    """Check that a tower is implemented correctly; raises an AssertionError that says what is wrong, and where.

    On random feedback with free vectors on the other side, in float64:

    - binding leaves the description unchanged and can be repeated; vectors have the right shape;
    - the vectors of a subset of rows equal those among all rows, and contributions sum to the inner product with a vector;
    - derivatives (of a :class:`~everypair.towers.Smooth` tower) agree with finite differences, and every entry is stepped on;
    - the Gram agrees with a sum over rows; a rotation multiplies the vectors by its matrix and keeps L2;
    - moving the parameters of a described block moves the vectors as the description says;
    - no step raises the objective, evaluated over every pair; the view is notified of every move; after many sweeps no single entry
      can lower the objective further; fixed parameters do not change;
    - the bits are the same on any number of threads;
    - parameters that are saved and loaded give the same vectors.

    Parameters
    ----------
    tower : Tower
    rows : mapping of columns, optional
        The columns that the tower reads, as ``contexts`` of ``fit``: about a dozen rows, with every level among them.
    n_rows : int
        Number of rows, if ``rows`` is None.
    side : {"context", "item"}
        The side of the model that the tower is for.
    random_state : int

    Examples
    --------
    >>> import everypair as ep
    >>> from everypair.towers import Embedding, Product
    >>> ep.testing.check_tower(Product(Embedding(2, "user"), Embedding(2, "hour")), {"user": [0, 1, 1, 2], "hour": [0, 0, 1, 1]})
    """
    with one_blas_thread():
        _Check(tower, rows, n_rows, side, random_state).all()


class _Check:
    """The checks, each after those it relies on."""

    def __init__(self, tower: Tower, rows: Mapping[str, Any] | None, n_rows: int, side: str, seed: int) -> None:
        if not isinstance(tower, Tower):
            raise TypeError(f"check_tower takes a tower, got {tower!r} of type {type(tower).__name__}.")
        check.choice("side", side, ("context", "item"))
        self.tower, self.columns, self.side, self.seed = tower, rows, side, seed
        self.n = as_rows(side, rows, n_rows if rows is None else None).n
        random = np.random.default_rng(seed)
        cells = np.argwhere(random.random((self.n, N_OTHER)) < 0.4)
        cells = cells if len(cells) else np.zeros((1, 2), int)
        if side == "item":
            cells = cells[:, ::-1]
        shape = (self.n, N_OTHER) if side == "context" else (N_OTHER, self.n)
        weight = None if getattr(tower, "combinations", None) == "all" else random.uniform(0.5, 1.5, shape[0])
        self.y, self.alpha = random.uniform(0.5, 1.5, len(cells)), random.uniform(0.1, 3.0, len(cells))
        self.cells = cells
        self.feedback = Feedback(
            cells[:, 0], cells[:, 1], self.y, self.alpha, shape=shape,
            context_weight=weight, item_weight=random.uniform(0.5, 1.5, shape[1]),
        )  # fmt: skip
        self.random = random

    def all(self) -> None:
        self.description()
        self.subset_of_rows()
        self.contributions()
        if isinstance(self.tower, Smooth):
            self.coordinates()
            self.derivatives()
        self.gram()
        self.rotation()
        self.blocks()
        self.steps(ALPHA0)
        self.steps(0.0)
        self.convergence()
        self.fixed_parameters()
        self.threads()
        self.files()

    # a test problem

    def solver(self, seed: int | None = None, workers: Workers = SERIAL, alpha0: float = ALPHA0) -> ICD[CpuEngine]:
        other = Embedding(self.tower.n_dims, name="the other side")
        towers = {"context": self.tower, "item": other} if self.side == "context" else {"context": other, "item": self.tower}
        model = Separable(
            **towers, unobserved_weight=alpha0, regularization=0.1, regularization_exponent=0.5, init_std=0.5,
            rotate=False, dtype="float64", random_state=self.seed if seed is None else seed, device="cpu",
        )  # fmt: skip
        described = {"contexts": None, "items": None, f"{self.side}s": self.columns}
        return cast(ICD[CpuEngine], model.build_solver(self.feedback, described["contexts"], described["items"], workers))

    def objective(self, solver: ICD[CpuEngine]) -> float:
        """The objective, evaluated over every pair from the parameters alone."""
        phi, psi = (solver.towers[side].vectors().rows for side in ("context", "item"))
        c, i = self.cells.T
        scores = np.einsum("pf,pf->p", phi[c], psi[i])
        m, n = self.feedback.weights()
        if solver.towers["context"].capabilities.all_combinations:
            m, phi = np.ones(1), _all_combinations(solver.towers["context"])
        all_pairs = float(np.sum(np.square(phi @ psi.T) * np.broadcast_to(m, len(phi))[:, None] * n))
        observed = np.broadcast_to(m, self.feedback.n_contexts)[c] * n[i]
        implicit = all_pairs - float(np.sum(observed * scores**2))
        l2 = sum(tower.l2() for tower in solver.towers.values())
        return float(np.sum(self.alpha * (scores - self.y) ** 2)) + solver.engine.alpha0 * implicit + l2

    def fail(self, what: str, message: str) -> None:
        raise AssertionError(f"{self.tower!r}: {what}: {message}")

    def same(self, what: str, actual: np.ndarray, expected: np.ndarray, where: Callable[..., str], rtol: float = 1e-9) -> None:
        if actual.shape != expected.shape:
            self.fail(what, f"shape {actual.shape}, expected {expected.shape}.")
        if actual.size == 0:
            return
        error = np.abs(actual - expected)
        worst = np.unravel_index(int(np.argmax(np.where(np.isfinite(error), error, np.inf))), error.shape)
        if not error[worst] <= rtol * max(1.0, float(np.abs(expected).max())):
            place = where(*(int(j) for j in worst))
            self.fail(what, f"{place} is {actual[worst]:.6g}, expected {expected[worst]:.6g}.")

    # the checks

    def description(self) -> None:
        before = dict(vars(self.tower))
        one, two = (self.solver().towers[self.side] for _ in range(2))
        if vars(self.tower) != before:
            changed = [name for name in vars(self.tower) if vars(self.tower)[name] is not before.get(name)]
            self.fail("bind", f"changed attributes of the description ({', '.join(changed)}); it must change only the bound copy.")
        phi = one.vectors().rows
        if phi.shape != (self.n, self.tower.n_dims):
            self.fail("vectors", f"shape {phi.shape}, expected (rows, n_dims) = {(self.n, self.tower.n_dims)}.")
        if not np.isfinite(phi).all():
            row, dimension = np.argwhere(~np.isfinite(phi))[0]
            self.fail("vectors", f"row {row}, dimension {dimension} is {phi[row, dimension]} at the start.")
        self.same("bind", two.vectors().rows, phi, lambda c, f: f"with the same seed, phi[{c}, {f}]", 0.0)

    def subset_of_rows(self) -> None:
        tower = self.solver().towers[self.side]
        phi, index = tower.vectors().rows, np.arange(self.n)[::-2]
        self.same("vectors_by_row", tower.vectors_by_row()(index), phi[index], lambda c, f: f"of rows [::-2], phi[{c}, {f}]")
        if tower.rows.has_rows:
            subset = tower.evaluate(tower.rows.take(index), SERIAL).rows
            self.same("evaluate", subset, phi[index], lambda c, f: f"for rows [::-2] alone, phi[{c}, {f}]")
        dimension = tower.dimensions(tower.rows, SERIAL)
        for f in range(tower.n_dims):
            self.same("dimensions", np.asarray(dimension(f)), phi[:, f], lambda c, f=f: f"phi_{f} of row {c}")

    def contributions(self) -> None:
        tower = self.solver().towers[self.side]
        psi = self.random.normal(size=tower.n_dims)
        if not tower.rows.has_rows:
            return
        for c, expected in enumerate(tower.vectors().rows @ psi):
            amounts = [term.amount for term in tower.contributions(tower.rows.take(np.array([c])), psi)]
            if abs(sum(amounts) - expected) > 1e-9 * max(1.0, sum(map(abs, amounts))):
                self.fail("contributions", f"those of row {c} add up to {sum(amounts):.6g}, expected <phi, psi> = {expected:.6g}.")

    def coordinates(self) -> None:
        tower = self.smooth()
        visits = {name: np.zeros(value.shape, int) for name, value in tower.parameter_values.items()}
        for entries in tower.coordinate_entries:
            np.add.at(visits[entries.at.name], entries.at.index, 1)
        for name, count in visits.items():
            if np.any(count != 1):
                index = tuple(int(j) for j in np.argwhere(count != 1)[0])
                self.fail("coordinates", f"{name}{list(index)} is stepped on {count[index]} times in a sweep, expected once.")

    def smooth(self) -> Smooth:
        tower = self.solver().towers[self.side]
        assert isinstance(tower, Smooth)
        return tower

    def derivatives(self) -> None:
        """At the start values and at random values near them: where a parameter is zero, an error may not show."""
        for noise in (0.0, 0.3):
            tower = self.smooth()
            p, rows = tower.parameter_values, tower.rows
            for value in p.values():
                value += noise * self.random.normal(size=value.shape)
            phi = np.asarray(tower.phi(p, rows))
            if phi.dtype != np.float64:
                self.fail("phi", f"returns {phi.dtype} for parameters of float64; it must keep their dtype.")
            for entries in tower.coordinate_entries:
                at = entries.at
                d = tower.checked(tower.derivatives(p, rows, at), at)
                kind = "second derivative" if d.second is not None else "second derivative (None means zero)"
                second = np.zeros_like(d.first) if d.second is None else d.second
                slopes, bends = {}, {}
                for h in SLOPE_STEPS:
                    above, below = _around(tower, entries, h)
                    slopes[h] = (above - below) / (2 * h)
                for h in BEND_STEPS:
                    above, below = _around(tower, entries, h)
                    bends[h] = (above - 2 * phi + below) / h**2
                first, second = (self.padded(np.asarray(x), d.start) for x in (d.first, second))
                if at.entry is not None:  # derivatives of rows that depend on no entry do not matter
                    first, second = (np.where(at.entry[:, None] >= 0, x, 0.0) for x in (first, second))
                self.agrees(f"first derivative by {_name(at)}", first, slopes, np.abs(phi).max(), 1)
                self.agrees(f"{kind} by {_name(at)}", second, bends, np.abs(phi).max(), 2)
                if at.entry is not None:
                    self.owners(tower, entries)

    def agrees(self, what: str, actual: np.ndarray, by_step: dict[float, np.ndarray], size: float, order: int) -> None:
        """Compare with the differences of the most accurate step size, chosen for each entry.

        Large steps have truncation errors, small ones rounding errors.
        """
        steps, differences = list(by_step), np.array(list(by_step.values()))
        jumps = np.abs(np.diff(differences, axis=0))  # estimates the error of a step size, truncation or rounding
        doubt = np.concatenate([jumps, jumps[-1:]]) + np.reshape(
            [30 * np.finfo(float).eps * size / h**order for h in steps], (-1, 1, 1)
        )
        best = np.argmin(doubt, axis=0)[None]
        expected, allowed = (np.take_along_axis(x, best, axis=0)[0] for x in (differences, doubt))
        excess = np.abs(actual - expected) - allowed - TOLERANCE * np.abs(expected).max(initial=0.0)
        if not np.all(excess <= 0.0):
            c, f = np.unravel_index(int(np.argmax(np.where(np.isfinite(excess), excess, np.inf))), excess.shape)
            self.fail(what, f"row {c}, dimension {f} is {actual[c, f]:.4g}, expected {expected[c, f]:.4g}.")

    def owners(self, tower: Smooth, entries: Entries) -> None:
        """An entry must not move rows of other entries."""
        p, at = tower.parameter_values, entries.at
        assert at.entry is not None
        phi, before = np.array(tower.phi(p, tower.rows)), np.array(entries.get(p))
        for j in range(min(entries.size, 20)):
            entries.put(p, before + 0.1 * (np.arange(entries.size) == j))
            moved = np.any(tower.phi(p, tower.rows) != phi, axis=1) & (at.entry != j)
            entries.put(p, before)
            if moved.any():
                c = int(np.argmax(moved))
                self.fail("coordinates", f"row {c} depends on entry {j} of {_name(at)}, but coordinates say entry {at.entry[c]}.")

    def padded(self, derivative: np.ndarray, start: int) -> np.ndarray:
        out = np.zeros((self.n, self.tower.n_dims))
        out[:, start : start + derivative.shape[1]] = derivative
        return out

    def gram(self) -> None:
        tower = self.solver().towers[self.side]
        weight = 1.0 if tower.capabilities.all_combinations else self.random.uniform(0.5, 1.5, self.n)
        phi = _all_combinations(tower) if tower.capabilities.all_combinations else tower.vectors().rows
        expected = (phi * np.reshape(weight, (-1, 1))).T @ phi
        vectors = tower.vectors()
        self.same("gram", tower.gram(vectors, weight, SERIAL), expected, lambda f, g: f"J[{f}, {g}]")
        self.same("norms", tower.norms(vectors, weight, SERIAL), np.diag(expected), lambda f: f"J[{f}, {f}]")

    def rotation(self) -> None:
        tower = self.solver().towers[self.side]
        for a, b in tower.capabilities.rotations:
            Q = np.linalg.qr(self.random.normal(size=(b - a, b - a)))[0]
            expected, l2 = tower.vectors().rows.copy(), tower.l2()
            expected[:, a:b] = expected[:, a:b] @ Q
            tower.rotate(slice(a, b), Q, SERIAL)
            self.same("rotate", tower.vectors().rows, expected, lambda c, f: f"phi[{c}, {f}]")
            if abs(tower.l2() - l2) > 1e-9 * max(1.0, l2):
                self.fail("rotate", f"of dimensions {a} to {b - 1} changed L2 from {l2:.6g} to {tower.l2():.6g}.")

    def blocks(self) -> None:
        """Moving a level's vector, or a feature's weights, must move phi as the description of its block says."""
        tower = self.solver().towers[self.side]
        for block in tower.describe_blocks() or ():
            before = tower.vectors().rows.copy()
            table = block.parameter.by_row
            if isinstance(block, CoreBlock):
                delta = self.random.normal(size=table.shape)
                expected = before.copy()
                expected[:, block.dimension : block.dimension + table.shape[-1]] += _contracted(block.modes, delta)
                table += delta
            else:
                row = int(self.random.integers(self.n))
                level, x = _level_of(block, row)
                if level is None:
                    continue
                delta = self.random.normal(size=table[block.start + level].shape)
                expected = _moved(block, before, level, x, delta)
                table[block.start + level] += delta
            self.same(f"describe_blocks: {type(block).__name__}", tower.vectors().rows, expected, lambda c, f: f"phi[{c}, {f}]")

    def steps(self, alpha0: float) -> None:
        """No step on a block, and no sweep, may raise the objective."""
        solver = self.solver(alpha0=alpha0)
        tower, before = solver.towers[self.side], self.objective(solver)
        for _ in range(2):
            for block in tower.blocks:
                tower.step(solver.engine.objective.side(self.side), block)
                before = self.descends(solver, before, f"step on block {block!r}")
            solver.engine.update_gram(self.side)
            for side in solver.sweeps():
                before = self.descends(solver, before, f"sweep of the {side} side")
                reported = solver.value().objective
                grams = solver.engine.objective.grams
                cancelled = solver.engine.alpha0 * float(np.sum(np.abs(grams["context"]) * np.abs(grams["item"])))
                if abs(reported - before) > 1e-7 * max(1.0, abs(before)) + 1e-12 * cancelled:
                    self.fail("objective", f"after a sweep it is {reported:.9g} by the Grams, but {before:.9g} over every pair.")

    def descends(self, solver: ICD[CpuEngine], before: float, what: str) -> float:
        after = self.objective(solver)
        if not after <= before + 1e-9 * max(1.0, abs(before)):
            self.fail(what, f"the objective rose from {before:.9g} to {after:.9g}.")
        tracked, true = solver.engine.objective.vectors[self.side].rows, solver.towers[self.side].vectors().rows
        mismatch = "the moves reported to the view are not those of the vectors"
        self.same(what, tracked, true, lambda c, f: f"{mismatch}: phi[{c}, {f}]", 1e-7)
        context, item = self.feedback.rows, self.feedback.by_context.indices
        phi, psi = (solver.towers[side].vectors().rows for side in ("context", "item"))
        scores = np.einsum("pf,pf->p", phi[context], psi[item])
        tracked = solver.engine.objective.scores("context")
        self.same(what, tracked, scores, lambda p: f"{mismatch}: the score of {context[p], item[p]}", 1e-7)
        return after

    def convergence(self) -> None:
        """After many sweeps of this side alone, moving a single entry of a parameter must not lower the objective much."""
        solver = self.solver()
        tower, start = solver.towers[self.side], self.objective(solver)
        for _ in range(SWEEPS):
            tower.sweep(solver.engine.objective.side(self.side))
        now = self.objective(solver)
        for name, parameter in tower.parameters.items():
            for index in self.sampled_entries(parameter.value):
                theta, h = parameter.value[index], 1e-4
                values = []
                for move in (h, -h):
                    parameter.value[index] = theta + move
                    values.append(self.objective(solver))
                parameter.value[index] = theta
                slope, curvature = (values[0] - values[1]) / (2 * h), (values[0] + values[1] - 2 * now) / h**2
                gain = slope**2 / (2 * max(curvature, abs(slope), 1e-12))
                if gain > 1e-3 * (start - now) + 1e-6:
                    self.fail(
                        "sweep",
                        f"after {SWEEPS} sweeps the objective is {now:.6g}, and moving {name}{list(index)} alone could lower it by "
                        f"{gain:.3g}: its steps are missing or too small.",
                    )

    def sampled_entries(self, value: np.ndarray) -> Iterator[tuple[int, ...]]:
        entries = list(np.ndindex(*value.shape))
        for j in self.random.permutation(len(entries))[:30]:
            yield entries[j]

    def fixed_parameters(self) -> None:
        for name in self.solver().towers[self.side].parameters:
            solver = self.solver()
            parameter = solver.towers[self.side].parameters[name]
            parameter.fixed = True
            before = parameter.value.copy()
            list(solver.sweeps())
            if not np.array_equal(parameter.value, before):
                self.fail("sweep", f"the parameter {name!r} moved although it is fixed: check Parameter.fixed in blocks or step.")

    def threads(self) -> None:
        results = []
        for n_threads in (1, 2, 3):
            with Workers(n_threads, small=0) as workers:
                solver = self.solver(workers=workers)
                for _ in range(2):
                    list(solver.sweeps())
                results.append({name: p.value.copy() for name, p in solver.towers[self.side].parameters.items()})
        for n_threads, parameters in ((2, results[1]), (3, results[2])):
            for name, value in parameters.items():
                if not np.array_equal(value, results[0][name]):
                    index = tuple(int(j) for j in np.argwhere(value != results[0][name])[0])
                    self.fail("threads", f"{name}{list(index)} has different bits on {n_threads} threads and on one.")

    def files(self) -> None:
        solver = self.solver()
        list(solver.sweeps())
        tower, other = solver.towers[self.side], self.solver(seed=self.seed + 1).towers[self.side]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tower.safetensors"
            save_file({name: p.show() for name, p in tower.parameters.items()}, path)
            for name, value in load_file(path).items():
                other.parameters[name].load(value)
        what = "after saving and loading the parameters (is a learned value missing from them?), phi"
        self.same("files", other.vectors().rows, tower.vectors().rows, lambda c, f: f"{what}[{c}, {f}]", 0.0)


def _around(tower: Smooth, entries: Entries, step: float) -> list[np.ndarray]:
    """phi with the entries moved up, and down, by a step."""
    p, vectors = tower.parameter_values, []
    base = np.array(entries.get(p))
    for value in (base + step, base - step):
        entries.put(p, value)
        vectors.append(np.array(tower.phi(p, tower.rows)))
    entries.put(p, base)
    return vectors


def _name(at: Coordinates) -> str:
    return f"{at.name}[{at.index!r}]"


def _all_combinations(tower: Tower) -> np.ndarray:
    """The vectors of every combination of levels."""
    assert isinstance(tower, Modes)
    levels = {mode.column: tower.rows.levels(mode.column) for mode in tower.modes}
    grid = np.indices([column.n for column in levels.values()]).reshape(len(levels), -1)
    columns = {name: column.of(codes) for (name, column), codes in zip(levels.items(), grid, strict=True)}
    return tower.evaluate(Rows("context", grid.shape[1], columns, index=None), SERIAL).rows


def _level_of(block: LevelBlock | FieldBlock, row: int) -> tuple[int | None, np.ndarray]:
    """A level (or feature) of a row, None if it has none; and every row's value of it."""
    if isinstance(block, FieldBlock):
        X = np.stack([block.field.multiply(column, SERIAL) for column in np.eye(block.field.shape[1])], axis=1)
        nonzero = np.flatnonzero(X[row])
        return (int(nonzero[0]), X[:, nonzero[0]]) if len(nonzero) else (None, X[:, 0])
    if block.levels is None:
        return row, np.eye(1, len(block.parameter.by_row), row)[0]
    codes = block.levels.codes.astype(np.int64)
    size = block.levels.n if isinstance(block.levels, Levels) else block.levels.shape[1]
    level = int(codes[row])
    return (level if 0 <= level < size else None), (codes == level).astype(float)


def _moved(block: LevelBlock | FieldBlock, phi: np.ndarray, level: int, x: np.ndarray, delta: np.ndarray) -> np.ndarray:
    """phi after the level's vector moved by ``delta``, according to the block's partner."""
    moved, width = phi.copy(), np.size(delta)
    dims = slice(block.dimension, block.dimension + width)
    if block.partner == PRODUCT:
        assert isinstance(block, LevelBlock)
        v = np.prod([table[codes] for table, codes in (mode(SERIAL) for mode in block.modes)], axis=0)
        moved[:, dims] += x[:, None] * v * delta
    elif block.partner == CORE:
        assert isinstance(block, LevelBlock)
        assert block.core is not None
        core = np.moveaxis(block.core(), -2, 0)  # dimensions of this mode first
        move = _contracted(block.modes, np.tensordot(delta, core, 1))
        moved[:, block.dimension : block.dimension + move.shape[1]] += x[:, None] * move
    else:
        moved[:, dims] += x[:, None] * np.reshape(delta, -1)
    if block.partner == SUM:
        assert block.bias is not None
        others = phi[:, dims] - x[:, None] * block.parameter.by_row[block.start + level]
        moved[:, block.bias] += x * (others @ delta)
    return moved


def _contracted(modes: Sequence[Any], tensor: np.ndarray) -> np.ndarray:
    """``sum tensor[f2, f3, ..., f] v_f2 v_f3 ...`` for each row."""
    out = tensor
    for j, (table, codes) in enumerate(mode(SERIAL) for mode in modes):
        v = table[codes]
        out = np.einsum("ca,a...->c...", v, out) if j == 0 else np.einsum("ca,ca...->c...", v, out)
    return np.atleast_2d(out)
