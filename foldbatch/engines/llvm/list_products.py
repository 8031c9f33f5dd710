"""Products of a call's row with the elements of its sequence, compiled: see `static.ops.lists`.

An operand that only products read is read in place, by index: many calls may have the same list. A dot
product sums several numbers side by side, and adds these up last; a sum over elements adds a few elements at
a time in their own dtype, and these sums in float64.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from textwrap import indent

import numpy as np

from foldbatch.engines.launch import Fields
from foldbatch.engines.llvm import products
from foldbatch.engines.llvm.coder import ENTRIES, FIELDS_OF, TARGET, Coder
from foldbatch.engines.llvm.loop_texts import MEMORY
from foldbatch.engines.llvm.sum_texts import COLUMNS
from foldbatch.engines.llvm.tiles import Blocks
from foldbatch.engines.nests import parts
from foldbatch.static.op import CALL
from foldbatch.static.places import merged
from foldbatch.static.statements import Routine, Statement

PLAIN_SUM_ELEMENTS = 32  # elements that are summed in their own dtype

# s: the last axis; the extent of one axis before it; for each place, strides along rows and that axis.
_HEAD = """\
# i8 {kinds}
def loop(n, segments, {names}, s):
    length{looked} = u8(s[0]){found}
    for o in range(n):
        lower, upper = u8(segments[o] - segments[0]), u8(segments[o + u8(1)] - segments[0])
        for j in range(u8(s[1])):
"""
_DOT = """\
for r in range(lower, upper):
    a, b, total = {x0}, {x1}, f8(0)
    for k in range(length):
        total += f8(a[k * {step0}] * b[k * {step1}])
    y[{y_at}] = {kind}(total)
"""
# the same in tiles, where the last axis has no gaps
_TILED = """\
b, e, first, a_at, c_at = {x1}, lower, u8(0), starts(), starts()
while e < upper:
    last = min(upper - e, u8({starts}))
    for r in range(last):
        a_at[r], c_at[r] = {x0_at}, {y_at}
{calls}
    e += last
"""
_DOTS = "dots_{}_1(x0, starts_a, b, length, y, starts_c, length, u8(0))"
_MIX = """\
z, sums, left = {y}, accumulators(), u8(0)
while left < length:
    columns, first = min(u8({columns}), length - left), lower
    w = moved(z, left * {step2})
    for k in range(columns):
        w[k * {step2}], sums[k] = {kind}(0), f8(0)
    while first < upper:
        last = min(upper, first + u8({few}))
        for r in range(first, last):
            b, c = moved({x1}, left * {step1}), x0[{x0_at}]
            for k in range(columns):
                w[k * {step2}] += c * b[k * {step1}]
        if upper - lower > u8({few}):
            for k in range(columns):
                sums[k] += f8(w[k * {step2}])
                w[k * {step2}] = {kind}(sums[k]) if last == upper else {kind}(0)
        first = last
    left += columns
"""
_SPREAD = """\
for r in range(lower, upper):
    c = {y}
{loads}
    for k in range(length):
        c[k * {step}] = {total}
"""
BY_INDEX = {"segment_dot": 0, "segment_mix": 1}  # which operand may be read by index


def text(kind: str, cut: Blocks | None, *, op: str, steps: Sequence[int], by_index: bool) -> str:
    """Return the text of an op, as `compiling.native` takes it.

    Args:
        kind: of the numbers.
        cut: the tiles of dot products, which are used if the last axis has no gaps; None for plain loops.
        op: the op's name.
        steps: the stride of the last axis in each place.
        by_index: whether the launch has the rows of the elements, in `entries` and `fields`.
    """
    count = len(steps) - 1
    tiled = op == "segment_dot" and {*steps[:2]} == {1} and cut is not None
    names = [*(f"x{i}" for i in range(count)), "y"]
    rows = ["(e + r)" if tiled else "r"] * (count + 1)
    for i in {"segment_dot": [1], "segment_mix": [2]}.get(op, range(1, count, 2)):
        rows[i] = "o"
    if by_index:
        rows[BY_INDEX[op]] = f"(u8(entries[{rows[BY_INDEX[op]]}]) if apart else {rows[BY_INDEX[op]]})"
    at = [f"{row} * u8(s[{2 + 2 * i}]) + j * u8(s[{3 + 2 * i}])" for i, row in enumerate(rows)]
    words: dict[str, object] = {f"{name}_at": place for name, place in zip(names, at, strict=True)}
    words |= {name: f"moved({name}, {place})" for name, place in zip(names, at, strict=True)}
    words |= {f"step{i}": f"u8({step})" for i, step in enumerate(steps)} | {"step": f"u8({steps[-1]})"}
    words |= {"kind": kind, "few": PLAIN_SUM_ELEMENTS, "columns": COLUMNS, "starts": products.STARTS}
    words["calls"] = products.rows_lines(cut.dot_rows, _DOTS, 4) if cut else ""
    pairs = range(0, count - 1, 2)
    words["loads"] = "\n".join(f"    d{i}, b{i} = x{i}[{at[i]}], {words[f'x{i + 1}']}" for i in pairs)
    words["total"] = " + ".join(f"d{i} * b{i}[k * u8({steps[i + 1]})]" for i in pairs)
    body = {"segment_dot": _TILED if tiled else _DOT, "segment_mix": _MIX, "segment_spread": _SPREAD}[op]
    header_words = {"kinds": " ".join([kind] * (count + 1) + ["i8", "i8"] * by_index)}
    header_words |= {"names": ", ".join(names + ["entries", "fields"] * by_index)}
    header_words |= {"looked": ", apart" * by_index, "found": f", fields[{Fields.first}] < 0" * by_index}
    return _HEAD.format(**header_words) + indent(body.format(**words), " " * 12)


def read_by_index(routine: Routine) -> Collection[int]:
    """Return the slots of elements that only products read, so that their rows need not be gathered."""
    slots = routine.slots
    slots_read = {n for n, slot in enumerate(slots) if slot.binding.kind == "operand" and slot.axis.rank == 2}
    for statement in routine.statements:
        read = [place.slot for place in statement.reads]
        if statement.op in BY_INDEX:
            del read[BY_INDEX[statement.op]]
        slots_read.difference_update(read, statement.slots)
    return slots_read - {result.place.slot for result in routine.results}


def append(coder: Coder, statement: Statement) -> None:
    """Append a product with the elements of sequences."""
    *reads, segments = statement.reads
    places = [*reads, statement.result]
    shape = reads[1].shape
    kind = MEMORY[coder.dtype(reads[1])]
    steps = tuple([place.strides[-1] if len(place.shape) == len(shape) else 0 for place in places])
    number = BY_INDEX.get(statement.op, -1)
    slot = places[number].slot
    by_index = number >= 0 and slot in read_by_index(coder.routine)
    written = partial(text, op=statement.op, steps=steps, by_index=by_index)
    function = products.compiled(written, kind, products.cut_of(kind, "fp32"))
    leads = merged(shape[:-1], [place.strides[: len(shape) - 1] for place in places])
    for part in parts(leads, 1, len(places)):
        apart = [s for place, (along,) in zip(places, part.strides, strict=True) for s in (place.row, along)]
        pointers = [coder.at(place, offset) for place, offset in zip(places, part.offsets, strict=True)]
        if by_index:
            type_ = coder.routine.slots[slot].type
            axis = reads[number].axis
            cell = coder.cell(slot, TARGET, axis, type_.size * np.dtype(type_.dtype).itemsize)
            pointers[number] = cell, pointers[number][1]
            pointers += [(coder.cell(slot, ENTRIES, axis), 0), (coder.cell(slot, FIELDS_OF), 0)]
        coder.add(function, CALL, [coder.at(segments), *pointers], [shape[-1], *part.extents, *apart])
