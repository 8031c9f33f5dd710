"""Encoders: a routine as instructions, which are calls of compiled functions.

An encoder chooses the functions of a move, statement or result, and their statics: integers that describe
places. The functions and `walker` read from the launch what depends on the batch. Only fused loops are
compiled for a routine; all other functions are compiled once a machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod

import numpy as np

from foldbatch.engines.llvm import (
    grouped_products,
    line_texts,
    list_products,
    move_texts,
    products,
    row_texts,
    sum_texts,
)
from foldbatch.engines.llvm.coder import (
    BY_RANK,
    COPIES_OF,
    ENTRIES,
    ERRORS,
    FIELDS_OF,
    FROM_BASE,
    NO_CUT,
    TARGET,
    Coder,
    KernelCode,
    by_columns,
    by_sweeps,
)
from foldbatch.engines.llvm.loop_texts import KINDS, MEMORY, computed, spell
from foldbatch.engines.nests import Product, Stretch, by_rows, parts, products_of
from foldbatch.loops.compiling import Native, native
from foldbatch.static.bodies import line_of
from foldbatch.static.op import CALL, OPS, UNBATCHED, Axis, Op
from foldbatch.static.ops.lists import OF_LISTS
from foldbatch.static.ops.random import GAMMA, WORD_MASK
from foldbatch.static.ops.rows import REPEATED
from foldbatch.static.places import Place, aligned, contiguous, merged
from foldbatch.static.statements import Binding, Result, Routine, Slot, Statement, axis_of

# The functions of `_visit` go through each element of some places of one shape: elementwise ops, copies,
# zeros. Their loops are rows and three axes. Their statics `s` are: whether all rows are one run of the
# innermost loop; the extents; then for each place its strides along rows and axes.
VISIT_AXES = 3

OF_BYTES = {"bool": "u1", "int32": "i4", "float32": "i4", "int64": "i8", "float64": "i8"}  # to be copied


def elementwise(op: Op, operands: Sequence[str], dtype: str) -> str:
    """Return the text of an elementwise op on operands of these dtypes; attributes come after the strides."""
    kinds = [MEMORY[operand] for operand in operands]
    kind = KINDS[dtype]
    lines, value = computed(op, dtype, [f"t{i}" for i in range(len(operands))], "")
    at = 1 + VISIT_AXES + (len(kinds) + 1) * (VISIT_AXES + 1)
    before = [f"{name} = {kind}(as_f8(s[{at + i}]))" for i, name in enumerate(numbers_of(op))]
    truths = [operand == "bool" for operand in operands]
    return _visit(kinds, MEMORY[dtype], f"u1({value})" if dtype == "bool" else value, truths, before, lines)


def numbers_of(op: Op) -> list[str]:
    """Return the attributes that an op's body names."""
    return ["exponent"] if "exponent" in op.body else []


def copy(dtype: str) -> str:
    """Return the text of a copy."""
    kind = OF_BYTES[dtype]
    return _visit([kind], kind, "t0", [False])


def zero(dtype: str) -> str:
    """Return the text that writes zeros."""
    kind = OF_BYTES[dtype]
    return _visit([], kind, f"{kind}(0)", [])


def _visit(
    kinds: Sequence[str],  # of the operands' numbers
    result_kind: str,  # of the result's numbers
    value: str,  # the expression of a result of t0, t1
    truths: Sequence[bool],  # whether operands are bools, which are bytes in memory
    before: Sequence[str] = (),  # lines that come first
    inside: Sequence[str] = (),  # lines that come before the value
) -> str:
    """Return the text of a function on elements, which reads some operands and writes one place."""
    places = len(kinds) + 1
    names = [f"x{i}" for i in range(len(kinds))] + ["y"]
    at = [1 + VISIT_AXES + (VISIT_AXES + 1) * i for i in range(places)]  # the offset of a place's strides
    lines = [
        f"# {' '.join([*kinds, result_kind])}",
        f"def loop(n, {', '.join(names)}, s):",
        *(f"    {line}" for line in before),
        "    rows, inner = n, u8(s[3])",
        "    if s[0] != 0:",
        "        rows, inner = u8(1), n * inner",
        *(f"    q{i} = u8(s[{at[i] + VISIT_AXES}])" for i in range(places)),
        "    for r in range(rows):",
        "        for i in range(u8(s[1])):",
        "            for j in range(u8(s[2])):",
    ]
    for i, name in enumerate(names):
        where = " + ".join(f"{turn} * u8(s[{at[i] + k}])" for k, turn in enumerate("rij"))
        lines.append(f"                b{i} = moved({name}, {where})")
    loads = [f"t{i} = b{i}[k * q{i}]{' != 0' * truth}" for i, truth in enumerate(truths)]
    stored = f"b{places - 1}[k * q{places - 1}] = {value}"
    element_lines = [f"{' ' * 20}{line}" for line in (*loads, *inside, stored)]
    return "\n".join([*lines, f"{' ' * 16}for k in range(inner):", *element_lines, ""])


def visit(coder: Coder, text: str, places: Sequence[Place], axis: Axis, extra: Sequence[int] = ()) -> None:
    """Append the instructions of a function on elements of places of one shape; the last place is written."""
    for part, one_run in visited(places):
        strides = [
            s for p, place in enumerate(places) for s in (0 if one_run else place.row, *part.strides[p])
        ]
        pointers = [coder.at(place, part.offsets[p]) for p, place in enumerate(places)]
        coder.add(native(text), axis, pointers, [int(one_run), *part.extents, *strides, *extra])


def visited(places: Sequence[Place]) -> list[tuple[Stretch, bool]]:
    """Return the parts of places for calls of a function on elements.

    With each part comes whether all rows are one run of the innermost loop.
    """
    rows = [place.row for place in places]
    axes = merged(places[0].shape, [place.strides for place in places])
    one_run = by_rows(axes, rows)
    if one_run and not axes:
        axes = [(1, tuple(rows))]
    return [(part, one_run) for part in parts(axes, VISIT_AXES, len(places))]


def copied(coder: Coder, read: Place, write: Place, axis: Axis) -> None:
    """Append a copy of a place to another one."""
    visit(coder, copy(coder.dtype(write)), [read, write], axis)


def copy_to(coder: Coder, place: Place, axis: Axis, cell: int) -> None:
    """Append a copy of a place to contiguous rows that begin at a cell."""
    size = prod(place.shape)
    target = Place(-1, axis, size, 0, place.shape, contiguous(place.shape))
    dtype = coder.dtype(place)
    item = np.dtype(dtype).itemsize
    for part, one_run in visited([place, target]):
        rows = [0, 0] if one_run else [place.row, size]
        statics = [int(one_run), *part.extents, rows[0], *part.strides[0], rows[1], *part.strides[1]]
        pointers = [coder.at(place, part.offsets[0]), (cell, part.offsets[1] * item)]
        coder.add(native(copy(dtype)), axis, pointers, statics)


def zeroed(coder: Coder, write: Place) -> None:
    """Append zeros to a place."""
    visit(coder, zero(coder.dtype(write)), [write], write.axis)


def encode_op(coder: Coder, statement: Statement) -> None:
    """Append the instructions of an op's statement, by its encoder, or by the kind of its body."""
    if statement.op in ENCODERS:
        ENCODERS[statement.op](coder, statement)
    elif OPS[statement.op].elementwise:
        _elementwise(coder, statement, OPS[statement.op])
    elif OPS[statement.op].sequence:
        _segments(coder, statement)
    else:
        _along(coder, statement)


def _elementwise(coder: Coder, statement: Statement, op: Op) -> None:
    """Append an elementwise op; operands are broadcast to the result's shape."""
    write = statement.result
    reads = [aligned(place, write.shape) for place in statement.reads]
    operands = [coder.dtype(place) for place in reads]
    text = elementwise(op, operands, coder.dtype(write))
    numbers = [statement.attrs[name] for name in numbers_of(op)]
    extra = np.array(numbers, np.float64).view(np.int64).tolist()
    visit(coder, text, [*reads, write], axis_of(statement, reads), extra)


def _copy(coder: Coder, statement: Statement) -> None:
    """Append a copy of an operand, broadcast to the result's shape."""
    (read,), write = statement.reads, statement.result
    copied(coder, aligned(read, write.shape), write, axis_of(statement, [read]))


def _sum(coder: Coder, statement: Statement) -> None:
    """Append a sum over axes; the innermost loop is over the axis whose elements are nearest in memory."""
    (read,) = statement.reads
    write = statement.result
    axes = statement.attrs["axes"]
    summed = merged([read.shape[i] for i in axes], [[read.strides[i] for i in axes]])
    kept_strides = [stride for i, stride in enumerate(read.strides) if i not in axes]
    kept = merged(write.shape, [kept_strides, write.strides])
    column: tuple[int, tuple[int, ...]] = (1, (0, 0))
    if kept and (not summed or kept[-1][1][0] <= summed[-1][1][0]):
        column = kept.pop()
    for number, along in enumerate(parts(summed, 2, 1)):
        _add_up(coder, statement, kept, column, along, number)


def _sum_batch(coder: Coder, statement: Statement) -> None:
    """Append a sum over all rows."""
    (read,), write = statement.reads, statement.result
    kept = merged(write.shape, [read.strides, write.strides])
    column = kept.pop() if kept else (1, (0, 0))
    _add_up(coder, statement, kept, column, None)


def _add_up(
    coder: Coder,
    statement: Statement,  # of the sum
    # the axes that are not summed: extents, and strides of the operand and the sums
    kept: Sequence[tuple[int, tuple[int, ...]]],
    column: tuple[int, tuple[int, ...]],  # the innermost of these axes
    along: Stretch | None,  # the axes that are summed, or a part of them; None for a sum of all rows
    number: int = 0,  # of the part; parts after the first one add to the sums so far
) -> None:
    """Append the instructions that sum some axes, or all rows."""
    (read,), write = statement.reads, statement.result
    dtype = coder.dtype(write)
    text = sum_texts.sums(MEMORY[dtype], plus="|" if dtype == "bool" else "+")
    rows = sum_texts.ROWS_SUMMED if along is None else sum_texts.ROWS_KEPT
    along = along or Stretch((0,), (1, 0), ((0, 0),))
    for part in parts(kept, sum_texts.KEPT_AXES, 2):
        statics = [rows, int(number > 0), *part.extents, column[0], *along.extents]
        statics += [read.row, *part.strides[0], column[1][0], *along.strides[0]]
        statics += [write.row, *part.strides[1], column[1][1]]
        pointers = [coder.at(read, part.offsets[0] + along.offsets[0]), coder.at(write, part.offsets[1])]
        coder.add(native(text), axis_of(statement, [read]), pointers, statics)


def _along(coder: Coder, statement: Statement) -> None:
    """Append an op along an axis, such as softmax or argmax."""
    body = OPS[statement.op].body
    line = line_of(body, statement)
    places = line.places.values()
    text = line_texts.along_lines(body, {name: MEMORY[coder.dtype(at)] for name, at in line.places.items()})
    axes = merged(next(iter(places)).shape, [place.strides for place in places])
    for part in parts(axes, line_texts.LINE_AXES, len(places)):
        line_strides = zip(places, part.strides, line.steps.values(), strict=True)
        strides = [s for place, along, step in line_strides for s in (place.row, *along, step)]
        pointers = [coder.at(place, offset) for place, offset in zip(places, part.offsets, strict=True)]
        statics = [*part.extents, line.length, *strides]
        coder.add(native(text), axis_of(statement, [*places]), pointers, statics)


def _by_ids(coder: Coder, statement: Statement, text: str, table: Place, ids: Place, rows: Place) -> None:
    """Append a function on the rows of a table that ids choose, and on rows of values, one for each id."""
    cut = len(ids.shape)
    lead = merged(ids.shape, [ids.strides, rows.strides[:cut]])
    inner = merged(table.shape[1:], [table.strides[1:], rows.strides[cut:]])
    for outside in parts(lead, 2, 2):
        for inside in parts(inner, 2, 2):
            statics = [*outside.extents, *inside.extents, table.shape[0], ids.row, *outside.strides[0]]
            statics += [table.strides[0], *inside.strides[0]]
            statics += [rows.row, *outside.strides[1], *inside.strides[1]]
            pointers = [
                coder.at(ids, outside.offsets[0]),
                coder.at(table, inside.offsets[0]),
                coder.at(rows, outside.offsets[1] + inside.offsets[1]),
            ]
            coder.add(native(text), axis_of(statement, [ids, rows]), pointers, statics)


def _gather(coder: Coder, statement: Statement) -> None:
    """Append a look-up of a table's rows."""
    (table, ids), write = statement.reads, statement.result
    kinds = {"i": KINDS[coder.dtype(ids)], "k": OF_BYTES[coder.dtype(write)]}
    _by_ids(coder, statement, row_texts.GATHER.format(**kinds), table, ids, write)


def _sum_rows(coder: Coder, statement: Statement) -> None:
    """Append the derivative of a look-up: rows are added up by id."""
    (rows, ids), write = statement.reads, statement.result
    zeroed(coder, write)
    kinds = {"i": KINDS[coder.dtype(ids)], "k": MEMORY[coder.dtype(write)]}
    _by_ids(coder, statement, row_texts.SUM_ROWS.format(**kinds), write, ids, rows)


def _segments(coder: Coder, statement: Statement) -> None:
    """Append an op along the elements of sequences."""
    read, segments = statement.reads
    write = statement.result
    body = OPS[statement.op].body
    dtype = coder.dtype(write)
    kind = OF_BYTES[dtype] if body == REPEATED else MEMORY[dtype]
    read_as = kind if body == REPEATED else MEMORY[coder.dtype(read)]
    plus = "|" if dtype == "bool" else "+"  # as NumPy adds them
    text = line_texts.along_segments(body, read_as, kind, plus)
    places = [read, write]
    axes = merged(read.shape, [place.strides for place in places])
    for part in parts(axes, 2, 2):
        strides = [s for place, along in zip(places, part.strides, strict=True) for s in (place.row, *along)]
        pointers = [coder.at(place, offset) for place, offset in zip(places, part.offsets, strict=True)]
        coder.add(native(text), CALL, [coder.at(segments), *pointers], [*part.extents, *strides])


def _random(coder: Coder, statement: Statement) -> None:
    """Append random numbers: each follows from its row's key, its site, and its place in the row."""
    (keys,), write = statement.reads, statement.result
    site = int(np.uint64((statement.attrs["site"] + 1) * GAMMA & WORD_MASK).view(np.int64))
    text = row_texts.RANDOM.format(k=KINDS[coder.dtype(write)])
    for part in parts(merged(write.shape, [write.strides, contiguous(write.shape)]), 1, 2):
        statics = [site, *part.extents, part.offsets[1], keys.row, write.row, *part.strides[0]]
        pointers = [coder.at(keys), coder.at(write, part.offsets[0])]
        coder.add(native(text), axis_of(statement, [keys, write]), pointers, statics)


def _order(coder: Coder, statement: Statement) -> None:
    """Append the instructions of a sort or a top-k: they write the indices of the elements, in order.

    Args:
        coder: the code that is written.
        statement: the statement, which reads lines of elements and writes as many indices as it has room for.
    """
    (read,), write = statement.reads, statement.result
    side_by_side = read.strides[-1] == 1
    before = row_texts.BEFORE[statement.attrs["descending"]]
    words = {"x": KINDS[coder.dtype(read)], "before": f"({before})", "p": "u8(1)" if side_by_side else "p"}
    text = native(row_texts.ORDER.format(**words))
    for part in parts(merged(read.shape[:-1], [read.strides[:-1], write.strides[:-1]]), 2, 2):
        statics = [*part.extents, read.shape[-1], write.shape[-1]]
        for place, along in zip((read, write), part.strides, strict=True):
            statics += [place.row, *along, place.strides[-1]]
        pointers = [coder.at(read, part.offsets[0]), coder.at(write, part.offsets[1])]
        coder.add(text, axis_of(statement, [read, write]), pointers, statics)


def _check_range(coder: Coder, statement: Statement) -> None:
    """Append a check of ids; an error names the row, or, for ids of elements, the call of these."""
    ids, *segments = statement.reads
    text = (row_texts.CHECK_ELEMENTS if segments else row_texts.CHECK).format(i=KINDS[coder.dtype(ids)])
    axis = CALL if segments else axis_of(statement, [ids])
    for part in parts(merged(ids.shape, [ids.strides]), 3, 1):
        pointers = [coder.at(ids, part.offsets[0]), *map(coder.at, segments), (coder.cell(0, ERRORS), 0)]
        statics = [statement.attrs["size"], *part.extents, ids.row, *part.strides[0]]
        coder.add(native(text), axis, pointers, statics)


def _product(coder: Coder, product: Product) -> Native:
    """Return the function of a product: in tiles if the processor has any, else in plain loops."""
    kind = KINDS[coder.dtype(product.c.place)]
    cut = products.cut_of(kind, coder.routine.precision)
    by_rows = cut is not None and product.by == "k" and product.a.row == product.b.column == 1
    return products.compiled(products.sum_outer_text if by_rows else products.native_text, kind, cut)


BY = {"count": 1, "m": 2, "k": 3}  # the extent that the number of rows multiplies
N = 3  # the place of the number of columns in a product's statics


def _products(coder: Coder, statement: Statement) -> None:
    """Append the matrix products of a statement; they are cut into columns."""
    write = statement.result
    if statement.op == "sum_outer" and prod(statement.reads[0].shape[:-1]) == 0:
        zeroed(coder, write)
        return
    size = np.dtype(coder.dtype(write)).itemsize
    for p in products_of(statement):
        adds = 0 if p.by != "k" else 2 if p.adds else 1
        strides = [p.a.row, p.a.column, p.b.row, p.b.column, p.c.row, p.a.step, p.b.step, p.c.step]
        statics = [p.count, p.m, p.k, p.n, BY[p.by], *strides, adds]
        pointers = [coder.at(factor.place, factor.offset) for factor in (p.a, p.b, p.c)]
        cut = NO_CUT
        if p.by != "count":
            cut = by_columns(pointers, statics, N, {1: p.b.column * size, 2: size}, p.count * p.m * p.k)
        coder.add(_product(coder, p), p.axis, pointers, statics, cut)


def _linear_by(coder: Coder, statement: Statement) -> None:
    """Append products whose matrix an id chooses for each row."""
    (x, table, ids), write = statement.reads, statement.result
    grouped_products.append(coder, grouped_products.linear_text, (x, write), table, ids)


def _sum_outer_by(coder: Coder, statement: Statement) -> None:
    """Append the gradient of such a table of matrices: outer products are added up by id."""
    (x, g, ids), write = statement.reads, statement.result
    zeroed(coder, write)
    grouped_products.append(coder, grouped_products.sums_text, (x, g), write, ids)


ENCODERS: dict[str, Callable[[Coder, Statement], None]] = {
    "copy": _copy,
    "zero": lambda coder, statement: zeroed(coder, statement.result),
    "sum": _sum,
    "sum_batch": _sum_batch,
    "gather": _gather,
    "sum_rows": _sum_rows,
    "random": _random,
    "order": _order,
    "check_range": _check_range,
    "linear_by": _linear_by,
    "sum_outer_by": _sum_outer_by,
    **dict.fromkeys(("linear", "sum_outer", "matmul"), _products),
    **dict.fromkeys(OF_LISTS, list_products.append),
}


DENSE = Stretch((0, 0), (0, 0, 0), ((0, 0, 0), (0, 0, 0)))  # stands for a place of contiguous rows
GIVE_KINDS = {"value": move_texts.VALUE, "cotangent": move_texts.COTANGENT, "store": move_texts.STORE}


def _no_instructions(coder: Coder) -> None:
    """Append no instruction."""


def encode(
    routine: Routine,
    first: Callable[[Coder], None] = _no_instructions,
    last: Callable[[Coder], None] = _no_instructions,
) -> KernelCode:
    """Return a routine as instructions of the kernel walker, and compile the functions that it calls.

    Args:
        routine: the routine.
        first: appends instructions that each level runs before those of the routine.
        last: appends instructions that each level runs after them.
    """
    coder = Coder(routine)
    first(coder)
    by_index = list_products.read_by_index(routine)
    for i, slot in enumerate(routine.slots):
        if slot.binding.kind in ("operand", "cotangent") and i not in by_index:
            _take(coder, i, slot)
    for statement in routine.statements:
        encode_statement(coder, statement)
    for i, slot in enumerate(routine.slots):
        if slot.binding.kind == "store":
            _give(coder, i, slot.binding, _slot_place(i, slot))
    for i, result in enumerate(routine.results, len(routine.slots)):
        _bring(coder, i, result)
    last(coder)
    return coder.finish()


def encode_statement(coder: Coder, statement: Statement) -> None:
    """Append the instructions of a statement: a fused loop, or an op."""
    if statement.loop is not None:
        pointers = [(coder.slot(slot), 0) for slot in statement.slots]
        coder.add(native(spell(statement.loop)), statement.axis, pointers, cut=by_sweeps(coder, statement))
    else:
        encode_op(coder, statement)


def _slot_place(number: int, slot: Slot) -> Place:
    """Return the place of all of a slot."""
    shape = slot.type.shape
    return Place(number, slot.axis, slot.type.size, 0, shape, contiguous(shape))


def _take(coder: Coder, number: int, slot: Slot) -> None:
    """Append the move that gathers rows of an operand, or sums cotangents of an output, by the index."""
    function = native(move_texts.take(MEMORY[slot.type.dtype]))
    arena, fields = coder.cell(number, FROM_BASE), coder.cell(number, FIELDS_OF)
    entries = coder.cell(number, ENTRIES, slot.axis)
    copies = coder.cell(number, COPIES_OF, slot.axis)
    pointers = [(cell, 0) for cell in (arena, entries, copies, fields, coder.slot(number))]
    coder.add(function, slot.axis, pointers, [slot.type.size])


def _give(coder: Coder, number: int, binding: Binding, place: Place) -> None:
    """Append the move that stores a place in an arena, or adds it to cotangents there."""
    dtype = coder.dtype(place)
    axis = place.axis if place.axis.rank else CALL
    function = native(move_texts.GIVE.format(k=MEMORY[dtype]))
    size = prod(place.shape)
    row_bytes = size * np.dtype(dtype).itemsize
    moved = [
        coder.cell(number, TARGET, axis, row_bytes),
        coder.cell(number, ENTRIES, axis),
        coder.cell(number, COPIES_OF, axis),
        coder.cell(number, FIELDS_OF),
    ]
    dense = place.strides == contiguous(place.shape)
    for part in [DENSE] if dense else _first_apart(place):
        values = coder.at(place, part.offsets[0])
        statics = [GIVE_KINDS[binding.kind], size, int(dense), part.offsets[1], *part.extents]
        statics += [place.row, *part.strides[0], *part.strides[1]]
        coder.add(function, axis, [values, *((cell, 0) for cell in moved)], statics)


def _first_apart(place: Place) -> Iterable[Stretch]:
    """Return a place in parts of three axes, beside a contiguous array.

    The first axis of each part is that of the place's shape, as it may go through rows of the arena.
    """
    order = contiguous(place.shape)
    for part in parts(merged(place.shape[1:], [place.strides[1:], order[1:]]), move_texts.GIVE_AXES - 1, 2):
        strides = (place.strides[0], *part.strides[0]), (order[0], *part.strides[1])
        yield Stretch(part.offsets, (place.shape[0], *part.extents), strides)


def _bring(coder: Coder, number: int, result: Result) -> None:
    """Append the move of a result to its binding: an arena, a parameter's gradient, or rows by rank."""
    binding, place = result
    dtype = coder.dtype(place)
    match binding.kind:
        case "value" | "cotangent":
            _give(coder, number, binding, place)
        case "gradient":
            target = coder.cell(number, FROM_BASE), coder.cell(number, FIELDS_OF)
            function = native(move_texts.GRADIENT.format(k=MEMORY[dtype]))
            size = np.dtype(dtype).itemsize
            for part in parts(merged(place.shape, [place.strides, contiguous(place.shape)]), 3, 2):
                pointers = [
                    coder.at(place, part.offsets[0]),
                    (target[0], part.offsets[1] * size),
                    (target[1], 0),
                ]
                statics = [*part.extents, *part.strides[0], *part.strides[1], place.slot in coder.gradients]
                coder.add(function, UNBATCHED, pointers, statics)
        case _:
            axis = place.axis if place.axis.rank else CALL
            size = prod(place.shape)
            target_cell = coder.cell(number, BY_RANK, axis, size * np.dtype(dtype).itemsize)
            copy_to(coder, place, axis, target_cell)
