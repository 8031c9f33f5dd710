"""Calls of cells in walks, noted by compiled functions of CPython; see `loops.closures`.

`call` notes a call of a cell by the codes of `model.calls`; if no signature fits, or an object is unusual,
the cell's general function in Python does the call. No code of the user runs here. Importing this needs
llvmlite.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from foldbatch.loops import closures, cpython, list_loops
from foldbatch.loops.closures import Closure
from foldbatch.loops.cpython import AXES, COUNT, DTYPE, EXTENTS, FIRST, ITEMS, TYPE
from foldbatch.loops.list_loops import append, put
from foldbatch.loops.records import Memory
from foldbatch.loops.vector_functions import moved
from foldbatch.loops.words import address, ask, at, at_i4, i8
from foldbatch.model.calls import (
    ARRAY,
    COPIED,
    DATUM,
    EXACT,
    GUARD,
    IDENTICAL,
    LIST,
    MAY_BE_EMPTY,
    OF,
    OUTPUT,
    PASSED,
    RESULT,
    SIZED,
    THERE,
    Cell,
    Datum,
    Guard,
    ListCode,
    Place,
    Result,
    Signature,
)
from foldbatch.scheduler.trace import Index


class Caller(Closure):
    """The words of the closure; behind them stands the code of the cell, see `model.calls`."""

    counters: int  # the array of counters
    unknown: int  # the object that stands for unknown numbers of a value
    number_at: int  # the offset in a value of its number, in words
    unknown_at: int  # and of that object
    refuse: int  # the function that refuses a value that no call has returned
    unreturned: int  # such a value, once it is found


def caller(counters: array[int], value: Any, refuse: Callable[[Any], object]) -> Callable[..., Any] | None:
    """Return a maker of functions that call cells; None if the parts of a value cannot be told apart.

    The maker takes the general function of a cell, and the codes of its signatures; see `functions.coded`.

    Args:
        counters: the recorder's counters.
        value: a value as a sample.
        refuse: raises for a value that no call has returned.
    """
    places = cpython.places_of(value, [value.n, value.unknown])
    if places is None:
        return None
    words = id(counters), id(value.unknown), *places, id(refuse), 0
    modules = sys.modules[__name__], list_loops, closures, cpython

    def make(general: Callable[..., object], codes: Sequence[Index]) -> Callable[..., object]:
        cell = id(general), len(codes), *map(cpython.address_of, codes)
        return closures.closure(call, modules, [*words, *cell], general, refuse, *codes)

    return make


def slot(place: Place, arguments: Memory) -> int:
    """Return the address of the pointer to the object at a place of the arguments."""
    target = address(moved(arguments, place.argument))
    for i in range(place.depth):
        target = at(target)[0] + 8 * (FIRST + place.memory[Place.first_item + i])
    return i8(target)


def argument_at(place: Place, arguments: object) -> int:
    """Return the address of the object at a place of the arguments."""
    return i8(at(slot(place, arguments))[0])


def is_plain(integer: int, real: int, truth: int, type_: int) -> bool:
    """Return whether a type is int, float or bool, whose addresses come first."""
    return type_ == integer or type_ == real or type_ == truth  # noqa: PLR1714


def fits_all(guard: Guard, items: int, size: int) -> bool:
    """Return whether all items of a list are as the guards behind the list's guard say."""
    members, tuples = guard.count, guard.expected
    for i in range(size):
        item = at(items)[i]
        if tuples != 0 and (at(item)[TYPE] != tuples or at(item)[COUNT] != members):
            return False
        for m in range(members):
            part = item
            if tuples != 0:
                part = at(item)[FIRST + m]
            if at(part)[TYPE] != guard.memory[GUARD * (1 + m) + Guard.expected]:
                return False
    return True


def is_array(python: Caller, guard: Guard, array: Memory) -> bool:
    """Return whether an object is an array of the dtype and the extents of a guard."""
    if array[TYPE] != python.array_class or array[DTYPE] != guard.expected:
        return False
    axes, sizes = i8(at_i4(address(moved(array, AXES)))[0]), at(array[EXTENTS])
    if axes != guard.count:
        return False
    for axis in range(guard.count):
        if sizes[axis] != guard.memory[GUARD * (1 + axis) + Guard.expected]:
            return False
    return True


def fits(python: Caller, signature: Signature, arguments: Memory) -> bool:
    """Return whether arguments have the structure of a signature: go through its guards."""
    i = i8(0)
    while i < signature.guards:
        words = moved(signature.memory, Signature.size + GUARD * i)
        guard = Guard(words)
        kind, expected = guard.kind, guard.expected
        obj = argument_at(moved(words, Guard.size), arguments)
        if kind == IDENTICAL:
            if obj != expected:
                return False
        elif kind == OF or kind == MAY_BE_EMPTY:  # noqa: PLR1714, SIM109 - the language has no `in`
            if at(obj)[TYPE] != python.list_class:
                return False
            size = at(obj)[COUNT]
            if kind == OF and size == 0:
                return False
            if not fits_all(guard, at(obj)[ITEMS], size):
                return False
            i += guard.count
        elif kind == ARRAY:
            if not is_array(python, guard, at(obj)):
                return False
            i += guard.count
        elif kind == EXACT or kind == SIZED:  # noqa: PLR1714, SIM109
            if at(obj)[TYPE] != expected:
                return False
            if kind == SIZED and at(obj)[COUNT] != guard.count:
                return False
        elif not is_plain(python.integer, python.real, python.truth, at(obj)[TYPE]):
            return False
        i += 1
    return True


def value_number(python: Caller, value: int) -> int:
    """Return the number of a value; -1 of one that no call has returned, which `call` refuses."""
    number = at(value)[python.number_at]  # 0 of one that was made without a number
    n = ask(python.as_int64, number) if number != 0 else i8(-1)
    if n < 0:
        python.unreturned = value
    return i8(n)


def note_call(python: Caller, signature: Signature, arguments: object, number: int) -> int:
    """Append a call to the lists of its cell, given its first value number; return 0 on success."""
    rows, look, failed = (
        signature.rows,
        moved(signature.memory, Signature.size + GUARD * signature.guards),
        i8(0),
    )
    failed += put(python, rows, number)
    for _ in range(signature.values):
        failed += put(python, rows, value_number(python, argument_at(look, arguments)))
        look = moved(look, Place.size)
    for _ in range(signature.lists):
        sequence = at(argument_at(moved(look, ListCode.size), arguments))
        items, size, to = at(sequence[ITEMS]), sequence[COUNT], look[ListCode.elements]
        failed += put(python, rows, size)
        for i in range(size):
            for m in range(look[ListCode.members]):
                item = items[i]
                if look[ListCode.in_tuples] != 0:
                    item = at(item)[FIRST + m]
                failed += put(python, to, value_number(python, item))
        look = moved(look, LIST)
    for _ in range(signature.data):
        place, datum = moved(look, Datum.size), i8(0)
        if look[Datum.way] == THERE:
            failed += append(python, look[Datum.column], argument_at(place, arguments))
        else:
            if look[Datum.way] == COPIED:
                datum = ask(python.vectorcall, python.copy, slot(place, arguments), i8(1), i8(0))
            else:
                datum = ask(python.new_int, number)
            if datum == 0:
                return -1
            failed += append(python, look[Datum.column], datum)
            ask(python.decrease, datum)
        look = moved(look, DATUM)
    at(at(python.counters)[ITEMS])[0] = (
        number + signature.width - failed
    )  # one too many is noticed at the end of the walk
    return failed


def make_result(python: Caller, result: Result, arguments: object, number: int) -> int:
    """Return a new reference to one result of a call; 0 if there is no memory."""
    if result.kind == PASSED:
        argument = argument_at(moved(result.memory, Result.size), arguments)
        ask(python.increase, argument)
        return i8(argument)
    if result.kind != OUTPUT:
        ask(python.increase, python.none)
        return i8(python.none)
    n = ask(python.new_int, number + result.number)
    if n == 0:
        return i8(0)
    value = ask(python.allocate, result.value_class, i8(0))
    if value == 0:
        ask(python.decrease, n)
        return i8(0)
    ask(python.increase, python.unknown)
    at(value)[python.number_at], at(value)[python.unknown_at] = n, python.unknown
    return i8(value)


def call(closure: int, arguments: int, count: int) -> int:
    """Call the closure's cell; return a new reference to its results, or 0 after an error."""
    words = at(at(at(closure)[FIRST])[COUNT])
    python = Caller(words)
    cell_words, args = moved(python.memory, Caller.size), at(arguments)
    cell = Cell(cell_words)
    for s in range(cell.signatures):
        signature_words = at(cell.memory[Cell.size + s])
        signature = Signature(signature_words)
        if signature.rows != 0 and fits(python, signature, args):
            counters = at(at(python.counters)[ITEMS])
            number = counters[0]
            if counters[1] < number or counters[2] != ask(python.thread):
                break
            if note_call(python, signature, args, number) != 0:
                if python.unreturned != 0:
                    look = moved(python.memory, Closure.arguments)
                    look[0], python.unreturned = python.unreturned, 0
                    ask(python.clear)  # the error of CPython about its number
                    return i8(ask(python.vectorcall, python.refuse, address(look), i8(1), i8(0)))
                return 0
            look, size = moved(signature.memory, signature.results_at), signature.in_tuple
            if size < 0:
                return make_result(python, look, args, number)
            answer = i8(0)
            if signature.tuple_class == 0:
                answer = ask(python.new_tuple, size)
            else:
                answer = ask(python.allocate, signature.tuple_class, size)
            if answer == 0:
                return 0
            for i in range(size):
                item = make_result(python, look, args, number)
                at(answer)[FIRST + i] = item
                if item == 0:
                    ask(python.decrease, answer)
                    return 0
                look = moved(look, RESULT)
            return i8(answer)
    return i8(ask(python.vectorcall, cell.general, address(args), count, i8(0)))
