"""Keys of ids."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everypair.data import Ids
from everypair.data.keys import keys_of

# Of the tests of the authors: http://www.isthe.com/chongo/tech/comp/fnv
KNOWN = {"": 0xCBF29CE484222325, "a": 0xAF63DC4C8601EC8C, "foobar": 0x85944171F73967E8, "chongo was here!\n": 0x46810940EFF5F915}


def fnv(text: str) -> int:
    found = 0xCBF29CE484222325
    for byte in text.encode():
        found = (found ^ byte) * 0x100000001B3 % 2**64
    return found


def test_known_answers() -> None:
    assert keys_of(pa.array(list(KNOWN))).tolist() == list(KNOWN.values()) == list(map(fnv, KNOWN))


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
    st.integers(0, 3),
    st.sampled_from([pa.string(), pa.large_string()]),
)
def test_keys_of_strings(texts: list[str], first: int, kind: pa.DataType) -> None:
    """Also of a part of an array."""
    assert keys_of(pa.array(texts, kind)[first:]).tolist() == list(map(fnv, texts[first:]))


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_integers_are_their_keys(values: list[int]) -> None:
    assert keys_of(pa.array(values, pa.int64())).tolist() == [value % 2**64 for value in values]


@pytest.mark.parametrize("values", [["b", "a", "ü"], [30, -4, 5]])
def test_the_key_of_an_id_depends_on_no_other(values: list) -> None:
    ids = Ids.of(values)
    found = dict(zip(ids, ids.keys().tolist(), strict=True))
    assert ids.keys().dtype == np.uint64
    for value in values:
        assert Ids.of([value]).keys().tolist() == [found[value]]
