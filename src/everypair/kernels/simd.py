"""The inner loops of the row and level sweeps in LLVM vector types: sixteen dimensions at a time, sums in registers.

The compiler does not keep a 16 x 16 array in registers across a loop, so these loops are written as LLVM instructions.
:func:`accumulate` is sixteen fused multiply-adds per pair and little else where vectors have 16 lanes; :func:`descend` continues
with the sixteen coordinate steps, without a detour through memory. LLVM lowers the same code to the vectors of other processors.
The functions called ``..._plain`` define what each does; tests compare the two, and the plain ones run where compilation is off.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, register_jitable

from everypair.kernels.jit import native

LANES = 16
HALF = LANES // 2
GROUP = 4  # pairs whose products are summed together
PARTS = 8  # sums of a product that do not wait for one another
AHEAD = 32  # pairs between the current one and the one whose vector is prefetched
CONTRACT = ("contract", "reassoc", "nsz")
I32, I64 = ir.IntType(32), ir.IntType(64)


class WeightedPairs(NamedTuple):
    """Pairs as these leaves take them: the other side's row, the score, and the weights of Lemma 1.

    ``a = alpha - share other[i]``, with what a pair with row i of the other side would weigh if it were not observed; ``share`` is
    the row's, alpha0 m_c. Steps are 1 for one number per pair (or per row of the other side), 0 for one number in all.
    """

    indices: np.ndarray
    scores: np.ndarray
    alpha: np.ndarray
    alpha_step: int
    b: np.ndarray
    b_step: int
    other: np.ndarray
    other_step: int


class GramBlock(NamedTuple):
    """The other side's Gram in sixteen dimensions: ``J[0]`` is the diagonal of their block, ``J[1:]`` the block without it.

    ``coupled`` is False where the block without its diagonal is zero. ``rest`` is the product of the Gram with the row's vector,
    again without the diagonal.
    """

    J: np.ndarray
    coupled: bool
    rest: np.ndarray


class RowSettings(NamedTuple):
    """The settings of one row's steps, in float64: the weight alpha0 m_c of the Gram, the L2 weight, step size and tolerances.

    ``lost`` is the decrease of the loss below which a step is rounding, or 0 where that does no harm: see
    :func:`everypair.runtime.numerics.lost_decrease`.
    """

    implicit: float
    l2: float
    eta: float
    tiny: float
    lost: float


class Moving(NamedTuple):
    """Parameters, and the length of their last step."""

    w: np.ndarray
    delta: np.ndarray


class Offsets(NamedTuple):
    """Where the sixteen dimensions begin: in the rows of psi, in ``rest``, in ``w`` and in ``delta``."""

    first: int
    rest_at: int
    w_at: int
    delta_at: int


@register_jitable
def accumulate_plain(pairs, psi, lo, hi, first, share, out):
    """``out[0] += sum (a s - b) v`` and ``out[1 + j] += sum a v_j v`` over pairs lo:hi, with ``v = psi[i, first:first + 16]``.

    Steps need no entries of ``out[1 + j]`` before the diagonal: a quarter of the matrix is left out, its lower left.
    Compiled, the sums over these pairs are in the precision of the data; ``out`` is in float64.
    """
    for p in range(lo, hi):
        i = pairs.indices[p]
        a = pairs.alpha[p * pairs.alpha_step] - psi.dtype.type(share) * pairs.other[i * pairs.other_step]
        b = pairs.b[p * pairs.b_step]
        v = psi[i, first : first + LANES]
        out[0] += (a * pairs.scores[p] - b) * v
        for j in range(LANES):
            needed = j // HALF * HALF
            out[1 + j, needed:] += v[j] * (a * v[needed:])


def update_plain(indices, psi, lo, hi, first, scores, delta, at):
    """``scores += <delta[at:at + 16], v>`` for pairs lo:hi."""
    for p in range(lo, hi):
        scores[p] += np.sum(delta[at : at + LANES] * psi[indices[p], first : first + LANES])


@register_jitable
def steps_plain(total, gram, row, moving, at):
    """Coordinate steps on sixteen dimensions of a row, one after the other, from their gradient and curvature.

    ``total`` is the result of :func:`accumulate` for the row's pairs, and ``row.implicit`` times the Gram adds to it. Dimension j
    moves by ``-eta (g + l2 w_j) / (h + l2)``; then ``g += G[j] delta_j`` is what a pass over the pairs would give.

    Where the curvature is lost in rounding, so is the gradient, and L2 alone counts; a dimension that not even L2 depends on
    becomes 0. A step that lowers the loss by too little is left out, though those after it take it for done.
    """
    J, rest = gram.J, gram.rest
    implicit, l2, eta, tiny, lost_decrease = row
    w, delta = moving
    g = np.empty(LANES, np.float64)
    for j in range(LANES):
        g[j] = total[0, j] + implicit * (J[0, j] * w[at.w_at + j] + rest[at.rest_at + j])
    for j in range(LANES):
        explicit, added = total[1 + j, j], implicit * J[0, j]
        h = explicit + added
        lost = h <= tiny * (abs(explicit) + added)
        h = l2 if lost else h + l2
        before = w[at.w_at + j]
        step = -eta * ((0.0 if lost else g[j]) + l2 * before) / h if h > 0.0 else -before
        taken = 0.0 if h > 0.0 and step * h * step < lost_decrease else step
        w[at.w_at + j] = before + taken
        delta[at.delta_at + j] = taken
        for i in range(j + 1, LANES):
            g[i] += (total[1 + j, i] + implicit * J[1 + j, i]) * step


@register_jitable
def product_plain(w, at, J, out):
    """``out = sum_f w[at + f] J[f]``: sixteen columns of J (whole blocks of sixteen rows) times a row's vector."""
    for j in range(LANES):
        out[j] = 0.0
    for f in range(len(J)):
        for j in range(LANES):
            out[j] += w[at + f] * J[f, j]


def descend_plain(pairs, psi, lo, hi, gram, row, moving, at):
    """:func:`accumulate` and :func:`steps` of a row, all in the precision of the data."""
    total = np.zeros((LANES + 1, LANES), np.float64)
    accumulate_plain(pairs, psi, lo, hi, at.first, row.implicit, total)
    steps_plain(total, gram, row, moving, at)


def add_vector_plain(x, vectors, i, out, r):
    """``out[r] += x vectors[i]``, the product and the sum rounded at once."""
    out[r] += out.dtype.type(x) * vectors[i]


def scale_vector_plain(x, vectors, i, out, r):
    """``out[r] = x vectors[i]``."""
    out[r] = out.dtype.type(x) * vectors[i]


@intrinsic
def _scale_vector(typingctx, x, vectors, i, out, r):  # pragma: no cover - compiled
    signature = types.void(out.dtype, vectors, types.intp, out, types.intp)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = VectorCode(context, builder, signature, args, "x", "vectors", "i", "out", "r", precision="out")
        code.add_row(replace=True)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _add_vector(typingctx, x, vectors, i, out, r):  # pragma: no cover - compiled
    signature = types.void(out.dtype, vectors, types.intp, out, types.intp)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = VectorCode(context, builder, signature, args, "x", "vectors", "i", "out", "r", precision="out")
        code.add_row()
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _accumulate(typingctx, pairs, psi, lo, hi, first, share, out):  # pragma: no cover - compiled
    signature = types.void(pairs, psi, types.intp, types.intp, types.intp, types.float64, out)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = VectorCode(context, builder, signature, args, "pairs", "psi", "lo", "hi", "first", "share", "out")
        double = ir.VectorType(ir.DoubleType(), LANES)
        for j, total in enumerate(code.sum_pairs("share")):
            place = builder.bitcast(builder.gep(code.data("out"), [I64(j * LANES)]), double.as_pointer())
            more = total if total.type == double else builder.fpext(total, double)
            builder.store(builder.fadd(builder.load(place, align=8), more), place, align=8)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _update(typingctx, indices, psi, lo, hi, first, scores, delta, at):  # pragma: no cover - compiled
    n = types.intp
    signature = types.void(indices, psi, n, n, n, scores, delta, n)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = VectorCode(context, builder, signature, args, "indices", "psi", "lo", "hi", "first", "scores", "delta", "at")
        code.move_scores(code.load(builder.gep(code.data("delta"), [code["at"]])))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _steps(typingctx, total, gram, row, moving, at):  # pragma: no cover - compiled
    signature = types.void(total, gram, row, moving, at)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = VectorCode(context, builder, signature, args, "total", "gram", "row", "moving", "at", precision="J")
        double, sums = ir.VectorType(ir.DoubleType(), LANES), []
        for j in range(LANES + 1):
            place = builder.bitcast(builder.gep(code.data("total"), [I64(j * LANES)]), double.as_pointer())
            value = builder.load(place, align=8)
            sums.append(value if code.vector == double else builder.fptrunc(value, code.vector))
        code.step(sums)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _product(typingctx, w, at, J, out):  # pragma: no cover - compiled
    signature = types.void(w, types.intp, J, out)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = VectorCode(context, builder, signature, args, "w", "at", "J", "out", precision="J")
        code.store(code.product(), code.data("out"))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _descend(typingctx, pairs, psi, lo, hi, gram, row, moving, at):  # pragma: no cover - compiled
    signature = types.void(pairs, psi, types.intp, types.intp, gram, row, moving, at)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = VectorCode(context, builder, signature, args, "pairs", "psi", "lo", "hi", "gram", "row", "moving", "at")
        code.step(code.sum_pairs("implicit"))
        return context.get_dummy_value()

    return signature, generate


class VectorCode:  # pragma: no cover - compiled
    """Code for these leaves and those of other modules. Arguments, and fields of arguments, go by name; the array called
    ``precision`` has the dtype of sums."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any, *names: str, precision: str = "psi") -> None:
        self._context, self.builder = context, builder
        self._values: dict[str, tuple[Any, Any]] = {}  # type and value
        for name, kind, value in zip(names, signature.args, args, strict=True):
            self._add(name, kind, value)
        self.scalar = context.get_data_type(self._values[precision][0].dtype)
        self.vector = ir.VectorType(self.scalar, LANES)
        self.align = 8 if isinstance(self.scalar, ir.DoubleType) else 4

    def _add(self, name: str, kind: Any, value: Any, inside: str = "") -> None:
        """The fields of a tuple go by their names; those of a tuple inside another by both names, as in ``own.codes``."""
        if not isinstance(kind, types.NamedTuple | types.NamedUniTuple):
            self._values[name] = kind, value
            return
        for j, (field, of_field) in enumerate(zip(kind.fields, kind.types, strict=True)):
            self._add(inside + field, of_field, self.builder.extract_value(value, j), f"{inside}{field}.")

    def __getitem__(self, name: str) -> Any:
        return self._values[name][1]

    def kind(self, name: str) -> Any:
        """The type of an argument."""
        return self._values[name][0]

    # the steps of the leaves

    def sum_pairs(self, share: str) -> list[Any]:
        """The sums of :func:`accumulate_plain` over the pairs, from zero; ``share`` goes by this name."""
        builder = self.builder
        sums = self.zero_sums()
        last, of_row = builder.sub(builder.extract_value(self.array("indices").shape, 0), I64(1)), self.cast(self[share])
        with self.over(self["lo"], self["hi"], 1) as p:
            self._fetch(p, last)
            v = self._load_vector(p)
            s = self._load("scores", p)
            other = self._load("other", builder.mul(self._row(p), self["other_step"]))
            alpha = self._load("alpha", builder.mul(p, self["alpha_step"]))
            a = builder.fsub(alpha, builder.fmul(of_row, other, flags=CONTRACT), flags=CONTRACT)
            b = self._load("b", builder.mul(p, self["b_step"]))
            residual = builder.fsub(builder.fmul(a, s, flags=CONTRACT), b, flags=CONTRACT)
            self.add_outer_product(sums, v, self.splat(a), self.splat(residual))
        return self.found(sums)

    def add_row(self, replace: bool = False) -> None:
        """The sum of :func:`add_vector_plain`: sixteen dimensions at a time, and those that are left one by one.

        ``replace``: the product alone.
        """
        builder, width = self.builder, self.builder.extract_value(self.array("out").shape, 1)
        source, target = (
            builder.gep(self.data(name), [builder.mul(self[row], builder.extract_value(self.array(name).shape, 1))])
            for name, row in (("vectors", "i"), ("out", "r"))
        )
        whole, x = builder.sub(width, builder.srem(width, I64(LANES))), self.splat(self["x"])
        with self.over(I64(0), whole, LANES) as f:
            place, more = builder.gep(target, [f]), self._times(x, self.load(builder.gep(source, [f])))
            self.store(more if replace else builder.fadd(self.load(place), more, flags=CONTRACT), place)
        with self.over(whole, width, 1) as f:
            place = builder.gep(target, [f])
            more = self._times(self["x"], builder.load(builder.gep(source, [f])))
            builder.store(more if replace else builder.fadd(builder.load(place), more, flags=CONTRACT), place)

    def zero_sums(self) -> list[Any]:
        """Places for the sums of :func:`accumulate_plain`, zero: a vector, and the rows of a matrix without its lower left
        quarter."""
        zero = ir.Constant(self.vector, [0.0] * LANES)
        few = ir.Constant(ir.VectorType(self.scalar, HALF), [0.0] * HALF)
        return [cgutils.alloca_once_value(self.builder, few if j > HALF else zero) for j in range(LANES + 1)]

    def add_outer_product(self, sums: list[Any], v: Any, weight: Any, residual: Any) -> None:
        """``sums[0] += residual v``, ``sums[1 + j] += weight v_j v``."""
        self.add_to(sums[0], residual, v)
        weighted = self._times(weight, v)
        upper = self._shuffle(weighted, weighted, range(HALF, LANES))
        for j in range(HALF):
            self.add_to(sums[1 + j], self.lane(v, j), weighted)
        for j in range(HALF, LANES):
            self.add_to(sums[1 + j], self._shuffle(v, v, [j] * HALF), upper)

    def found(self, sums: list[Any]) -> list[Any]:
        """The sums as whole vectors."""
        few = ir.Constant(ir.VectorType(self.scalar, HALF), [0.0] * HALF)
        wide = [HALF] * HALF + list(range(HALF))
        found = [self.builder.load(place) for place in sums]
        return [self._shuffle(total, few, wide) if j > HALF else total for j, total in enumerate(found)]

    def product(self) -> Any:
        """The sum of :func:`product_plain`, in as many parts as a fused multiply-add takes to be done."""
        builder, zero = self.builder, ir.Constant(self.vector, [0.0] * LANES)
        parts = [cgutils.alloca_once_value(builder, zero) for _ in range(PARTS)]
        with self.over(I64(0), builder.extract_value(self.array("J").shape, 0), LANES) as f:
            for j in range(LANES):
                row, part = builder.add(f, I64(j)), parts[j % PARTS]
                x = self.splat(self._load("w", builder.add(self["at"], row)))
                columns = self.load(builder.gep(self.data("J"), [builder.mul(row, I64(LANES))]))
                term = builder.fmul(x, columns, flags=("contract",))
                builder.store(builder.fadd(builder.load(part), term, flags=("contract",)), part)
        sums = [builder.load(part) for part in parts]
        while len(sums) > 1:
            sums = [builder.fadd(x, y) for x, y in zip(sums[::2], sums[1::2], strict=True)]
        return sums[0]

    def step(self, sums: list[Any]) -> None:
        """The steps of :func:`steps_plain`.

        All first steps at once as if the others did not move, ``u = scale g - length l2 w``. Then ``u += scale G[j] u_j`` for those
        after j: per dimension a splat and a fused multiply-add wait for one another, and nothing else.
        """
        builder = self.builder
        implicit, l2, eta, tiny, lost_decrease = (self.splat(self.cast(self[name])) for name in RowSettings._fields)
        zero = ir.Constant(self.vector, [0.0] * LANES)
        place = builder.gep(self.data("w"), [self["w_at"]])
        w = self.load(place)
        rest = self.load(builder.gep(self.data("rest"), [self["rest_at"]]))
        diagonal, *J = (self.load(builder.gep(self.data("J"), [I64(j * LANES)])) for j in range(LANES + 1))
        explicit = sums[1]
        for j in range(1, LANES):
            one = ir.Constant(ir.VectorType(ir.IntType(1), LANES), [i == j for i in range(LANES)])
            explicit = builder.select(one, sums[1 + j], explicit)
        added = self._times(implicit, diagonal)
        h = builder.fadd(explicit, added)
        size = builder.fadd(builder.select(builder.fcmp_ordered("<", explicit, zero), builder.fneg(explicit), explicit), added)
        lost = builder.fcmp_ordered("<=", h, self._times(tiny, size))
        h = builder.fadd(builder.select(lost, zero, h), l2)
        free = builder.fcmp_ordered(">", h, zero)
        smallest = np.finfo(np.float64 if self.align == 8 else np.float32).tiny  # the inverse of less overflows: no step
        length = builder.select(builder.fcmp_ordered(">=", h, self._constant(smallest)), builder.fdiv(eta, h), zero)
        scale = builder.select(lost, zero, builder.fneg(length))
        g = builder.fadd(sums[0], self._times(implicit, builder.fadd(self._times(diagonal, w), rest)))
        u = builder.fsub(self._times(scale, g), self._times(self._times(length, l2), w), flags=CONTRACT)
        u = builder.select(free, u, builder.fneg(w))
        moved = cgutils.alloca_once(builder, self.vector)
        with builder.if_else(self["coupled"]) as (coupled, apart):
            with coupled:
                both = [builder.fadd(G, self._times(implicit, row), flags=CONTRACT) for G, row in zip(sums[1:], J, strict=True)]
                builder.store(self._substitute(both, scale, u), moved)
            with apart:
                builder.store(self._substitute(sums[1:], scale, u), moved)
        u = builder.load(moved)
        rounding = builder.fcmp_ordered("<", builder.fmul(builder.fmul(u, h), u), lost_decrease)
        u = builder.select(builder.and_(free, rounding), zero, u)
        self.store(builder.fadd(w, u), place)
        self.store(u, builder.gep(self.data("delta"), [self["delta_at"]]))

    def move_scores(self, delta: Any) -> None:
        """``scores += <delta, v>``, a few pairs at a time, whose products are added up side by side."""
        builder, lo, hi = self.builder, self["lo"], self["hi"]
        few = ir.VectorType(self.scalar, GROUP)
        bits = 64 if isinstance(self.scalar, ir.DoubleType) else 32
        kinds = [few, few.as_pointer(), I32, ir.VectorType(ir.IntType(1), GROUP)]
        store = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), kinds), f"llvm.masked.store.v{GROUP}f{bits}.p0v{GROUP}f{bits}"
        )
        load = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(few, [*kinds[1:], few]), f"llvm.masked.load.v{GROUP}f{bits}.p0v{GROUP}f{bits}"
        )
        last = builder.sub(hi, I64(1))
        whole = builder.sub(last, builder.srem(builder.sub(last, lo), I64(GROUP)))  # the last group has 1 to GROUP pairs

        def move(p: Any, places: list[Any]) -> Any:
            products = [self._times(delta, self._load_vector(place)) for place in places]
            return builder.bitcast(builder.gep(self.data("scores"), [p]), few.as_pointer()), self.add_lanes(*products)

        with builder.if_then(builder.icmp_signed("<", lo, hi)):
            with self.over(lo, whole, GROUP) as p:
                place, moved = move(p, [builder.add(p, I64(j)) for j in range(GROUP)])
                builder.store(builder.fadd(builder.load(place, align=self.align), moved), place, align=self.align)
            places = [builder.add(whole, I64(j)) for j in range(GROUP)]
            inside = [builder.icmp_signed("<", p, hi) for p in places]
            place, moved = move(whole, [builder.select(yes, p, last) for yes, p in zip(inside, places, strict=True)])
            mask = ir.Constant(kinds[3], ir.Undefined)
            for j, yes in enumerate(inside):
                mask = builder.insert_element(mask, yes, I32(j))
            before = builder.call(load, [place, I32(self.align), mask, ir.Constant(few, [0.0] * GROUP)])
            builder.call(store, [builder.fadd(before, moved), place, I32(self.align), mask])

    def load(self, pointer: Any) -> Any:
        return self.builder.load(self.builder.bitcast(pointer, self.vector.as_pointer()), align=self.align)

    def store(self, value: Any, pointer: Any) -> None:
        self.builder.store(value, self.builder.bitcast(pointer, self.vector.as_pointer()), align=self.align)

    def data(self, name: str) -> Any:
        return self.array(name).data

    # their instructions

    def _substitute(self, G: list[Any], scale: Any, u: Any) -> Any:
        builder = self.builder
        for j in range(LANES - 1):
            later = ir.Constant(ir.VectorType(ir.IntType(1), LANES), [i > j for i in range(LANES)])
            zero = ir.Constant(self.vector, [0.0] * LANES)
            row = builder.select(later, self._times(G[j], scale), zero)
            u = builder.fadd(u, self._times(row, self.lane(u, j)), flags=("contract",))
        return u

    def add_lanes(self, x: Any, y: Any, z: Any, t: Any) -> Any:
        """The sums of the lanes of four vectors, by halves and always in the same order."""

        def halves(p: Any, q: Any, size: int) -> Any:
            starts = range(0, LANES, 2 * size)
            low = [i + j for i in starts for j in range(size)]
            high = [i + size for i in low]
            return self.builder.fadd(
                self._shuffle(p, q, low + [LANES + i for i in low]), self._shuffle(p, q, high + [LANES + i for i in high])
            )

        total = halves(halves(x, y, 8), halves(z, t, 8), 4)  # four lanes each
        for size in (2, 1):
            total = self.builder.fadd(total, self._shuffle(total, total, [i ^ size for i in range(LANES)]))
        return self._shuffle(total, total, range(0, LANES, 4))

    def over(self, start: Any, stop: Any, step: int) -> Any:
        return _first(cgutils.for_range_slice(self.builder, start, stop, I64(step)))

    def _fetch(self, p: Any, last: Any) -> None:
        """Prefetch the vector of a pair some way ahead, which may be another row's."""
        builder = self.builder
        ahead = builder.add(p, I64(AHEAD))
        ahead = builder.select(builder.icmp_signed("<", ahead, last), ahead, last)
        self.prefetch_at(self._pointer(ahead))

    def prefetch_at(self, place: Any) -> None:
        byte = ir.IntType(8).as_pointer()
        fetch = cgutils.get_or_insert_function(
            self.builder.module, ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32]), "llvm.prefetch.p0i8"
        )
        self.builder.call(fetch, [self.builder.bitcast(place, byte), I32(0), I32(3), I32(1)])

    def _load(self, name: str, position: Any) -> Any:
        return self.builder.load(self.builder.gep(self.data(name), [position]))

    def _pointer(self, p: Any) -> Any:
        """Where ``psi[indices[p], first]`` lies."""
        builder = self.builder
        stride = builder.extract_value(self.array("psi").shape, 1)
        return builder.gep(self.data("psi"), [builder.add(builder.mul(self._row(p), stride), self["first"])])

    def _row(self, p: Any) -> Any:
        """``indices[p]``."""
        row = self._load("indices", p)
        return self.builder.sext(row, I64) if self._values["indices"][0].dtype.bitwidth < 64 else row

    def _load_vector(self, p: Any) -> Any:
        """``psi[indices[p], first:first + 16]``."""
        return self.load(self._pointer(p))

    def array(self, name: str) -> Any:
        kind, value = self._values[name]
        return self._context.make_array(kind)(self._context, self.builder, value)

    def cast(self, value: Any) -> Any:
        return value if isinstance(self.scalar, ir.DoubleType) else self.builder.fptrunc(value, self.scalar)

    def _times(self, x: Any, y: Any) -> Any:
        return self.builder.fmul(x, y, flags=CONTRACT)

    def add_to(self, place: Any, x: Any, y: Any) -> None:
        builder = self.builder
        builder.store(builder.fadd(builder.load(place), self._times(x, y), flags=CONTRACT), place)

    def _constant(self, value: Any) -> Any:
        return ir.Constant(self.vector, [float(value)] * LANES)

    def lane(self, vector: Any, j: int) -> Any:
        """Lane j, in all lanes."""
        return self._shuffle(vector, vector, [j] * LANES)

    def splat(self, value: Any) -> Any:
        one = self.builder.insert_element(ir.Constant(self.vector, ir.Undefined), value, I32(0))
        return self.lane(one, 0)

    def _shuffle(self, x: Any, y: Any, lanes: Any) -> Any:
        lanes = list(lanes)
        return self.builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))


@contextmanager
def _first(loop: Any) -> Iterator[Any]:  # pragma: no cover - compiled
    with loop as (position, _):
        yield position


scale_vector = native(_scale_vector, scale_vector_plain)
add_vector = native(_add_vector, add_vector_plain)
accumulate = native(_accumulate, accumulate_plain)
update = native(_update, update_plain)
steps = native(_steps, steps_plain)
descend = native(_descend, descend_plain)
product = native(_product, product_plain)
