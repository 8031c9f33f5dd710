"""The functions with which blocks of a schema read values; each returns None for a value of another kind."""

from functools import lru_cache
from math import isfinite
from typing import Any
from zlib import crc32

from foldbatch.schema.kinds import LARGEST, bounded
from foldbatch.trees.vocabulary import Vocabulary

FARTHEST = 10.0  # deviations from the mean; farther numbers are read as this far
LONGEST = 1000  # characters of a text that are read
BEGIN, END = "\x02", "\x03"  # stand around a text, so that n-grams tell its ends


def as_flag(value: Any) -> int | None:
    """Return 0 or 1 for a bool.

    >>> as_flag(True), as_flag(1)
    (1, None)
    """
    return int(value) if isinstance(value, bool) else None


def as_number(value: Any, mean: float, deviation: float) -> list[float] | None:
    """Return how many deviations a number is away from the mean, at most 10.

    >>> as_number(7, 3.0, 2.0), as_number(-1e9, 3.0, 2.0), as_number("7", 3.0, 2.0)
    ([2.0], [-10.0], None)
    """
    kind = type(value)
    if (kind is not float and kind is not int) or not -LARGEST < value < LARGEST:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        value = bounded(value)
        if not isfinite(value):
            return None
    far = (value - mean) / deviation
    return [far if -FARTHEST < far < FARTHEST else max(-FARTHEST, min(FARTHEST, far))]


def as_category(value: Any, vocabulary: Vocabulary) -> int | None:
    """Return a string's number; 0 for one that the samples did not have.

    >>> as_category("b", Vocabulary(["a", "b"])), as_category("c", Vocabulary(["a"])), as_category(1, [])
    (2, 0, None)
    """
    return vocabulary[value] if isinstance(value, str) else None


def as_ngrams(value: Any, size: int, buckets: int) -> list[int] | None:
    """Return a number below `buckets` for each run of `size` characters; the same on every machine.

    >>> as_ngrams("ab", 3, 1000) == as_ngrams("abab", 3, 1000)[:1] + as_ngrams("abab", 3, 1000)[-1:]
    True
    """
    if not isinstance(value, str):
        return None
    text = f"{BEGIN}{value[:LONGEST]}{END}"
    grams = (text[i : i + size] for i in range(max(len(text) - size, 0) + 1))
    return [crc32(gram.encode("utf-8", "surrogatepass")) % buckets for gram in grams]


def as_list(value: Any) -> list[Any] | None:
    """Return a list, or a tuple as a list.

    >>> as_list((1, 2)), as_list("ab")
    ([1, 2], None)
    """
    return list(value) if isinstance(value, list | tuple) else None


def as_fields(value: Any, names: tuple[str, ...]) -> dict[str, Any] | None:
    """Return a dict that has fields of these names: itself, or one in which what it lacks is None.

    >>> as_fields({"a": 1, "c": 2}, ("a", "b")), as_fields([], ("a",))
    ({'a': 1, 'b': None}, None)
    """
    if type(value) is dict and value.keys() >= _set_of(names):
        return value
    return {name: value.get(name) for name in names} if isinstance(value, dict) else None


@lru_cache(1024)
def _set_of(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(names)


def as_pairs(value: Any) -> list[tuple[Any, Any]] | None:
    """Return the keys of a dict with their values.

    >>> as_pairs({"a": 1}), as_pairs(None)
    ([('a', 1)], None)
    """
    return list(value.items()) if isinstance(value, dict) else None
