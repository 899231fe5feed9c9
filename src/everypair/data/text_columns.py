"""What a column of text holds: integers, numbers or truth values where the text survives their type, else strings.

A CSV file has no types. To guess them from digits alone loses data: "01234" and "1234", or "1.10" and "1.1", would become one
number. So a type is taken only where its values, printed in one style, are the text again.
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn

import pyarrow as pa
from pyarrow import csv

from everypair.data.arrow import cast_or_none, is_number, is_text, pc, value_type

INTEGER = r"^(0|-?[1-9][0-9]*)$"  # as integers print: no leading zeros
NUMBER = r"^-?((0|[1-9][0-9]*)(\.[0-9]+)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"  # any way to write a number, without leading zeros
EXPONENT = r"-?[0-9](\.[0-9]+)?[eE][+-][0-9]+|-?[0-9]\.[0-9]+E[0-9]+"  # as software prints it; "12e5" may be a code
SHORTEST = rf"^(-?(0|[1-9][0-9]*)?(\.[0-9]*[1-9]|\.0)?|{EXPONENT})$"  # without superfluous zeros
FIXED = r"^-?(0|[1-9][0-9]*)?\.[0-9]{{{places}}}$"  # the same number of decimal places in all
TOO_LONG = r"[1-9][0-9]{17}|[1-9][0-9.]{18}"  # more significant digits than a float has
ANY_NUMBER = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
COMMA = r"^-?[0-9]+(,[0-9]+)?$"
SPELLINGS = (("false", "true"), ("False", "True"), ("FALSE", "TRUE"))
HEAD = 100  # rows that are looked at before the others
MISSING = csv.ConvertOptions().null_values  # words such as "NA", which are missing values among numbers only


class Guess(NamedTuple):
    """The values of a column of text, and a remark if they are strings though they look like numbers."""

    values: pa.ChunkedArray
    remark: str | None = None


def guess(text: pa.ChunkedArray) -> Guess:
    """The column as integers, floats or booleans, if its text survives that, else the strings."""
    rest = _without_words(text)
    if rest.null_count == len(rest):
        return Guess(text)
    for found in (integers, _floats):
        if (numbers := found(rest)) is not None:
            return Guess(numbers)
    for false, true in SPELLINGS:
        if _all(text, f"^({false}|{true})$"):
            return Guess(pc.equal(text, true))
    return Guess(text, _remark(rest))


def integers(text: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """The column as integers, if all values are written as integers print; None if they are not."""
    found = cast_or_none(text, pa.int64())
    return found if found is not None and _all(text, INTEGER) else None


def parsed(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers however they are written, missing where the text is none."""
    return pc.if_else(pc.match_substring_regex(text, ANY_NUMBER), pc.utf8_trim_whitespace(text), None).cast(pa.float64())


def as_type(text: pa.ChunkedArray, kind: pa.DataType, what: str) -> pa.ChunkedArray:
    """A column of text with the type that is known of it; an error if the text would not survive."""
    kind = value_type(kind)
    if is_text(kind) or pa.types.is_null(kind):
        return text
    rest = _without_words(text) if is_number(kind) else text
    if pa.types.is_integer(kind):
        lost, found = _first_unlike(rest, INTEGER), cast_or_none(rest, kind)
    elif is_number(kind):
        lost, found = _first_unlike(rest, NUMBER), cast_or_none(rest, kind)
    elif pa.types.is_boolean(kind):
        lower = pc.utf8_lower(rest)
        lost, found = _first_unlike(lower, "^(true|false)$"), pc.equal(lower, "true")
    else:
        lost, found = None, cast_or_none(rest, kind)
    if lost is not None or found is None:
        alone = (r for r in range(len(rest)) if cast_or_none(rest[r : r + 1], kind) is None)
        row = next(alone, 0) if lost is None else lost
        raise TypeError(
            f"{what} must be {kind}, as in the rest of the data, but row {row} has the text {rest[row].as_py()!r}, which {kind} "
            f"would not keep. Correct it; or read all of the data again, with this text."
        )
    return found


def refuse_ids(text: pa.ChunkedArray, what: str) -> NoReturn:
    """The error for ids that are not all integers, where those of the data are."""
    odd = _first_unlike(text, INTEGER)
    if odd is None:
        raise ValueError(f"{what} must fit into 64-bit signed integers, like the other ids of the data.")
    raise TypeError(
        f"{what} must be integers, like the other ids of the data, but row {odd} has {text[odd].as_py()!r}: it would match none. "
        f"Correct it, or leave the row out."
    )


def _floats(text: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """The column as floats, if its text survives that."""
    found = cast_or_none(text, pa.float64())
    if found is None or _prints_as(found, text):
        return found
    distinct = text.unique().drop_null()
    places = len(distinct[0].as_py().partition(".")[2])
    one_style = _all(distinct, SHORTEST) or (places and _all(distinct, FIXED.format(places=places)))
    if not one_style or pc.any(pc.match_substring_regex(distinct, TOO_LONG)).as_py():
        return None
    return found if pc.count_distinct(found).as_py() == len(distinct) else None


def _prints_as(numbers: pa.ChunkedArray, text: pa.ChunkedArray) -> bool:
    """Whether floats, printed with the fewest digits, are the text again: the usual case, found without a look at each number."""
    return bool(pc.all(pc.equal(numbers.cast(text.type), text), min_count=0).as_py())


def _remark(text: pa.ChunkedArray) -> str | None:
    """Why strings that look like numbers are none."""
    text = text.drop_null()
    if _all(text, ANY_NUMBER):
        odd = text[_first_unlike(text, SHORTEST) or 0].as_py()
        return f"holds strings, since numbers would not keep {odd!r} as it is written"
    if _all(text, COMMA):
        return f"holds strings, since {text[_first_unlike(text, INTEGER) or 0].as_py()!r} has a decimal comma: write points"
    return None


def _without_words(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Without words for missing values."""
    words = pc.is_in(text, pa.array(MISSING))
    return pc.if_else(words, None, text) if pc.any(words).as_py() else text


def _all(text: pa.ChunkedArray | pa.Array, pattern: str) -> bool:
    """Whether all values match; where they do not, the first ones mostly show it."""
    parts = (text[:HEAD], text[HEAD:])
    return all(pc.all(pc.match_substring_regex(part, pattern), min_count=0).as_py() for part in parts)


def _first_unlike(text: pa.ChunkedArray | pa.Array, pattern: str) -> int | None:
    """The first row that does not match."""
    row = pc.index(pc.match_substring_regex(text, pattern), False).as_py()
    return None if row < 0 else row
