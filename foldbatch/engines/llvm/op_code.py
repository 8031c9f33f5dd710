"""Which compiled function does an op, and the whole numbers that it is told of places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from foldbatch.engines.llvm import grouped_products, line_texts, products, row_texts, sum_texts
from foldbatch.engines.llvm.coder import ERRORS, Coder, by_columns
from foldbatch.engines.llvm.compiling import Native, native
from foldbatch.engines.llvm.loop_texts import KINDS, MEMORY
from foldbatch.engines.llvm.visits import OF_BYTES, copied, elementwise, numbers_of, visit, zeroed
from foldbatch.engines.nests import Stretch, leading, parts
from foldbatch.static.bodies import line_of
from foldbatch.static.op import CALL, OPS, Op
from foldbatch.static.ops.random import GAMMA, WORD
from foldbatch.static.ops.rows import REPEATED
from foldbatch.static.places import Place, aligned, contiguous, merged
from foldbatch.static.routines import ON_SEQUENCES
from foldbatch.static.statements import Statement, axis_of


def encode_op(coder: Coder, statement: Statement) -> None:
    if statement.op in ENCODERS:
        ENCODERS[statement.op](coder, statement)
    elif OPS[statement.op].elementwise:
        _elementwise(coder, statement, OPS[statement.op])
    elif statement.op in ON_SEQUENCES:
        _segments(coder, statement)
    else:
        _along(coder, statement)


def _elementwise(coder: Coder, statement: Statement, op: Op) -> None:
    write = statement.result
    reads = [aligned(place, write.shape) for place in statement.reads]
    operands = [coder.dtype(place) for place in reads]
    text = elementwise(op, operands, coder.dtype(write))
    numbers = [statement.attrs[name] for name in numbers_of(op)]
    more = np.array(numbers, np.float64).view(np.int64).tolist()
    visit(coder, text, [*reads, write], axis_of(statement, reads), more)


def _copy(coder: Coder, statement: Statement) -> None:
    (read,), write = statement.reads, statement.result
    copied(coder, aligned(read, write.shape), write, axis_of(statement, [read]))


def _sum(coder: Coder, statement: Statement) -> None:
    (read,), write, axes = statement.reads, statement.result, statement.attrs["axes"]
    summed = merged([read.shape[i] for i in axes], [[read.strides[i] for i in axes]])
    rest = [stride for i, stride in enumerate(read.strides) if i not in axes]
    kept = merged(write.shape, [rest, write.strides])
    column: tuple[int, tuple[int, ...]] = (1, (0, 0))
    if kept and (not summed or kept[-1][1][0] <= summed[-1][1][0]):
        column = kept.pop()
    for number, along in enumerate(parts(summed, 2, 1)):
        _add_up(coder, statement, kept, column, along, number)


def _sum_batch(coder: Coder, statement: Statement) -> None:
    (read,), write = statement.reads, statement.result
    kept = merged(write.shape, [read.strides, write.strides])
    column = kept.pop() if kept else (1, (0, 0))
    _add_up(coder, statement, kept, column, None)


def _add_up(
    coder: Coder,  # the code
    statement: Statement,  # what is done
    # the axes that are not summed: extents, and strides of the operand and the sums
    kept: Sequence[tuple[int, tuple[int, ...]]],
    column: tuple[int, tuple[int, ...]],  # the innermost of them
    along: Stretch | None,  # the axes that are summed, or a part of them; None where all rows are
    number: int = 0,  # of the part; those after the first one add to what is there
) -> None:
    (read,), write = statement.reads, statement.result
    dtype = coder.dtype(write)
    text = sum_texts.sums(MEMORY[dtype], plus="|" if dtype == "bool" else "+")
    rows = sum_texts.ROWS_SUMMED if along is None else sum_texts.ROWS_KEPT
    along = along or Stretch((0,), (1, 0), ((0, 0),))
    for part in parts(kept, sum_texts.KEPT, 2):
        statics = [rows, int(number > 0), *part.extents, column[0], *along.extents]
        statics += [read.row, *part.strides[0], column[1][0], *along.strides[0]]
        statics += [write.row, *part.strides[1], column[1][1]]
        pointers = [coder.at(read, part.offsets[0] + along.offsets[0]), coder.at(write, part.offsets[1])]
        coder.add(native(text), axis_of(statement, [read]), pointers, statics)


def _along(coder: Coder, statement: Statement) -> None:
    body = OPS[statement.op].body
    line = line_of(body, statement)
    places = line.places.values()
    text = line_texts.along_lines(body, {name: MEMORY[coder.dtype(at)] for name, at in line.places.items()})
    axes = merged(next(iter(places)).shape, [place.strides for place in places])
    for part in parts(axes, line_texts.AXES, len(places)):
        told = zip(places, part.strides, line.steps.values(), strict=True)
        strides = [s for place, along, step in told for s in (place.row, *along, step)]
        pointers = [coder.at(place, offset) for place, offset in zip(places, part.offsets, strict=True)]
        statics = [*part.extents, line.length, *strides]
        coder.add(native(text), axis_of(statement, [*places]), pointers, statics)


def _by_ids(coder: Coder, statement: Statement, text: str, table: Place, ids: Place, rows: Place) -> None:
    """Append a function between rows of a table and rows that ids tell."""
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
    (table, ids), write = statement.reads, statement.result
    kinds = {"i": KINDS[coder.dtype(ids)], "k": OF_BYTES[coder.dtype(write)]}
    _by_ids(coder, statement, row_texts.GATHER.format(**kinds), table, ids, write)


def _sum_rows(coder: Coder, statement: Statement) -> None:
    (rows, ids), write = statement.reads, statement.result
    zeroed(coder, write)
    kinds = {"i": KINDS[coder.dtype(ids)], "k": MEMORY[coder.dtype(write)]}
    _by_ids(coder, statement, row_texts.SUM_ROWS.format(**kinds), write, ids, rows)


def _segments(coder: Coder, statement: Statement) -> None:
    read, segments = statement.reads
    write, body = statement.result, OPS[statement.op].body
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
    (keys,), write = statement.reads, statement.result
    site = int(np.uint64((statement.attrs["site"] + 1) * GAMMA & WORD).view(np.int64))
    text = row_texts.RANDOM.format(k=KINDS[coder.dtype(write)])
    for part in parts(merged(write.shape, [write.strides, contiguous(write.shape)]), 1, 2):
        statics = [site, *part.extents, part.offsets[1], keys.row, write.row, *part.strides[0]]
        pointers = [coder.at(keys), coder.at(write, part.offsets[0])]
        coder.add(native(text), axis_of(statement, [keys, write]), pointers, statics)


def _order(coder: Coder, statement: Statement) -> None:
    (read,), write = statement.reads, statement.result
    side_by_side, before = read.strides[-1] == 1, row_texts.BEFORE[statement.attrs["descending"]]
    words = {"x": KINDS[coder.dtype(read)], "before": f"({before})", "p": "u8(1)" if side_by_side else "p"}
    text = native(row_texts.ORDER.format(**words))
    for part in parts(merged(read.shape[:-1], [read.strides[:-1], write.strides[:-1]]), 2, 2):
        statics = [*part.extents, read.shape[-1], write.shape[-1]]
        for place, along in zip((read, write), part.strides, strict=True):
            statics += [place.row, *along, place.strides[-1]]
        pointers = [coder.at(read, part.offsets[0]), coder.at(write, part.offsets[1])]
        coder.add(text, axis_of(statement, [read, write]), pointers, statics)


def _check_range(coder: Coder, statement: Statement) -> None:
    ids, *segments = statement.reads
    text = (row_texts.CHECK_ELEMENTS if segments else row_texts.CHECK).format(i=KINDS[coder.dtype(ids)])
    axis = CALL if segments else axis_of(statement, [ids])
    for part in parts(merged(ids.shape, [ids.strides]), 3, 1):
        pointers = [coder.at(ids, part.offsets[0]), *map(coder.at, segments), (coder.cell(0, ERRORS), 0)]
        statics = [statement.attrs["size"], *part.extents, ids.row, *part.strides[0]]
        coder.add(native(text), axis, pointers, statics)


def _product(coder: Coder, place: Place) -> Native:
    """Return the function of products: in tiles where the processor is known, else in plain loops."""
    kind = KINDS[coder.dtype(place)]
    return products.compiled(products.native_text, kind, products.cut_of(kind, coder.routine.precision))


OUTER, M, K = 1, 2, 3  # what the number of rows multiplies
N = 3  # which of a product's whole numbers are its columns


def _linear(coder: Coder, statement: Statement) -> None:
    (x, weight), write = statement.reads, statement.result
    (k, n), function = weight.shape, _product(coder, write)
    axes, by_row = leading(x, write)
    for part in parts(axes, 1, 2):
        (extent,), ((x_step,), (y_step,)) = part.extents, part.strides
        extents = [1, extent, k, n, M] if by_row else [extent, 1, k, n, M]
        x_row, y_row = (x_step, y_step) if by_row else (x.row, write.row)
        apart = [0, 0, 0] if by_row else [x_step, 0, y_step]
        statics = [*extents, x_row, x.strides[-1], *weight.strides, y_row, *apart, 0]
        pointers = [coder.at(x, part.offsets[0]), coder.at(weight), coder.at(write, part.offsets[1])]
        size = np.dtype(coder.dtype(write)).itemsize
        cut = by_columns(pointers, statics, N, {1: weight.strides[1] * size, 2: size}, k * extent)
        coder.add(function, axis_of(statement, [x]), pointers, statics, cut)


def _sum_outer(coder: Coder, statement: Statement) -> None:
    (x, g), write = statement.reads, statement.result
    if prod(x.shape[:-1]) == 0:
        zeroed(coder, write)
        return
    (m, n), function = write.shape, _product(coder, write)
    axes, by_row = leading(x, g)
    for number, part in enumerate(parts(axes, 1, 2)):
        (extent,), ((x_step,), (g_step,)) = part.extents, part.strides
        extents = [1, m, extent, n, K] if by_row else [extent, m, 1, n, K]
        x_row, g_row = (x_step, g_step) if by_row else (x.row, g.row)
        apart = [0, 0, 0] if by_row else [x_step, g_step, 0]
        adds = 2 if number else 1
        statics = [*extents, x.strides[-1], x_row, g_row, g.strides[-1], write.strides[0], *apart, adds]
        pointers = [coder.at(x, part.offsets[0]), coder.at(g, part.offsets[1]), coder.at(write)]
        size = np.dtype(coder.dtype(write)).itemsize
        cut = by_columns(pointers, statics, N, {1: g.strides[-1] * size, 2: size}, m * extent)
        coder.add(function, axis_of(statement, [x, g]), pointers, statics, cut)


def _matmul(coder: Coder, statement: Statement) -> None:
    (a, b), write = statement.reads, statement.result
    sizes = [*a.shape, b.shape[1]]
    statics = [1, *sizes, OUTER, *a.strides, *b.strides, write.strides[0], a.row, b.row, write.row, 0]
    pointers = [coder.at(a), coder.at(b), coder.at(write)]
    coder.add(_product(coder, write), axis_of(statement, [a, b]), pointers, statics)


def _linear_by(coder: Coder, statement: Statement) -> None:
    (x, table, ids), write = statement.reads, statement.result
    grouped_products.append(coder, grouped_products.linear_text, (x, write), table, ids)


def _sum_outer_by(coder: Coder, statement: Statement) -> None:
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
    "linear": _linear,
    "sum_outer": _sum_outer,
    "linear_by": _linear_by,
    "sum_outer_by": _sum_outer_by,
    "matmul": _matmul,
}
