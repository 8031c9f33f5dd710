"""Texts of sums over all rows of a level: of rows, of rows of equal id, of outer products.

Each sum is added up in a fixed order, so that its bits repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from foldbatch.engines.cuda.texts.elements import index_lines
from foldbatch.engines.cuda.texts.kernel_text import KernelText, buffer_of, field_of, indented, offset_of
from foldbatch.engines.cuda.texts.lines import added, increased, total_of
from foldbatch.engines.cuda.texts.rows import in_range
from foldbatch.engines.launch import BASE
from foldbatch.engines.nests import Strides, merged
from foldbatch.static.op import Axis
from foldbatch.static.places import Place
from foldbatch.static.statements import Statement, axis_of

PARTS = 1024  # partial sums of a block: LANES_X columns times LANES_Y


def sum_batch_lines(text: KernelText, statement: Statement) -> list[str]:
    """Return a kernel's lines that add up rows: each thread some rows of a column, then one thread these."""
    (read,), write = statement.reads, statement.result
    count = prod(write.shape)
    if not count:
        return []
    axes = merged(write.shape, [Strides(0, read.strides), Strides(0, write.strides)]) or [(1, (0, 0))]
    names, lines = index_lines("e", [extent for extent, _ in axes])
    at, to = (
        offset_of(place.offset, [(n, s[i]) for n, (_, s) in zip(names, axes, strict=True)])
        for i, place in enumerate((read, write))
    )
    kind = text.kind(write.slot)
    total = total_of(kind)
    value = f"{text.row(read.slot, 'r')}[{at}]"
    return [
        f"SHARED {total} part[{PARTS}];",
        f"for (i8 c = BLOCK * LANES_X; c < {count}; c += BLOCKS * LANES_X) {{",
        "  const i8 e = c + LANE_X;",
        *indented(lines),
        f"  {total} total = 0;",
        f"  if (e < {count})",
        f"    for (i8 q = LANE_Y; q < {text.rows(read.axis)}; q += LANES_Y) {{",
        f"      const i8 r = {text.numbered(read.axis, 'q')};",
        f"      {added(kind, value)}",
        "    }",
        "  part[LANE_Y * LANES_X + LANE_X] = total;",
        "  BARRIER();",
        f"  if (LANE_Y == 0 && e < {count}) {{",
        "    for (i8 y = 1; y < LANES_Y; y++)",
        f"      {'total |=' if kind == 'b1' else 'total +='} part[y * LANES_X + LANE_X];",
        f"    {text.slot(write.slot)}[{to}] = ({kind})total;",
        "  }",
        "  BARRIER();",
        "}",
    ]


def sum_rows_lines(text: KernelText, statement: Statement) -> list[str]:
    """Return a kernel's lines that add rows to the rows of a table that ids tell: a thread a column."""
    (rows, ids), write = statement.reads, statement.result
    inner, cut = write.shape[1:], len(ids.shape)
    if not prod(write.shape):
        return []
    kind = text.kind(write.slot)
    names, lines = index_lines("e", inner or [1])
    names = names if inner else []
    lead, lead_lines = index_lines("i", ids.shape or [1])
    lead = lead if ids.shape else []
    id_at = offset_of(ids.offset, list(zip(lead, ids.strides, strict=True)))
    row_terms = [*zip(lead, rows.strides[:cut], strict=True), *zip(names, rows.strides[cut:], strict=True)]
    column = list(zip(names, write.strides[1:], strict=True))
    table = f"{text.slot(write.slot)}[{offset_of(write.offset, [('v', write.strides[0]), *column])}]"
    value = f"{text.row(rows.slot, 'r')}[{offset_of(rows.offset, row_terms)}]"
    id_ = f"{text.row(ids.slot, 'r')}[{id_at}]"
    body = [
        *lead_lines,
        f"const i8 v = {in_range(id_, write.shape[0])};",
        increased(kind, table, value),
    ]
    axis = axis_of(statement, [rows, ids])
    return _columns(
        prod(inner),
        [
            *lines,
            f"for (i8 v = 0; v < {write.shape[0]}; v++) {table} = 0;",
            *_over(text, axis, prod(ids.shape), body),
        ],
    )


def sum_outer_lines(text: KernelText, statement: Statement) -> list[str]:
    """Return a kernel's lines that add up outer products of rows, if there are ids by id."""
    (x, g, *ids), write = statement.reads, statement.result
    if not prod(write.shape):
        return []
    kind = text.kind(write.slot)
    names, lines = index_lines("e", write.shape[-2:])
    lead, lead_lines = index_lines("i", x.shape[:-1] or [1])
    lead = lead if x.shape[:-1] else []
    a, b = (
        f"{text.row(place.slot, 'r')}"
        f"[{offset_of(place.offset, [*zip(lead, place.strides[:-1], strict=True), (n, place.strides[-1])])}]"
        for place, n in ((x, names[0]), (g, names[1]))
    )
    column = list(zip(names, write.strides[-2:], strict=True))
    axis = axis_of(statement, [x, g])
    count = prod(x.shape[:-1])
    if ids:
        table = f"{text.slot(write.slot)}[{offset_of(write.offset, [('v', write.strides[0]), *column])}]"
        id_ = in_range(f"{text.row(ids[0].slot, 'r')}[{ids[0].offset}]", write.shape[0])
        lines += [
            f"for (i8 v = 0; v < {write.shape[0]}; v++) {table} = 0;",
            *_over(text, axis, count, [*lead_lines, f"const i8 v = {id_};", f"{table} += {a} * {b};"]),
        ]
    else:
        add = f"total += (f8){a} * {b};"
        lines += ["f8 total = 0;", *_over(text, axis, count, [*lead_lines, add])]
        lines += [f"{text.slot(write.slot)}[{offset_of(write.offset, column)}] = ({kind})total;"]
    return _columns(prod(write.shape[-2:]), lines)


def _over(text: KernelText, axis: Axis, count: int, lines: Sequence[str]) -> list[str]:
    """Return a loop over the rows along an axis, and over so many parts of each."""
    return [
        f"for (i8 q = 0; q < {text.rows(axis)}; q++) {{",
        f"  const i8 r = {text.numbered(axis, 'q')};",
        f"  for (i8 i = 0; i < {count}; i++) {{",
        *indented(lines, 2),
        "  }",
        "}",
    ]


def clear_lines(text: KernelText, slots: Sequence[int]) -> list[str]:
    """Return a kernel's lines that set rows to zero that there is room for, beyond those that there are.

    A library multiplies all of them, and adds them up.
    """
    lines = []
    for number in slots:
        axis, size = text.routine.slots[number].axis, text.size(number)
        first = f"{text.rows(axis)} + BLOCK * LANES_Y + LANE_Y"
        lines += [
            f"for (i8 q = {first}; q < {text.room(axis)}; q += BLOCKS * LANES_Y) {{",
            f"  const i8 r = {text.numbered(axis, 'q')};",
            f"  {text.kind(number)}* row = {text.row(number, 'r')};",
            f"  for (i8 e = LANE_X; e < {size}; e += LANES_X) row[e] = 0;",
            "}",
        ]
    return lines


def _columns(count: int, lines: list[str]) -> list[str]:
    head = f"for (i8 e = BLOCK * LANES_X + LANE_X; e < {count}; e += BLOCKS * LANES_X) {{"
    return [head, *indented(lines), "}"]


def add_planned_lines(text: KernelText, number: int, place: Place, width: int) -> list[str]:
    """Return a kernel's lines that add a place's rows to rows of an arena, several of which may be the same.

    The plan (see `plans`) tells each of those rows once, with the rows that are added to it, in order.
    """
    shape = place.shape
    size = prod(shape)
    grain = size // width
    if not grain:
        return []
    kind = text.kind(place.slot)
    names, lines = index_lines("f", shape or [1])
    names = names if shape else []
    at = offset_of(place.offset, list(zip(names, place.strides, strict=True)))
    part = "(i8)order[j]" if width == 1 else f"(i8)order[j] / {width}"
    element = "e" if width == 1 else f"order[j] % {width} * {grain} + e"
    return [
        "const i8 count = ints[plan];",
        "const i4 *target = ints + plan + 1, *starts = target + count, *order = starts + count + 1;",
        f"{kind}* arena = {buffer_of(kind, field_of(number, BASE))};",
        "for (i8 q = BLOCK * LANES_Y + LANE_Y; q < count; q += BLOCKS * LANES_Y)",
        f"  for (i8 e = LANE_X; e < {grain}; e += LANES_X) {{",
        f"    {total_of(kind)} total = 0;",
        "    for (i8 j = starts[q]; j < starts[q + 1]; j++) {",
        f"      const i8 f = {element};",
        *indented(lines, 3),
        f"      {added(kind, f'{text.row(place.slot, part)}[{at}]')}",
        "    }",
        f"    arena[(i8)target[q] * {grain} + e] += ({kind})total;",
        "  }",
    ]
