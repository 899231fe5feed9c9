"""Random numbers of a counter."""

from __future__ import annotations

import numpy as np
import pytest

from everypair.kernels.counter_random import draw_normals, draw_words, round_keys

# Counter, key and output from the tests of the authors (Random123, kat_vectors, philox4x32 10).
KNOWN = [
    ([0x00000000] * 4, [0x00000000] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]  # fmt: skip


def philox(counter: list[int], key: list[int]) -> list[int]:
    """As in the paper."""
    c, k = list(counter), list(key)
    for _ in range(10):
        left, right = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [right >> 32 ^ c[1] ^ k[0], right & 0xFFFFFFFF, left >> 32 ^ c[3] ^ k[1], left & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(counter: list[int], key: list[int], expected: list[int]) -> None:
    assert philox(counter, key) == expected


def words(keys: np.ndarray, stream: int, start: int, stop: int) -> np.ndarray:
    out = np.empty((len(keys), 2 * (stop - start)), np.uint64)
    draw_words(start, stop, keys, round_keys(stream), out)
    return out


KEYS = np.array([0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1, 0x9E3779B97F4A7C15], np.uint64)


@pytest.mark.parametrize("stream", [0, 1, 2**64 - 1, 0x0123456789ABCDEF])
def test_words_are_those_of_the_counter(stream: int) -> None:
    found = words(KEYS, stream, 3, 6)
    for key, row in zip(KEYS.tolist(), found.tolist(), strict=True):
        for j in range(3, 6):
            c = philox([key & 0xFFFFFFFF, key >> 32, j, 0], [stream & 0xFFFFFFFF, stream >> 32])
            assert row[2 * (j - 3) : 2 * (j - 2)] == [c[0] | c[1] << 32, c[2] | c[3] << 32]


def test_normals_are_those_of_box_and_muller() -> None:
    """The formula with NumPy's functions; the quarter of the circle comes from the two highest bits."""
    keys = np.arange(2_000, dtype=np.uint64)
    drawn = np.empty((6, len(keys)))
    draw_normals(1, 4, keys, round_keys(99), drawn)
    first, second = words(keys, 99, 1, 4).reshape(-1, 3, 2).transpose(2, 1, 0)
    u = 1.0 - (first >> np.uint64(12)) * 2.0**-52
    quarter, rest = second >> np.uint64(62), ((second << np.uint64(2)) >> np.uint64(12)) * 2.0**-52
    negated, swapped = quarter >> np.uint64(1), quarter & np.uint64(1)
    angle = 0.5 * np.pi * (rest - 0.5 + swapped) + np.pi * negated
    radius = np.sqrt(-2.0 * np.log(u))
    np.testing.assert_allclose(drawn[0::2], radius * np.cos(angle), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(drawn[1::2], radius * np.sin(angle), rtol=1e-13, atol=1e-15)
