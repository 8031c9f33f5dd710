"""What visits each element of some places of one shape, as texts and as instructions: ops, copies, zeros.

Their loops are rows and three axes. Their whole numbers `s` are: whether all rows are one run of the
innermost loop; the extents; then for each place its strides along rows and axes. Where all innermost strides
are 1 there is a loop that says so, which LLVM vectorises.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from foldbatch.engines.llvm.coder import Coder
from foldbatch.engines.llvm.compiling import native
from foldbatch.engines.llvm.loop_texts import KINDS, MEMORY, computed
from foldbatch.engines.nests import Stretch, by_rows, parts
from foldbatch.static.op import Axis, Op
from foldbatch.static.places import Place, contiguous, merged

AXES = 3

OF_BYTES = {"bool": "u1", "int32": "i4", "float32": "i4", "int64": "i8", "float64": "i8"}  # to be copied


def elementwise(op: Op, operands: Sequence[str], dtype: str) -> str:
    """Return the text of an elementwise op on operands of these dtypes; a number is told with the strides."""
    kinds, kind = [MEMORY[operand] for operand in operands], KINDS[dtype]
    lines, value = computed(op, dtype, [f"t{i}" for i in range(len(operands))], "")
    at = 1 + AXES + (len(kinds) + 1) * (AXES + 1)
    before = [f"{name} = {kind}(as_f8(s[{at + i}]))" for i, name in enumerate(numbers_of(op))]
    truths = [operand == "bool" for operand in operands]
    return _visit(kinds, MEMORY[dtype], f"u1({value})" if dtype == "bool" else value, truths, before, lines)


def numbers_of(op: Op) -> list[str]:
    """Return the attributes that an op's body names."""
    return ["exponent"] if "exponent" in op.body else []


def copy(dtype: str) -> str:
    kind = OF_BYTES[dtype]
    return _visit([kind], kind, "t0", [False])


def zero(dtype: str) -> str:
    kind = OF_BYTES[dtype]
    return _visit([], kind, f"{kind}(0)", [])


def _visit(
    kinds: Sequence[str],  # of the numbers of the operands
    written: str,  # of those of the result
    value: str,  # the expression of a result of t0, t1
    truths: Sequence[bool],  # whether operands are bools, which are bytes in memory
    before: Sequence[str] = (),  # lines that come first
    inside: Sequence[str] = (),  # lines that come before the value
) -> str:
    """Return the text of a function of some operands that it reads and one place that it writes."""
    places = len(kinds) + 1
    names = [f"x{i}" for i in range(len(kinds))] + ["y"]
    at = [1 + AXES + (AXES + 1) * i for i in range(places)]  # where a place's strides begin
    lines = [
        f"# {' '.join([*kinds, written])}",
        f"def loop(n, {', '.join(names)}, s):",
        *(f"    {line}" for line in before),
        "    rows, inner = n, u8(s[3])",
        "    if s[0] != 0:",
        "        rows, inner = u8(1), n * inner",
        *(f"    q{i} = u8(s[{at[i] + AXES}])" for i in range(places)),
        f"    side_by_side = {' & '.join(f'(q{i} == u8(1))' for i in range(places))}",
        "    for r in range(rows):",
        "        for i in range(u8(s[1])):",
        "            for j in range(u8(s[2])):",
    ]
    for i, name in enumerate(names):
        where = " + ".join(f"{turn} * u8(s[{at[i] + k}])" for k, turn in enumerate("rij"))
        lines.append(f"                b{i} = moved({name}, {where})")
    out = f"b{places - 1}"

    def innermost(strides: Sequence[str]) -> list[str]:
        loads = [
            f"    t{i} = b{i}[k * {stride}]{' != 0' * truth}"
            for i, (stride, truth) in enumerate(zip(strides, truths, strict=False))
        ]
        loads += [f"    {line}" for line in inside]
        return ["for k in range(inner):", *loads, f"    {out}[k * {strides[-1]}] = {value}"]

    loops = ["if side_by_side:", *(f"    {line}" for line in innermost(["u8(1)"] * places))]
    loops += ["else:", *(f"    {line}" for line in innermost([f"q{i}" for i in range(places)]))]
    return "\n".join([*lines, *(f"{' ' * 16}{line}" for line in loops), ""])


def visit(coder: Coder, text: str, places: Sequence[Place], axis: Axis, more: Sequence[int] = ()) -> None:
    """Append a function on places of one shape, the last of which is written."""
    for part, whole in visited(places):
        strides = [s for p, place in enumerate(places) for s in (0 if whole else place.row, *part.strides[p])]
        pointers = [coder.at(place, part.offsets[p]) for p, place in enumerate(places)]
        coder.add(native(text), axis, pointers, [int(whole), *part.extents, *strides, *more])


def visited(places: Sequence[Place]) -> list[tuple[Stretch, bool]]:
    """Return the parts of places that a function visits; whether all rows are one run of its last axis."""
    rows = [place.row for place in places]
    axes = merged(places[0].shape, [place.strides for place in places])
    whole = by_rows(axes, rows)
    if whole and not axes:
        axes = [(1, tuple(rows))]
    return [(part, whole) for part in parts(axes, AXES, len(places))]


def copied(coder: Coder, read: Place, write: Place, axis: Axis) -> None:
    visit(coder, copy(coder.dtype(write)), [read, write], axis)


def copy_to(coder: Coder, place: Place, axis: Axis, cell: int) -> None:
    """Append a copy of a place to rows without gaps that begin at a cell."""
    size = prod(place.shape)
    target = Place(-1, axis, size, 0, place.shape, contiguous(place.shape))
    dtype = coder.dtype(place)
    item = np.dtype(dtype).itemsize
    for part, whole in visited([place, target]):
        rows = [0, 0] if whole else [place.row, size]
        statics = [int(whole), *part.extents, rows[0], *part.strides[0], rows[1], *part.strides[1]]
        pointers = [coder.at(place, part.offsets[0]), (cell, part.offsets[1] * item)]
        coder.add(native(copy(dtype)), axis, pointers, statics)


def zeroed(coder: Coder, write: Place) -> None:
    visit(coder, zero(coder.dtype(write)), [write], write.axis)
