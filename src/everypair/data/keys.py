"""Keys of ids and levels: numbers of 64 bits that are the same in every process, on every machine and in every version.

The key of an integer is the integer itself, a negative one as its two's complement. The key of a string is the FNV-1a hash of its
bytes in UTF-8: beginning with 14695981039346656037, for each byte ``h = (h xor byte) * 1099511628211 mod 2^64``. They tell ids
apart (of ten million strings, two have the same key with a probability of 3 in a million) and are not uniformly distributed; nor
are they safe against who wants two ids with the same key.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from everypair.data.arrow import is_text
from everypair.kernels.jit import kernel

BASIS, PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)


def keys_of(values: pa.Array) -> np.ndarray:
    """The keys of integers or strings, none of them missing."""
    if not is_text(values.type):
        return values.cast(pa.int64()).to_numpy(zero_copy_only=False).astype(np.uint64)
    strings: Any = values.cast(pa.large_string())
    _, offsets, data = strings.buffers()
    out = np.empty(len(strings), np.uint64)
    if len(strings):
        bounds = np.frombuffer(offsets, np.int64)[strings.offset : strings.offset + len(strings) + 1]
        text = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        with np.errstate(over="ignore"):  # products wrap, of which NumPy warns where kernels are not compiled
            hash_strings(0, len(out), bounds, text, out)
    return out


@kernel
def hash_strings(start, stop, bounds, text, out):
    for p in range(start, stop):
        found = BASIS
        for byte in text[bounds[p] : bounds[p + 1]]:
            found = (found ^ np.uint64(byte)) * PRIME
        out[p] = found
