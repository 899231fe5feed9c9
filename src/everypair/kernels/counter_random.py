r"""Random numbers that are functions of a counter (Philox4x32-10), and standard normal ones made of them (Box-Muller).

A sequence of random numbers depends on what was drawn before; these depend on the counter and on the key of a stream alone. A
counter here is the key of a row (64 bits) and a number j; a call turns it into two words of 64 bits, of which

.. math:: z_{2j} = \sqrt{-2 \ln u} \, \cos 2 \pi v, \qquad z_{2j+1} = \sqrt{-2 \ln u} \, \sin 2 \pi v

are two independent normal numbers, u in (0, 1] from the first word and v in [0, 1) from the second.

Logarithm, sine and cosine are written out (with the polynomials of FreeBSD's msun): calls would keep the loops from vectorising,
and their last bits would depend on the system's library. Kernels compute in float64 without reordering, so that all processors
give the same bits. Only the lower half of a word is ever multiplied, and so nothing overflows without compilation.

J. Salmon et al.: Parallel random numbers: as easy as 1, 2, 3. SC 2011.
"""

from __future__ import annotations

import numpy as np

from everypair.kernels.jit import inlined, kernel

ROUNDS = 10
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
INCREMENTS = 0x9E3779B9, 0xBB67AE85

LOW, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)  # the lower half of a word, and the bits of a half
FIRST, SECOND = (np.uint64(multiplier) for multiplier in MULTIPLIERS)
ZERO, SIGN, SWAP, ODD = np.uint64(0), np.uint64(63), np.uint64(62), np.uint64(1)
QUARTER = np.uint64(2)  # bits that name a quarter of the circle

# A float64: 12 bits of sign and exponent, 52 of the fraction.
EXPONENT, FRACTION, BITS = np.uint64(12), np.uint64(0x000FFFFFFFFFFFFF), np.uint64(52)
ONE, INTEGER = np.uint64(0x3FF0000000000000), np.uint64(0x4330000000000000)  # of 1 and of 2^52, as bits
ROOT = np.uint64(0x3FE6A09E00000000)  # of about sqrt(1/2)
ABOVE_ROOT = np.uint64(0x3FF0000000000000 - 0x3FE6A09E00000000)
BIAS = 2.0**52 + 1023.0
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
L1, L2, L3, L4 = 6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01
L5, L6, L7 = 1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860510658591e-01
S1, S2, S3 = -1.66666666666666324348e-01, 8.33333333332248946124e-03, -1.98412698298579493134e-04
S4, S5, S6 = 2.75573137070700676789e-06, -2.50507602534068634195e-08, 1.58969099521155010221e-10
C1, C2, C3 = 4.16666666666666019037e-02, -1.38888888888741095749e-03, 2.48015872894767294178e-05
C4, C5, C6 = -2.75573143513906633035e-07, 2.08757232129817482790e-09, -1.13596475577881948265e-11
HALF_PI = 0.5 * np.pi


def round_keys(stream: int) -> np.ndarray:
    """The keys of the rounds, from the key of a stream (64 bits)."""
    halves = stream & 0xFFFFFFFF, stream >> 32
    return np.array(
        [[(half + r * step) & 0xFFFFFFFF for half, step in zip(halves, INCREMENTS, strict=True)] for r in range(ROUNDS)], np.uint64
    )


@inlined
def philox(c0, c1, c2, c3, rounds):
    """Four words of 32 bits from four others."""
    for r in range(ROUNDS):
        left, right = FIRST * c0, SECOND * c2
        c0, c1 = (right >> HALF) ^ c1 ^ rounds[r, 0], right & LOW
        c2, c3 = (left >> HALF) ^ c3 ^ rounds[r, 1], left & LOW
    return c0, c1, c2, c3


@inlined
def from_one_to_two(word):
    """A number in [1, 2), of the upper 52 bits of a word."""
    return np.uint64((word >> EXPONENT) | ONE).view(np.float64)


@inlined
def logarithm(x):
    """``ln x`` for normal numbers x > 0: ``x = 2^k (1 + f)``, and a series in ``s = f / (2 + f)``."""
    bits = np.float64(x).view(np.uint64) + ABOVE_ROOT
    k = np.uint64((bits >> BITS) | INTEGER).view(np.float64) - BIAS
    f = np.uint64((bits & FRACTION) + ROOT).view(np.float64) - 1.0
    s = f / (2.0 + f)
    z = s * s
    series = z * (L1 + z * (L2 + z * (L3 + z * (L4 + z * (L5 + z * (L6 + z * L7))))))
    half = 0.5 * f * f
    return k * LN2_HIGH - ((half - (s * (half + series) + k * LN2_LOW)) - f)


@kernel
def draw_normals(start, stop, keys, rounds, out):
    """Numbers ``start:stop`` of each key, two normal ones each: ``out[2 j]`` and ``out[2 j + 1]`` are from number ``start + j``."""
    for j in range(stop - start):
        number, first, second = np.uint64(start + j), out[2 * j], out[2 * j + 1]
        for p in range(len(keys)):
            key = keys[p]
            c0, c1, c2, c3 = philox(key & LOW, key >> HALF, number, ZERO, rounds)
            radius = np.sqrt(-2.0 * logarithm(2.0 - from_one_to_two(c0 | (c1 << HALF))))
            word = c2 | (c3 << HALF)
            t = HALF_PI * (from_one_to_two(word << QUARTER) - 1.5)  # from -pi/4 to pi/4; two bits then choose the quarter
            z = t * t
            s = t + t * z * (S1 + z * (S2 + z * (S3 + z * (S4 + z * (S5 + z * S6)))))
            c = 1.0 - (0.5 * z - z * z * (C1 + z * (C2 + z * (C3 + z * (C4 + z * (C5 + z * C6))))))
            if word >> SIGN:
                c, s = -c, -s
            if (word >> SWAP) & ODD:
                c, s = -s, c
            first[p] = radius * c
            second[p] = radius * s


@kernel
def draw_words(start, stop, keys, rounds, out):
    """Numbers ``start:stop`` of each key, two words each: ``out[:, 2 j]`` and ``out[:, 2 j + 1]`` are from number ``start + j``."""
    for p in range(len(keys)):
        key, words = keys[p], out[p]
        for j in range(stop - start):
            c0, c1, c2, c3 = philox(key & LOW, key >> HALF, np.uint64(start + j), ZERO, rounds)
            words[2 * j] = c0 | (c1 << HALF)
            words[2 * j + 1] = c2 | (c3 << HALF)
