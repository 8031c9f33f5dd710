"""Functions that add up many numbers without losing digits: rows, axes, runs of rows, rows by index.

A few terms are added in their own dtype. More terms are added a few neighbours at a time, and these sums in
float64: so a sum of a million float32 numbers is as exact as one of ten. Whole numbers wrap around, and bools
are joined by "or", as NumPy has it.
"""

from __future__ import annotations

from functools import cache
from textwrap import indent

PLAIN_TERMS = 8  # terms that are added in their own dtype
COLUMNS = 1024  # numbers in a row that are added up at once, in `vector_functions.ACCUMULATORS`

# These lines add up the rows `first` to `last` of `a`, {outer} times: row e begins at {row}, and {step}
# further at each time. A row has `width` numbers, which lie `p` apart, and `q` apart in the sums `v`. If
# `more` is true they are added to the sums so far.
_PLAIN = """\
if not more:
    for k in range(width):
        v[k * q] = {k}(0)
for o in range({outer}):
    for e in range(first, last):
        u = moved(a, o * {step} + {row})
        for k in range(width):
            v[k * q] {plus}= u[k * p]
"""
_LONG = """\
if width == u8(1):
    total = f8(0)
    for o in range({outer}):
        u, e = moved(a, o * {step}), first
        while e + u8(4) <= last:
            total += f8(u[{row}] + u[{row1}] + (u[{row2}] + u[{row3}]))
            e += u8(4)
        while e < last:
            total += f8(u[{row}])
            e += u8(1)
    v[u8(0)] = {k}(total + f8(v[u8(0)])) if more else {k}(total)
else:
    sums, left = accumulators(), u8(0)
    while left < width:
        columns = min(u8({columns}), width - left)
        w = moved(v, left * q)
        for k in range(columns):
            sums[k] = f8(w[k * q]) if more else f8(0)
        for o in range({outer}):
            u, e = moved(a, o * {step} + left * p), first
            while e + u8({few}) <= last:
                t = moved(u, {row})
                for k in range(columns):
                    w[k * q] = t[k * p]
                for i in range(u8(1), u8({less})):
                    t = moved(u, {rowi})
                    for k in range(columns):
                        w[k * q] += t[k * p]
                t = moved(u, {row_last})
                for k in range(columns):
                    sums[k] += f8(w[k * q] + t[k * p])
                e += u8({few})
            while e < last:
                t = moved(u, {row})
                for k in range(columns):
                    sums[k] += f8(t[k * p])
                e += u8(1)
        for k in range(columns):
            w[k * q] = {k}(sums[k])
        left += columns
"""


@cache
def sum_of_rows(kind: str, row: str, outer: str = "u8(1)", step: str = "u8(0)", *, plus: str = "+") -> str:
    """Return the lines that add up rows, which read the variables named above.

    Args:
        kind: of the numbers.
        row: the expression of where row {e} begins.
        outer: the expression of how many times rows are added up.
        step: the expression of the distance from one time to the next.
        plus: the operator.
    """
    rows = {f"row{i}": row.format(e=f"(e + u8({i}))") for i in (1, 2, 3)}
    rows |= {"row": row.format(e="e"), "rowi": row.format(e="(e + i)")}
    rows["row_last"] = row.format(e=f"(e + u8({PLAIN_TERMS - 1}))")
    sizes = {"columns": COLUMNS, "few": PLAIN_TERMS, "less": PLAIN_TERMS - 1}
    words = {"k": kind, "outer": outer, "step": step, "plus": plus, **sizes, **rows}
    plain = _PLAIN.format(**words)
    if not kind.startswith("f"):
        return plain
    condition = f"if (last - first) * {outer} <= u8({PLAIN_TERMS}):\n"
    return f"{condition}{indent(plain, '    ')}else:\n{indent(_LONG.format(**words), '    ')}"


KEPT_AXES = 2  # axes of the sums, besides the columns

# s: ROWS_KEPT or ROWS_SUMMED; whether sums are added to those so far; extents of the axes that are kept, the
# columns, and the axes that are summed; strides of the operand along rows and these axes, and of the sums
# along rows, kept axes and columns.
ROWS_KEPT, ROWS_SUMMED = 0, 1
_SUMS = """\
# {k} {k}
def loop(n, x, y, s):
    more, width, outer, last = s[1] != 0, u8(s[4]), u8(s[5]), u8(s[6])
    rows, first, p, q = n, u8(0), u8(s[10]), u8(s[16])
    step, inner = u8(s[11]), u8(s[12])
    if s[0] == 1:
        rows, last, inner = u8(1), n, u8(s[7])
    for r in range(rows):
        for i in range(u8(s[2])):
            for j in range(u8(s[3])):
                a = moved(x, r * u8(s[7]) + i * u8(s[8]) + j * u8(s[9]))
                v = moved(y, r * u8(s[13]) + i * u8(s[14]) + j * u8(s[15]))
"""


@cache
def sums(kind: str, *, plus: str = "+") -> str:
    """Return the text of a sum of a place along axes, or of all its rows."""
    lines = sum_of_rows(kind, "{e} * inner", "outer", "step", plus=plus)
    return _SUMS.format(k=kind) + indent(lines, " " * 16)


# the sums of rows of an array: row i of `out` is that of rows order[starts[i]:starts[i + 1]]
_COPIES = """\
def sum_copies(a, c, r, y) -> None:
    width, more, p, q = u8(y.shape[1]), False, u8(1), u8(1)
    for i in range(u8(len(y))):
        v, first, last = moved(y, i * width), u8(c[i] - c[0]), u8(c[i + u8(1)] - c[0])
"""


def sum_copies_text(kind: str) -> str:
    """Return the text of a sum of an array's rows by index, which Python calls."""
    return _COPIES.format(k=kind) + indent(sum_of_rows(kind, "u8(r[{e}]) * width"), " " * 8)
