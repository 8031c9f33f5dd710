"""Calls of a block's cells by compiled functions of CPython, which note them in a recorder's lists.

A function takes the numbers of the operands that a call reads, its lists of numbers, and its data and labels;
it returns the number of the call. Where no number is left, or a list is of another class, the printed
function of the program does the call. Importing this needs llvmlite.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from foldbatch.loops import closures, cpython, list_loops
from foldbatch.loops.closures import AS_INT64, DECREASE, FUNCTION_WORDS, LISTED, NEW_INT, VECTORCALL
from foldbatch.loops.cpython import COUNT, FIRST, ITEMS, TYPE
from foldbatch.loops.list_loops import append, put
from foldbatch.loops.vector_functions import moved
from foldbatch.loops.words import ask, at, i8
from foldbatch.recorder.lists import Integers

# The words of a closure: the array of counters (the next number, and the last one that the example may take),
# the printed function, the class of tuples, how many numbers a call takes, the array of rows, and how many
# operands, lists and data there are. Behind it, of each list the array of elements and how many numbers an
# element has; and of each datum the list that it is appended to, and whether it is the number of the call.
COUNTERS, PRINTED, TUPLES, WIDTH, ROWS, OPERANDS, LISTS, DATA, PARTS = range(
    FUNCTION_WORDS, FUNCTION_WORDS + 9
)
PART_WORDS = 2  # of a list, and of a datum
_MODULES = sys.modules[__name__], list_loops, closures, cpython  # those of the functions that loops call


def noter(
    counters: array[int],
    width: int,
    printed: Callable[..., object],
    rows: Integers,
    operands: int,
    elements: Sequence[Integers],
    data: Sequence[tuple[list[Any], bool]],
) -> Callable[..., int]:
    """Return a function that notes calls of a block's cell.

    Args:
        counters: the next number, and the last one that the example may take.
        width: how many numbers a call takes.
        printed: the function that does calls which compiled code leaves to Python.
        rows: the array to which rows are appended.
        operands: how many operands a call reads.
        elements: the arrays to which elements of lists are appended.
        data: the lists to which data and labels are appended, and whether that is the number of the call.
    """
    parts = [word for array in elements for word in (id(array), 0)]
    parts += [word for items, counted in data for word in (id(items), int(counted))]
    counts = operands, len(elements), len(data)
    words = id(counters), id(printed), id(tuple), width, id(rows), *counts, *parts
    return closures.closure(note, _MODULES, words, counters, printed, rows, *elements, *data)


def drawer(counters: array[int], width: int, printed: Callable[..., object]) -> Callable[..., int]:
    """Return a function that takes a number without a call; arguments are those of `noter`."""
    words = id(counters), id(printed), id(tuple), width
    return closures.closure(draw, _MODULES, words, counters, printed)


def is_common(python: Any, arguments: Any, number: int, last: int) -> bool:
    """Return whether compiled code can note a call: its number is allowed, and its lists are lists."""
    for s in range(python[LISTS]):
        if at(arguments[python[OPERANDS] + s])[TYPE] != python[LISTED]:
            return False
    return number <= last


def put_elements(python: Any, to: int, sequence: int) -> int:
    """Append the numbers in a list, single ones or tuples of them, to an array; return 0 on success."""
    items, failed = at(at(sequence)[ITEMS]), i8(0)
    for i in range(at(sequence)[COUNT]):
        item = at(items[i])
        if item[TYPE] == python[TUPLES]:
            for m in range(item[COUNT]):
                failed += put(python, to, ask(python[AS_INT64], item[FIRST + m]))
        else:
            failed += put(python, to, ask(python[AS_INT64], items[i]))
    return failed


def note(closure: int, arguments: int, count: int) -> int:
    """Note a call; return a new reference to its number, or 0 after an error."""
    python, args = at(at(at(closure)[FIRST])[COUNT]), at(arguments)
    counters, rows, failed, argument = at(at(python[COUNTERS])[ITEMS]), python[ROWS], i8(0), i8(0)
    number = counters[0]
    if not is_common(python, args, number, counters[1]):
        return i8(ask(python[VECTORCALL], python[PRINTED], arguments, count, i8(0)))
    result = ask(python[NEW_INT], number)
    if result == 0:
        return 0
    failed += put(python, rows, number)
    for _ in range(python[OPERANDS]):
        failed += put(python, rows, ask(python[AS_INT64], args[argument]))
        argument += 1
    part = moved(python, PARTS)
    for _ in range(python[LISTS]):
        failed += put(python, rows, at(args[argument])[COUNT])
        failed += put_elements(python, part[0], args[argument])
        argument += 1
        part = moved(part, PART_WORDS)
    for _ in range(python[DATA]):
        if part[1] != 0:
            failed += append(python, part[0], result)
        else:
            failed += append(python, part[0], args[argument])
            argument += 1
        part = moved(part, PART_WORDS)
    if failed != 0:
        ask(python[DECREASE], result)
        return 0
    counters[0] = number + python[WIDTH]
    return i8(result)


def draw(closure: int, arguments: int, count: int) -> int:
    """Take a number without a call; return a new reference to it, or 0 after an error."""
    python = at(at(at(closure)[FIRST])[COUNT])
    counters = at(at(python[COUNTERS])[ITEMS])
    if counters[0] > counters[1]:
        return i8(ask(python[VECTORCALL], python[PRINTED], arguments, count, i8(0)))
    counters[0] = counters[0] + python[WIDTH]
    return i8(ask(python[NEW_INT], counters[0] - python[WIDTH]))
