"""Models with features on a GPU: the steps of the CPU in the same order, so that objectives agree epoch by epoch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import everypair as ep
from everypair.gpu import tasks
from everypair.gpu.device import DeviceError
from everypair.towers import Embedding, Linear, Sum

from profiles import EXAMPLES
from shim_backend import REAL

MODELS = [ep.MFSI, ep.FM]


def one_hot(codes: np.ndarray, n: int) -> Any:
    """A field of levels; -1 is none."""
    return sp.csr_array(np.eye(n + 1)[codes][:, :n])


def problem(seed: int, events: bool, described: bool, n: int = 40, n_items: int = 11) -> tuple[ep.Feedback, dict[str, Any]]:
    """Events with user, previous item, age and a feature with values, or users with several items; items with categories or not."""
    random = np.random.default_rng(seed)
    if events:
        item, user = random.integers(0, n_items, n), np.sort(random.integers(0, 9, n))
        values = np.eye(4)[random.integers(0, 3, n)] * random.normal(size=(n, 1))
        fields = {"user": one_hot(user, 9), "previous": one_hot(np.append(-1, item[:-1]), n_items), "age": one_hot(user % 3, 3)}
        feedback = ep.Feedback(np.arange(n), item, alpha=random.uniform(0.5, 2.0, n), shape=(n, n_items))
        contexts = ep.Features({**fields, "value": sp.csr_array(values)})
    else:
        cells = np.argwhere(random.random((n // 3, n_items)) < 0.4)
        cells = cells if len(cells) else np.array([[0, 0]])
        user = np.arange(n // 3)
        feedback = ep.Feedback(*cells.T, shape=(n // 3, n_items), item_weight=random.uniform(0.0, 2.0, n_items))
        contexts = ep.Features({"user": one_hot(user, len(user)), "age": one_hot(user % 3, 3)})
    item = np.arange(n_items)
    category = one_hot(np.where(item == 2, -1, item % 3), 4)  # an item without one, and one that no item has
    items = ep.Features({"id": one_hot(item, n_items), "category": category}) if described else None
    return feedback, {"contexts": contexts, "items": items}


def objectives(model: Any) -> np.ndarray:
    return np.array([epoch.objective for epoch in model.history_])


@pytest.mark.parametrize("model", MODELS)
@given(
    seed=st.integers(0, 10**6),
    events=st.booleans(),
    described=st.booleans(),
    k=st.integers(1, 35),
    rotate=st.booleans(),
    exponent=st.sampled_from([0.0, 1.0]),
    alpha0=st.sampled_from([0.0, 0.05, 2.0]),
)
@settings(max_examples=EXAMPLES if REAL else max(EXAMPLES // 3, 4))
def test_the_objective_is_that_of_the_cpu(
    model: Any, seed: int, events: bool, described: bool, k: int, rotate: bool, exponent: float, alpha0: float
) -> None:
    """With more factors than items the Gram is singular: which directions a rotation leaves empty is rounding, and matters."""
    feedback, features = problem(seed, events, described)
    rotate = rotate and k < 10
    options: dict[str, Any] = {"regularization": 0.05, "regularization_exponent": exponent, "unobserved_weight": alpha0}
    on_gpu, on_cpu = (
        model(k, epochs=3, rotate=rotate, random_state=seed, device=device, **options).fit(feedback, **features)
        for device in ("cuda", "cpu")
    )
    assert on_gpu.device_ == "cuda:0"
    scale = objectives(on_cpu) + feedback.constant
    np.testing.assert_allclose(objectives(on_gpu) / scale, objectives(on_cpu) / scale, rtol=0, atol=1e-5)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("events", [True, False])
def test_long_levels_are_cut(model: Any, events: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "PIECE", 7)
    feedback, features = problem(1, events, described=True)
    on_gpu, on_cpu = (model(18, epochs=3, rotate=False, device=device).fit(feedback, **features) for device in ("cuda", "cpu"))
    np.testing.assert_allclose(objectives(on_gpu), objectives(on_cpu), rtol=1e-5)
    for name, value in on_cpu.parameters_.items():
        np.testing.assert_allclose(on_gpu.parameters_[name], value, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("model", MODELS)
def test_no_sweep_raises_the_objective(model: Any) -> None:
    from everypair.runtime.parallel import Workers

    feedback, features = problem(2, events=True, described=True)
    solver = model(20, device="cuda").build_solver(feedback, features["contexts"], features["items"], Workers(1))
    before = solver.value().objective
    for epoch in range(1, 6):
        for side in solver.sweeps(epoch):
            for each in ("context", "item"):
                solver.engine.place(each)
                solver.engine.update_gram(each)
            solver.engine.rescore()
            after = solver.value().objective
            assert after <= before + 1e-6 * (solver.engine.size + before), side
            before = after


def test_sums_of_towers() -> None:
    feedback, features = problem(3, events=True, described=False)
    contexts = {"user": ep.Levels(np.arange(40) % 9, 9), "age": features["contexts"].fields["age"].toarray()}
    context, item = Sum(Embedding(5, "user"), Linear(5, "age")), Embedding(5)
    on_gpu, on_cpu = (
        ep.Separable(context, item, epochs=3, device=device).fit(feedback, contexts=contexts) for device in ("cuda", "cpu")
    )
    assert on_gpu.device_ == "cuda:0"
    np.testing.assert_allclose(objectives(on_gpu), objectives(on_cpu), rtol=1e-5)


def test_the_same_bits_in_every_run() -> None:
    feedback, features = problem(4, events=True, described=True)
    one, two = (ep.FM(9, epochs=2, device="cuda").fit(feedback, **features) for _ in range(2))
    for name, value in one.parameters_.items():
        np.testing.assert_array_equal(value, two.parameters_[name])


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (ep.MFSI(2, regularization=0.0), {}, "the context tower has parameters without L2"),
    (ep.FM(2, field_solver="cd"), {}, "field_solver='cd' runs on the CPU only"),
    (ep.FM(2), {"tags": sp.csr_array(np.ones((40, 3)))}, "has fields of which a row may have several features"),
]


@pytest.mark.parametrize(("model", "fields", "reason"), REFUSED, ids=lambda value: str(value)[:30])
def test_what_a_gpu_cannot_do_is_refused_with_the_reason(model: Any, fields: dict[str, Any], reason: str) -> None:
    feedback, features = problem(5, events=True, described=False)
    contexts = ep.Features({**features["contexts"].fields, **fields})
    with pytest.raises(DeviceError, match=reason):
        model.set_params(device="cuda", epochs=1).fit(feedback, contexts=contexts)
    assert model.set_params(device="auto").fit(feedback, contexts=contexts).device_ == "cpu"


def test_fixed_parameters_are_refused() -> None:
    feedback, features = problem(6, events=True, described=False)
    with pytest.raises(DeviceError, match="the context tower has fixed parameters"):
        ep.FM(2, device="cuda").fit(feedback, **features, fixed={"b": [0.0]})
