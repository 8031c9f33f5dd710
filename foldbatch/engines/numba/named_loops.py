"""Compiled loops that are called by name, by kernels and by the executor: sums, softmax, moves of rows.

A name is that of a text and the kinds of numbers it is for: ``sum_axis_f4``, ``cross_entropy_f4_i8``. Arrays
have no gaps. Sums are added in order.
"""

from __future__ import annotations

KINDS = {"float32": "f4", "float64": "f8", "int32": "i4", "int64": "i8", "bool": "b1"}  # by dtype

PRODUCTS = ("product", "product_rows", "outer_rows")  # these have texts for each processor; see `products`

# x: [a, b, c] -> out: [a, c]
SUM_AXIS = """\
# {f}[3], {f}[2]w
def loop(x, out):
    a0, a1 = flat(x), flat(out)
    middle, inner = u8(x.shape[1]), u8(x.shape[2])
    for i in range(u8(x.shape[0])):
        for j in range(inner):
            a1[i * inner + j] = {f}(0)
        for s in range(middle):
            for j in range(inner):
                a1[i * inner + j] += a0[(i * middle + s) * inner + j]
"""

# the greatest number of a row, or NaN if there is one
_TOP = """\
        top = a0[start]
        for j in range(width):
            t = a0[start + j]
            top = t if (t >= top) | (t != t) else top
"""

# x: [N, n] -> out: [N, n]
SOFTMAX = """\
# {f}[2], {f}[2]w
def loop(x, out):
    a0, a1 = flat(x), flat(out)
    width = u8(x.shape[1])
    for i in range(u8(x.shape[0])):
        start = i * width
{top}        for j in range(width):
            a1[start + j] = exp_{f}(a0[start + j] - top)
        total = {f}(0)
        for j in range(width):
            total += a1[start + j]
        for j in range(width):
            a1[start + j] = a1[start + j] / total
"""

# x: [N, n], labels: [N] -> out: [N]
CROSS_ENTROPY = """\
# {f}[2], {i}[1], {f}[1]w
def loop(x, labels, out):
    a0, a1, a2 = flat(x), flat(labels), flat(out)
    width = u8(x.shape[1])
    for i in range(u8(x.shape[0])):
        start = i * width
{top}        total = {f}(0)
        for j in range(width):
            total += exp_{f}(a0[start + j] - top)
        a2[i] = log(total) + top - a0[start + u8(a1[i])]
"""

# values: [N, n] to rows of arena: row i to rows[copies[i]:copies[i + 1]], copies counted from the first
SPREAD = """\
# {f}[2], i8[1], i8[1], {f}[2]w
def loop(values, copies, rows, arena):
    v, c, r, a = flat(values), flat(copies), flat(rows), flat(arena)
    width = u8(values.shape[1])
    for i in range(u8(values.shape[0])):
        for k in range(u8(c[i] - c[0]), u8(c[i + u8(1)] - c[0])):
            start = u8(r[k]) * width
            for j in range(width):
                a[start + j] = v[i * width + j]
"""

# the transpose of it: out: [N, n], the sums of those rows, in order
SUM_COPIES = """\
# {f}[2], i8[1], i8[1], {f}[2]w
def loop(arena, copies, rows, out):
    a, c, r, o = flat(arena), flat(copies), flat(rows), flat(out)
    width = u8(out.shape[1])
    for i in range(u8(out.shape[0])):
        for j in range(width):
            o[i * width + j] = {f}(0)
        for k in range(u8(c[i] - c[0]), u8(c[i + u8(1)] - c[0])):
            start = u8(r[k]) * width
            for j in range(width):
                o[i * width + j] += a[start + j]
"""

# table: [m, n], place: [N * w], -1 or a row of it -> out: [N, n], the sums of w rows each
ADD_UP = """\
# {f}[2], i8[1], {f}[2]w
def loop(table, place, out):
    a, p, o = flat(table), flat(place), flat(out)
    width, rows = u8(out.shape[1]), u8(out.shape[0])
    some = u8(place.shape[0]) // max(rows, u8(1))
    for i in range(rows):
        fresh = True
        for k in range(i * some, (i + u8(1)) * some):
            if p[k] >= 0:
                start = u8(p[k]) * width
                if fresh:
                    for j in range(width):
                        o[i * width + j] = a[start + j]
                else:
                    for j in range(width):
                        o[i * width + j] += a[start + j]
                fresh = False
        if fresh:
            for j in range(width):
                o[i * width + j] = {f}(0)
"""

TEXTS = {
    "sum_axis": SUM_AXIS,
    "softmax": SOFTMAX,
    "cross_entropy": CROSS_ENTROPY,
    "spread": SPREAD,
    "sum_copies": SUM_COPIES,
    "add_up": ADD_UP,
}


def text_of(name: str) -> str | None:
    """Return the text of a loop with its kinds of numbers; None if there is none of that name.

    >>> text_of("sum_axis_f8").splitlines()[0]
    '# f8[3], f8[2]w'
    >>> text_of("sum_axis") is None
    True
    """
    for known, text in TEXTS.items():
        kinds = name.removeprefix(f"{known}_").split("_")
        if name.startswith(f"{known}_") and all(kind in ("f4", "f8", "i4", "i8") for kind in kinds):
            return text.format(top=_TOP, **{kind[0]: kind for kind in kinds})
    return None
