"""Random start values as functions of what a row is: of a seed, names, the key of the row and the dimension, and of nothing else.

So they depend neither on the order of rows, nor on which other rows there are, nor on how many are drawn at once, nor on the dtype:
they are drawn in float64.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

import numpy as np

from everypair.columns.keys import Keys, key_array
from everypair.kernels.counter_random import draw_normals, draw_words, round_keys

BLOCK = 2**15  # random numbers drawn at once: they stay in the cache
WORDS = 2  # words of 64 bits, of each number of a key
DIMENSIONS = 64 * WORDS  # whose signs are in a number


class Stream:
    """Random numbers for every key and dimension; other streams have others.

    Parameters
    ----------
    seed : int
    *names : str
        What the numbers are for. The key of the stream is the beginning of the SHA-256 of ``[seed, *names]``, written as JSON.
    """

    def __init__(self, seed: int, *names: str) -> None:
        digest = hashlib.sha256(json.dumps([seed, *names]).encode()).digest()
        self._rounds = round_keys(int.from_bytes(digest[:8], "little"))

    def normals(self, keys: Keys, first: int = 0, stop: int = 1) -> np.ndarray:
        """Numbers from N(0, 1) in float64: a row for each key, of dimensions ``first:stop``."""
        begin, end = first // 2, -(-stop // 2)
        drawn = np.empty((2 * (end - begin), len(keys)))
        draw_normals(begin, end, key_array(keys), self._rounds, drawn)
        return drawn[first - 2 * begin : stop - 2 * begin].T

    def fill(self, out: np.ndarray, keys: Keys, std: float) -> None:
        """Numbers from N(0, std^2): ``out`` has a row for each key."""
        for rows in _blocks(len(out), out.shape[1]):
            drawn = self.normals(keys[rows], 0, out.shape[1])
            drawn *= std
            out[rows] = drawn

    def multiply_by_signs(self, out: np.ndarray, keys: Keys, first: int = 0) -> None:
        """Multiply by 1 or -1: ``out`` has a row for each key, and dimensions from ``first`` on."""
        width = out.shape[1]
        begin, end = first // DIMENSIONS, -(-(first + width) // DIMENSIONS)
        skipped, bit = divmod(first - begin * DIMENSIONS, 8)
        for rows in _blocks(len(out), width):
            words = np.empty((rows.stop - rows.start, WORDS * (end - begin)), np.uint64)
            draw_words(begin, end, key_array(keys[rows]), self._rounds, words)
            of_dimensions = words.astype("<u8", copy=False).view(np.uint8)[:, skipped:]
            bits = np.unpackbits(of_dimensions, axis=1, count=bit + width, bitorder="little")[:, bit:]
            out[rows] *= 1 - 2 * bits.view(np.int8)


def _blocks(rows: int, width: int) -> Iterator[slice]:
    """Ranges of rows with so many numbers each."""
    step = max(1, BLOCK // max(1, width))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))
