"""Functions of rows: looked up by id, drawn, checked.

The statics `s` are extents, then strides; a comment lists those of each text. A sequence's elements are the
rows between two `segments`, which count from the first call of the batch.
"""

from __future__ import annotations

from foldbatch.static.ops.random import BITS, GAMMA

# s: extents of two axes of ids and two of a table's rows, how many rows it has; strides of ids (row and two
# axes), of the table (its rows and two axes), of the result (row and four axes).
_IDS = """\
# {i} {k} {k}
def loop(n, ids, table, out, s):
    inner, p, q = u8(s[3]), u8(s[10]), u8(s[15])
    for r in range(n):
        for i in range(u8(s[0])):
            for j in range(u8(s[1])):
                wanted = i8(ids[r * u8(s[5]) + i * u8(s[6]) + j * u8(s[7])])
                id = u8(min(max(wanted, i8(0)), s[4] - 1))
                for g in range(u8(s[2])):
                    a = moved(table, id * u8(s[8]) + g * u8(s[9]))
                    b = moved(out, r * u8(s[11]) + i * u8(s[12]) + j * u8(s[13]) + g * u8(s[14]))
                    for k in range(inner):
                        """
GATHER, SUM_ROWS = f"{_IDS}b[k * q] = a[k * p]\n", f"{_IDS}a[k * p] += b[k * q]\n"

# As `ops.random.random_bits`. s: the number that the site adds to keys; the count and the first place of
# numbers; strides of keys along rows, of the result along rows and its axis.
RANDOM = f"""\
# i8 {{k}}
def loop(n, keys, out, s):
    for r in range(n):
        seed = mixed(u8(keys[r * u8(s[3])]) + u8(s[0]))
        for j in range(u8(s[1])):
            bits = mixed(seed + (u8(s[2]) + j + u8(1)) * u8({GAMMA:#x}))
            out[r * u8(s[4]) + j * u8(s[5])] = {{k}}(bits >> u8({64 - BITS})) * {{k}}({2.0**-BITS!r})
"""

# As `ops.reduce.ordered`, by insertion: an element is inserted before those that come after it. Once there
# are enough elements, vectors of elements that all come after the last are skipped. s: extents of two axes,
# of lines, and of results; strides of the operand (row, two axes, along a line), and of the result.
ORDER = """\
# {x} i8
def loop(n, xs, ys, s):
    length, count, p, q = u8(s[2]), u8(s[3]), u8(s[7]), u8(s[11])
    for r in range(n):
        for i in range(u8(s[0])):
            for j in range(u8(s[1])):
                a = moved(xs, r * u8(s[4]) + i * u8(s[5]) + j * u8(s[6]))
                b = moved(ys, r * u8(s[8]) + i * u8(s[9]) + j * u8(s[10]))
                k, full, last, found = u8(0), u8(0), a[u8(0)], True
                while k < length:
                    stop, found = min(k + u8(32), length), full < count
                    for m in range(k, stop):
                        x = a[m * {p}]
                        found = found | {before}
                    k = k if found else stop
                    while k < stop:
                        x = a[k * {p}]
                        if (full < count) | {before}:
                            full = min(full + u8(1), count)
                            place = full - u8(1)
                            while place > u8(0):
                                above = b[(place - u8(1)) * q]
                                last = a[u8(above) * {p}]
                                if not {before}:
                                    break
                                b[place * q], place = above, place - u8(1)
                            b[place * q] = i8(k)
                            last = a[u8(b[(full - u8(1)) * q]) * {p}]
                        k += u8(1)
"""
BEFORE = {True: "(x > last) | ((x != x) & (last == last))", False: "(x < last) | ((x == x) & (last != last))"}

# The first id that is not from 0 to size - 1 goes to `errors`: 1, its row, itself, size.
# s: size; extents of three axes; strides of ids along rows and axes.
CHECK = """\
# {i} i8
def loop(n, ids, errors, s):
    for r in range(n):
        for i in range(u8(s[1])):
            for j in range(u8(s[2])):
                for k in range(u8(s[3])):
                    id = i8(ids[r * u8(s[4]) + i * u8(s[5]) + j * u8(s[6]) + k * u8(s[7])])
                    if ((id < 0) | (id >= s[0])) & (errors[0] == 0):
                        errors[0], errors[1], errors[2], errors[3] = 1, i8(r), id, s[0]
"""
# the row is that of the call, whose elements' ids these are
CHECK_ELEMENTS = """\
# {i} i8 i8
def loop(n, ids, segments, errors, s):
    for c in range(n):
        for r in range(u8(segments[c] - segments[0]), u8(segments[c + u8(1)] - segments[0])):
            for i in range(u8(s[1])):
                for j in range(u8(s[2])):
                    for k in range(u8(s[3])):
                        id = i8(ids[r * u8(s[4]) + i * u8(s[5]) + j * u8(s[6]) + k * u8(s[7])])
                        if ((id < 0) | (id >= s[0])) & (errors[0] == 0):
                            errors[0], errors[1], errors[2], errors[3] = 1, i8(c), id, s[0]
"""
