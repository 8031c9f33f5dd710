"""Functions of CPython that run compiled loops: a loop with its closure, which Python calls as any function.

CPython calls the loop with the closure's object and the arguments (``METH_FASTCALL``). The object is a tuple
whose first item is an array of words: a `Closure`, and behind it what the loop reads. Such loops take offsets
in objects from `cpython`.
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
from foldbatch.loops.records import Header


class Closure(Header):
    """The header of a closure: the addresses of functions of CPython, and of its objects."""

    increase: int  # the functions of `API`
    decrease: int
    append: int
    as_int64: int
    new_int: int
    new_tuple: int
    new_list: int
    allocate: int
    vectorcall: int
    thread: int
    clear: int
    none: int  # the objects of `OBJECTS`
    true: int
    false: int
    real: int
    integer: int
    truth: int
    list_class: int
    array_class: int
    copy: int
    lengthen: int
    space: int
    arguments: int  # room for two arguments of a vectorcall
    second_argument: int


FAST = 0x80  # ``METH_FASTCALL``
API = {
    "increase": "Py_IncRef",
    "decrease": "Py_DecRef",
    "append": "PyList_Append",
    "as_int64": "PyLong_AsLongLong",
    "new_int": "PyLong_FromLongLong",
    "new_tuple": "PyTuple_New",
    "new_list": "PyList_New",
    "allocate": "PyType_GenericAlloc",
    "vectorcall": "PyObject_Vectorcall",
    "thread": "PyThread_get_thread_ident",
    "clear": "PyErr_Clear",
}
OBJECTS = {
    "none": None,
    "true": True,
    "false": False,
    "real": float,
    "integer": int,
    "truth": bool,
    "list_class": list,
    "array_class": np.ndarray,
    "copy": np.ndarray.copy,
    "lengthen": array.extend,
    "space": array("q", bytes(8 * 48)),
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
    loop: Callable[..., int], modules: Sequence[ModuleType], numbers: Sequence[int], *owners: object
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
    addresses = api | {name: id(obj) for name, obj in OBJECTS.items()}
    return [*(addresses[name] for name in Closure.fields[: Closure.arguments]), 0, 0]
