"""The form of a kernel's code: whole numbers that `walker` goes through.

A code is its head, its *cells*, the bindings of its ragged axes' segments, its instructions, and statics, to which
instructions point. A cell is an address that follows from the launch and the level::

    head           cells, ragged axes, instructions, where the statics begin
    a cell         binding, kind (see below), axis, bytes of a row
    a ragged axis  binding of its segments
    an instruction address and number of pointers of its function; the axis whose rows it is told;
                   where its statics begin; for each pointer a cell, and bytes from there on

====================  ========================================================================================
``BY_LAUNCH``         rows of a buffer from FIRST on, if they follow each other; else the copies of them in SPARE
``BY_RANK``           rows of BASE, by rank
``WHOLE``             BASE from its beginning
``TARGET``            rows of BASE from FIRST on, if they follow each other; else BASE from its beginning
``STORED``            the same rows, if they are stored; else what will be added to BASE, in SPARE
``ENTRIES``           the level's part of the index of the binding; all of it where there are copies
``COPIES_OF``         the level's part of what tells how often each is copied
``SEGMENTS_OF``       the level's segments
``FIELDS_OF``         the launch's numbers for the binding
``ERRORS``            where checks tell what they find
====================  ========================================================================================
"""

from __future__ import annotations

HEAD, CELL, INSTRUCTION = 4, 4, 4  # numbers of each
ONE, CALLS, RAGGED = 0, 1, 2  # numbers of axes: one value for all, calls, the first ragged one
(
    BY_LAUNCH,
    BY_RANK,
    WHOLE,
    TARGET,
    STORED,
    ENTRIES,
    COPIES_OF,
    SEGMENTS_OF,
    FIELDS_OF,
    ERRORS,
) = range(10)
FOUND = (
    6  # numbers of an error: whether there is one, the row, what was found, the size; launch and first call
)
