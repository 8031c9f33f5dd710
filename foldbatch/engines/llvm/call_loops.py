"""Calls of cells in walks, as a function of CPython: arguments are looked at, and what they are is noted.

`call` is what CPython calls a built-in function with (``METH_FASTCALL``); its object is an array that tells
of the cell, see `model.calls`. Where no signature fits, or anything is unlike what is common, the cell's own
code in Python does the call. Nothing here runs code of the user's. Importing this needs llvmlite.

Source: the C API of CPython; objects are read where `PyListObject` and `PyTupleObject` have them.
"""

from __future__ import annotations

from typing import Any

from foldbatch.engines.llvm import objects
from foldbatch.engines.llvm.vector_functions import moved
from foldbatch.engines.llvm.words import address, ask, ask_i4, at, i8
from foldbatch.model.calls import (
    CELL,
    CLASS,
    COLUMN,
    DATA,
    DATUM,
    ELEMENTS,
    EXACT,
    EXPECTED,
    GENERAL,
    GIVEN,
    GUARD,
    GUARDS,
    HEAD,
    IN_TUPLE,
    IN_TUPLES,
    KIND,
    LIST,
    LISTS,
    MAY_BE_EMPTY,
    MEMBERS,
    NUMBER,
    OF,
    OUTPUT,
    PLACE,
    PLACED,
    RESULT,
    RESULTS,
    ROWS,
    SAME,
    SIGNATURES,
    SIZE,
    SIZED,
    VALUES,
    WIDTH,
)

# what the array begins with: the address of functions of CPython's, of its objects, and where values have what
# they are, in words; then comes what `model.calls` tells of
INCREASE, DECREASE, APPEND, WHOLE, OF_WHOLE, NEW_TUPLE, ALLOCATE, VECTORCALL, CLEAR = range(9)
COUNTERS, NOTHING, UNKNOWN, REAL, INTEGER, TRUTH, LISTED, N_AT, UNKNOWN_AT, OWN = range(9, 19)
# words of an object: its type, how many items a list or a tuple has, where those of a list are; the first of
# a tuple
TYPE, COUNT = objects.TYPE // 8, objects.DATA // 8
ITEMS = FIRST = COUNT + 1
ROOM = ITEMS + 1


def placed(look: Any, arguments: Any) -> int:
    """Return what lies at a place."""
    thing = arguments[look[0]]
    for i in range(look[1]):
        thing = at(thing)[FIRST + look[2 + i]]
    return i8(thing)


def is_plain(known: Any, type_: int) -> bool:
    return type_ == known[INTEGER] or type_ == known[REAL] or type_ == known[TRUTH]  # noqa: PLR1714


def fits_all(look: Any, items: int, size: int) -> bool:
    """Whether all items of a list are alike: as the guards say which come behind that of the list."""
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


def fits(known: Any, own: Any, arguments: Any) -> bool:
    """Whether arguments have the structure of a signature."""
    i = i8(0)
    while i < own[GUARDS]:
        look = moved(own, HEAD + GUARD * i)
        kind, expected = look[KIND], look[EXPECTED]
        thing = placed(moved(look, GUARD - PLACE), arguments)
        if kind == SAME:
            if thing != expected:
                return False
        elif kind == OF or kind == MAY_BE_EMPTY:  # noqa: PLR1714
            if at(thing)[TYPE] != known[LISTED]:
                return False
            size = at(thing)[COUNT]
            if kind == OF and size == 0:
                return False
            if not fits_all(look, at(thing)[ITEMS], size):
                return False
            i += look[SIZE]
        elif kind == EXACT or kind == SIZED:  # noqa: PLR1714
            if at(thing)[TYPE] != expected:
                return False
            if kind == SIZED and at(thing)[COUNT] != look[SIZE]:
                return False
        elif not is_plain(known, at(thing)[TYPE]):
            return False
        i += 1
    return True


def appended(known: Any, to: int, thing: int) -> int:
    own = at(to)
    size = own[COUNT]
    if size == own[ROOM]:
        return i8(ask_i4(known[APPEND], to, thing))
    ask(known[INCREASE], thing)
    at(own[ITEMS])[size], own[COUNT] = thing, size + 1
    return i8(0)


def noted(known: Any, own: Any, arguments: Any, first: int, number: int) -> int:
    """Note a call, whose number is an object and the same as a number; return what is not 0 if that failed."""
    rows, look, failed = own[ROWS], moved(own, HEAD + GUARD * own[GUARDS]), i8(0)
    failed += appended(known, rows, first)
    for _ in range(own[VALUES]):
        failed += appended(known, rows, at(placed(look, arguments))[known[N_AT]])
        look = moved(look, PLACE)
    for _ in range(own[LISTS]):
        found = at(placed(moved(look, LIST - PLACE), arguments))
        items, size, to = at(found[ITEMS]), found[COUNT], look[ELEMENTS]
        length = ask(known[OF_WHOLE], size)
        if length == 0:
            return -1
        failed += appended(known, rows, length)
        ask(known[DECREASE], length)
        for i in range(size):
            for m in range(look[MEMBERS]):
                item = items[i]
                if look[IN_TUPLES] != 0:
                    item = at(item)[FIRST + m]
                failed += appended(known, to, at(item)[known[N_AT]])
        look = moved(look, LIST)
    for _ in range(own[DATA]):
        thing = first
        if look[PLACED] != 0:
            thing = placed(moved(look, DATUM - PLACE), arguments)
        failed += appended(known, look[COLUMN], thing)
        look = moved(look, DATUM)
    after = ask(known[OF_WHOLE], number + own[WIDTH] - failed)  # a number too many is noticed in the end
    if after == 0:
        return -1
    counters = at(at(known[COUNTERS])[ITEMS])
    counters[0] = after
    ask(known[DECREASE], first)
    return failed


def result(known: Any, look: Any, arguments: Any, first: int, number: int) -> int:
    """Return one result of a call, a new reference to it; 0 where there is no memory."""
    if look[KIND] == GIVEN:
        thing = placed(moved(look, RESULT - PLACE), arguments)
        ask(known[INCREASE], thing)
        return i8(thing)
    if look[KIND] != OUTPUT:
        ask(known[INCREASE], known[NOTHING])
        return i8(known[NOTHING])
    n = first
    if look[NUMBER] == 0:
        ask(known[INCREASE], first)
    else:
        n = ask(known[OF_WHOLE], number + look[NUMBER])
        if n == 0:
            return i8(0)
    made = ask(known[ALLOCATE], look[CLASS], i8(0))
    if made == 0:
        ask(known[DECREASE], n)
        return i8(0)
    ask(known[INCREASE], known[UNKNOWN])
    at(made)[known[N_AT]], at(made)[known[UNKNOWN_AT]] = n, known[UNKNOWN]
    return i8(made)


def call(given: int, arguments: int, count: int) -> int:
    """Do a call of the cell that an array tells of; return a new reference to what it yields."""
    known = at(at(at(given)[FIRST])[COUNT])
    cell, args = moved(known, OWN), at(arguments)
    for s in range(cell[SIGNATURES]):
        own = at(cell[CELL + s])
        if own[ROWS] != 0 and fits(known, own, args):
            counters = at(at(known[COUNTERS])[ITEMS])
            first = counters[0]
            number, last = ask(known[WHOLE], first), ask(known[WHOLE], counters[1])
            if number < 0 or last < number:
                ask(known[CLEAR])
                break
            if noted(known, own, args, first, number) != 0:
                return 0
            look, size = moved(own, own[RESULTS]), own[IN_TUPLE]
            if size < 0:
                return result(known, look, args, first, number)
            made = ask(known[NEW_TUPLE], size)
            if made == 0:
                return 0
            for i in range(size):
                thing = result(known, look, args, first, number)
                at(made)[FIRST + i] = thing
                if thing == 0:
                    ask(known[DECREASE], made)
                    return 0
                look = moved(look, RESULT)
            return i8(made)
    return i8(ask(known[VECTORCALL], cell[GENERAL], address(args), count, i8(0)))
