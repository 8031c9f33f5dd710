"""Products of a call's row with the elements of its sequence, compiled: see `static.ops.lists`.

An operand that nothing else reads is read where it lies, by index: one list may be given to many calls.
Sums of products are of some numbers side by side, which are added up last; sums over elements, of a few
elements, which are added in float64.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

import numpy as np

from foldbatch.engines.launch import FIRST
from foldbatch.engines.llvm.coder import ENTRIES, FIELDS_OF, TARGET, Coder
from foldbatch.engines.llvm.compiling import native
from foldbatch.engines.llvm.loop_texts import MEMORY
from foldbatch.engines.llvm.sum_texts import COLUMNS
from foldbatch.engines.llvm.vector_functions import LANES
from foldbatch.engines.nests import parts
from foldbatch.static.op import CALL
from foldbatch.static.places import merged
from foldbatch.static.statements import Routine, Statement

FEW = 32  # elements whose sum is of their own dtype

# s: the last axis, its strides in the three places; the extent of one axis before; strides of the places
# along rows and that axis.
_HEAD = """\
# i8 {k} {k} {k}{more}
def loop(n, segments, xs, ys, zs{told}, s):
    length, px, py, pz{apart} = u8(s[0]), u8(s[1]), u8(s[2]), u8(s[3]){looked}
    for i in range(n):
        lower, upper = u8(segments[i] - segments[0]), u8(segments[i + u8(1)] - segments[0])
        for j in range(u8(s[4])):
"""
_AT = "moved({name}, {row} * u8(s[{at}]) + j * u8(s[{along}]))"
_DOT = """\
t = lanes_{k}()
for r in range(lower, upper):
    a, b, k = {x}, {y}, u8(0)
    for l in range(u8({lanes})):
        t[l] = {k}(0)
    while k + u8({lanes}) <= length:
        for l in range(u8({lanes})):
            t[l] += a[(k + l) * px] * b[(k + l) * py]
        k += u8({lanes})
    for l in range(length - k):
        t[l] += a[(k + l) * px] * b[(k + l) * py]
    {halves}
    c = {z}
    c[u8(0)] = t[u8(0)] + t[u8(1)]
"""
_HALF = """\
for l in range(u8({half})):
        t[l] += t[l + u8({half})]
    """
_MIX = """\
z, sums, left = {z}, accumulators(), u8(0)
while left < length:
    columns, first = min(u8({columns}), length - left), lower
    w = moved(z, left * pz)
    for k in range(columns):
        w[k * pz], sums[k] = {k}(0), f8(0)
    while first < upper:
        last = min(upper, first + u8({few}))
        for r in range(first, last):
            a, b = {x}, moved({y}, left * py)
            c = a[u8(0)]
            for k in range(columns):
                w[k * pz] += c * b[k * py]
        if upper - lower > u8({few}):
            for k in range(columns):
                sums[k] += f8(w[k * pz])
                w[k * pz] = {k}(sums[k]) if last == upper else {k}(0)
        first = last
    left += columns
"""
_SPREAD = """\
b = {y}
for r in range(lower, upper):
    a, c = {x}, {z}
    d = a[u8(0)]
    for k in range(length):
        c[k * pz] = d * b[k * py]
"""
_BODIES = {"segment_dot": _DOT, "segment_mix": _MIX, "segment_spread": _SPREAD}
OF_CALLS = {"segment_dot": 0, "segment_mix": 2, "segment_spread": 1}  # which place has rows of calls


@cache
def text(op: str, kind: str, *, side_by_side: bool, by_index: bool) -> str:
    """Return the text of an op; places `side_by_side` have the last axis without gaps.

    Elements that are the second operand are rows that the launch tells where it is `by_index`.
    """
    row = ["r", "r", "r"]
    row[OF_CALLS[op]] = "i"
    if by_index:
        row[1] = "(u8(entries[r]) if apart else r)"
    places = {
        letter: _AT.format(name=f"{letter}s", row=row[i], at=5 + 2 * i, along=6 + 2 * i)
        for i, letter in enumerate("xyz")
    }
    halves = "".join(_HALF.format(half=LANES >> i) for i in range(1, LANES.bit_length() - 1))
    body = _BODIES[op].format(
        k=kind, lanes=LANES, few=FEW, columns=COLUMNS, halves=halves.rstrip(), **places
    )
    if side_by_side:
        for step in ("px", "py", "pz"):
            body = body.replace(f" * {step}", "")
    told = {"more": " i8 i8", "told": ", entries, fields", "apart": ", apart"} if by_index else {}
    words = {"more": "", "told": "", "apart": "", "looked": "", **told}
    words["looked"] = f", fields[{FIRST}] < 0" if by_index else ""
    lines = [f"            {line}" if line else line for line in body.splitlines()]
    return "\n".join([_HEAD.format(k=kind, **words) + lines[0], *lines[1:], ""])


def read_by_index(routine: Routine) -> Collection[int]:
    """Return the slots of elements that products alone read: nobody need copy their rows together."""
    slots = routine.slots
    found = {n for n, slot in enumerate(slots) if slot.binding.kind == "operand" and slot.axis.rank == 2}
    for statement in routine.statements:
        read = [place.slot for place in statement.reads]
        if statement.op in ("segment_dot", "segment_mix"):
            del read[1]
        found.difference_update(read, statement.slots)
    return found - {result.place.slot for result in routine.results}


def append(coder: Coder, statement: Statement) -> None:
    """Append a product with the elements of sequences."""
    x, y, segments = statement.reads
    places, dtype = [x, y, statement.result], coder.dtype(y)
    vectors = [len(place.shape) == len(y.shape) for place in places]
    steps = [place.strides[-1] if one else 0 for place, one in zip(places, vectors, strict=True)]
    leads = [place.strides[: len(y.shape) - 1] for place in places]
    by_index, side_by_side = y.slot in read_by_index(coder.routine), max(steps) == min(filter(None, steps)) == 1
    function = native(text(statement.op, MEMORY[dtype], side_by_side=side_by_side, by_index=by_index))
    for part in parts(merged(y.shape[:-1], leads), 1, 3):
        statics = [y.shape[-1], *steps, *part.extents]
        statics += [s for place, (along,) in zip(places, part.strides, strict=True) for s in (place.row, along)]
        pointers = [coder.at(place, offset) for place, offset in zip(places, part.offsets, strict=True)]
        if by_index:
            size = coder.routine.slots[y.slot].type.size * np.dtype(dtype).itemsize
            pointers[1] = coder.cell(y.slot, TARGET, y.axis, size), pointers[1][1]
            pointers += [(coder.cell(y.slot, ENTRIES, y.axis), 0), (coder.cell(y.slot, FIELDS_OF), 0)]
        coder.add(function, CALL, [coder.at(segments), *pointers], statics)
