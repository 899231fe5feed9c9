r"""Generated watch logs, in the spirit of the data of the paper's experiments (Section 6.1)."""

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
TOPICS, FAVOURITES, FOLLOWING, CHANNEL = 40, 2, 2, 12
DAY = 86_400
BEGIN, DAYS = 1_491_177_600, 56  # 3 April 2017, for eight weeks


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
    r"""A watch log: who (age, gender, country, device) watched which video (category, language) when.

    Every event has one of five sources, drawn anew each time with the chances of ``mixture``:

    - *attributes*: a category that people of the user's age, gender and device like, in a language of the user's country; among its
      videos, by popularity.
    - *previous*: two topics follow each topic; a video of one that follows the topic of the video watched before, by popularity.
    - *history*: the topic of one of the videos watched so far, all with the same chance; a video of it, by popularity.
    - *user*: one of two favourite topics, which are the user's own and go with no attribute; a video of it, by popularity.
    - *popular*: any video, by popularity.

    So each of attributes, previous video, history and user carries a signal that the others do not have. At a user's first event
    *previous* and *history* mean *attributes*. Nobody watches a video twice: a draw that was watched already is drawn again, its
    source too, up to 30 times, and then any video that was not.

    A video is of a channel of about a dozen, which has a category and a language. It has one of 40 topics, drawn apart from those
    and not told: a model has to find them. Popularity is log-normal. Chances of categories are the softmax of normal effects of
    age, gender and device (standard deviation 1.5); a country's own language is spoken in 75 % of the draws, English in 15 %,
    any in the rest; a category and language without videos has no chance. The topics that follow one, and a user's favourites,
    are drawn with replacement. Users join during the first 70 % of eight weeks, and their events are spread evenly from then to
    the end; their number is 2 plus a geometric one, and at most half of the videos.

    Parameters
    ----------
    n_users, n_items : int
        The paper has 200,000 users and 68,000 videos.
    seed : int
    events_per_user : float
        On average.
    mixture : dict, optional
        Chances of the five sources.
    missing : float
        The share of each attribute of users that is not told.
    titles : bool
        Give videos a title as well, which says nothing that their category does not. All else stays the same.

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
    chances = MIXTURE if mixture is None else mixture
    if not isinstance(chances, dict) or chances.keys() != MIXTURE.keys():
        raise ValueError(f"mixture must give chances for {', '.join(MIXTURE)}, got {mixture!r}.")
    if not sum(check.number(f"mixture[{name!r}]", chance, low=0.0) for name, chance in chances.items()) > 0:
        raise ValueError("mixture must give a chance to at least one source, got 0 for all.")
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
    there = np.bincount(category * len(LANGUAGES) + language, minlength=len(CATEGORIES) * len(LANGUAGES)) > 0
    cell = _chances(liked, people["country"], there)
    favourites = random.integers(0, TOPICS, (n_users, FAVOURITES))
    following = random.integers(0, TOPICS, (TOPICS, FOLLOWING))

    lengths = np.minimum(2 + random.geometric(1 / (events_per_user - 2), n_users), max(3, n_items // 2))
    bounds = np.append(0, np.cumsum(lengths))
    watched = np.empty(bounds[-1], np.int64)
    groups = tuple(
        _groups(keys, n, popularity)
        for keys, n in ((category * len(LANGUAGES) + language, cell.shape[1]), (topic, TOPICS), (0 * topic, 1))
    )
    sources = np.cumsum([chances[name] for name in MIXTURE])
    watch(random, bounds, cell, favourites, topic, following, sources, groups, watched)

    joined = random.random(n_users) * 0.7
    owner = np.repeat(np.arange(n_users), lengths)
    moment = joined[owner] + random.random(len(owner)) * (1 - joined[owner])
    moment = moment[np.lexsort((moment, owner))]
    told = {
        name: pa.array(np.array(levels)[people[name]], mask=random.random(n_users) < missing)
        for name, levels in (("age", AGES), ("gender", GENDERS), ("country", COUNTRIES), ("device", DEVICES))
    }
    users, items = _names("u", n_users), _names("v", n_items)
    order = np.argsort(moment, kind="stable")  # a log is in the order of time
    events = pa.table({
        "user": users.take(pa.array(owner[order])),
        "item": items.take(pa.array(watched[order])),
        "timestamp": pa.array((BEGIN + moment[order] * DAYS * DAY).astype(np.int64)),
    })  # fmt: skip
    videos: dict[str, Any] = {"item": items}
    if titles:
        videos["title"] = made_titles(category, CATEGORIES, np.random.default_rng([seed, 1]))
    videos |= {"category": np.array(CATEGORIES)[category], "language": np.array(LANGUAGES)[language]}
    return Dataset(events, {"user": users, **told}, videos, timestamp="timestamp")


def _shares(n: int) -> np.ndarray:
    """Falling shares: some languages and countries are larger than others."""
    weights = 1 / np.arange(2, n + 2)
    return weights / weights.sum()


def _chances(liked: np.ndarray, country: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Cumulative chances by user of category and language, of those that have videos."""
    by_category = np.exp(liked - liked.max(axis=1, keepdims=True))
    by_category /= by_category.sum(axis=1, keepdims=True)
    by_language = np.full((len(COUNTRIES), len(LANGUAGES)), 0.1 / len(LANGUAGES))
    by_language[:, LANGUAGES.index("en")] += 0.15
    by_language[np.arange(len(COUNTRIES)), [LANGUAGES.index(spoken) for spoken in SPOKEN]] += 0.75
    both = by_category[:, :, None] * by_language[country][:, None, :]
    return np.cumsum(both.reshape(len(liked), -1) * there, axis=1)


def _groups(keys: np.ndarray, n: int, weights: np.ndarray) -> tuple[Any, ...]:
    """Where each group begins, its members, and their weights added up from its beginning."""
    bounds, members = grouped(keys, n, np.int64)
    cumulative = np.cumsum(weights[members])
    before = np.append(0.0, cumulative)[bounds[:-1]]
    return bounds, members, cumulative - np.repeat(before, np.diff(bounds))


def _names(letter: str, n: int) -> pa.Array:
    width = len(str(n - 1))
    return pa.array([f"{letter}{j:0{width}d}" for j in range(n)])
