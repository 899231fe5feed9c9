"""Random draws of the generated watch logs (see :mod:`everypair.datasets.generated`)."""

from __future__ import annotations

import numpy as np

from everypair.kernels.jit import kernel

ATTRIBUTES, PREVIOUS, HISTORY, USER, POPULAR = range(5)  # sources of an event
TRIES = 30  # draws of a video that the user has not watched yet


@kernel
def draw(random, cumulative, start, stop):
    """A random position in ``start:stop``, by weights that are cumulated from ``start``."""
    u = random.random() * cumulative[stop - 1]
    while start < stop - 1:
        middle = (start + stop - 1) // 2
        if cumulative[middle] > u:
            stop = middle + 1
        else:
            start = middle + 1
    return start


@kernel
def member(random, group, bounds, members, cumulative):
    """A random video of a group, by popularity; -1 if the group is empty."""
    start, stop = bounds[group], bounds[group + 1]
    return -1 if start == stop else members[draw(random, cumulative, start, stop)]


@kernel
def watch(random, bounds, cell, favourites, topic, following, mixture, groups, watched):
    """Fill ``watched`` with the videos of each user, each at most once.

    ``cell``: each user's cumulative probabilities of category and language. ``favourites``: each user's topics. ``topic``: the
    topic of each video. ``following``: the topics that follow each topic. ``groups``: videos by cell, by topic, and all of them
    (see :func:`member`).
    """
    by_cell, by_topic, everything = groups
    seen = np.full(len(topic), -1, np.int64)
    for user in range(len(bounds) - 1):
        first = bounds[user]
        for t in range(first, bounds[user + 1]):
            video = np.int64(-1)
            for _ in range(TRIES):
                source = draw(random, mixture, 0, len(mixture))
                if t == first and source in (PREVIOUS, HISTORY):
                    source = ATTRIBUTES
                if source == ATTRIBUTES:
                    video = member(random, draw(random, cell[user], 0, cell.shape[1]), *by_cell)
                elif source == PREVIOUS:
                    video = member(random, following[topic[watched[t - 1]], int(random.random() * following.shape[1])], *by_topic)
                elif source == HISTORY:
                    video = member(random, topic[watched[first + int(random.random() * (t - first))]], *by_topic)
                elif source == USER:
                    video = member(random, favourites[user, int(random.random() * favourites.shape[1])], *by_topic)
                else:
                    video = member(random, 0, *everything)
                if video >= 0 and seen[video] != user:
                    break
                video = np.int64(-1)
            while video < 0:
                video = np.int64(random.random() * len(topic))
                if seen[video] == user:
                    video = np.int64(-1)
            seen[video] = user
            watched[t] = video
