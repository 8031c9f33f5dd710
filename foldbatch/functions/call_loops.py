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
from foldbatch.loops.closures import (
    ALLOCATE,
    ARGUMENT_WORDS,
    ARRAYS,
    AS_INT64,
    CLEAR,
    COPY,
    DECREASE,
    FUNCTION_WORDS,
    INCREASE,
    INTEGER,
    LISTED,
    NEW_INT,
    NEW_TUPLE,
    NONE_OBJECT,
    REAL,
    THREAD,
    TRUTH,
    VECTORCALL,
)
from foldbatch.loops.cpython import AXES, COUNT, DTYPE, EXTENTS, FIRST, ITEMS, TYPE
from foldbatch.loops.list_loops import append, put
from foldbatch.loops.vector_functions import moved
from foldbatch.loops.words import address, ask, at, at_i4, i8
from foldbatch.model.calls import (
    ARRAY,
    CELL,
    CLASS,
    COLUMN,
    COPIED,
    DATA,
    DATUM,
    ELEMENTS,
    EXACT,
    EXPECTED,
    GENERAL,
    GUARD,
    GUARDS,
    HEAD,
    HOW,
    IDENTICAL,
    IN_TUPLE,
    IN_TUPLES,
    KIND,
    LIST,
    LISTS,
    MAY_BE_EMPTY,
    MEMBERS,
    OF,
    OUTPUT,
    OUTPUT_NUMBER,
    PASSED,
    PLACE,
    RESULT,
    RESULTS,
    ROWS,
    SIGNATURES,
    SIZE,
    SIZED,
    THERE,
    TUPLE,
    VALUES,
    WIDTH,
)
from foldbatch.scheduler.trace import Index

# The words of the closure: the array of counters, the object that stands for unknown numbers of a value, the
# offsets in a value of its number and of that object, in words; the function that refuses a value that no
# call has returned, and such a value once it is found; then the code of the cell, see `model.calls`.
COUNTERS, UNKNOWN, N_AT, UNKNOWN_AT, REFUSE, BY_HAND, OF_CELL = range(FUNCTION_WORDS, FUNCTION_WORDS + 7)


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

    def make(general: Callable[..., object], codes: Sequence[Index]) -> Callable[..., Any]:
        cell = id(general), len(codes), *map(cpython.address_of, codes)
        return closures.closure(call, modules, [*words, *cell], general, refuse, *codes)

    return make


def slot(look: Any, arguments: Any) -> int:
    """Return the address of the pointer to the object at a place of the arguments, see `model.calls`."""
    target = address(moved(arguments, look[0]))
    for i in range(look[1]):
        target = at(target)[0] + 8 * (FIRST + look[2 + i])
    return i8(target)


def argument_at(look: object, arguments: object) -> int:
    """Return the address of the object at a place of the arguments."""
    return i8(at(slot(look, arguments))[0])


def is_plain(integer: int, real: int, truth: int, type_: int) -> bool:
    """Return whether a type is int, float or bool, whose addresses come first."""
    return type_ == integer or type_ == real or type_ == truth  # noqa: PLR1714


def fits_all(look: Any, items: int, size: int) -> bool:
    """Return whether all items of a list are as the guards behind the list's guard say."""
    members, tuples = look[SIZE], look[EXPECTED]
    for i in range(size):
        item = at(items)[i]
        if tuples != 0 and (at(item)[TYPE] != tuples or at(item)[COUNT] != members):
            return False
        for m in range(members):
            part = item
            if tuples != 0:
                part = at(item)[FIRST + m]
            if at(part)[TYPE] != look[GUARD * (1 + m) + EXPECTED]:
                return False
    return True


def is_array(python: Any, look: Any, array: Any) -> bool:
    """Return whether an object is an array of the dtype and the extents of a guard."""
    if array[TYPE] != python[ARRAYS] or array[DTYPE] != look[EXPECTED]:
        return False
    axes, sizes = i8(at_i4(address(moved(array, AXES)))[0]), at(array[EXTENTS])
    if axes != look[SIZE]:
        return False
    for axis in range(look[SIZE]):  # noqa: SIM110 - the language has no `all`
        if sizes[axis] != look[GUARD * (1 + axis) + EXPECTED]:
            return False
    return True


def fits(python: Any, signature: Any, arguments: Any) -> bool:
    """Return whether arguments have the structure of a signature: go through its guards."""
    i = i8(0)
    while i < signature[GUARDS]:
        look = moved(signature, HEAD + GUARD * i)
        kind, expected = look[KIND], look[EXPECTED]
        obj = argument_at(moved(look, GUARD - PLACE), arguments)
        if kind == IDENTICAL:
            if obj != expected:
                return False
        elif kind == OF or kind == MAY_BE_EMPTY:  # noqa: PLR1714, SIM109 - the language has no `in`
            if at(obj)[TYPE] != python[LISTED]:
                return False
            size = at(obj)[COUNT]
            if kind == OF and size == 0:
                return False
            if not fits_all(look, at(obj)[ITEMS], size):
                return False
            i += look[SIZE]
        elif kind == ARRAY:
            if not is_array(python, look, at(obj)):
                return False
            i += look[SIZE]
        elif kind == EXACT or kind == SIZED:  # noqa: PLR1714, SIM109
            if at(obj)[TYPE] != expected:
                return False
            if kind == SIZED and at(obj)[COUNT] != look[SIZE]:
                return False
        elif not is_plain(python[INTEGER], python[REAL], python[TRUTH], at(obj)[TYPE]):
            return False
        i += 1
    return True


def value_number(python: Any, value: int) -> int:
    """Return the number of a value; -1 of one that no call has returned, which `call` refuses."""
    number = at(value)[python[N_AT]]  # 0 of one that was made without a number
    n = ask(python[AS_INT64], number) if number != 0 else i8(-1)
    if n < 0:
        python[BY_HAND] = value
    return i8(n)


def note_call(python: Any, signature: Any, arguments: Any, number: int) -> int:
    """Append a call to the lists of its cell, given its first value number; return 0 on success."""
    rows, look, failed = signature[ROWS], moved(signature, HEAD + GUARD * signature[GUARDS]), i8(0)
    failed += put(python, rows, number)
    for _ in range(signature[VALUES]):
        failed += put(python, rows, value_number(python, argument_at(look, arguments)))
        look = moved(look, PLACE)
    for _ in range(signature[LISTS]):
        sequence = at(argument_at(moved(look, LIST - PLACE), arguments))
        items, size, to = at(sequence[ITEMS]), sequence[COUNT], look[ELEMENTS]
        failed += put(python, rows, size)
        for i in range(size):
            for m in range(look[MEMBERS]):
                item = items[i]
                if look[IN_TUPLES] != 0:
                    item = at(item)[FIRST + m]
                failed += put(python, to, value_number(python, item))
        look = moved(look, LIST)
    for _ in range(signature[DATA]):
        place, datum = moved(look, DATUM - PLACE), i8(0)
        if look[HOW] == THERE:
            failed += append(python, look[COLUMN], argument_at(place, arguments))
        else:
            if look[HOW] == COPIED:
                datum = ask(python[VECTORCALL], python[COPY], slot(place, arguments), i8(1), i8(0))
            else:
                datum = ask(python[NEW_INT], number)
            if datum == 0:
                return -1
            failed += append(python, look[COLUMN], datum)
            ask(python[DECREASE], datum)
        look = moved(look, DATUM)
    at(at(python[COUNTERS])[ITEMS])[0] = (
        number + signature[WIDTH] - failed
    )  # one too many is noticed at the end of the walk
    return failed


def make_result(python: Any, look: Any, arguments: Any, number: int) -> int:
    """Return a new reference to one result of a call; 0 if there is no memory."""
    if look[KIND] == PASSED:
        argument = argument_at(moved(look, RESULT - PLACE), arguments)
        ask(python[INCREASE], argument)
        return i8(argument)
    if look[KIND] != OUTPUT:
        ask(python[INCREASE], python[NONE_OBJECT])
        return i8(python[NONE_OBJECT])
    n = ask(python[NEW_INT], number + look[OUTPUT_NUMBER])
    if n == 0:
        return i8(0)
    value = ask(python[ALLOCATE], look[CLASS], i8(0))
    if value == 0:
        ask(python[DECREASE], n)
        return i8(0)
    ask(python[INCREASE], python[UNKNOWN])
    at(value)[python[N_AT]], at(value)[python[UNKNOWN_AT]] = n, python[UNKNOWN]
    return i8(value)


def call(closure: int, arguments: int, count: int) -> int:
    """Call the closure's cell; return a new reference to its results, or 0 after an error."""
    python = at(at(at(closure)[FIRST])[COUNT])
    cell, args = moved(python, OF_CELL), at(arguments)
    for s in range(cell[SIGNATURES]):
        signature = at(cell[CELL + s])
        if signature[ROWS] != 0 and fits(python, signature, args):
            counters = at(at(python[COUNTERS])[ITEMS])
            number = counters[0]
            if counters[1] < number or counters[2] != ask(python[THREAD]):
                break
            if note_call(python, signature, args, number) != 0:
                if python[BY_HAND] != 0:
                    look = moved(python, ARGUMENT_WORDS)
                    look[0], python[BY_HAND] = python[BY_HAND], 0
                    ask(python[CLEAR])  # the error of CPython about its number
                    return i8(ask(python[VECTORCALL], python[REFUSE], address(look), i8(1), i8(0)))
                return 0
            look, size = moved(signature, signature[RESULTS]), signature[IN_TUPLE]
            if size < 0:
                return make_result(python, look, args, number)
            answer = i8(0)
            if signature[TUPLE] == 0:
                answer = ask(python[NEW_TUPLE], size)
            else:
                answer = ask(python[ALLOCATE], signature[TUPLE], size)
            if answer == 0:
                return 0
            for i in range(size):
                item = make_result(python, look, args, number)
                at(answer)[FIRST + i] = item
                if item == 0:
                    ask(python[DECREASE], answer)
                    return 0
                look = moved(look, RESULT)
            return i8(answer)
    return i8(ask(python[VECTORCALL], cell[GENERAL], address(args), count, i8(0)))
