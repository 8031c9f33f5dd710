"""Products whose weight an id chooses for each row, compiled: rows of equal id are one product.

Some thousand rows at a time are sorted by the last byte of their ids, which for tables of up to 256 matrices
is the full id; then each run of equal ids is a product of rows, which are read in place. No matrix is copied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from textwrap import indent

import numpy as np

from foldbatch.engines.llvm import products, tiles
from foldbatch.engines.llvm.coder import Coder
from foldbatch.engines.llvm.loop_texts import KINDS
from foldbatch.engines.llvm.products import empty_product_lines, outer_lines, product_lines
from foldbatch.engines.llvm.tiles import BITS, Blocks
from foldbatch.engines.nests import parts
from foldbatch.static.places import Place, merged

SORTED_ROWS, BUCKETS = 4096, 256  # rows that are sorted together, and values of the byte
STACKS = ("ordered", SORTED_ROWS), ("counted", BUCKETS + 1)
TILE_ROWS = 4  # of a tile: few rows of a level share an id, and larger tiles take longer to compile

# Statics `statics`: k, m, how many matrices, stride of ids, extent of an outer loop of each row; strides
# of x along rows, columns and the outer loop; of the table along matrices, rows and columns; of y (or g) as
# of x.
_HEAD = """\
# {kind} {kind} {kind} i4
def loop(n_rows, x_all, y_all, t_all, ids, statics):
    size, ids_row, outer = statics[2], u8(statics[3]), u8(statics[4])
    x_row, x_column, x_outer = u8(statics[5]), u8(statics[6]), u8(statics[7])
    t_matrix, t_row, t_column = u8(statics[8]), u8(statics[9]), u8(statics[10])
    y_row, y_column, y_outer = u8(statics[11]), u8(statics[12]), u8(statics[13])
"""
_ID = "u8(min(max(i8(ids[({r}) * ids_row]), i8(0)), size - 1))"
_RUNS = f"""\
    order, begins, a_at, c_at = ordered(), counted(), starts(), starts()
    o, buckets = u8(0), u8(min(size, {BUCKETS}))
    while o < n_rows:
        count = min(u8({SORTED_ROWS}), n_rows - o)
        for r in range(buckets + u8(1)):
            begins[r] = u8(0)
        for r in range(count):
            begins[({_ID.format(r="o + r")} & u8({BUCKETS - 1})) + u8(1)] += u8(1)
        for r in range(buckets):
            begins[r + u8(1)] += begins[r]
        for r in range(count):
            b = {_ID.format(r="o + r")} & u8({BUCKETS - 1})
            order[begins[b]] = o + r
            begins[b] += u8(1)
        lower = u8(0)
        while lower < count:
            id, upper = {_ID.format(r="order[lower]")}, lower + u8(1)
            while upper < count and {_ID.format(r="order[upper]")} == id:
                upper += u8(1)
            a_rows = moved(order, lower)
            for turn in range(outer):
{{body}}
            lower = upper
        o += count
"""


def linear_text(kind: str, cut: Blocks | None) -> str:
    """Return the text of ``y[r] = x[r] @ table[ids[r]]``, as `compiling.native` takes it.

    Columns of `y` are contiguous. Without a cut there are plain loops.
    """
    head = _HEAD.format(kind=kind)
    if cut is None:
        return f"""\
{head}    k, m = u8(statics[0]), u8(statics[1])
    for r in range(n_rows):
        table = moved(t_all, {_ID.format(r="r")} * t_matrix)
        for turn in range(outer):
            x, y = moved(x_all, r * x_row + turn * x_outer), moved(y_all, r * y_row + turn * y_outer)
            for j in range(m):
                y[j] = {kind}(0)
            for p in range(k):
                t = x[p * x_column]
                for j in range(m):
                    y[j] += t * table[p * t_row + j * t_column]
"""
    at = "a_rows[first + r] * a_row", "a_rows[first + r] * c_row"
    body = f"""\
a0, b0, c0 = moved(x_all, turn * x_outer), moved(t_all, id * t_matrix), moved(y_all, turn * y_outer)
m, k, n, accumulates, start = upper - lower, u8(statics[0]), u8(statics[1]), u8(0), u8(0)
a_row, a_column, b_row, b_column, c_row = x_row, x_column, t_row, t_column, y_row
{empty_product_lines(kind, "m", "a_rows[i] * c_row", 0)}
"""
    return head + _run(body, product_lines(cut, cut.bits // BITS[kind], at))


def sums_text(kind: str, cut: Blocks | None) -> str:
    """Return the text of ``table[ids[r]] += x[r].T @ g[r]``, as `compiling.native` takes it.

    Columns of the table are contiguous. Without a cut there are plain loops; with one, columns of `x` and of
    `g` are contiguous, too.
    """
    head = _HEAD.format(kind=kind)
    if cut is None:
        return f"""\
{head}    k, m = u8(statics[0]), u8(statics[1])
    for r in range(n_rows):
        table = moved(t_all, {_ID.format(r="r")} * t_matrix)
        for turn in range(outer):
            x, y = moved(x_all, r * x_row + turn * x_outer), moved(y_all, r * y_row + turn * y_outer)
            for p in range(k):
                t = x[p * x_column]
                for j in range(m):
                    table[p * t_row + j] += t * y[j * y_column]
"""
    body = f"""\
a0, b0, c0 = moved(x_all, turn * x_outer), moved(y_all, turn * y_outer), moved(t_all, id * t_matrix)
m, k, n, accumulates, start = u8(statics[0]), upper - lower, u8(statics[1]), u8(1), u8(0)
a_row, b_row, c_row, b_rows = x_row, y_row, t_row, a_rows
{empty_product_lines(kind, "m", "i * c_row", 0)}
"""
    return head + _run(body, outer_lines(cut, cut.bits // BITS[kind], "(first + r) * c_row"))


def _run(body: str, lines: str) -> str:
    """Return the loops over runs of equal ids, around the lines of a product."""
    return _RUNS.format(body=indent(body, " " * 16).rstrip() + "\n" + indent(lines, " " * 12).rstrip())


def append(
    coder: Coder,
    text: Callable[[str, Blocks | None], str],
    rows: tuple[Place, Place],
    table: Place,
    ids: Place,
) -> None:
    """Append instructions for a product of each row by the matrix that its id selects, or for its gradients.

    Args:
        coder: collects the instructions of a kernel.
        text: prints the function that the instructions call: the product, or one of its gradients.
        rows: the places of two blocks of rows, ``[N, *, k]`` and ``[N, *, m]``: one factor, and the result.
        table: the place of the matrices, ``[n, k, m]``.
        ids: the place of the matrices' numbers, ``[N]``.
    """
    x, y = rows
    plain = text is sums_text and (x.strides[-1] != 1 or y.strides[-1] != 1)
    cut = None if plain else tiles.blocks()
    cut = cut and replace(cut, rows=min(TILE_ROWS, cut.rows))
    function = products.compiled(text, KINDS[coder.dtype(table)], cut, STACKS)
    # of ids of 8 bytes the lower half is read, which comes first; a check refuses what does not fit there
    step = ids.row * np.dtype(coder.dtype(ids)).itemsize // 4
    axes = merged(x.shape[:-1], [place.strides[:-1] for place in rows])
    for part in parts(axes, 1, 2):
        statics = [x.shape[-1], y.shape[-1], table.shape[0], step, *part.extents]
        statics += [x.row, x.strides[-1], *part.strides[0], *table.strides]
        statics += [y.row, y.strides[-1], *part.strides[1]]
        pointers = [coder.at(place, offset) for place, offset in zip(rows, part.offsets, strict=True)]
        coder.add(function, ids.axis, [*pointers, coder.at(table), coder.at(ids)], statics)
