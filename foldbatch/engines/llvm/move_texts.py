"""Functions that gather the rows that a cell reads from arenas, and store the rows that it yields there.

The function of `take` runs before the statements of a level, that of `GIVE` after them. `fields` are the
launch's integers for the binding, as `engines.launch` lists them (Fields.first, INDEX and so on).
"""

from __future__ import annotations

from functools import cache
from textwrap import indent

from foldbatch.engines.launch import Fields
from foldbatch.engines.llvm.sum_texts import sum_of_rows

ROWS_AHEAD = 8  # rows by index are prefetched so many rows ahead, as no processor foresees where they lie

# Copies the rows of the index from the arena to `out`, or sums of the rows of calls that share a rank; does
# nothing if the arena's rows are read in place. `entries` is the level's part of the index, or all of it if
# `copies` has the bounds of the part. s: numbers in a row of `out`.
_TAKE = f"""\
# {{k}} i8 i8 i8 {{k}}
def loop(n, arena, entries, copies, fields, out, s):
    if fields[{Fields.first}] < 0:
        width = u8(fields[{Fields.width}])
        size = u8(s[0]) // width
        if fields[{Fields.copies}] < 0:
            for i in range(n * width):
                start = u8(entries[i]) * size
                for j in range(size):
                    out[i * size + j] = arena[start + j]
        else:
            a, width, more, p, q = arena, size, False, u8(1), u8(1)
            for i in range(n):
                v, first, last = moved(out, i * size), u8(copies[i]), u8(copies[i + u8(1)])
"""


@cache
def take(kind: str) -> str:
    """Return the text that gathers rows of numbers of a kind from an arena."""
    return _TAKE.format(k=kind) + indent(sum_of_rows(kind, "u8(entries[{e}]) * size"), " " * 16)


VALUE, COTANGENT, STORE = range(3)  # kinds of results of `GIVE`

# Writes rows of values to an arena, or adds them if they are cotangents that are not stored; a `STORE` that
# stores is in the arena already. `arena` begins with the level's first row, or with the arena's first row if
# the index has the rows. s: the kind of result, see above; numbers in a row; whether they are contiguous. If
# they are not: the number of the first element, extents of three axes, the strides of values along rows and
# axes, and the strides of numbers along axes.
GIVE = f"""\
# {{k}} {{k}} i8 i8 i8
def loop(n, values, arena, entries, copies, fields, s):
    result, stores, width = s[0], fields[{Fields.stores}] != 0, u8(fields[{Fields.width}])
    size = u8(s[1]) // width
    one, two, inner = u8(s[4]), u8(s[5]), u8(s[6])
    if (result == {STORE}) & stores:
        return
    adds = (result != {VALUE}) & (not stores)
    rows = n * width if fields[{Fields.copies}] < 0 else u8(copies[n]) * width
    for r in range(n):
        first, last = r, r + u8(1)
        if fields[{Fields.copies}] >= 0:
            first, last = u8(copies[r]), u8(copies[r + u8(1)])
        for e in range(first, last):
            if s[2] != 0:
                for i in range(width):
                    row = e * width + i
                    if fields[{Fields.first}] < 0:
                        ahead = u8(entries[min(row + u8({ROWS_AHEAD}), rows - u8(1))]) * size
                        for k in range((size + u8(15)) // u8(16)):
                            fetch(moved(arena, ahead + k * u8(16)))
                        row = u8(entries[row])
                    v, a = moved(values, r * u8(s[7]) + i * size), moved(arena, row * size)
                    if adds:
                        for k in range(size):
                            a[k] += v[k]
                    else:
                        for k in range(size):
                            a[k] = v[k]
            else:
                for i in range(one):
                    number = u8(s[3]) + i * u8(s[11])
                    row = e * width + number // size
                    if fields[{Fields.first}] < 0:
                        row = u8(entries[row])
                    start = row * size + number % size
                    for j in range(two):
                        v = moved(values, r * u8(s[7]) + i * u8(s[8]) + j * u8(s[9]))
                        a = moved(arena, start + j * u8(s[12]))
                        for k in range(inner):
                            old = a[k * u8(s[13])] if adds else {{k}}(0)
                            a[k * u8(s[13])] = old + v[k * u8(s[10])] if adds else v[k * u8(s[10])]
"""
GIVE_AXES = 3

# Stores a parameter's gradient, or adds it to the gradient so far. s: extents of three axes, the strides of
# the values, and of the gradient, and whether a gradient that is stored is in its memory already.
GRADIENT = f"""\
# {{k}} {{k}} i8
def loop(n, values, gradient, fields, s):
    adds, inner, p, q = fields[{Fields.stores}] == 0, u8(s[2]), u8(s[5]), u8(s[8])
    if (s[9] != 0) & (not adds):
        return
    for i in range(u8(s[0])):
        for j in range(u8(s[1])):
            v = moved(values, i * u8(s[3]) + j * u8(s[4]))
            a = moved(gradient, i * u8(s[6]) + j * u8(s[7]))
            if adds:
                for k in range(inner):
                    a[k * q] += v[k * p]
            else:
                for k in range(inner):
                    a[k * q] = v[k * p]
"""
