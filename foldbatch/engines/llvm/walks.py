"""Functions of CPython that run the compiled loops of `walk_loops`."""

from __future__ import annotations

import ctypes
import sys
from array import array
from collections.abc import Callable, Sequence
from ctypes import c_int64, pythonapi
from functools import cache
from typing import Any

import numpy as np

from foldbatch.engines.llvm import note_loops
from foldbatch.engines.llvm import walk_loops as loops
from foldbatch.engines.llvm.compiling import compiled_words
from foldbatch.scheduler.trace import Index
from foldbatch.system.lines import address_of

FAST = 0x80  # ``METH_FASTCALL``
API = {
    loops.INCREASE: "Py_IncRef",
    loops.DECREASE: "Py_DecRef",
    loops.APPEND: "PyList_Append",
    loops.AS_INT64: "PyLong_AsLongLong",
    loops.NEW_INT: "PyLong_FromLongLong",
    loops.NEW_TUPLE: "PyTuple_New",
    loops.NEW_LIST: "PyList_New",
    loops.ALLOCATE: "PyType_GenericAlloc",
    loops.VECTORCALL: "PyObject_Vectorcall",
    loops.THREAD: "PyThread_get_thread_ident",
    loops.CLEAR: "PyErr_Clear",
}
OBJECTS = {
    loops.NONE_OBJECT: None,
    loops.TRUE: True,
    loops.FALSE: False,
    loops.REAL: float,
    loops.INTEGER: int,
    loops.TRUTH: bool,
    loops.LISTED: list,
    loops.ARRAYS: np.ndarray,
    loops.COPY: np.ndarray.copy,
    loops.LENGTHEN: array.extend,
    loops.SPACE: array("q", bytes(8 * 48)),
}


class _Definition(ctypes.Structure):
    """``PyMethodDef``."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def _words(obj: Any, count: int) -> list[int]:
    """Return the first words of an object's memory."""
    return [c_int64.from_address(id(obj) + 8 * i).value for i in range(count)]


@cache
def readable() -> bool:
    """Return whether lists, tuples and arrays of CPython have the memory layout that compiled code uses."""
    if sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    listed, pair = [2.5, None], (2.5, None)
    room = (sys.getsizeof(listed) - sys.getsizeof([])) // 8
    head = _words(listed, loops.ROOM + 1)
    if head[loops.TYPE :: loops.ROOM - loops.TYPE] != [id(list), room] or head[loops.COUNT] != 2:
        return False  # before another word is taken for an address
    listed_items = [c_int64.from_address(head[loops.ITEMS] + 8 * i).value for i in range(2)]
    two, pair_words = [*map(id, pair)], _words(pair, loops.FIRST + 2)
    numbers = array("q", (5, 6))
    place, count = numbers.buffer_info()
    if _words(numbers, loops.ROOM + 1)[loops.COUNT :] != [count, place, count]:
        return False
    sized = [pair_words[loops.TYPE], pair_words[loops.COUNT]] == [id(tuple), 2]
    return sized and listed_items == two == pair_words[loops.FIRST :]


def places_of(obj: Any, parts: Sequence[Any]) -> list[int] | None:
    """Return the offsets of a struct's parts, in words; None if it has more parts, or one is ambiguous."""
    words = _words(obj, type(obj).__basicsize__ // 8)
    places = [words.index(id(part)) for part in parts if words.count(id(part)) == 1]
    return places if len(places) == len(parts) == len(words) - 2 else None


def _header(*extra: int) -> list[int]:
    """Return a closure's words: addresses of CPython's functions and objects, then those in `extra`."""
    api = {k: ctypes.cast(getattr(pythonapi, name), ctypes.c_void_p).value or 0 for k, name in API.items()}
    addresses = api | {place: id(obj) for place, obj in OBJECTS.items()}
    return [*(addresses[place] for place in range(loops.ARGUMENT_WORDS)), 0, 0, *extra]


@cache
def _definition(loop: Callable[..., int]) -> _Definition:
    return _Definition(loop.__name__.encode(), compiled_words(loop, loops, note_loops), FAST, None)


def _function(loop: Callable[..., int], numbers: Sequence[int], *owners: Any) -> Callable[..., Any]:
    """Return a function of CPython that runs a loop; the owners of the addresses in `numbers` stay alive."""
    make = pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    function: Callable[..., Any] = make(
        ctypes.byref(_definition(loop)), (np.array(numbers, np.int64), *owners), None
    )
    return function


def calls(counters: array[int], value: Any, refuse: Callable[[Any], Any]) -> Callable[..., Any] | None:
    """Return a maker of functions that call cells; None if this Python's objects cannot be read.

    The maker takes the general function of a cell, and the codes of its signatures; see `functions.coded`.
    `counters` and `value` are the recorder's counters and a value as a sample; `refuse` raises for a value
    that no call has returned.
    """
    places = places_of(value, [value.n, value.unknown]) if readable() else None
    if places is None:
        return None
    header = _header(id(counters), id(value.unknown), *places, id(refuse), 0)

    def make(general: Callable[..., Any], codes: Sequence[Index]) -> Callable[..., Any]:
        cell_numbers = id(general), len(codes), *map(address_of, codes)
        return _function(loops.call, [*header, *cell_numbers], general, refuse, *codes)

    return make


def noter(
    counters: array[int],
    width: int,
    printed: Callable[..., Any],
    rows: array[int],
    operands: int,
    elements: Sequence[array[int]],
    data: Sequence[tuple[list[Any], bool]],
) -> Callable[..., int] | None:
    """Return a function that notes calls of a block's cell; None if this Python's objects cannot be read.

    Args:
        counters: the next number, and the last one that the example may take.
        width: how many numbers a call takes.
        printed: the function that does calls which compiled code leaves to Python.
        rows: the array to which rows are appended.
        operands: how many operands a call reads.
        elements: the arrays to which elements of lists are appended.
        data: the lists to which data and labels are appended, and whether that is the number of the call.
    """
    if not readable():
        return None
    parts = [word for array in elements for word in (id(array), 0)]
    parts += [word for items, counted in data for word in (id(items), int(counted))]
    counts = operands, len(elements), len(data)
    numbers = _header(id(counters), id(printed), id(tuple), width, id(rows), *counts, *parts)
    return _function(note_loops.note, numbers, counters, printed, rows, *elements, *data)


def drawer(counters: array[int], width: int, printed: Callable[..., Any]) -> Callable[..., int]:
    """Return a function that takes a number without a call; arguments are those of `noter`."""
    numbers = _header(id(counters), id(printed), id(tuple), width)
    return _function(note_loops.draw, numbers, counters, printed)


def nodes(node: Any) -> Callable[..., Any] | None:
    """Return a function that makes all nodes of a tree, given a sample node whose parts all differ.

    Return None if this Python's objects cannot be read.
    """
    parts = [getattr(node, name) for name in node.__struct_fields__]
    places = places_of(node, parts) if readable() else None
    if places is None:
        return None
    return _function(loops.nodes, _header(id(type(node)), id(np.dtype(np.int32)), *places), type(node))
