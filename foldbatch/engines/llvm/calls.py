"""Calls of cells in walks, each in one function of CPython that is compiled: see `call_loops`."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from ctypes import c_int64, pythonapi
from functools import cache
from typing import Any

import numpy as np

from foldbatch.engines.llvm import call_loops as loops
from foldbatch.engines.llvm.compiling import compiled_words
from foldbatch.system.lines import address_of

FAST = 0x80  # ``METH_FASTCALL``
API = {
    loops.INCREASE: "Py_IncRef",
    loops.DECREASE: "Py_DecRef",
    loops.APPEND: "PyList_Append",
    loops.WHOLE: "PyLong_AsLongLong",
    loops.OF_WHOLE: "PyLong_FromLongLong",
    loops.NEW_TUPLE: "PyTuple_New",
    loops.ALLOCATE: "PyType_GenericAlloc",
    loops.VECTORCALL: "PyObject_Vectorcall",
    loops.CLEAR: "PyErr_Clear",
}


class _Definition(ctypes.Structure):
    """``PyMethodDef``."""

    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int),
                ("doc", ctypes.c_char_p))


Maker = Callable[[Callable[..., Any], Sequence[Any]], Callable[..., Any]]


def words_of(thing: Any, count: int) -> list[int]:
    return [c_int64.from_address(id(thing) + 8 * i).value for i in range(count)]


@cache
def _definition() -> _Definition:
    return _Definition(b"cell", compiled_words(loops.call, loops), FAST, None)


def known_words(counters: int, value: Any) -> list[int] | None:
    """Return what every call is told; None where objects are not in memory as compiled code reads them.

    Given are the address of the globals, and a value.
    """
    if hasattr(sys, "_is_gil_enabled") and not sys._is_gil_enabled():
        return None
    words = words_of(value, type(value).__basicsize__ // 8)
    listed, pair = [value, 1], (value, 1)
    items = words_of(listed, loops.ITEMS + 1)
    at = [c_int64.from_address(items[-1] + 8 * i).value for i in range(2)]
    alike = items[loops.TYPE] == id(list) and items[loops.COUNT] == 2 and at == [id(value), id(1)]
    several = words_of(pair, loops.FIRST + 2)
    alike &= several[loops.TYPE :] == [id(tuple), 2, id(value), id(1)]
    numbers = [i for i, word in enumerate(words) if word == id(value.n)]
    unknown = [i for i, word in enumerate(words) if word == id(value.unknown)]
    if not alike or len(numbers) != 1 or len(unknown) != 1 or len(words) != 4:
        return None
    told = [0] * loops.OWN
    for place, name in API.items():
        told[place] = ctypes.cast(getattr(pythonapi, name), ctypes.c_void_p).value or 0
    told[loops.COUNTERS] = counters
    told[loops.NOTHING], told[loops.UNKNOWN] = id(None), id(value.unknown)
    told[loops.REAL], told[loops.INTEGER], told[loops.TRUTH], told[loops.LISTED] = map(id, (float, int, bool, list))
    told[loops.N_AT], told[loops.UNKNOWN_AT] = numbers[0], unknown[0]
    return told


def maker(counters: list[int], value: Any) -> Maker | None:
    """Return what makes compiled functions of cells; see `functions.coded.Maker`."""
    known = known_words(id(counters), value)
    if known is None:
        return None
    make = pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]

    def made(general: Callable[..., Any], signatures: Sequence[Any]) -> Callable[..., Any]:
        codes = [signature.numbers for signature in signatures]
        own = np.array([*known, id(general), len(codes), *map(address_of, codes)], np.int64)
        function: Callable[..., Any] = make(ctypes.byref(_definition()), (own, general, *codes), None)
        return function

    return made
