"""Functions of rows: looked up by id, repeated for elements of sequences, reduced over them, drawn, checked.

Whole numbers `s` are extents, then strides; each text tells its own. A sequence's elements are the rows
between two `segments`, which count from the first call of the batch. Where places lie side by side along the
innermost axis there is a loop that says so.
"""

from __future__ import annotations

from textwrap import indent

from foldbatch.engines.numba.sum_texts import sum_of_rows
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
                    if (p == u8(1)) & (q == u8(1)):
                        for k in range(inner):
                            {side_by_side}
                    else:
                        for k in range(inner):
                            {apart}
"""
GATHER = _IDS.replace("{side_by_side}", "b[k] = a[k]").replace("{apart}", "b[k * q] = a[k * p]")
SUM_ROWS = _IDS.replace("{side_by_side}", "a[k] += b[k]").replace("{apart}", "a[k * p] += b[k * q]")

# s: extents of two axes; strides of the operand along rows and axes, and of the result.
_SEGMENTS = """\
# i8 {k} {r}
def loop(n, segments, x, y, s):
    inner, p, q = u8(s[1]), u8(s[4]), u8(s[7])
    for i in range(n):
        lower, upper = u8(segments[i] - segments[0]), u8(segments[i + u8(1)] - segments[0])
        for j in range(u8(s[0])):
            a, b = moved(x, j * u8(s[3])), moved(y, j * u8(s[6]))
"""
# the operand has a row for each call, the result one for each element
_REPEAT = """\
for r in range(lower, upper):
    u, v = moved(a, i * u8(s[2])), moved(b, r * u8(s[5]))
    for k in range(inner):
        v[k * {q}] = u[k * {p}]
"""
_MAX = """\
v = moved(b, i * u8(s[5]))
for k in range(inner):
    v[k * {q}] = {k}(0) if lower == upper else a[lower * u8(s[2]) + k * {p}]
for r in range(lower, upper):
    u = moved(a, r * u8(s[2]))
    for k in range(inner):
        t, top = u[k * {p}], v[k * {q}]
        v[k * {q}] = t if (t >= top) | (t != t) else top
"""
_IS_MAX = """\
for k in range(inner):
    u, v = moved(a, k * {p}), moved(b, k * {q})
    best = lower
    for r in range(lower, upper):
        t, top = u[r * u8(s[2])], u[best * u8(s[2])]
        if (t > top) | ((t != t) & (top == top)):
            best = r
    for r in range(lower, upper):
        v[r * u8(s[5])] = u1(r == best)
"""
_POSITION = """\
for k in range(inner):
    v = moved(b, k * {q})
    for r in range(lower, upper):
        v[r * u8(s[5])] = i8(r - lower)
"""
_SOFTMAX = """\
for k in range(inner):
    u, v = moved(a, k * {p}), moved(b, k * {q})
    top = -{k}(inf)
    for r in range(lower, upper):
        t = u[r * u8(s[2])]
        top = t if (t >= top) | (t != t) else top
    total = f8(0)
    for r in range(lower, upper):
        t = exp(u[r * u8(s[2])] - top)
        v[r * u8(s[5])] = t
        total += f8(t)
    for r in range(lower, upper):
        v[r * u8(s[5])] = v[r * u8(s[5])] / {k}(total)
"""
# the other way round
_SUM = """\
v, first, last, width, more = moved(b, i * u8(s[5])), lower, upper, inner, False
"""
_BODIES = {
    "repeat": _REPEAT,
    "segment_max": _MAX,
    "segment_is_max": _IS_MAX,
    "segment_position": _POSITION,
    "segment_softmax": _SOFTMAX,
}
ON_SEGMENTS = (*_BODIES, "segment_sum")


def on_segments(name: str, kind: str, result: str, plus: str = "+") -> str:
    """Return the text of an op of `ON_SEGMENTS`.

    Args:
        name: the op's.
        kind: of the operand's numbers.
        result: of the result's numbers.
        plus: the operator of a sum.
    """
    head = _SEGMENTS.format(k=kind, r=result)
    if name == "segment_sum":
        return head + indent(_SUM + sum_of_rows(kind, "{e} * u8(s[2])", plus=plus), " " * 12)
    body = indent(_BODIES[name], " " * 16)
    side_by_side, apart = (body.format(k=kind, p=p, q=q) for p, q in (("u8(1)",) * 2, ("p", "q")))
    return f"{head}            if (p == u8(1)) & (q == u8(1)):\n{side_by_side}            else:\n{apart}"


# As `ops.random.random_bits`. s: what the site adds to keys; how many numbers, and the first one's number;
# strides of keys along rows, of the result along rows and its axis.
RANDOM = f"""\
# i8 {{k}}
def loop(n, keys, out, s):
    for r in range(n):
        seed = mixed(u8(keys[r * u8(s[3])]) + u8(s[0]))
        for j in range(u8(s[1])):
            bits = mixed(seed + (u8(s[2]) + j + u8(1)) * u8({GAMMA:#x}))
            out[r * u8(s[4]) + j * u8(s[5])] = {{k}}(bits >> u8({64 - BITS})) * {{k}}({2.0**-BITS!r})
"""

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
