"""The main job on generated data: train MF and a factorization machine on every pair, compare them with Popularity.

Run it with ``make demo``. Each viewer has a country and a taste of their own, and tends to watch next what goes with what they
watched last. The last event of each viewer is held out; the models rank all items the viewer has not seen.
"""

from __future__ import annotations

import time

import numpy as np
import scipy.sparse as sp

import everypair as ep

USERS, ITEMS, COUNTRIES, TOPICS, LENGTH = 3_000, 800, 10, 24, 20


def generate(seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Watched items (users x length, in order, none twice) and countries.

    An item belongs to a topic and is more or less popular. The next item's topic is, with equal chances, one that viewers of
    the country like, one of the viewer's own favourites, or the topic that usually follows the last one.
    """
    random = np.random.default_rng(seed)
    topic_of = random.integers(0, TOPICS, ITEMS)
    popularity = random.zipf(1.6, ITEMS).clip(max=50).astype(float)
    country = random.integers(0, COUNTRIES, USERS)
    liked_in_country = random.dirichlet(np.full(TOPICS, 0.2), COUNTRIES)
    liked_by_user = random.dirichlet(np.full(TOPICS, 0.1), USERS)
    follows = random.permutation(TOPICS)
    watched = np.empty((USERS, LENGTH), np.int64)
    for user in range(USERS):
        left = popularity.copy()
        topic = random.choice(TOPICS, p=liked_by_user[user])
        for t in range(LENGTH):
            weights = left * (topic_of == topic)
            if weights.sum() == 0:
                weights = left
            watched[user, t] = random.choice(ITEMS, p=weights / weights.sum())
            left[watched[user, t]] = 0.0
            habit = random.integers(3)
            after = follows[topic_of[watched[user, t]]]
            topic = (
                random.choice(TOPICS, p=liked_in_country[country[user]]) if habit == 0
                else random.choice(TOPICS, p=liked_by_user[user]) if habit == 1
                else after
            )  # fmt: skip
    return watched, country


def one_hot(codes: np.ndarray, n: int) -> sp.csr_array:
    """A row per code; -1 is an empty row."""
    known = np.flatnonzero(codes >= 0)
    return sp.csr_array((np.ones(len(known)), (known, codes[known])), shape=(len(codes), n))


def describe(user: np.ndarray, country: np.ndarray, previous: np.ndarray) -> ep.Features:
    """The context of an event: who watches, from where, after what."""
    return ep.Features(
        {"user": one_hot(user, USERS), "country": one_hot(country[user], COUNTRIES), "previous": one_hot(previous, ITEMS)}
    )


def falling(name: str, model: ep.MF | ep.FM, feedback: ep.Feedback) -> None:
    """The objective by epoch, under that of the model whose scores are all zero."""
    zero = feedback.constant
    print(f"\n{name}: the objective over all {feedback.n_contexts:,} x {feedback.n_items:,} pairs")
    print(f"  all zero  {zero:>10,.0f}  {'█' * 40}")
    for record in model.history_:
        bar = "█" * round(40 * record.objective / zero)
        print(f"  epoch {record.epoch:>2}  {record.objective:>10,.0f}  {bar}")


def recall_and_ndcg(scores: np.ndarray, seen: np.ndarray, truth: np.ndarray, n: int = 10) -> tuple[float, float]:
    """Recall@n: share of users whose held-out item is among the top n. NDCG@n: mean of 1 / log2(1 + rank) for those."""
    np.put_along_axis(scores, seen, -np.inf, axis=1)
    own = np.take_along_axis(scores, truth[:, None], axis=1)
    rank = 1 + np.sum(scores > own, axis=1)
    hit = rank <= n
    return float(hit.mean()), float(np.where(hit, 1 / np.log2(1.0 + rank), 0.0).mean())


def main() -> None:
    began = time.perf_counter()
    watched, country = generate()
    seen, truth = watched[:, :-1], watched[:, -1]
    user = np.repeat(np.arange(USERS), LENGTH - 1)
    print(f"{USERS:,} viewers, {ITEMS} items, {seen.size:,} events to learn from (generated).")
    print("Training; the first run also compiles the kernels.")

    by_user = ep.Feedback(user, seen.ravel(), shape=(USERS, ITEMS))
    popularity = ep.Popularity().fit(by_user)
    mf = ep.MF(factors=32, unobserved_weight=0.3, regularization=10.0, epochs=12).fit(by_user)
    falling("MF", mf, by_user)

    previous = np.hstack([np.full((USERS, 1), -1), seen[:, :-1]])
    by_event = ep.Feedback(np.arange(seen.size), seen.ravel(), shape=(seen.size, ITEMS))
    contexts = describe(user, country, previous.ravel())
    coview = ep.CoView().fit(by_event, contexts=previous.ravel())
    fm = ep.FM(factors=32, unobserved_weight=0.03, regularization=10.0, epochs=12).fit(by_event, contexts=contexts)
    falling("FM", fm, by_event)

    now = describe(np.arange(USERS), country, seen[:, -1])
    coview_scores = np.tile(coview.share_, (USERS, 1)) + coview.counts_[seen[:, -1] + 1].toarray()
    table = {
        "Popularity": popularity.popularity_ * np.ones((USERS, 1)),
        "CoView (previous item)": coview_scores,
        "MF (user)": mf.phi_ @ mf.psi_.T,
        "FM (user, country, previous item)": fm.context_vectors(now) @ fm.psi_.T,
    }
    print("\nThe held-out last event of each viewer, ranked among all unseen items")
    print(f"  {'model':<34} {'Recall@10':>9} {'NDCG@10':>9}")
    for name, scores in table.items():
        recall, ndcg = recall_and_ndcg(scores, seen, truth)
        print(f"  {name:<34} {recall:>9.3f} {ndcg:>9.3f}")
    print(f"\n{time.perf_counter() - began:.0f} seconds in all.")


if __name__ == "__main__":
    main()
