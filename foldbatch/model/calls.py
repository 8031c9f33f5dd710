"""Whole numbers by which the code of cells, and compiled code that notes their calls, understand each other.

A *place* is an argument's number, how deep what is meant lies in it, and the numbers of the items on the way.
"""

PLACE_ITEMS = 3  # numbers of items on the way to a place, at most
PLACE = 2 + PLACE_ITEMS
# a cell: its general function, and the codes of how many signatures; then come the addresses of these
GENERAL, SIGNATURES, CELL = range(3)
# a signature: the list of rows, which is 0 where no run reads it; how many numbers a call takes; how many
# guards, values, lists and data there are; where results are told, how many stand in a tuple, or -1, and the
# class of the tuple, 0 of a plain one. Then come guards: kind, what is expected, a size, a place; values: a
# place; lists: the list of elements, how many members an element has, and whether in a tuple, a place; data:
# the list of data, how each is noted, and its place; and results:
# kind, the class of a value and its number among the call's, or a place
ROWS, WIDTH, GUARDS, VALUES, LISTS, DATA, RESULTS, IN_TUPLE, TUPLE, HEAD = range(10)
KIND, EXPECTED, SIZE = range(3)
GUARD = 3 + PLACE
ELEMENTS, MEMBERS, IN_TUPLES = range(3)
LIST = 3 + PLACE
COLUMN, HOW = range(2)
DATUM = 2 + PLACE
CLASS, OUTPUT_NUMBER = 1, 2
RESULT = 3 + PLACE
# kinds of guards: of this class; a tuple of this class and size; this object; a plain number; a list, of
# elements that the guards behind it are for: one for the element, or, of a tuple, one for each item; a list
# that may be empty; and an array of this dtype and so many axes, of the extents that guards behind it expect
EXACT, SIZED, IDENTICAL, PLAIN, OF, MAY_BE_EMPTY, ARRAY = range(7)
# how a datum is noted: it is the number of the call, it is there, or it is an array as it is now
COUNTED, THERE, COPIED = range(3)
# kinds of results
NONE, OUTPUT, PASSED = range(3)
