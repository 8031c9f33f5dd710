"""Whole numbers by which the code of cells, and compiled code that notes their calls, understand each other.

A *place* is an argument's number, how deep what is meant lies in it, and the numbers of the items on the way.
"""

DEEPEST = 3
PLACE = 2 + DEEPEST
# a cell: its general function, and the codes of how many signatures; then come the addresses of these
GENERAL, SIGNATURES, CELL = range(3)
# a signature: the list of rows, which is 0 where no run reads it; how many numbers a call takes; how many
# guards, values, lists and data there are; what it returns: how many, and whether in a tuple. Then come guards:
# kind, what is expected, a size, a place; values: a place; lists: the list of elements, how many members an
# element has, and whether in a tuple, a place; data: the list of data, a place, without which it is the number
# of the call; and results: kind, the class of a value and its number among the call's, or a place
ROWS, WIDTH, GUARDS, VALUES, LISTS, DATA, RESULTS, IN_TUPLE, HEAD = range(9)
KIND, EXPECTED, SIZE = range(3)
GUARD = 3 + PLACE
ELEMENTS, MEMBERS, IN_TUPLES = range(3)
LIST = 3 + PLACE
COLUMN, PLACED = range(2)
DATUM = 2 + PLACE
CLASS, NUMBER = 1, 2
RESULT = 3 + PLACE
# kinds of guards: of this class, an object; a tuple of this class and size; it is this object; a plain number;
# a list, of elements that the guards behind it are for: one for the element, or, of a tuple, one for each item;
# and one that may be empty
EXACT, SIZED, SAME, PLAIN, OF, MAY_BE_EMPTY = range(6)
# kinds of results
NONE, OUTPUT, GIVEN = range(3)
