"""Records by which the code of cells, and compiled code that notes their calls, understand each other.

A cell's code is a `Cell`, and behind it the addresses of the codes of its signatures. The code of a signature
is a `Signature`, and behind it `GUARD` numbers for each guard, `Place.size` for each value, `LIST` for each
list, `DATUM` for each datum, and `RESULT` for each result: a record, and the place that it is about.
"""

from __future__ import annotations

from foldbatch.loops.records import Header


class Place(Header):
    """A place in the arguments of a call, or in what they hold."""

    argument: int  # the number of the argument
    depth: int  # how deep it lies in that
    first_item: int  # the numbers of the items on the way
    second_item: int
    third_item: int


class Cell(Header):
    """A cell."""

    general: int  # its general function
    signatures: int  # the codes of how many follow


class Signature(Header):
    """A signature of a cell."""

    rows: int  # the list of rows, which is 0 where no run reads it
    width: int  # how many numbers a call takes
    guards: int  # how many there are
    values: int
    lists: int
    data: int
    results_at: int  # the offset of the results
    in_tuple: int  # how many results stand in a tuple, or -1
    tuple_class: int  # 0 of a plain one


class Guard(Header):
    """A check of an argument, or of a part of it."""

    kind: int  # one of `EXACT` and below
    expected: int
    count: int


class ListCode(Header):
    """A list that a call reads."""

    elements: int  # the array of elements
    members: int  # how many values an element has
    in_tuples: int  # whether in a tuple


class Datum(Header):
    """A datum of a call."""

    column: int  # the list of data
    way: int  # how it is noted: one of `COUNTED` and below


class Result(Header):
    """A result of a call."""

    kind: int  # one of `NONE` and below
    value_class: int
    number: int  # of the value among the call's


PLACE_ITEMS = Place.size - Place.first_item  # numbers of items on the way to a place, at most
GUARD = Guard.size + Place.size
LIST = ListCode.size + Place.size
DATUM = Datum.size + Place.size
RESULT = Result.size + Place.size
# kinds of guards: of this class; a tuple of this class and size; this object; a plain number; a list, of
# elements that the guards behind it are for: one for the element, or, of a tuple, one for each item; a list
# that may be empty; and an array of this dtype and so many axes, of the extents that guards behind it expect
EXACT, SIZED, IDENTICAL, PLAIN, OF, MAY_BE_EMPTY, ARRAY = range(7)
# how a datum is noted: it is the number of the call, it is there, or it is an array as it is now
COUNTED, THERE, COPIED = range(3)
# kinds of results
NONE, OUTPUT, PASSED = range(3)
