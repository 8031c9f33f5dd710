"""Loops that append to Python's lists and arrays, for the compiled functions of `closures`.

`python` is the header of a closure. Importing this needs llvmlite.
"""

from __future__ import annotations

from typing import Any

from foldbatch.loops.closures import APPEND, ARGUMENT_WORDS, DECREASE, INCREASE, LENGTHEN, SPACE, VECTORCALL
from foldbatch.loops.cpython import COUNT, ITEMS, ROOM
from foldbatch.loops.vector_functions import moved
from foldbatch.loops.words import address, ask, ask_i4, at, i8


def append(python: Any, to: int, obj: int) -> int:
    """Append an object to a list; a null pointer is left to CPython, which raises. Return 0 on success."""
    target = at(to)
    size = target[COUNT]
    if size == target[ROOM] or obj == 0:
        return i8(ask_i4(python[APPEND], to, obj))
    ask(python[INCREASE], obj)
    at(target[ITEMS])[size], target[COUNT] = obj, size + 1
    return i8(0)


def put(python: Any, to: int, number: int) -> int:
    """Append a number to an `array.array`, at its address `to`; return 0, or -1 to let Python raise an error.

    It is -1 if memory is short, or the number is negative, which marks a value that no call has returned.
    """
    target = at(to)
    size = target[COUNT]
    if size == target[ROOM]:
        words = moved(python, ARGUMENT_WORDS)
        words[0], words[1] = to, to if size > 0 else python[SPACE]  # extended by itself it is twice as long
        answer = ask(python[VECTORCALL], python[LENGTHEN], address(words), i8(2), i8(0))
        if answer == 0:
            return -1
        ask(python[DECREASE], answer)
        target[COUNT] = size
    at(target[ITEMS])[size], target[COUNT] = number, size + 1
    return i8(0) if number >= 0 else i8(-1)
