"""Metrics agree with their formulas and with other implementations; rankings and intervals are what they say."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

import everypair as ep
from everypair.evaluation import METRICS, ColdStart, Evaluation, LeaveLast, RandomPerUser, evaluate
from everypair.evaluation import metrics as formulas
from everypair.evaluation.queries import of_events
from everypair.ranking.rank import DenseScores, InnerProducts, Lists, rank
from everypair.recommend.context_batch import ContextBatch
from everypair.runtime.parallel import Workers
from everypair.tuning.search import search


@st.composite
def ranked(draw: st.DrawFn) -> tuple[np.ndarray, list[list[int]], int]:
    """Lists of k distinct items out of n, some short, and sets of relevant items."""
    n, k = draw(st.integers(2, 12)), draw(st.integers(1, 8))
    lists, relevant = [], []
    for _ in range(draw(st.integers(1, 5))):
        items = draw(st.permutations(range(n)))[: draw(st.integers(0, k))]
        lists.append(items + [-1] * (k - len(items)))
        relevant.append(sorted(draw(st.sets(st.integers(0, n - 1), min_size=1))))
    return np.array(lists).reshape(len(lists), k), relevant, n


def hits_and_counts(ids: np.ndarray, relevant: list[list[int]], n: int) -> tuple[np.ndarray, np.ndarray]:
    counts = np.array([len(items) for items in relevant])
    return formulas.hits_of(ids, np.append(0, np.cumsum(counts)), np.concatenate(relevant), n), counts


@given(case=ranked())
def test_hits(case: tuple[np.ndarray, list[list[int]], int]) -> None:
    ids, relevant, n = case
    hits, _ = hits_and_counts(ids, relevant, n)
    assert hits.tolist() == [[item in wanted for item in row] for row, wanted in zip(ids.tolist(), relevant, strict=True)]


@given(case=ranked())
def test_metrics_agree_with_trec_eval(case: tuple[np.ndarray, list[list[int]], int]) -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval", reason="the reference implementation of TREC is not installed")
    ids, relevant, n = case
    hits, counts = hits_and_counts(ids, relevant, n)
    k = ids.shape[1]
    wanted = {f"q{q}": {f"d{item}": 1 for item in items} for q, items in enumerate(relevant)}
    run = {f"q{q}": {f"d{item}": float(k - j) for j, item in enumerate(row) if item >= 0} for q, row in enumerate(ids)}
    measures = {f"recall.{k}", f"P.{k}", f"ndcg_cut.{k}", f"map_cut.{k}", "recip_rank", f"success.{k}"}
    theirs = pytrec_eval.RelevanceEvaluator(wanted, measures).evaluate(run)
    for q in range(len(ids)):
        for name, key in (
            ("recall", "recall"),
            ("precision", "P"),
            ("ndcg", "ndcg_cut"),
            ("map", "map_cut"),
            ("hit_rate", "success"),
        ):
            value = METRICS[name](hits, counts, k)[q]
            # theirs divides average precision by all relevant items, ours by those that fit into the list
            expected = theirs[f"q{q}"][f"{key}_{k}"] if f"q{q}" in theirs and run[f"q{q}"] else 0.0
            expected *= counts[q] / min(k, counts[q]) if name == "map" else 1.0
            np.testing.assert_allclose(value, expected, atol=1e-9, err_msg=name)
        first = theirs[f"q{q}"]["recip_rank"] if f"q{q}" in theirs and run[f"q{q}"] else 0.0
        np.testing.assert_allclose(METRICS["mrr"](hits, counts, k)[q], first, atol=1e-9)


@given(case=ranked())
def test_ndcg_agrees_with_scikit_learn(case: tuple[np.ndarray, list[list[int]], int]) -> None:
    ids, relevant, n = case
    hits, counts = hits_and_counts(ids, relevant, n)
    k = ids.shape[1]
    for q, wanted in enumerate(relevant):
        truth, score = np.zeros((1, n + k)), np.full((1, n + k), -1.0)  # as many more: what fills up short lists
        truth[0, wanted] = 1.0
        score[0, n:] = -np.arange(1, k + 1) / k
        score[0, :n] = -2.0
        for j, item in enumerate(ids[q]):
            if item >= 0:
                score[0, item] = k - j
        np.testing.assert_allclose(formulas.ndcg(hits, counts, k)[q], ndcg_score(truth, score, k=k), atol=1e-9)


@given(case=ranked())
def test_f1_is_the_harmonic_mean(case: tuple[np.ndarray, list[list[int]], int]) -> None:
    hits, counts = hits_and_counts(*case)
    precision, recall, f1 = (METRICS[name](hits, counts, hits.shape[1]) for name in ("precision", "recall", "f1"))
    for p, r, f in zip(precision, recall, f1, strict=True):
        np.testing.assert_allclose(f, 2 * p * r / (p + r) if p + r else 0.0)


@given(case=ranked(), more=st.integers(1, 5))
def test_lists_shorter_than_k(case: tuple[np.ndarray, list[list[int]], int], more: int) -> None:
    """Filled up to k, or not: the same."""
    ids, relevant, n = case
    hits, counts = hits_and_counts(ids, relevant, n)
    filled = np.hstack([hits, np.zeros((len(hits), more), bool)])
    for name, metric in METRICS.items():
        found, expected = (metric(h, counts, hits.shape[1] + more) for h in (hits, filled))
        np.testing.assert_allclose(found, expected, err_msg=name)


def test_coverage() -> None:
    assert formulas.coverage(np.array([[0, 2], [2, -1]]), 5) == 0.4


def test_every_formula_is_documented() -> None:
    for metric in (*METRICS.values(), formulas.coverage):
        assert metric.__doc__
        assert ":math:" in metric.__doc__ or metric is formulas.coverage


@pytest.mark.parametrize("spec", ["ndcg", "ndcg@0", "ndcg@x", "recal@5", 7, "ndcg@-1"])
def test_unknown_metrics_are_refused(spec: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(spec))):
        formulas.parse(spec)


@pytest.mark.parametrize("n", [1, 3, 20])
@given(data=st.data())
def test_ranking_is_exact(n: int, data: st.DataObject) -> None:
    """With ties, items left out and candidate lists; in chunks, on several threads."""
    rows, n_items = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 9))
    scores = np.array(data.draw(st.lists(st.integers(0, 3), min_size=rows * n_items, max_size=rows * n_items)), float).reshape(
        rows, n_items
    )
    subsets = st.lists(st.sets(st.integers(0, n_items - 1)), min_size=rows, max_size=rows)
    excluded, allowed = data.draw(st.none() | subsets), data.draw(st.none() | subsets)

    def lists(sets: Any) -> Lists | None:
        if sets is None:
            return None
        bounds = np.append(0, np.cumsum([len(items) for items in sets]))
        return Lists(bounds[:-1], bounds[1:], np.array([item for items in sets for item in sorted(items)], np.int64))

    with Workers(2, small=1) as workers:
        ids, best = rank(
            DenseScores(lambda start, stop: scores[start:stop].copy(), rows, n_items), n, workers, lists(excluded), lists(allowed)
        )
    for r in range(rows):
        left = [i for i in range(n_items) if (not excluded or i not in excluded[r]) and (allowed is None or i in allowed[r])]
        expected = sorted(left, key=lambda i: (-scores[r, i], i))[:n]
        assert ids[r, : len(expected)].tolist() == expected
        assert set(ids[r, len(expected) :].tolist()) <= {-1}
        assert best[r, : len(expected)].tolist() == scores[r, expected].tolist()


@pytest.fixture(scope="module")
def split() -> Any:
    return LeaveLast().split(ep.datasets.youtube_like(120, 40, seed=3, events_per_user=8))


def test_evaluate_ranks_everything_by_hand(split: Any) -> None:
    recommender = ep.Recommender(ep.Popularity()).fit(split.train)
    found = evaluate(recommender, split.test, ("hit_rate@5", "ndcg@5", "coverage@5"))
    popularity = np.bincount(split.train.item, minlength=split.train.n_items).astype(float)
    hits, gains, shown = [], [], set()
    for q in range(len(split.test)):
        m = split.test.contexts
        scores = popularity.copy()
        scores[m.items[m.begin[q] : m.end[q]]] = -np.inf
        best = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:5]
        shown.update(best)
        place = best.index(split.test.relevant[q]) if split.test.relevant[q] in best else None
        hits.append(place is not None)
        gains.append(0.0 if place is None else 1 / np.log2(place + 2))
    assert found["hit_rate@5"] == pytest.approx(np.mean(hits))
    assert found["ndcg@5"] == pytest.approx(np.mean(gains))
    assert found["coverage@5"] == pytest.approx(len(shown) / split.train.n_items)


def test_seen_items_are_left_out_only_on_request() -> None:
    """One item, watched twice: with the past left out nothing remains; without, it is found."""
    dataset = ep.Dataset(
        {"user": ["a", "a", "a", "b", "b", "b"], "item": ["x", "y", "x", "y", "x", "z"], "t": range(6)}, timestamp="t"
    )
    split = LeaveLast().split(dataset)
    recommender = ep.Recommender(ep.Popularity()).fit(split.train)
    without = evaluate(recommender, split.test, ("recall@3",))
    assert len(without.user) == 1
    assert "already seen" in without.notes[0]
    assert "nothing else was relevant" in without.notes[1]
    assert evaluate(recommender, split.test, ("recall@3",), exclude_seen=False)["recall@3"] == 1.0


def test_more_items_wanted_than_there_are(split: Any) -> None:
    recommender = ep.Recommender(ep.Popularity()).fit(split.train)
    found = evaluate(recommender, split.test, ("recall@1000000", "precision@1000000"))
    assert found["recall@1000000"] == 1.0
    assert found["precision@1000000"] == pytest.approx(1e-6)


def test_a_state_is_evaluated_as_its_recommender(split: Any) -> None:
    recommender = ep.Recommender(ep.FM(2, epochs=1), [ep.UserId()]).fit(split.train)
    of_both = [evaluate(each, split.test, ["ndcg@5", "coverage@5"]) for each in (recommender, recommender.state)]
    assert of_both[0].means == of_both[1].means


def test_a_metric_of_lists_takes_one_function(split: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It sees which items are listed, and how often each was chosen in training; it may have a value per query."""

    def popularity(ranked: formulas.RankedQueries) -> np.ndarray:
        listed = np.where(ranked.items >= 0, ranked.popularity[ranked.items], 0.0)
        return listed.sum(axis=1) / ranked.k

    monkeypatch.setitem(formulas.LIST_METRICS, "popularity", popularity)
    recommender = ep.Recommender(ep.Popularity()).fit(split.train)
    found = evaluate(recommender, split.test, ["popularity@3", "recall@3"], exclude_seen=False)
    counts = np.sort(np.bincount(split.train.item, minlength=split.train.n_items))[::-1]
    assert found["popularity@3"] == pytest.approx(counts[:3].mean())
    assert len(found.values["popularity@3"]) == len(split.test)
    assert found.interval("popularity@3") == pytest.approx((counts[:3].mean(),) * 2)


def test_contexts_of_other_data_are_refused(split: Any) -> None:
    other = LeaveLast().split(ep.datasets.youtube_like(30, 4000, seed=1, events_per_user=6))
    with pytest.raises(ValueError, match="of other data"):
        evaluate(ep.Recommender(ep.Popularity()).fit(split.train), other.test)


WRONG: dict[str, tuple[Any, str]] = {
    "a text": (lambda r, s: evaluate(r, s.test, "ndcg@10"), r"metrics must be a list such as .* got 'ndcg@10'"),
    "no metrics": (lambda r, s: evaluate(r, s.test, []), "metrics must be a list"),
    "a split": (lambda r, s: evaluate(r, s), "split.tune or split.test, got Split"),
    "a model": (lambda r, s: evaluate(r.model, s.test), r"must be a Recommender, got Popularity"),
    "not evaluated": (lambda r, s: evaluate(r, s.test)["ndcg@20"], "'ndcg@20' was not evaluated"),
    "a sample of -1": (lambda r, s: s.test.sample(-1), "n must be at least 1"),
    "no trials": (lambda r, s: search(lambda p: r, {}, s, "ndcg@5", 0), "trials must be at least 1"),
    "a space from 0": (lambda r, s: search(lambda p: r, {"x": (0, 1)}, s, "ndcg@5", 1), r"space\['x'\] must be"),
    "a weight twice": (
        lambda r, s: search(lambda p: r, {"unobserved_weight": (0.1, 1), "all_pairs": (1, 10)}, s, "ndcg@5", 1),
        "the same setting in other units",
    ),
    "shrinkage alone": (lambda r, s: search(lambda p: r, {"shrinkage": (0.1, 1)}, s, "ndcg@5", 1), "needs 'unobserved_weight'"),
    "nothing to tune": (lambda r, s: search(lambda p: r, {"x": (0.1, 1)}, s, "ndcg@5", 1), "trained by epochs"),
    "not a dataset": (lambda r, s: LeaveLast().split({"user": [1]}), "must be an everypair.Dataset"),
    "other queries": (lambda r, s: evaluate(r, s.test).interval("recall@10", relative_to=3), "same queries"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_refused(case: str, split: Any) -> None:
    attempt, message = WRONG[case]
    with pytest.raises((TypeError, ValueError, KeyError), match=message):
        attempt(ep.Recommender(ep.Popularity()).fit(split.train), split)


def test_a_trial_that_diverges_is_not_the_end(split: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(settings: dict[str, float]) -> ep.Recommender:
        return ep.Recommender(ep.MF(2, epochs=2, init_std=settings.get("init_std", 1.0)))

    found = search(make, {"init_std": (0.1, 1e38)}, split, "ndcg@10", 4)
    assert len(found.trials) == 4
    assert np.isfinite(found.best.value)


def test_nothing_to_evaluate_is_an_error() -> None:
    dataset = ep.Dataset({"user": ["a"] * 3, "item": ["x", "x", "x"], "t": range(3)}, timestamp="t")
    split = LeaveLast().split(dataset)
    recommender = ep.Recommender(ep.Popularity()).fit(split.train)
    with pytest.raises(ValueError, match="nothing is left to evaluate"):
        evaluate(recommender, split.test)


def test_intervals_by_user() -> None:
    """The bootstrap of a mean over users: about the normal interval; queries of a user are drawn together."""
    random = np.random.default_rng(0)
    values = random.random(400)
    one_each = Evaluation({"recall@1": values}, {}, np.arange(400), [])
    low, high = one_each.interval("recall@1", draws=2000)
    spread = 1.96 * values.std() / 20
    np.testing.assert_allclose([low, high], [values.mean() - spread, values.mean() + spread], atol=spread / 5)
    repeated = Evaluation({"recall@1": np.repeat(values, 9)}, {}, np.repeat(np.arange(400), 9), [])
    np.testing.assert_allclose(repeated.interval("recall@1", draws=2000), [low, high], rtol=1e-12)
    assert one_each.interval("recall@1", relative_to=one_each) == (1.0, 1.0)
    with pytest.raises(ValueError, match="same queries"):
        one_each.interval("recall@1", relative_to=repeated)


@pytest.mark.full
def test_thirty_thousand_users_and_forty_thousand_items_take_seconds() -> None:
    """In bounded memory: scores are held in chunks."""
    import time
    import tracemalloc

    random = np.random.default_rng(0)
    phi, psi = random.normal(size=(30_000, 64)).astype(np.float32), random.normal(size=(40_000, 64)).astype(np.float32)
    with Workers(2) as workers:
        rank(InnerProducts(phi[:10], psi), 100, workers)  # compiles
        tracemalloc.start()
        began = time.process_time()  # of all threads: it does not depend on what else runs
        ids, _ = rank(InnerProducts(phi, psi), 100, workers)
        seconds = time.process_time() - began
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert ids.shape == (30_000, 100)
    assert seconds < 60  # about 5
    assert peak < 200e6


def test_search_finds_better_settings_and_looks_at_the_tuning_part_alone(split: Any) -> None:
    from dataclasses import replace

    blind = replace(split, test=None)

    def make(settings: dict[str, float]) -> ep.Recommender:
        return ep.Recommender(ep.MF(4, epochs=6, regularization_exponent=1.0, **settings))  # type: ignore[arg-type]

    space = {"unobserved_weight": (0.01, 1.0), "shrinkage": (0.01, 1.0)}
    found = search(make, space, blind, "ndcg@20", 4)
    again = search(make, space, blind, "ndcg@20", 4)
    assert found == again
    pairs = split.train.n_users * split.train.n_items / len(split.train)
    assert found.trials[0].settings == {
        "unobserved_weight": 0.1,
        "regularization": pytest.approx(0.1 / (1 + 0.1 * pairs), rel=0.01),
    }
    in_units = search(make, {"all_pairs": (pairs / 100, pairs), "shrinkage": (0.01, 1.0)}, blind, "ndcg@20", 4)
    assert [trial.settings for trial in in_units.trials] == [pytest.approx(trial.settings, rel=0.01) for trial in found.trials]
    assert found.best.value == max(trial.value for trial in found.trials)
    refitted = make(found.best.settings)
    refitted.model.set_params(epochs=found.best.epochs)
    assert evaluate(refitted.fit(split.train), split.tune, ("ndcg@20",))["ndcg@20"] == pytest.approx(found.best.value)


def test_more_queries_per_user(split: Any) -> None:
    """Random held-out events: all of a user's are relevant together."""
    dataset = ep.datasets.youtube_like(60, 40, seed=4, events_per_user=10)
    random = RandomPerUser(test=0.3, tune=0.2).split(dataset)
    found = evaluate(ep.Recommender(ep.Popularity()).fit(random.train), random.test, ("recall@40", "precision@40"))
    assert found["recall@40"] == 1.0
    assert len(found.user) == len(np.unique(found.user))
    assert isinstance(random.test.contexts, ContextBatch)


@pytest.mark.parametrize(("model", "context"), [(ep.MF(2, epochs=1), None), (ep.CoView(), [ep.Previous()])])
def test_queries_that_popularity_answered_are_counted(model: Any, context: Any) -> None:
    """Under ColdStart, MF knows nothing of anyone, and CoView no previous item: their figures are those of Popularity."""
    split = ColdStart(test=0.3, tune=0.3).split(ep.datasets.youtube_like(60, 30, seed=5, events_per_user=8))
    found = evaluate(ep.Recommender(model, context).fit(split.train), split.test)
    popular = evaluate(ep.Recommender(ep.Popularity()).fit(split.train), split.test)
    assert found.means == popular.means
    assert found.by_popularity == found.summary()["by_popularity"] == len(split.test)
    assert f"{len(split.test)} of them answered by popularity" in repr(found)
    assert any(f"{type(model).__name__} knows nothing of their contexts" in note for note in found.notes)
    assert popular.by_popularity == 0  # it is what it says


def test_previous_items_that_nothing_followed() -> None:
    """z is only ever the last item: co-views know nothing of what follows it."""
    dataset = ep.Dataset({"user": list("aaabbbb"), "item": list("xyzyxzw")}, chronological=True)
    train = dataset.subset(np.arange(6))  # without w, which follows z
    queries = of_events(dataset, np.array([6]))
    found = evaluate(ep.Recommender(ep.CoView(), [ep.Previous()]).fit(train), queries)
    assert found.by_popularity == 1
    assert any("CoView knows nothing of their contexts" in note for note in found.notes)


def test_nothing_is_said_of_popularity_where_the_model_answers(split: Any) -> None:
    found = evaluate(ep.Recommender(ep.MF(2, epochs=1)).fit(split.train), split.test)
    assert found.by_popularity == 0
    assert "popularity" not in repr(found)
    assert not any("popular" in note for note in found.notes)
