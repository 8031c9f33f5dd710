"""The data that blocks read, as columns: one array for all visits of a block, checked as a whole."""

import reprlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from functools import cache, lru_cache
from typing import Any, NoReturn, TypeAlias

import numpy as np

from foldbatch.errors import ExampleError, ExampleKeyError, ExampleTypeError
from foldbatch.params.parameters import Array
from foldbatch.types import WIDER, TensorType, describe_value, is_masked

Datum: TypeAlias = Any  # a part of an example, of whatever class


def as_now(data: Datum, axes: int) -> object:
    """Return data of so many axes as they are now: their owner may write to arrays and lists later."""
    if type(data) is np.ndarray:
        return data.copy()
    if isinstance(data, int | float):
        return data
    if isinstance(data, list | tuple):
        nested = axes > 1 or any(isinstance(item, np.ndarray) for item in data[:1])
        return [as_now(item, axes - 1) for item in data] if nested else data[:]
    if hasattr(data, "detach"):  # of PyTorch, which itself watches what has a gradient
        return data if data.requires_grad else data.detach().clone()
    if isinstance(data, memoryview):
        return np.array(data)
    with suppress(Exception):  # what cannot be copied is read, or refused, as it is
        foreign = hasattr(data, "__array__") and not isinstance(data, np.ndarray | np.generic)
        return np.asarray(data).copy() if foreign else copy(data)
    return data


def of_now(append: Callable[[object], None], axes: int) -> Callable[[object], None]:
    """Wrap `append` so that data of so many axes are copied before they are appended."""
    return (lambda data: append(as_now(data, axes))) if axes else append


_EMPTY: dict[object, object] = {}
_VIEWS = (type(_EMPTY.keys()), type(_EMPTY.values()), type(_EMPTY.items()))
_HOLDING: tuple[Any, ...] = (list, tuple, dict, set, frozenset, str, bytes, range, deque, np.ndarray, *_VIEWS)
# how those go through their items that have them, and make none anew; classes of the user inherit it
_STORED_ITEMS = {kind.__iter__ for kind in _HOLDING}
_ENDED: deque[object] = deque(maxlen=64)  # iterators that were read to their end last


def items_of(data: Iterable[object]) -> Iterable[object]:
    """Return the items of an iterable; those of a generator are copied one by one as they come.

    What holds its items yields these themselves: a part that stands in two places stays one object.
    """
    return data if getattr(type(data), "__iter__", None) in _STORED_ITEMS else map(kept, data)


def items_once(data: Datum) -> Datum:
    """Return the same of a part of an example; an iterator that was read to its end is refused.

    A second block would be given no items of it.

    Raises:
        BadDataError: when it has been read.
    """
    kind = type(data)
    if kind is list or kind is tuple:  # as most are
        return data
    return _ending(data) if hasattr(kind, "__next__") else items_of(data)


def _ending(data: Iterator[object]) -> Iterator[object]:
    """Yield the items of an iterator; refuse one that has been read to its end before."""
    if any(ended is data for ended in _ENDED):
        actual = f"{describe_value(data)}, which has been read to its end"
        raise BadDataError("what can be read again", actual, "give a list of its items", ExampleTypeError)
    empty = True
    for item in data:
        empty = False
        yield kept(item)
    if not empty:
        _ENDED.append(data)


def kept(item: Datum, depth: int = 2) -> object:
    """Return an item with copies of its arrays, lists and dicts: one of them may be yielded again.

    >>> row = [1, 2]
    >>> same = kept((row, "a"))
    >>> row[0] = 3
    >>> same
    ([1, 2], 'a')
    """
    kind = type(item)
    if kind is np.ndarray:
        return item.copy()
    if depth and (kind is list or kind is tuple):
        return kind([kept(part, depth - 1) for part in item])
    if depth and kind is dict:
        return {key: kept(part, depth - 1) for key, part in item.items()}
    return item


class BadDataError(Exception):
    """A datum is not what a block needs; `found` says what it is."""

    def __init__(self, expected: str, actual: str, fix: str, kind: type[ExampleError] = ExampleError) -> None:
        super().__init__(expected, actual, fix)
        self.expected, self.found, self.fix, self.kind = expected, actual, fix, kind


PLAIN_ITEMS = 64  # numbers of which Python finds the greatest faster than NumPy
NUMBERS: tuple[set[type], ...] = {int}, {float}
PLAIN = frozenset({int, float, bool})  # classes of numbers that nobody writes to
UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


def column(
    items: Sequence[object] | Array, type_: TensorType, bound: int | None = None, declared: str = ""
) -> Array:
    """Return data as one array ``[n, *shape]``; refuse data of another shape, kind or range.

    Ids must be below `bound`; integers must fit the dtype `declared`, if not that of the type. A list is
    refused only for an item that would be refused alone, and the error is of that item.
    """
    if not len(items):  # an array has no truth
        return np.zeros((0, *type_.shape), type_.dtype)
    if len(items) <= PLAIN_ITEMS and not type_.shape and (kinds := {*map(type, items)}) in NUMBERS:
        low, high = _plain(*kinds, type_.dtype, bound, declared)
        if low <= min(items) and max(items) <= high:
            return np.array(items, type_.dtype)  # plain numbers, as most data are
    try:
        return _column(items, type_, bound, declared)
    except BadDataError:
        if any(getattr(item, "requires_grad", False) is True for item in items):  # tensors of PyTorch
            numbers = [item.detach() if hasattr(item, "detach") else item for item in items]
            return column(numbers, type_, bound, declared)
        parts = [_column([item], type_, bound, declared) for item in items] if len(items) > 1 else []
        if not parts or isinstance(items, np.ndarray):
            raise
        return np.concatenate(parts)  # each fits, only NumPy has found no dtype for all of them


@lru_cache(4096)
def _plain(kind: type, dtype: str, bound: int | None, declared: str) -> tuple[float, float]:
    """Return from which number to which those of a class become an array as they are: none from 1 to 0."""
    if kind is int and dtype.startswith(("int", "uint")):
        low, high = limits(declared or dtype)
        return (low, high) if bound is None else (0, min(bound - 1, high))
    if dtype in ("float32", "float64"):
        greatest = 2.0**24 if kind is int else float(np.finfo(dtype).max)
        return -greatest, greatest
    return 1, 0


def _column(items: Sequence[object] | Array, type_: TensorType, bound: int | None, declared: str) -> Array:
    """Return items as an array of a type; refuse what does not fit, with the way out."""

    def bad(fix: str, kind: type[ExampleError] = ExampleError, of_shape: str = "") -> BadDataError:
        expected = str(type_).replace(type_.dtype, declared or type_.dtype)
        if bound is not None:
            expected += f" from 0 to {min(bound - 1, limits(declared or type_.dtype)[1])}"
        actual = _datum(items[0]) if len(items) == 1 else f"{len(items)} items that do not fit together"
        return BadDataError(expected, actual + of_shape, fix, kind)

    if is_masked(items):
        raise bad("fill what is masked first, as in x.filled(0)", ExampleTypeError)
    try:
        array = np.asarray(items)
    except (ValueError, TypeError, OverflowError, RuntimeError):  # the last from tensors with gradients
        tensor = hasattr(items[0], "detach")  # bfloat16, or on a GPU
        fix = "convert it, as in x.float().cpu()" if tensor else "give numbers, in rows of one length"
        raise bad(fix, ExampleTypeError) from None
    if bound is not None and array.dtype.kind == "i" and array.size and array.shape[1:] == type_.shape:
        greatest = np.maximum.reduce(array.view(UNSIGNED[array.itemsize]), axis=None)  # -1 is large
        if greatest < min(bound, limits(declared or type_.dtype)[1]):
            return array.astype(type_.dtype, copy=False)
    allowed = _kinds(type_.dtype)
    empty = array.size == 0 and array.dtype == np.float64  # as NumPy reads []
    if array.dtype.kind not in allowed and not empty:
        fix = "convert it first, for example with InputTransform"
        if len(items) == 1 and items[0] is None:
            fix = "fill it in, leave the example out, or write Optional(...), which reads None as zeros"
        raise bad(fix, ExampleTypeError)
    if array.shape[1:] != type_.shape:
        of_shape = f" of shape {array.shape[1:]}" if isinstance(items[0], list | tuple) else ""
        raise bad("declare the shape that the data has", of_shape=of_shape)
    if array.dtype.kind in "iub" and type_.dtype.startswith("int") and array.size:
        low, high = int(array.min()), int(array.max())
        if bound is not None and (low < 0 or high >= bound):
            raise bad("count from 0, and give what is unknown an id of its own")
        least, largest = limits(declared or type_.dtype)
        if low < least or high > largest:
            fits_int64 = low >= -(2**63) and high < 2**63
            raise bad(f"declare {WIDER.get(declared, 'int64') if fits_int64 else 'float64, which rounds it'}")
    if not type_.is_float or array.dtype.kind == "b" or _survives(array, _digits(type_.dtype)):
        return array.astype(type_.dtype, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        result = array.astype(type_.dtype)
        if (np.isinf(result) & np.isfinite(array)).any():
            raise bad("declare float64, or scale the data")
        suspects = _suspects(array, result)
    mixed = type(items) is list and array.dtype.kind == "f"  # NumPy has made floats of all of them
    if suspects.size and any(_rounds(item, type_.dtype) for item in (items if mixed else suspects.tolist())):
        wider = "int64" if type_.dtype == "float64" else "float64"
        raise bad(f"{type_.dtype} would round it: declare {wider}, or give it as a float, which is rounded")
    return result


def _survives(array: Array, largest: int) -> bool:
    """Return whether no number of an array is beyond the whole numbers that a dtype of floats has all of."""
    if not array.size or array.itemsize < 4:
        return True
    return bool(-largest <= array.min() and array.max() <= largest)  # False where there is a NaN


def _suspects(array: Array, result: Array) -> Array:
    """Return the numbers of an array that may be whole numbers which another dtype of floats has rounded."""
    large = np.abs(result) >= _digits(result.dtype.name)
    if array.dtype.kind == "f":
        large &= (array == np.rint(array)) & ((result != array) | (np.abs(array) >= _digits("float64")))
    suspects: Array = array[large]
    return suspects


def _rounds(item: object, dtype: str) -> bool:
    """Return whether a dtype of floats rounds a whole number of an item, which may be nested lists."""
    if isinstance(item, list | tuple):
        return any(_rounds(part, dtype) for part in item)
    if isinstance(item, np.ndarray) and item.dtype.kind in "iu":
        return any(_rounds(part, dtype) for part in item.ravel().tolist())
    if not isinstance(item, int | np.integer) or isinstance(item, bool):
        return False
    return abs(int(item)) > _digits(dtype) and int(np.dtype(dtype).type(item)) != item


@cache
def _digits(dtype: str) -> int:
    """Return up to which whole number a dtype of floats has all of them."""
    return 1 << (int(np.finfo(dtype).nmant) + 1)


@cache
def _kinds(dtype: str) -> str:
    return {"f": "fiub", "i": "iub", "b": "b"}[np.dtype(dtype).kind]


@cache
def limits(dtype: str) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _datum(item: object) -> str:
    if isinstance(item, list | tuple):
        return f"{type(item).__name__} {reprlib.repr(item)}"
    return describe_value(item)


def refuse(expected: str, value: object, fix: str) -> NoReturn:
    """Raise the error for a value that no case is written for."""
    raise BadDataError(expected, describe_value(value), fix, ExampleKeyError)
