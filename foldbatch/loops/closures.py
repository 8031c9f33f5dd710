"""Functions of CPython that run compiled loops: a loop with its closure, which Python calls as any function.

CPython calls the loop with the closure's object and the arguments (``METH_FASTCALL``). The object is a tuple
whose first item is an array of words: a header with the addresses of functions and objects of CPython, see
`INCREASE` and below, and behind it what the loop reads. Such loops take offsets in objects from `cpython`.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Sequence
from ctypes import pythonapi
from types import ModuleType
from typing import Any

import numpy as np

from foldbatch.loops import cpython
from foldbatch.loops.compiling import can_compile, compiled_words

# The header of a closure: the addresses of functions of CPython, and of its objects.
INCREASE, DECREASE, APPEND, AS_INT64, NEW_INT, NEW_TUPLE, NEW_LIST, ALLOCATE, VECTORCALL, THREAD = range(10)
CLEAR = 10
NONE_OBJECT, TRUE, FALSE, REAL, INTEGER, TRUTH, LISTED, ARRAYS, COPY, LENGTHEN, SPACE = range(11, 22)
ARGUMENT_WORDS, FUNCTION_WORDS = SPACE + 1, SPACE + 3  # room for two arguments of a vectorcall

FAST = 0x80  # ``METH_FASTCALL``
API = {
    INCREASE: "Py_IncRef",
    DECREASE: "Py_DecRef",
    APPEND: "PyList_Append",
    AS_INT64: "PyLong_AsLongLong",
    NEW_INT: "PyLong_FromLongLong",
    NEW_TUPLE: "PyTuple_New",
    NEW_LIST: "PyList_New",
    ALLOCATE: "PyType_GenericAlloc",
    VECTORCALL: "PyObject_Vectorcall",
    THREAD: "PyThread_get_thread_ident",
    CLEAR: "PyErr_Clear",
}
OBJECTS = {
    NONE_OBJECT: None,
    TRUE: True,
    FALSE: False,
    REAL: float,
    INTEGER: int,
    TRUTH: bool,
    LISTED: list,
    ARRAYS: np.ndarray,
    COPY: np.ndarray.copy,
    LENGTHEN: array.extend,
    SPACE: array("q", bytes(8 * 48)),
}


class _Definition(ctypes.Structure):
    """``PyMethodDef``."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_definitions: dict[int, _Definition] = {}  # by the address of a loop; functions point to them


def can_close() -> bool:
    """Return whether there can be closures: loops are compiled, and they may read this Python's objects."""
    return can_compile() and cpython.readable()


def closure(
    loop: Callable[..., int], modules: Sequence[ModuleType], numbers: Sequence[int], *owners: Any
) -> Callable[..., Any]:
    """Return a function of CPython that runs a loop.

    Args:
        loop: it takes the addresses of the closure's tuple and of the arguments, and the number of these; it
            returns a new reference to its result, or 0 after an error.
        modules: the modules of all functions that it calls, see `compiling.compiled_function`.
        numbers: the words behind the header of the closure.
        owners: the objects whose addresses are among the numbers; they stay alive.
    """
    address = compiled_words(loop, *modules)
    definition = _definitions.setdefault(address, _Definition(loop.__name__.encode(), address, FAST, None))
    make = pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    words = np.array([*_header(), *numbers], np.int64)
    function: Callable[..., Any] = make(ctypes.byref(definition), (words, *owners), None)
    return function


def _header() -> list[int]:
    """Return a closure's header: addresses of CPython's functions and objects, and room for arguments."""
    api = {k: ctypes.cast(getattr(pythonapi, name), ctypes.c_void_p).value or 0 for k, name in API.items()}
    addresses = api | {place: id(obj) for place, obj in OBJECTS.items()}
    return [*(addresses[place] for place in range(ARGUMENT_WORDS)), 0, 0]
