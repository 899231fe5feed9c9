"""Generated watch logs, modelled on the data of the paper's experiments (Section 6.1)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from everypair.data import Dataset
from everypair.datasets.simulate import watch
from everypair.datasets.titles import titles as made_titles
from everypair.kernels.order import grouped
from everypair.runtime import validation as check

AGES = ("13-17", "18-24", "25-34", "35-44", "45-54", "55-64", "65+")
GENDERS = ("female", "male")
COUNTRIES = ("AR", "BR", "DE", "ES", "FR", "GB", "IN", "JP", "MX", "PT", "TR", "US")
LANGUAGES = ("en", "es", "pt", "de", "fr", "ja", "hi", "tr")
SPOKEN = ("es", "pt", "de", "es", "fr", "en", "hi", "ja", "es", "pt", "tr", "en")  # by country
DEVICES = ("computer", "phone", "tablet", "tv")
CATEGORIES = (
    "animals", "cars", "comedy", "cooking", "crafts", "dance", "education", "fitness", "games", "kids", "music", "news",
    "reviews", "science", "sports", "travel",
)  # fmt: skip
MIXTURE = {"attributes": 0.30, "previous": 0.20, "history": 0.20, "user": 0.25, "popular": 0.05}
TOPICS, FAVOURITES, FOLLOWING, CHANNEL = 40, 2, 2, 12  # topics in all, per user, after a topic; videos of a channel
DAY = 86_400
BEGIN, DAYS = 1_491_177_600, 56  # 3 April 2017, eight weeks


def youtube_like(
    n_users: int = 2_000,
    n_items: int = 1_000,
    seed: int = 0,
    *,
    events_per_user: float = 24.0,
    mixture: dict[str, float] | None = None,
    missing: float = 0.05,
    titles: bool = False,
) -> Dataset:
    """Generate a watch log: which video (category, language) users (age, gender, country, device) watched, and when.

    Every event has one of five sources, drawn with the probabilities of ``mixture``:

    - *attributes*: a category liked by the user's age group, gender and device, in a language of the user's country.
    - *previous*: one of the two topics that follow the topic of the previous video.
    - *history*: the topic of one of the videos watched so far, drawn uniformly.
    - *user*: one of the user's two favourite topics, which are independent of the attributes.
    - *popular*: all videos.

    The video is then drawn by popularity. So each of attributes, previous video, history and user id carries a signal that the
    others lack. At a user's first event, *attributes* replaces *previous* and *history*. Nobody watches a video twice: source and
    video are drawn again up to 30 times, and then uniformly among the videos not watched.

    A video belongs to a channel of about a dozen videos, which has a category and a language. It has one of 40 topics, independent
    of the channel and not in the data: a model has to infer them. Popularity is log-normal. Probabilities of categories are the
    softmax of normal effects of age, gender and device (standard deviation 1.5). A video is in the country's own language with
    probability 0.75, in English with 0.15, in any language with 0.1; combinations of category and language without videos have
    probability 0. The topics that follow a topic, and a user's favourites, are drawn with replacement. Users join during the first
    70 % of eight weeks, and their events are uniform from then to the end; their number is 2 plus a geometric variable, and at most
    half the number of videos.

    Parameters
    ----------
    n_users, n_items : int
        The paper has 200,000 users and 68,000 videos.
    seed : int
    events_per_user : float
        The average number of events of a user.
    mixture : dict, optional
        Probabilities of the five sources, up to a common factor.
    missing : float
        The share of users for whom an attribute is missing, for each attribute.
    titles : bool
        Whether to add titles of videos, which depend on the category alone. All other data stay the same.

    Examples
    --------
    >>> import everypair as ep
    >>> ep.datasets.youtube_like(100, 50, seed=1, events_per_user=10)
    Dataset(899 events, 100 users, 50 items; users: age, gender, country, device; items: category, language; ordered by timestamp)
    """
    check.integer("n_users", n_users, low=1)
    check.integer("n_items", n_items, low=10)
    check.number("events_per_user", events_per_user, low=4.0)
    check.number("missing", missing, low=0.0, high=1.0)
    weights = MIXTURE if mixture is None else mixture
    if not isinstance(weights, dict) or weights.keys() != MIXTURE.keys():
        raise ValueError(f"mixture must have the keys {', '.join(MIXTURE)}, got {mixture!r}.")
    if not sum(check.number(f"mixture[{name!r}]", weight, low=0.0) for name, weight in weights.items()) > 0:
        raise ValueError("mixture must have a positive value, got 0 for all sources.")
    random = np.random.default_rng(check.integer("seed", seed, low=0))
    n_channels = max(2, n_items // CHANNEL)
    channel = random.integers(0, n_channels, n_items)
    category = random.integers(0, len(CATEGORIES), n_channels)[channel]
    language = random.choice(len(LANGUAGES), n_channels, p=_shares(len(LANGUAGES)))[channel]
    topic = random.integers(0, TOPICS, n_items)
    popularity = random.lognormal(0.0, 1.0, n_items)

    people = {
        "age": random.choice(len(AGES), n_users, p=[0.1, 0.22, 0.25, 0.17, 0.12, 0.08, 0.06]),
        "gender": random.integers(0, len(GENDERS), n_users),
        "country": random.choice(len(COUNTRIES), n_users, p=_shares(len(COUNTRIES))),
        "device": random.choice(len(DEVICES), n_users, p=[0.3, 0.5, 0.08, 0.12]),
    }
    liked = np.zeros((n_users, len(CATEGORIES)))
    for name, levels in (("age", AGES), ("gender", GENDERS), ("device", DEVICES)):
        liked += random.normal(0.0, 1.5, (len(levels), len(CATEGORIES)))[people[name]]
    nonempty = np.bincount(category * len(LANGUAGES) + language, minlength=len(CATEGORIES) * len(LANGUAGES)) > 0
    cell = _probabilities(liked, people["country"], nonempty)
    favourites = random.integers(0, TOPICS, (n_users, FAVOURITES))
    following = random.integers(0, TOPICS, (TOPICS, FOLLOWING))

    lengths = np.minimum(2 + random.geometric(1 / (events_per_user - 2), n_users), max(3, n_items // 2))
    bounds = np.append(0, np.cumsum(lengths))
    watched = np.empty(bounds[-1], np.int64)
    groups = tuple(
        _groups(keys, n, popularity)
        for keys, n in ((category * len(LANGUAGES) + language, cell.shape[1]), (topic, TOPICS), (0 * topic, 1))
    )
    sources = np.cumsum([weights[name] for name in MIXTURE])
    watch(random, bounds, cell, favourites, topic, following, sources, groups, watched)

    joined = random.random(n_users) * 0.7
    owner = np.repeat(np.arange(n_users), lengths)
    time = joined[owner] + random.random(len(owner)) * (1 - joined[owner])  # as a share of the period
    time = time[np.lexsort((time, owner))]
    attributes = {
        name: pa.array(np.array(levels)[people[name]], mask=random.random(n_users) < missing)
        for name, levels in (("age", AGES), ("gender", GENDERS), ("country", COUNTRIES), ("device", DEVICES))
    }
    users, items = _names("u", n_users), _names("v", n_items)
    order = np.argsort(time, kind="stable")  # a log is ordered by time
    events = pa.table({
        "user": users.take(pa.array(owner[order])),
        "item": items.take(pa.array(watched[order])),
        "timestamp": pa.array((BEGIN + time[order] * DAYS * DAY).astype(np.int64)),
    })  # fmt: skip
    videos: dict[str, Any] = {"item": items}
    if titles:
        videos["title"] = made_titles(category, CATEGORIES, np.random.default_rng([seed, 1]))
    videos |= {"category": np.array(CATEGORIES)[category], "language": np.array(LANGUAGES)[language]}
    return Dataset(events, {"user": users, **attributes}, videos, timestamp="timestamp")


def _shares(n: int) -> np.ndarray:
    """Falling shares, since languages and countries differ in size."""
    weights = 1 / np.arange(2, n + 2)
    return weights / weights.sum()


def _probabilities(liked: np.ndarray, country: np.ndarray, nonempty: np.ndarray) -> np.ndarray:
    """Each user's cumulative probabilities of category and language, 0 for combinations without videos."""
    by_category = np.exp(liked - liked.max(axis=1, keepdims=True))
    by_category /= by_category.sum(axis=1, keepdims=True)
    by_language = np.full((len(COUNTRIES), len(LANGUAGES)), 0.1 / len(LANGUAGES))
    by_language[:, LANGUAGES.index("en")] += 0.15
    by_language[np.arange(len(COUNTRIES)), [LANGUAGES.index(spoken) for spoken in SPOKEN]] += 0.75
    both = by_category[:, :, None] * by_language[country][:, None, :]
    return np.cumsum(both.reshape(len(liked), -1) * nonempty, axis=1)


def _groups(keys: np.ndarray, n: int, weights: np.ndarray) -> tuple[Any, ...]:
    """Bounds of groups, their members, and the weights of members cumulated within each group."""
    bounds, members = grouped(keys, n, np.int64)
    cumulative = np.cumsum(weights[members])
    before = np.append(0.0, cumulative)[bounds[:-1]]
    return bounds, members, cumulative - np.repeat(before, np.diff(bounds))


def _names(prefix: str, n: int) -> pa.Array:
    width = len(str(n - 1))
    return pa.array([f"{prefix}{j:0{width}d}" for j in range(n)])
