"""What walks do most, as compiled functions of CPython: calls of cells, and nodes of trees.

CPython calls each with an object of its own and arguments (``METH_FASTCALL``). The object is a tuple whose
first item is an array: what follows in it is told below. `call` does a call of a cell, see `model.calls`:
where no signature fits, or anything is unlike what is common, the cell's own code in Python does it. No code
of the user's is run here. Importing this needs llvmlite.

Source: the C API of CPython; objects are read where `PyListObject`, `PyTupleObject` and `arrayobject` (of
``array.array``) have them.
"""

from __future__ import annotations

from typing import Any

from foldbatch.engines.llvm import objects
from foldbatch.engines.llvm.vector_functions import moved
from foldbatch.engines.llvm.words import address, ask, ask_i4, at, at_i4, i8
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
    GIVEN,
    GUARD,
    GUARDS,
    HEAD,
    HOW,
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
    RESULT,
    RESULTS,
    ROWS,
    SAME,
    SIGNATURES,
    SIZE,
    SIZED,
    THERE,
    TUPLE,
    VALUES,
    WIDTH,
)

# what the array begins with: the addresses of functions of CPython's, and of its objects
INCREASE, DECREASE, APPEND, WHOLE, OF_WHOLE, NEW_TUPLE, NEW_LIST, ALLOCATE, VECTORCALL, THREAD = range(10)
CLEAR = 10
NOTHING, TRUE, FALSE, REAL, INTEGER, TRUTH, LISTED, ARRAYS, COPY, LENGTHEN, SPACE = range(11, 22)
GIVEN_ONCE, OWN = SPACE + 1, SPACE + 3  # two words for arguments
# then, for calls: the array of counters, what stands for numbers of a value, and where in a value both are,
# in words; what refuses a value that no call has returned, and one that was found so; then comes what
# `model.calls` tells of
COUNTERS, UNKNOWN, N_AT, UNKNOWN_AT, REFUSE, BY_HAND, OF_CELL = range(OWN, OWN + 7)
# and for nodes: their class, the dtype of parents, and where in a node its parts are, in words
NODE, NARROW, TREE_AT, INDEX_AT, LABEL_AT, TOKEN_AT, LEAF_AT, BELOW_AT = range(OWN, OWN + 8)
# words of an object: its type, how many items it has, where those of a list or an array are, and for how many
# there is room; the first one of a tuple
TYPE, COUNT = objects.TYPE // 8, objects.DATA // 8
ITEMS = COUNT + 1
FIRST = tuple.__basicsize__ // 8
ROOM = ITEMS + 1
FLAGS, DTYPE, WHOLE_ROWS = objects.FLAGS // 8, objects.DTYPE // 8, objects.PLAIN  # of an array
AXES, EXTENTS = objects.AXES // 8, objects.EXTENTS // 8


def slot(look: Any, arguments: Any) -> int:
    """Return the address of what lies at a place."""
    found = address(moved(arguments, look[0]))
    for i in range(look[1]):
        found = at(found)[0] + 8 * (FIRST + look[2 + i])
    return i8(found)


def placed(look: Any, arguments: Any) -> int:
    return i8(at(slot(look, arguments))[0])


def is_plain(integer: int, real: int, truth: int, type_: int) -> bool:
    return type_ == integer or type_ == real or type_ == truth  # noqa: PLR1714


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


def is_array(known: Any, look: Any, array: Any) -> bool:
    """Whether an object is an array as a guard says."""
    if array[TYPE] != known[ARRAYS] or array[DTYPE] != look[EXPECTED]:
        return False
    axes, sizes = i8(at_i4(address(moved(array, AXES)))[0]), at(array[EXTENTS])
    if axes != look[SIZE]:
        return False
    for axis in range(look[SIZE]):  # noqa: SIM110 - the language has no `all`
        if sizes[axis] != look[GUARD * (1 + axis) + EXPECTED]:
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
        elif kind == OF or kind == MAY_BE_EMPTY:  # noqa: PLR1714, SIM109 - the language has no `in`
            if at(thing)[TYPE] != known[LISTED]:
                return False
            size = at(thing)[COUNT]
            if kind == OF and size == 0:
                return False
            if not fits_all(look, at(thing)[ITEMS], size):
                return False
            i += look[SIZE]
        elif kind == ARRAY:
            if not is_array(known, look, at(thing)):
                return False
            i += look[SIZE]
        elif kind == EXACT or kind == SIZED:  # noqa: PLR1714, SIM109
            if at(thing)[TYPE] != expected:
                return False
            if kind == SIZED and at(thing)[COUNT] != look[SIZE]:
                return False
        elif not is_plain(known[INTEGER], known[REAL], known[TRUTH], at(thing)[TYPE]):
            return False
        i += 1
    return True


def appended(known: Any, to: int, thing: int) -> int:
    """Append to a list; what nobody made, a value without a number, is left to CPython, which raises."""
    own = at(to)
    size = own[COUNT]
    if size == own[ROOM] or thing == 0:
        return i8(ask_i4(known[APPEND], to, thing))
    ask(known[INCREASE], thing)
    at(own[ITEMS])[size], own[COUNT] = thing, size + 1
    return i8(0)


def numbered(known: Any, value: int) -> int:
    """Return the number of a value; -1 of one that no call has returned, which `call` refuses."""
    held = at(value)[known[N_AT]]  # 0 of one that was made without a number
    n = ask(known[WHOLE], held) if held != 0 else i8(-1)
    if n < 0:
        known[BY_HAND] = value
    return i8(n)


def put(known: Any, to: int, number: int) -> int:
    """Append a number to an array of numbers; return 0 if that succeeds and it is not negative."""
    own = at(to)
    size = own[COUNT]
    if size == own[ROOM]:
        given = moved(known, GIVEN_ONCE)
        given[0], given[1] = to, to if size > 0 else known[SPACE]  # it is twice as long then
        made = ask(known[VECTORCALL], known[LENGTHEN], address(given), i8(2), i8(0))
        if made == 0:
            return -1
        ask(known[DECREASE], made)
        own[COUNT] = size
    at(own[ITEMS])[size], own[COUNT] = number, size + 1
    return i8(0) if number >= 0 else i8(-1)


def noted(known: Any, own: Any, arguments: Any, number: int) -> int:
    """Note a call, given its number; return 0, if that did not fail."""
    rows, look, failed = own[ROWS], moved(own, HEAD + GUARD * own[GUARDS]), i8(0)
    failed += put(known, rows, number)
    for _ in range(own[VALUES]):
        failed += put(known, rows, numbered(known, placed(look, arguments)))
        look = moved(look, PLACE)
    for _ in range(own[LISTS]):
        found = at(placed(moved(look, LIST - PLACE), arguments))
        items, size, to = at(found[ITEMS]), found[COUNT], look[ELEMENTS]
        failed += put(known, rows, size)
        for i in range(size):
            for m in range(look[MEMBERS]):
                item = items[i]
                if look[IN_TUPLES] != 0:
                    item = at(item)[FIRST + m]
                failed += put(known, to, numbered(known, item))
        look = moved(look, LIST)
    for _ in range(own[DATA]):
        place, made = moved(look, DATUM - PLACE), i8(0)
        if look[HOW] == THERE:
            failed += appended(known, look[COLUMN], placed(place, arguments))
        else:
            if look[HOW] == COPIED:
                made = ask(known[VECTORCALL], known[COPY], slot(place, arguments), i8(1), i8(0))
            else:
                made = ask(known[OF_WHOLE], number)
            if made == 0:
                return -1
            failed += appended(known, look[COLUMN], made)
            ask(known[DECREASE], made)
        look = moved(look, DATUM)
    at(at(known[COUNTERS])[ITEMS])[0] = number + own[WIDTH] - failed  # one too many is noticed in the end
    return failed


def result(known: Any, look: Any, arguments: Any, number: int) -> int:
    """Return one result of a call, a new reference to it; 0 where there is no memory."""
    if look[KIND] == GIVEN:
        thing = placed(moved(look, RESULT - PLACE), arguments)
        ask(known[INCREASE], thing)
        return i8(thing)
    if look[KIND] != OUTPUT:
        ask(known[INCREASE], known[NOTHING])
        return i8(known[NOTHING])
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
    cell, args = moved(known, OF_CELL), at(arguments)
    for s in range(cell[SIGNATURES]):
        own = at(cell[CELL + s])
        if own[ROWS] != 0 and fits(known, own, args):
            counters = at(at(known[COUNTERS])[ITEMS])
            number = counters[0]
            if counters[1] < number or counters[2] != ask(known[THREAD]):
                break
            if noted(known, own, args, number) != 0:
                if known[BY_HAND] != 0:
                    look = moved(known, GIVEN_ONCE)
                    look[0], known[BY_HAND] = known[BY_HAND], 0
                    ask(known[CLEAR])  # what CPython says of its number
                    return i8(ask(known[VECTORCALL], known[REFUSE], address(look), i8(1), i8(0)))
                return 0
            look, size = moved(own, own[RESULTS]), own[IN_TUPLE]
            if size < 0:
                return result(known, look, args, number)
            made = i8(0)
            if own[TUPLE] == 0:  # noqa: SIM108 - only one of them is to be made
                made = ask(known[NEW_TUPLE], size)
            else:
                made = ask(known[ALLOCATE], own[TUPLE], size)
            if made == 0:
                return 0
            for i in range(size):
                thing = result(known, look, args, number)
                at(made)[FIRST + i] = thing
                if thing == 0:
                    ask(known[DECREASE], made)
                    return 0
                look = moved(look, RESULT)
            return i8(made)
    return i8(ask(known[VECTORCALL], cell[GENERAL], address(args), count, i8(0)))


def held(known: Any, made: int, place: int, thing: int) -> None:
    """Put an object into a part of a new one."""
    ask(known[INCREASE], thing)
    at(made)[place] = thing


def nodes(given: int, arguments: int, count: int) -> int:
    """Make all nodes of a tree, given it, its parents, labels and tokens, and a list for what is below each.

    There, one empty list is for all: see `trees.tree.linked`. Return whether that was done: not where parents
    are not as they are in most trees.
    """
    known, args = at(at(at(given)[FIRST])[COUNT]), at(arguments)
    parents, labels, tokens, below = at(args[1]), at(args[2]), at(args[3]), at(at(args[4])[ITEMS])
    answer, size, empty = known[FALSE], labels[COUNT], below[0]
    if parents[FLAGS] & WHOLE_ROWS == WHOLE_ROWS and parents[DTYPE] == known[NARROW]:
        above, answer = at_i4(parents[COUNT]), known[TRUE]
        for i in range(size):
            made, index = ask(known[ALLOCATE], known[NODE], i8(0)), ask(known[OF_WHOLE], i)
            if made == 0 or index == 0:
                return 0
            at(made)[known[INDEX_AT]] = index
            held(known, made, known[TREE_AT], args[0])
            held(known, made, known[LABEL_AT], labels[FIRST + i])
            held(known, made, known[TOKEN_AT], tokens[FIRST + i])
            held(known, made, known[LEAF_AT], known[TRUE] if below[i] == empty else known[FALSE])
            held(known, made, known[BELOW_AT], below[i])
            parent = i8(above[i])
            if parent < 0:
                parent = size
            if below[parent] == empty:
                siblings = ask(known[NEW_LIST], i8(0))
                if siblings == 0:
                    return 0
                below[parent] = siblings
                ask(known[DECREASE], empty)
            failed = appended(known, below[parent], made)
            ask(known[DECREASE], made)
            if failed != 0:
                return 0
    ask(known[INCREASE], answer)
    return i8(answer)
