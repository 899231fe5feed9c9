"""Start values are functions of a seed, names, a row's key and a dimension."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as numpy_arrays

import everypair as ep
from everypair.columns.history_field import HistoryField, Window
from everypair.columns.keys import NO_LEVEL
from everypair.engine import start_values
from everypair.engine.binding import Initializer
from everypair.engine.start_values import Stream
from everypair.models.tower_model import TowerModel
from everypair.runtime.parallel import Workers
from everypair.towers import BindContext, Concat, Core, Embedding, Linear, Lookup, Machine, Product, Smooth, Sum

from bumps import Bumps

N = 50_000
SEEDS = st.integers(0, 2**70)
KEYS = numpy_arrays(np.uint64, st.integers(1, 40), elements=st.integers(0, 2**64 - 1))


def normals(seed: int, keys: Any, k: int, name: str = "W", dtype: str = "float64", transposed: bool = False) -> np.ndarray:
    return Initializer(seed, np.dtype(dtype), 0.3).normal((len(keys), k), k, transposed, name, keys)


# values


@given(SEEDS, KEYS, st.integers(1, 7), st.data())
def test_a_row_depends_on_its_key_alone(seed: int, keys: np.ndarray, k: int, data: st.DataObject) -> None:
    rows = data.draw(numpy_arrays(np.int64, st.integers(0, 50), elements=st.integers(0, len(keys) - 1)))
    np.testing.assert_array_equal(normals(seed, keys[rows], k), normals(seed, keys, k)[rows])
    signs = [np.ones((len(each), k)) for each in (keys, keys[rows])]
    Stream(seed, "signs").multiply_by_signs(signs[0], keys)
    Stream(seed, "signs").multiply_by_signs(signs[1], keys[rows])
    np.testing.assert_array_equal(signs[1], signs[0][rows])


@given(SEEDS, KEYS, st.integers(1, 7), st.integers(1, 7))
def test_a_dimension_depends_neither_on_the_others_nor_on_their_number(seed: int, keys: np.ndarray, k: int, more: int) -> None:
    np.testing.assert_array_equal(normals(seed, keys, k), normals(seed, keys, k + more)[:, :k])
    some = Stream(seed, "W").normals(keys, more, more + k)
    np.testing.assert_array_equal(some, Stream(seed, "W").normals(keys, 0, more + k)[:, more:])
    signs, others = np.ones((len(keys), 16 * k + more)), np.ones((len(keys), more))
    Stream(seed, "signs").multiply_by_signs(signs, keys)
    Stream(seed, "signs").multiply_by_signs(others, keys, 16 * k)
    np.testing.assert_array_equal(others, signs[:, 16 * k :])


@given(SEEDS, KEYS, st.integers(1, 7), st.integers(1, 30), st.booleans(), st.sampled_from(["float32", "float64"]))
def test_chunks_layout_and_dtype_do_not_matter(
    seed: int, keys: np.ndarray, k: int, block: int, transposed: bool, dtype: str
) -> None:
    expected = normals(seed, keys, k)
    signs, signs_expected = np.ones((len(keys), 70), dtype), np.ones((len(keys), 70))
    Stream(seed).multiply_by_signs(signs_expected, keys)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(start_values, "BLOCK", block)
        found = normals(seed, keys, k, dtype=dtype, transposed=transposed)
        Stream(seed).multiply_by_signs(signs, keys)
    assert found.flags.c_contiguous
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.T if transposed else found, expected.astype(dtype))
    np.testing.assert_array_equal(signs, signs_expected)


def test_numbers_of_rows_are_keys() -> None:
    np.testing.assert_array_equal(normals(0, range(3, 60), 4), normals(0, np.arange(3, 60, dtype=np.uint64), 4))


def test_values_of_a_shape_with_more_axes() -> None:
    core = Initializer(5, np.dtype("float64"), 0.3).normal((4, 3, 2), 24, name="B")
    np.testing.assert_array_equal(core.reshape(4, 6), normals(5, range(4), 6, "B"))


def test_values_are_the_same_for_ever() -> None:
    """Models that are fitted anew shall be the same in later versions: a change of these is to be in the changelog."""
    found = normals(0, np.array([0, 1, 2**64 - 1], np.uint64), 3)
    expected = [
        [-0.12938693068905732, 0.263351989477319, -0.03692919025971805],
        [0.42722584440626415, -0.30403315183559426, 0.09529391881035247],
        [-0.6316030183608669, 0.015742321256729717, -0.6736319736161142],
    ]
    np.testing.assert_array_equal(found, expected)


# distribution


def streams() -> dict[str, np.ndarray]:
    """Two dimensions for each of many rows: of other seeds, names, fields, keys and purposes."""
    rows, scattered = range(N), np.random.default_rng(0).integers(0, 2**64, N, np.uint64)
    signs = np.ones((N, 2))
    Stream(0, "signs", "W").multiply_by_signs(signs, rows)
    return {
        "seed 0": Stream(0, "normal", "W", "").normals(rows, 0, 2),
        "seed 1": Stream(1, "normal", "W", "").normals(rows, 0, 2),
        "seed 2^64": Stream(2**64, "normal", "W", "").normals(rows, 0, 2),
        "another name": Stream(0, "normal", "H", "").normals(rows, 0, 2),
        "another field": Stream(0, "normal", "W", "user").normals(rows, 0, 2),
        "other rows": Stream(0, "normal", "W", "").normals(range(1, N + 1), 0, 2),
        "the upper half of keys": Stream(0, "normal", "W", "").normals(np.arange(N, dtype=np.uint64) << np.uint64(32), 0, 2),
        "hashes": Stream(0, "normal", "W", "").normals(scattered, 0, 2),
        "other dimensions": Stream(0, "normal", "W", "").normals(rows, 62, 64),
        "signs": signs,
    }


@pytest.mark.full
def test_streams_are_uncorrelated_and_standard_normal() -> None:
    """Within five standard errors, of each of 20 columns and of their 190 correlations, also of absolute values."""
    drawn = streams()
    values = np.concatenate(list(drawn.values()), axis=1)
    assert np.abs(values.mean(axis=0)).max() < 5.0 * N**-0.5
    normal = values[:, :-2]
    assert np.abs(np.mean(normal**2, axis=0) - 1.0).max() < 5.0 * (2.0 / N) ** 0.5
    assert np.abs(np.mean(normal**3, axis=0)).max() < 5.0 * (15.0 / N) ** 0.5
    assert np.abs(np.mean(normal**4, axis=0) - 3.0).max() < 5.0 * (96.0 / N) ** 0.5
    assert set(np.unique(drawn["signs"])) == {-1.0, 1.0}
    for each in (values, np.abs(normal), normal**2):
        correlation = np.corrcoef(each.T)
        assert np.abs(correlation - np.eye(len(correlation))).max() < 5.0 * N**-0.5


@pytest.mark.full
def test_the_whole_distribution_is_normal() -> None:
    """The largest difference between the shares below 4,001 points and those of the normal distribution (Kolmogorov-Smirnov)."""
    from scipy.stats import norm

    values = np.sort(Stream(0, "W").normals(range(N), 0, 2).ravel())
    at = np.linspace(-4.0, 4.0, 4_001)
    below = np.searchsorted(values, at) / len(values)
    assert np.abs(below - norm.cdf(at)).max() < 1.95 * len(values) ** -0.5  # exceeded once in a thousand


# models


def started(model: TowerModel, feedback: ep.Feedback, contexts: Any = None, items: Any = None) -> dict[str, np.ndarray]:
    """The parameters before the first epoch, in float64."""
    towers = model.set_params(dtype="float64").build_solver(feedback, contexts, items, Workers(1)).towers
    return {name: parameter.show() for tower in towers.values() for name, parameter in tower.parameters.items()}


def hashes(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, n, np.uint64)


def feedback_of(seed: int, n: int = 9, m: int = 7) -> ep.Feedback:
    cells = np.flatnonzero(np.random.default_rng(seed).random(n * m) < 0.3)
    cells = cells if len(cells) else np.array([0])
    return ep.Feedback(cells // m, cells % m, shape=(n, m))


def reordered(feedback: ep.Feedback, contexts: np.ndarray, items: np.ndarray) -> ep.Feedback:
    """The same feedback with its contexts and items in another order."""
    indptr, indices, _ = feedback.by_context
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return ep.Feedback(np.argsort(contexts)[rows], np.argsort(items)[indices], shape=feedback.shape)


@given(st.integers(0, 10**6), st.data())
def test_the_order_of_contexts_and_items_does_not_matter(seed: int, data: st.DataObject) -> None:
    """Nor does it to the sums of random signs by which MF starts, but for their rounding."""
    c, i = (np.array(data.draw(st.permutations(range(n)))) for n in (9, 7))
    feedback, contexts, items = feedback_of(seed), hashes(9, seed), hashes(7, seed + 1)
    other = reordered(feedback, c, i).keyed(contexts[c], items[i])
    keyed = feedback.keyed(contexts, items)
    for model in (ep.MF(3, init_std=0.2), ep.MFSI(3, init_std=0.2), ep.FM(3), ep.MF(3)):
        first, second = started(model, keyed), started(model, other)
        for name, order in {"W": c, "H": i, "w": c, "h": i}.items():
            if name in first:
                exact = not (isinstance(model, ep.MF) and model.init_std is None)
                np.testing.assert_allclose(second[name], first[name][order], rtol=0, atol=0 if exact else 1e-13)


@given(st.integers(0, 10**6), st.data())
def test_the_order_of_levels_and_columns_does_not_matter(seed: int, data: st.DataObject) -> None:
    random, feedback, n = np.random.default_rng(seed), feedback_of(seed), 5
    order = np.array(data.draw(st.permutations(range(n))))
    codes, ids, ages = random.integers(-1, n, 9), hashes(n, seed), random.random(n)
    renumbered = np.append(np.argsort(order), -1)[codes]
    items, bounds = random.integers(0, n, 12), np.array([0, 6, 12])
    begin, end = np.repeat([0, 6], [5, 4]), np.array([0, 1, 3, 4, 6, 6, 7, 9, 12])

    def columns(codes: np.ndarray, items: np.ndarray, order: Any) -> dict[str, Any]:
        column = ep.Levels(codes, n, columns={"age": ages[order]}).keyed(ids[order])
        history = HistoryField(items, bounds, begin, end, n, Window(0, 0.9, "sqrt")).keyed(ids[order])
        return {"user": column, "history": history, "x": random.random((9, 2))}

    before, after = columns(codes, items, slice(None)), columns(renumbered, np.argsort(order)[items], order)
    turned = dict(reversed(after.items()))
    for model in (ep.MFSI(3), ep.FM(3)):
        first, second = (started(model, feedback, given)["W"] for given in (before, turned))
        by_field = {"user": first[:n], "history": first[n : 2 * n], "x": first[2 * n :]}
        np.testing.assert_array_equal(second, np.concatenate([by_field["x"], by_field["history"][order], by_field["user"][order]]))
        assert len(np.unique(first)) == first.size, "fields have numbers of their own"
    table = Lookup("user", Sum(Embedding(3), Linear(3, "age")))
    model = ep.Separable(Sum(table, Embedding(3, "user", name="other")), Embedding(3))
    first, second = (started(model, feedback, {"user": given["user"]}) for given in (before, after))
    for name in ("user", "other"):
        np.testing.assert_array_equal(second[name], first[name][order])
    assert not np.isin(first["user"], first["other"]).any()


def test_keys_reach_every_tower() -> None:
    """Each parameter with a row per level, in a model of everything: levels in reverse order have reversed start values."""
    feedback, codes, ids = feedback_of(3), np.arange(9) % 4, hashes(4, 0)

    class Own(Smooth):
        n_dims, name = 2, "own"

        def start(self, rows: Any, normal: Any) -> dict[str, np.ndarray]:
            return {"a": normal((4, 2), rows.levels("user").keys), "b": normal((4, 2))}

        def phi(self, p: dict[str, np.ndarray], rows: Any) -> np.ndarray:
            return p["a"][rows.levels("user").codes]

        def coordinates(self, p: dict[str, np.ndarray], rows: Any) -> Any:
            return []

        def derivatives(self, p: dict[str, np.ndarray], rows: Any, at: Any) -> Any:
            raise NotImplementedError

    def given(codes: np.ndarray, keys: np.ndarray) -> dict[str, Any]:
        return {"user": ep.Levels(codes, 4).keyed(keys)}

    product = Product(Embedding(2, "user", name="p"), Lookup("user", Embedding(2, name="q")))
    core = Core(Embedding(2, "user", name="u"), Linear(2, "user", name="v"), factors=2)
    context = Concat(product, core, Machine(2, "user", names=("b", "w", "m")), Own())
    model = ep.Separable(context, Embedding(context.n_dims))
    first = started(model, feedback, given(codes, ids))
    second = started(model, feedback, given(3 - codes, ids[::-1]))
    for name in ("p", "q", "u", "v", "m", "own.a"):
        np.testing.assert_array_equal(second[name], first[name][::-1], err_msg=name)
    for name in ("core", "own.b", "item"):
        np.testing.assert_array_equal(second[name], first[name], err_msg=name)
    drawn = [value for name, value in first.items() if value.any()]
    assert len(np.unique(np.concatenate([value.ravel() for value in drawn]))) == sum(value.size for value in drawn)


def test_towers_that_give_no_names_have_values_of_their_own() -> None:
    """Two towers with the same formula, and the calls of one."""
    two = Concat(Bumps(3), Bumps(3, name="more"))
    feedback, contexts = feedback_of(0), {"user": np.arange(9) % 4, "time": np.linspace(0, 1, 9)}
    first, again = (started(ep.Separable(two, Embedding(6)), feedback, contexts) for _ in range(2))
    drawn = [value.ravel() for value in first.values() if value.any()]
    assert len(np.unique(np.concatenate(drawn))) == sum(map(len, drawn))
    for name, value in first.items():
        np.testing.assert_array_equal(value, again[name])


@pytest.mark.full
@pytest.mark.parametrize("factors", [4, 25])
def test_the_size_of_start_values(factors: int) -> None:
    """0.1 / sqrt(k), what is given, or such that scores of three factors start at magnitude one."""
    n = 3_000
    feedback = ep.Feedback(np.arange(n), np.arange(n), shape=(n, n))
    pairs = np.stack([np.arange(n), np.arange(n)], axis=1)
    tensor = started(ep.PARAFAC(factors), feedback, {letter: ep.Levels(pairs[:, j]) for j, letter in enumerate("UV")})
    for values, std in (
        (started(ep.FM(factors), feedback)["W"], 0.1 / factors**0.5),
        (started(ep.MF(factors, init_std=0.7), feedback)["H"], 0.7),
        (tensor["U"], factors ** (-1 / 6)),
    ):
        assert abs(values.std() / std - 1.0) < 5.0 * (2 * values.size) ** -0.5
        assert abs(values.mean()) < 5.0 * std * values.size**-0.5
    scores = np.einsum("cf,cf,cf->c", tensor["U"], tensor["V"], tensor["W"])
    assert 0.8 < scores.std() < 1.2


@given(st.integers(0, 10**6), st.booleans())
def test_float32_starts_at_the_rounded_values_of_float64(seed: int, keyed: bool) -> None:
    feedback = feedback_of(seed)
    feedback = feedback.keyed(hashes(9, seed), hashes(7, seed)) if keyed else feedback
    for model in (ep.MF(3, init_std=0.2, random_state=seed), ep.FM(3, random_state=seed)):
        exact = started(model, feedback)
        towers = model.set_params(dtype="float32").build_solver(feedback, None, None, Workers(1)).towers
        for tower in towers.values():
            for name, parameter in tower.parameters.items():
                np.testing.assert_array_equal(parameter.show(), exact[name].astype(np.float32))


def test_without_a_seed_fits_differ() -> None:
    first, second = (started(ep.FM(2, random_state=None), feedback_of(0))["W"] for _ in range(2))
    assert not np.isin(first, second).any()
    for seed in (np.int32(7), np.uint64(7)):
        np.testing.assert_array_equal(
            started(ep.FM(2, random_state=seed), feedback_of(0))["W"],  # type: ignore[arg-type]
            started(ep.FM(2, random_state=7), feedback_of(0))["W"],
        )


# merged contexts


@given(st.integers(0, 10**6), st.data())
def test_merged_contexts_have_the_smallest_key(seed: int, data: st.DataObject) -> None:
    feedback, keys = feedback_of(seed), hashes(9, seed)
    groups = np.array([0, 1, 2, *data.draw(st.lists(st.integers(0, 2), min_size=6, max_size=6))])
    merged = feedback.keyed(keys, hashes(7, 1)).merge_contexts(groups)
    np.testing.assert_array_equal(merged.context_keys, [keys[groups == g].min() for g in range(3)])
    np.testing.assert_array_equal(merged.item_keys, hashes(7, 1))
    plain = feedback.merge_contexts(groups)
    assert (plain.context_keys, plain.item_keys) == (range(3), range(7))


# keys


def test_keys_of_rows_and_levels() -> None:
    column = ep.Levels([1, -1, 0], 3).keyed([5, -1, 2**40])
    assert column.keys_of_rows().tolist() == [2**64 - 1, NO_LEVEL, 5]
    assert ep.Levels([1, -1, 0], 3).keys_of_rows().tolist() == [1, NO_LEVEL, 0]
    assert column.take(np.array([0])).keys is column.keys
    described = ep.Levels([0, 1], columns={"of": ep.Levels([1, 0]).keyed([7, 8])}).keyed([3, 4])
    rows = described.rows("user")
    assert np.asarray(rows.keys).tolist() == [3, 4]
    assert np.asarray(rows.levels("of").keys).tolist() == [7, 8]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([1, 2], r"must have one key for each of 3 rows, got shape \(2,\)"),
        ([1.0, 2.0, 3.0], r"must hold integers of 64 bits, got dtype float64. Hash the ids, or leave keys out"),
        (["a", "b", "c"], "must hold integers of 64 bits, got dtype <U1"),
    ],
)
def test_wrong_keys_are_refused(keys: Any, message: str) -> None:
    for give in (ep.Levels([0, 1, 2]).keyed, feedback_of(0, 3, 3).keyed, lambda keys: feedback_of(0, 3, 3).keyed(items=keys)):
        with pytest.raises((TypeError, ValueError), match=message):
            give(keys)


def test_wrong_numbers_of_keys_are_refused() -> None:
    class Short(Embedding):
        def build(self, binding: BindContext) -> None:
            binding.normal((9, 2), 2, keys=range(8))

    with pytest.raises(ValueError, match=r"start values of shape \(9, 2\) need 9 keys, got 8"):
        ep.Separable(Short(2), Embedding(2)).fit(feedback_of(0))
