"""Texts of rows: looked up by id, drawn, checked; brought from and to other cells; summed over a level.

Each sum is added up in a fixed order, so that its bits repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from foldbatch.engines.cuda.kernel_text import (
    STATUS_AT,
    KernelText,
    buffer_of,
    field_of,
    indented,
    stored_kind,
)
from foldbatch.engines.cuda.line_texts import (
    added,
    bounds,
    element_lines,
    element_loop,
    increased,
    index_lines,
    lying,
    total_of,
    visit,
)
from foldbatch.engines.launch import Fields, OutOfRangeError
from foldbatch.static.op import CALL, Axis
from foldbatch.static.ops.random import BITS, GAMMA, WORD_MASK
from foldbatch.static.places import Place, contiguous
from foldbatch.static.statements import Statement, axis_of


def gather_lines(text: KernelText, statement: Statement) -> list[str]:
    """Return the lines that look up rows of a table by ids; ids out of range are brought into it."""
    (table, ids), write = statement.reads, statement.result
    if prod(write.shape) == 0 or table.shape[0] == 0:
        return []
    cut = len(ids.shape)
    names, lines = index_lines("e", [*ids.shape, *table.shape[1:]])
    lines.append(f"const i8 id = {in_range(text.element(ids, names[:cut]), table.shape[0])};")
    lines.append(f"{text.element(write, names)} = {text.element(table, ['id', *names[cut:]])};")
    return element_loop(prod(write.shape), lines)


def in_range(id: str, size: int) -> str:
    return f"min_i8(max_i8((i8){id}, 0), {size - 1})"


def random_lines(text: KernelText, statement: Statement) -> list[str]:
    """Return the lines that draw numbers, as `ops.random.random_bits` does."""
    (keys,), write = statement.reads, statement.result
    if 0 in write.shape:
        return []
    kind, shape = text.kind(write.slot), write.shape
    (at, number), lines = element_lines("e", shape, [*lying([write]), (1, contiguous(shape))])
    site = (statement.attrs["site"] + 1) * GAMMA & WORD_MASK
    key = f"(u8){text.element(keys, [])}"
    lines += [
        f"const u8 bits = mixed(mixed({key} + {site}ull) + (u8)({number}) * {GAMMA}ull) >> {64 - BITS};",
        f"{text.here(write.slot)}[{at}] = ({kind})((f8)bits * {2.0**-BITS!r});",
    ]
    return element_loop(prod(shape), lines)


def order_lines(text: KernelText, statement: Statement) -> list[str]:
    """Return the lines of code of a sort or top-k: each element's thread counts the elements before it.

    The count is the element's place in the order; the thread writes the element's index there.

    Args:
        text: the kernel that is written.
        statement: the statement: it reads the elements, and writes indices.
    """
    (read,), write = statement.reads, statement.result
    *shape, extent = read.shape
    if prod(write.shape) == 0:
        return []
    layouts = [(place.offset, place.strides[:-1]) for place in (read, write)]
    (first, to), lines = element_lines("l", shape, layouts)
    kind, at = text.kind(read.slot), f"{text.here(read.slot)}[{first} + ({{}}) * {read.strides[-1]}]"
    before, two = ("w", "v") if statement.attrs["descending"] else ("v", "w")
    lines = [
        f"const i8 i = e % {extent}, l = e / {extent};",
        *lines,
        f"const {kind} v = {at.format('i')};",
        "i8 before = 0;",
        f"for (i8 k = 0; k < {extent}; k++) {{",
        f"  const {kind} w = {at.format('k')};",
        f"  before += ({before} > {two}) | (({before} != {before}) & ({two} == {two}))",
        "    | (((v == w) | ((v != v) & (w != w))) & (k < i));",
        "}",
        f"if (before < {write.shape[-1]}) {text.here(write.slot)}[{to} + before * {write.strides[-1]}] = i;",
    ]
    return element_loop(prod(read.shape), lines)


def check_lines(text: KernelText, statement: Statement) -> list[str]:
    """Return the lines that tell the status of ids out of range: of a cell's, that of the lowest rank."""
    ids, *segments = statement.reads
    size = statement.attrs["size"]
    if prod(ids.shape) == 0:
        return []
    (at,), lines = element_lines("e", ids.shape, lying([ids]))
    pointer = text.row(ids.slot, "q") if segments else text.here(ids.slot)
    rank = "start" if ids.axis.rank == 0 else "start + r"
    lines += [
        f"const i8 id = (i8){pointer}[{at}];",
        f"i8* status = (i8*)t[{STATUS_AT}];",
        f"if ((id < 0 || id >= {size}) && CLAIMED(status, {claim_of(text.setting.cell, size)}))",
        f"  MOST(status + 1, earliest({rank}, id));",
    ]
    checks = element_loop(prod(ids.shape), lines)
    if not segments:
        return checks
    return [*bounds(text, segments[0]), "for (i8 q = lower; q < upper; q++) {", *indented(checks), "}"]


_SIZE = 1 << 40  # above any size of a table
_LARGEST = 2**31 - 1


def claim_of(cell: int, size: int) -> int:
    """Return the first word of a status if a cell finds an id that is not below a size."""
    return (cell + 1) * _SIZE + size


def found_by(words: Sequence[int]) -> OutOfRangeError:
    """Return the error that the first two words of a status tell; ids are told to 32 bits.

    >>> found_by([claim_of(3, 10), (_LARGEST - 7) << 32 | (_LARGEST - 12)]).args
    (7, 12, 10, -1, 3)
    """
    (cell, size), (rank, id) = divmod(words[0], _SIZE), divmod(words[1], 1 << 32)
    return OutOfRangeError(_LARGEST - rank, _LARGEST - id, size, cell=cell - 1)


def product_lines(text: KernelText, statement: Statement) -> list[str]:
    """Return the lines of ``write = x weight``, a thread a number: for what no library multiplies.

    Shapes: ``x: [*, k]``, ``weight: [k, n]``, ``write: [*, n]``; with ids, ``weight: [size, k, n]``.
    """
    (x, weight, *ids), write = statement.reads, statement.result
    names, lines = index_lines("e", write.shape)
    k = x.shape[-1]
    *lead, column = names
    lines += [f"const i8 id = {in_range(text.element(place, []), weight.shape[0])};" for place in ids]
    at = ["id"] * len(ids) + ["k", column]
    value = f"{text.element(x, [*lead, 'k'])} * {text.element(weight, at)}"
    lines += [f"{text.kind(write.slot)} total = 0;", f"for (i8 k = 0; k < {k}; k++) total += {value};"]
    lines += [f"{text.element(write, names)} = total;"]
    return element_loop(prod(write.shape), lines)


BLOCK_SUMS = 1024  # partial sums of a block: LANES_X columns times LANES_Y


def sum_batch_lines(text: KernelText, statement: Statement) -> list[str]:
    """Return a kernel's lines that add up rows: each thread some rows of a column, then one thread these."""
    (read,), write = statement.reads, statement.result
    count = prod(write.shape)
    if not count:
        return []
    (at, to), lines = element_lines("e", write.shape, lying([read, write]))
    kind = text.kind(write.slot)
    total = total_of(kind)
    value = f"{text.row(read.slot, 'r')}[{at}]"
    return [
        f"SHARED {total} part[{BLOCK_SUMS}];",
        f"for (i8 c = BLOCK * LANES_X; c < {count}; c += BLOCKS * LANES_X) {{",
        "  const i8 e = c + LANE_X;",
        *indented(lines),
        f"  {total} total = 0;",
        f"  if (e < {count}) {{",
        "    UNROLL",
        f"    for (i8 q = LANE_Y; q < {text.rows(read.axis)}; q += LANES_Y) {{",
        f"      const i8 r = {text.numbered(read.axis, 'q')};",
        f"      {added(kind, value)}",
        "    }",
        "  }",
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
    if not prod(write.shape):
        return []
    inner = write.shape[1:]
    names, lines = index_lines("e", inner)
    lead, lead_lines = index_lines("i", ids.shape)
    table = text.element(write, ["v", *names], "r")
    value, id_ = text.element(rows, [*lead, *names], "r"), text.element(ids, lead, "r")
    v = f"const i8 v = {in_range(id_, write.shape[0])};"
    body = [*lead_lines, v, increased(text.kind(write.slot), table, value)]
    clear = f"for (i8 v = 0; v < {write.shape[0]}; v++) {table} = 0;"
    over = _over(text, axis_of(statement, [rows, ids]), prod(ids.shape), body)
    return _columns(prod(inner), [*lines, clear, *over])


def sum_outer_lines(text: KernelText, statement: Statement) -> list[str]:
    """Return a kernel's lines that add up outer products of rows, if there are ids by id."""
    (x, g, *ids), write = statement.reads, statement.result
    if not prod(write.shape):
        return []
    names, lines = index_lines("e", write.shape[-2:])
    lead, lead_lines = index_lines("i", x.shape[:-1])
    a, b = (text.element(place, [*lead, name], "r") for place, name in zip((x, g), names, strict=True))
    axis, count = axis_of(statement, [x, g]), prod(x.shape[:-1])
    to = text.element(write, [*["v"] * len(ids), *names], "r")
    if ids:
        id_ = in_range(text.element(ids[0], [], "r"), write.shape[0])
        lines += [
            f"for (i8 v = 0; v < {write.shape[0]}; v++) {to} = 0;",
            *_over(text, axis, count, [*lead_lines, f"const i8 v = {id_};", f"{to} += {a} * {b};"]),
        ]
    else:
        add = f"total += (f8){a} * {b};"
        lines += ["f8 total = 0;", *_over(text, axis, count, [*lead_lines, add])]
        lines += [f"{to} = ({text.kind(write.slot)})total;"]
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
    names, lines = index_lines("f", shape)
    part = "(i8)order[j]" if width == 1 else f"(i8)order[j] / {width}"
    element = "e" if width == 1 else f"order[j] % {width} * {grain} + e"
    return [
        "const i8 count = ints[plan];",
        "const i4 *target = ints + plan + 1, *starts = target + count, *order = starts + count + 1;",
        f"{kind}* arena = {buffer_of(kind, field_of(number, Fields.base))};",
        "for (i8 q = BLOCK * LANES_Y + LANE_Y; q < count; q += BLOCKS * LANES_Y)",
        f"  for (i8 e = LANE_X; e < {grain}; e += LANES_X) {{",
        f"    {total_of(kind)} total = 0;",
        "    UNROLL",
        "    for (i8 j = starts[q]; j < starts[q + 1]; j++) {",
        f"      const i8 f = {element};",
        *indented(lines, 3),
        f"      {added(kind, text.element(place, names, part))}",
        "    }",
        f"    arena[(i8)target[q] * {grain} + e] += ({kind})total;",
        "  }",
    ]


SUM_READERS = 32  # readers of a value whose cotangents are added up first, where they are summed in parts


def take_lines(text: KernelText, number: int, *, in_parts: bool = False) -> list[str]:
    """Return the lines that copy rows of an arena together, or sum the cotangents of shared calls.

    With `in_parts`, `partial_sum_lines` has summed parts of them before.
    """
    slot = text.routine.slots[number]
    text.here(number)
    kind, size, width = text.kind(number), text.size(number), text.setting.widths.get(number, 1)
    grain, lower = size // width, text.lower(slot.axis)
    at = f"const i4* at = ints + {field_of(number, Fields.index)}"
    lines = [f"const {kind}* arena = {buffer_of(kind, field_of(number, Fields.base))};"]
    rows = f"({lower} + r)" if width == 1 else f"(({lower} + r) * {width} + e / {grain})"
    column = "e" if width == 1 else f"e % {grain}"
    plain = [f"{at};", *element_loop(size, [f"p{number}[e] = arena[(i8)at[{rows}] * {grain} + {column}];"])]
    if slot.binding.kind == "operand":
        lines += plain
    else:
        total = [
            "f8 total = 0;",
            "UNROLL",
            f"for (i8 j = copies[0]; j < copies[1]; j += {SUM_READERS if in_parts else 1})",
            f"  total += (f8)arena[(i8)at[j] * {size} + e];",
            f"p{number}[e] = ({kind})total;",
        ]
        copies = f"const i4* copies = ints + {field_of(number, Fields.copies)} + {lower} + r;"
        sums = element_loop(size, total)
        if in_parts:
            sums = [f"if (copies[1] - copies[0] > {SUM_READERS}) {{", *indented(sums), "}"]
        summed = [copies, f"{at};", *sums]
        lines += [f"if ({field_of(number, Fields.copies)} >= 0) {{", *indented(summed)]
        lines += ["} else {", *indented(plain), "}"]
    return [f"if (apart{number}) {{", *indented(lines), "}"]


def partial_sum_lines(text: KernelText, number: int) -> list[str]:
    """Return a kernel's lines that sum cotangents of shared calls, `SUM_READERS` of a call at a time.

    A call of no more readers has its sum then. Else the sum of a part takes the place of its first cotangent,
    for `take_lines` to add up. The order depends on the call's own readers alone. Part s is of the last call
    that begins at a part up to s; as each call begins one part further than it need, some parts are empty.
    """
    slot = text.routine.slots[number]
    kind, size, axis = text.kind(number), text.size(number), slot.axis
    q, middle = text.numbered(axis, "q"), text.numbered(axis, "middle")
    return [
        *_readers_lines(text, number, axis),
        f"{kind}* arena = {buffer_of(kind, field_of(number, Fields.base))};",
        f"const i8 parts = rows ? (end - begin) / {SUM_READERS} + rows : 0;",
        "for (i8 s = BLOCK * LANES_Y + LANE_Y; s < parts; s += BLOCKS * LANES_Y) {",
        *indented(_search_lines(f"(copies[{middle}] - begin) / {SUM_READERS} + middle <= s")),
        f"  const i8 r = {q}, low = copies[r], high = copies[r + 1];",
        f"  const i8 first = low + {SUM_READERS} * (s - (low - begin) / {SUM_READERS} - q);",
        f"  const i8 last = min_i8(first + {SUM_READERS}, high);",
        "  if (first >= last) continue;",
        f"  {kind}* own_sum = {text.row(number, 'r')};",
        f"  {kind}* sum = high - low > {SUM_READERS} ? arena + (i8)at[first] * {size} : own_sum;",
        f"  for (i8 e = LANE_X; e < {size}; e += LANES_X) {{",
        "    f8 total = 0;",
        "    UNROLL",
        f"    for (i8 j = first; j < last; j++) total += (f8)arena[(i8)at[j] * {size} + e];",
        f"    sum[e] = ({kind})total;",
        "  }",
        "}",
    ]


def value_by_reader_lines(text: KernelText, number: int, place: Place) -> list[str]:
    """Return a kernel's lines that bring rows to where their readers look for them, each thread to some."""
    kind, size = stored_kind(text.kind(place.slot), text.routine), prod(place.shape)
    names, lines = index_lines("e", place.shape)
    value = text.element(place, names, "r")
    middle = text.numbered(CALL, "middle")
    return [
        *_readers_lines(text, number, CALL),
        f"{kind}* arena = {buffer_of(kind, field_of(number, Fields.base))};",
        "for (i8 j = begin + BLOCK * LANES_Y + LANE_Y; j < end; j += BLOCKS * LANES_Y) {",
        *indented(_search_lines(f"copies[{middle}] <= j")),
        f"  const i8 r = {text.numbered(CALL, 'q')};",
        "  (void)r;",
        f"  for (i8 e = LANE_X; e < {size}; e += LANES_X) {{",
        *indented(lines, 2),
        f"    arena[(i8)at[j] * {size} + e] = {f'b2_of_f4({value})' if kind == 'b2' else value};",
        "  }",
        "}",
    ]


def _readers_lines(text: KernelText, number: int, axis: Axis) -> list[str]:
    """Return the lines that say where the readers of a level's shared calls begin and end."""
    lower = text.lower(axis)
    first, last = text.numbered(axis, "0"), text.numbered(axis, "(rows - 1)")
    return [
        f"const i4 *at = ints + {field_of(number, Fields.index)};",
        f"const i4 *copies = ints + {field_of(number, Fields.copies)} + {lower};",
        f"const i8 rows = {text.rows(axis)};",
        f"const i8 begin = rows ? copies[{first}] : 0, end = rows ? copies[{last} + 1] : 0;",
    ]


def _search_lines(is_up_to: str) -> list[str]:
    """Return the lines that find `q`, the last call for which an expression of `middle` holds."""
    return [
        "i8 q = 0;",
        "for (i8 beyond = rows; beyond - q > 1;) {",
        "  const i8 middle = (q + beyond) / 2;",
        f"  if ({is_up_to}) q = middle;",
        "  else beyond = middle;",
        "}",
    ]


def value_lines(text: KernelText, number: int, place: Place, *, shared: bool = True) -> list[str]:
    """Return the lines that bring a row to the rows of an arena where its readers look for it.

    Unless `shared`, those of shared calls are left out: `value_by_reader_lines` brings them.
    """
    kind = stored_kind(text.kind(place.slot), text.routine)
    lower = text.lower(place.axis if place.axis.rank else CALL)
    copies, copies_name = field_of(number, Fields.copies), f"copies{number}"
    text.once(f"const i4* {copies_name} = {copies} < 0 ? 0 : ints + {copies} + {lower};")
    text.once(
        f"const i4* to{number} = ints + {field_of(number, Fields.index)} + ({copies_name} ? 0 : {lower});"
    )
    text.once(f"{kind}* arena{number} = {buffer_of(kind, field_of(number, Fields.base))};")
    stored = [
        "UNROLL",  # a word has hundreds of readers: none waits for what was stored for another
        "for (i8 j = first; j < last; j++) {",
        f"  {kind}* d = arena{number} + (i8)to{number}[j] * {prod(place.shape)};",
    ]
    begin = f"{copies_name} ? {copies_name}[r] : r"
    end = f"{copies_name} ? {f'{copies_name}[r + 1]' if shared else '0'} : r + 1"
    first = f"const i8 first = {begin}, last = {end};"
    return [first, *_brought(text, place, stored=stored, kind=kind)]


def cotangent_lines(text: KernelText, number: int, place: Place, width: int) -> list[str]:
    """Return the lines that store a row of cotangents, or add it, where rows follow each other."""
    size, kind = prod(place.shape), text.kind(place.slot)
    first, stores = field_of(number, Fields.first), f"stores{number}"
    begin = f"{first} * {size // width} + {text.lower(place.axis)} * {size}"
    text.once(f"const b1 {stores} = {field_of(number, Fields.stores)} != 0;")
    base = buffer_of(kind, field_of(number, Fields.base))
    text.once(f"{kind}* arena{number} = {first} < 0 ? 0 : {base} + {begin};")
    lines = _brought(text, place, stores, grain=size // width)
    return [f"if (arena{number}) {{", f"  {kind}* d = arena{number} + r * {size};", *indented(lines), "}"]


def store_lines(text: KernelText, number: int) -> list[str]:
    """Return the lines that add a row of a `store` slot to the arena, where rows follow each other."""
    slot = text.routine.slots[number]
    place = Place(number, slot.axis, slot.type.size, 0, slot.type.shape, contiguous(slot.type.shape))
    lines = cotangent_lines(text, number, place, text.setting.widths.get(number, 1))
    return [f"if (!{field_of(number, Fields.stores)}) {{", *indented(lines), "}"]


def gradient_lines(text: KernelText, number: int, place: Place) -> list[str]:
    """Return the lines that store the gradient of a parameter, or add it to what is there."""
    kind, stores = text.kind(place.slot), f"stores{number}"
    text.once(f"const b1 {stores} = {field_of(number, Fields.stores)} != 0;")
    begin = f"{kind}* d = {buffer_of(kind, field_of(number, Fields.base))};"
    return [begin, *_brought(text, place, stores, row=0)]


def ranked_lines(text: KernelText, number: int, place: Place, axis: Axis) -> list[str]:
    """Return the lines that bring a row to its place by rank."""
    kind = text.kind(place.slot)
    begin = (
        f"{buffer_of(kind, field_of(number, Fields.base))} + ({text.lower(axis)} + r) * {prod(place.shape)}"
    )
    return [f"{kind}* d = {begin};", *_brought(text, place)]


def _brought(
    text: KernelText,
    place: Place,
    stores: str = "",  # an expression: else the place is added to what is there
    *,
    grain: int = 0,  # what divides the numbers before a row; 0 where rows follow each other
    row: int | None = None,  # from one row to the next, where that is not its size
    stored: Sequence[str] = (),  # see `visit`
    kind: str = "",  # of the numbers at the pointer, where they are rounded
) -> list[str]:
    """Return the lines that store a place at pointer ``d``, without gaps."""
    size, shape = prod(place.shape), place.shape
    number = text.rows_at("d", kind or text.kind(place.slot), grain or size)
    is_rounded = text.kind(number) == "b2"
    target = Place(number, place.axis, size if row is None else row, 0, shape, contiguous(shape))

    def compute(x: Sequence[str], mark: str) -> tuple[list[str], list[str]]:
        if is_rounded:
            return [], [f"b2_of_f4({x[0]})"]
        return [], [f"({stores} ? {x[0]} : {x[1]} + {x[0]})" if stores else x[0]]

    reads = [place, target] if stores else [place]
    return visit(text, shape, reads, compute, [target], stores, stored)
