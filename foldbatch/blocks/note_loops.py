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
from foldbatch.loops.closures import Closure
from foldbatch.loops.cpython import COUNT, FIRST, ITEMS, TYPE
from foldbatch.loops.list_loops import append, put
from foldbatch.loops.records import Header
from foldbatch.loops.vector_functions import moved
from foldbatch.loops.words import ask, at, i8
from foldbatch.recorder.lists import Integers


class Noter(Closure):
    """The words of a closure; behind them stand the `Part`s of lists and data."""

    counters: int  # the array of the next number, and of the last one that the example may take
    printed: int  # the function that does what compiled code leaves to Python
    tuple_class: int
    width: int  # how many numbers a call takes
    rows: int  # the array of rows
    operands: int  # how many there are
    lists: int
    data: int


class Part(Header):
    """A list, or a datum."""

    target: int  # the array or list that it is appended to
    counted: int  # whether a datum is the number of the call


_MODULES = sys.modules[__name__], list_loops, closures, cpython  # those of the functions that loops call


def noter(
    counters: array[int],
    width: int,
    printed: Callable[..., object],
    rows: Integers,
    operands: int,
    elements: Sequence[Integers],
    data: Sequence[tuple[list[object], bool]],
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


def is_common(python: Noter, arguments: Any, number: int, last: int) -> bool:
    """Return whether compiled code can note a call: its number is allowed, and its lists are lists."""
    for s in range(python.lists):
        if at(arguments[python.operands + s])[TYPE] != python.list_class:
            return False
    return number <= last


def put_elements(python: Noter, to: int, sequence: int) -> int:
    """Append the numbers in a list, single ones or tuples of them, to an array; return 0 on success."""
    items, failed = at(at(sequence)[ITEMS]), i8(0)
    for i in range(at(sequence)[COUNT]):
        item = at(items[i])
        if item[TYPE] == python.tuple_class:
            for m in range(item[COUNT]):
                failed += put(python, to, ask(python.as_int64, item[FIRST + m]))
        else:
            failed += put(python, to, ask(python.as_int64, items[i]))
    return failed


def note(closure: int, arguments: int, count: int) -> int:
    """Note a call; return a new reference to its number, or 0 after an error."""
    words, args = at(at(at(closure)[FIRST])[COUNT]), at(arguments)
    python = Noter(words)
    counters, rows, failed, argument = at(at(python.counters)[ITEMS]), python.rows, i8(0), i8(0)
    number = counters[0]
    if not is_common(python, args, number, counters[1]):
        return i8(ask(python.vectorcall, python.printed, arguments, count, i8(0)))
    result = ask(python.new_int, number)
    if result == 0:
        return 0
    failed += put(python, rows, number)
    for _ in range(python.operands):
        failed += put(python, rows, ask(python.as_int64, args[argument]))
        argument += 1
    part = moved(python.memory, Noter.size)
    for _ in range(python.lists):
        failed += put(python, rows, at(args[argument])[COUNT])
        failed += put_elements(python, part[Part.target], args[argument])
        argument += 1
        part = moved(part, Part.size)
    for _ in range(python.data):
        if part[Part.counted] != 0:
            failed += append(python, part[Part.target], result)
        else:
            failed += append(python, part[Part.target], args[argument])
            argument += 1
        part = moved(part, Part.size)
    if failed != 0:
        ask(python.decrease, result)
        return 0
    counters[0] = number + python.width
    return i8(result)


def draw(closure: int, arguments: int, count: int) -> int:
    """Take a number without a call; return a new reference to it, or 0 after an error."""
    words = at(at(at(closure)[FIRST])[COUNT])
    python = Noter(words)
    counters = at(at(python.counters)[ITEMS])
    if counters[0] > counters[1]:
        return i8(ask(python.vectorcall, python.printed, arguments, count, i8(0)))
    counters[0] = counters[0] + python.width
    return i8(ask(python.new_int, counters[0] - python.width))
