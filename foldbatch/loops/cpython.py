"""The structs of CPython and NumPy that compiled code reads and writes, and the guard that looks at samples.

No other module knows them. Offsets count words of 8 bytes from the beginning of an object, where nothing else
is said. Compiled code trusts them, so nothing is compiled that reads an object before the guard has compared
samples with what is written here: `readable` looks at objects of Python, `array_misfit` at arrays of NumPy.

Sources: ``PyVarObject``, ``PyListObject``, ``PyTupleObject``, ``PyLongObject``, ``PyFloatObject`` and
``arrayobject`` (of ``array.array``) in CPython; ``PyArrayObject`` and ``PyArray_Descr`` in the NumPy C API.
"""

from __future__ import annotations

import sys
import warnings
from array import array
from collections.abc import Callable, Sequence
from ctypes import c_int64, c_size_t, string_at
from functools import cache

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import SlowPathWarning, frames_inside

OLDEST, NEWEST = (3, 11), (3, 14)  # versions of CPython whose structs were looked at
WORD_BYTES = 8  # bytes
LOWEST = 1 << 16  # no smaller number is an address

COUNT = object.__basicsize__ // WORD_BYTES  # the number of items of a list, a tuple or an array.array
TYPE = COUNT - 1  # the type of any object
ITEMS, ROOM = COUNT + 1, COUNT + 2  # of a list, and an array.array: the address of its items, and its room
FIRST = tuple.__basicsize__ // WORD_BYTES  # the first item of a tuple
REAL = COUNT  # the number of a float
TAG, DIGITS = COUNT, COUNT + 1  # of an integer: its tag, and its digits of 30 bits, half a word each
# of an integer's tag: by how many bits the number of digits is shifted, and the mask of the sign
SHIFT, SIGNS = (0, 0) if sys.version_info < (3, 12) else (3, 3)
# of a NumPy array: the address of its numbers, its number of axes (half a word), the address of its extents,
# its dtype, and its flags
NUMBERS, AXES, EXTENTS, DTYPE, FLAGS = COUNT, COUNT + 1, COUNT + 2, COUNT + 5, COUNT + 6
PLAIN = 0x101  # flags of an array that is aligned, and C-contiguous
LETTER, ORDER = (
    COUNT * WORD_BYTES + 9,
    COUNT * WORD_BYTES + 10,
)  # of a dtype, in bytes: its letter, and its byte order


i8 = u8 = int  # compiled: conversions


def letters(kind: str) -> str:
    """Return the letters of NumPy's dtypes that are of a kind of `numbers.TYPES`.

    >>> letters("f4"), "l" in letters("i8") or "q" in letters("i8")
    ('f', True)
    """
    return "".join(letter for letter in "ilqfd" if np.dtype(letter).str[1:] == kind)


def address_of(array: NDArray[np.generic]) -> int:
    """Return where an array's numbers begin.

    >>> rows = np.zeros((3, 5))[1:]
    >>> address_of(rows) == rows.__array_interface__["data"][0]  # which takes ten times as long
    True
    """
    return c_size_t.from_address(id(array) + WORD_BYTES * NUMBERS).value


@cache
def readable() -> bool:
    """Return whether compiled code may read and write Python's objects; warn, once, where it may not.

    All is right without: Python does what compiled code would have done, in several times the time.
    """
    if reason := misfit():
        versions = f"CPython {_version(OLDEST)} to {_version(NEWEST)}"
        fix = f"results are the same; for speed, use {versions} with the global interpreter lock"
        warnings.warn(
            SlowPathWarning("compiled code", "objects of Python as CPython's", reason, fix),
            stacklevel=frames_inside(),
        )
    return not reason


def misfit() -> str:
    """Return the first way in which this Python differs from what compiled code reads; empty if in none."""
    if sys.implementation.name != "cpython":
        return f"Python of {sys.implementation.name}"
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        return f"CPython {_version(sys.version_info)}"
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return "an interpreter without the global lock"
    checks = {
        "lists": _list_fits,
        "tuples": _tuple_fits,
        "arrays": _array_fits,
        "integers": _integers_fit,
        "floats": _float_fits,
    }
    for name, fits in checks.items():
        if not _fits(fits):
            return f"{name} with another memory layout"
    return array_misfit()


def _fits(check: Callable[[], bool]) -> bool:
    """Return whether a check of a sample holds; it does not if it looks for words that the sample lacks."""
    try:
        return check()
    except (IndexError, TypeError, ValueError):
        return False


@cache
def array_misfit() -> str:
    """Return how NumPy's arrays differ from what compiled functions read; empty if in no way."""
    return "" if _fits(_numpy_fits) else "arrays of NumPy with another memory layout"


def bytes_of(obj: object, size: int) -> memoryview:
    """Return a copy of the first bytes of an object; no byte behind it may be read."""
    return memoryview(string_at(id(obj), size))


def words_of(obj: object, count: int) -> list[int]:
    """Return the first words of an object's memory; no word behind it may be read."""
    return bytes_of(obj, WORD_BYTES * count).cast("q").tolist()


def words_at(place: int, count: int) -> list[int]:
    """Return some words of memory, given their address."""
    return [c_int64.from_address(place + WORD_BYTES * i).value for i in range(count)]


def is_address(word: int) -> bool:
    """Return whether a word may be the address of words: it is large, and a multiple of their size."""
    return word >= LOWEST and word % WORD_BYTES == 0


def places_of(obj: object, parts: Sequence[object]) -> list[int] | None:
    """Return the offsets of a struct's parts; None if it has more parts, or one is ambiguous."""
    words = words_of(obj, type(obj).__basicsize__ // WORD_BYTES)
    places = [words.index(id(part)) for part in parts if words.count(id(part)) == 1]
    return places if len(places) == len(parts) == len(words) - COUNT else None


def digits_in(tag: int) -> int:
    """Return the number of digits of an integer, given its tag; -1 of a negative or larger one.

    Compiled code calls it, too.
    """
    size = i8(u8(tag) >> u8(SHIFT))
    if size < 0 or size > 2 or tag & SIGNS == 2:
        return -1
    return size


def _list_fits() -> bool:
    """Return whether a list is where compiled code reads and appends."""
    sample = [2.5, None]
    words = words_of(sample, list.__basicsize__ // WORD_BYTES)
    if [words[TYPE], words[COUNT]] != [id(list), len(sample)]:
        return False  # before another word is taken for an address
    room = (sys.getsizeof(sample) - sys.getsizeof([])) // WORD_BYTES
    items = words[ITEMS]
    return words[ROOM] == room and is_address(items) and words_at(items, 2) == [*map(id, sample)]


def _tuple_fits() -> bool:
    sample = (2.5, None)
    words = words_of(sample, tuple.__basicsize__ // WORD_BYTES + len(sample))
    if [words[TYPE], words[COUNT]] != [id(tuple), len(sample)]:
        return False
    return words[FIRST : FIRST + len(sample)] == [*map(id, sample)]


def _array_fits() -> bool:
    """Return whether an `array.array` is where compiled code reads and appends."""
    sample = array("q", (5, 6))
    place, count = sample.buffer_info()
    words = words_of(sample, array.__basicsize__ // WORD_BYTES)
    return [words[i] for i in (TYPE, COUNT, ITEMS, ROOM)] == [id(array), count, place, count]


def _integers_fit() -> bool:
    """Return whether integers have the tags and digits that compiled code reads."""
    return all(
        _whole_number(number) == (number if 0 <= number < 2**60 else -1)
        for number in (0, 1, 2**30 - 1, 2**30, 2**31 + 5, 2**60 - 1, -1, -(2**40), 2**60)
    )


def _whole_number(number: int) -> int:
    """Return an integer as compiled code reads it, from a copy of the object's own bytes; see `digits_in`."""
    copy = bytes_of(number, number.__sizeof__())
    head, halves = copy[: WORD_BYTES * DIGITS].cast("q"), copy[WORD_BYTES * DIGITS :].cast("I")
    size = digits_in(head[TAG]) if head[TYPE] == id(int) else -1
    if size > len(halves):
        return -1
    return size if size < 0 else sum([half << 30 * place for place, half in enumerate(halves[:size])])


def _float_fits() -> bool:
    sample = 2.5
    copy = bytes_of(sample, float.__basicsize__)
    return copy.cast("q")[TYPE] == id(float) and copy.cast("d")[REAL] == sample


def _numpy_fits() -> bool:
    """Return whether arrays of NumPy are where compiled functions read them."""
    sample = np.arange(6, dtype=np.int64).reshape(2, 3)
    content = bytes_of(sample, np.ndarray.__basicsize__)
    dtype = bytes_of(sample.dtype, np.dtype.__basicsize__)
    words, halves = content.cast("q"), content.cast("i")
    expected = [id(np.ndarray), sample.ctypes.data, id(sample.dtype), sample.ndim, sample.flags.num]
    if [words[TYPE], words[NUMBERS], words[DTYPE], halves[2 * AXES], halves[2 * FLAGS]] != expected:
        return False
    if not is_address(words[EXTENTS]) or words_at(words[EXTENTS], sample.ndim) != [*sample.shape]:
        return False
    return [dtype[LETTER], dtype[ORDER]] == [ord(sample.dtype.char), ord("=")]


def _version(version: Sequence[object]) -> str:
    return ".".join(map(str, version[:2]))
