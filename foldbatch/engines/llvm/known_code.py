"""The instructions that multiply known rows before a recursion, and all other rows level by level.

These codes belong to a product (see `foldbatch.engines.llvm.known` for how they are launched):

==============  =========================================================================================
`known_rows`    forward, before the levels: known rows times the weight, to a table
`forward_step`  the cell's step with the product as input: each level adds up rows of the table, then
                multiplies the rows that earlier levels have computed
`prepared`      backward, before the levels: the weight transposed; known rows' cotangents zero, if stored
`backward_step` the cell's step without the results that follow from the product's cotangent: each level
                multiplies this by the transposed weight, for the rows that earlier levels have computed
`summed`        backward, after the levels: of each known row, the sum of its products' cotangents
`returned`      these sums times the transposed weight, to the arena's cotangents
`gradient`      the weight's gradient: outer products of all rows and their products' cotangents
==============  =========================================================================================

All of them read the same bindings, behind those of their routine: `VALUES` and so on, and last one of
`COUNTS` for each column. A column's rows in a level are its counts' segments, as of a ragged axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from foldbatch.engines.launch import FIRST, STORES
from foldbatch.engines.llvm import move_texts, products, tiles
from foldbatch.engines.llvm.coder import (
    BY_LAUNCH,
    BY_RANK,
    COPIES_OF,
    ENTRIES,
    FIELDS_OF,
    FROM_BASE,
    Coder,
    KernelCode,
    by_columns,
)
from foldbatch.engines.llvm.loop_texts import KINDS
from foldbatch.engines.llvm.op_code import encode
from foldbatch.loops.compiling import Native, native
from foldbatch.static.op import CALL, UNBATCHED, Axis, ragged
from foldbatch.static.statements import Binding, Routine

(
    VALUES,  # the arena's values
    COTANGENTS,  # the arena's cotangents; whether they are stored, and -1 for FIRST where rows repeat
    ROWS,  # the offset of `Split.rows` in the index
    RANKS,  # the offset of `Split.ranks`
    PLACE,  # the offset of `Split.place`; the operand's FIRST and WIDTH
    TABLE,  # products of known rows, which are stored
    WEIGHT,
    BACK,  # the weight, transposed
    PRODUCTS,  # the products' cotangents by rank; the offsets of `Split.users` and `Split.starts`
    BEHIND,  # the same buffer, from its first row behind the calls' on
    GRADIENT,  # the weight's gradient
    COUNTS,  # and one more binding for each column: the offset of its `Split.counts`
) = range(12)

PRODUCT_SLOT = Binding("scratch", "product")  # the input of a forward step; no other scratch has this key

# Rows of a table to sums of `width` of them each, where `place` is not -1. s: width, numbers of a row.
ADD_UP = """\
# {k} i8 {k}
def loop(n, table, place, out, s):
    width, size = u8(s[0]), u8(s[1])
    for i in range(n):
        o, fresh = moved(out, i * size), True
        for e in range(i * width, (i + u8(1)) * width):
            if place[e] >= 0:
                t = moved(table, u8(place[e]) * size)
                if fresh:
                    for j in range(size):
                        o[j] = t[j]
                else:
                    for j in range(size):
                        o[j] += t[j]
                fresh = False
        if fresh:
            for j in range(size):
                o[j] = {k}(0)
"""

# A matrix, transposed, 16 rows at a time, which are a cache line of the result. s: rows, columns.
TRANSPOSE = """\
# {k} {k}
def loop(n, a, b, s):
    rows, columns = u8(s[0]), u8(s[1])
    first = u8(0)
    while first < rows:
        last = min(first + u8(16), rows)
        for j in range(columns):
            for i in range(first, last):
                b[j * rows + i] = a[i * columns + j]
        first = last
"""

# Zeros to the rows of an operand that are known, if levels store the other rows. s: width, numbers of a row.
CLEAR = f"""\
# i8 {{k}} i8 i8
def loop(n, place, arena, where, fields, s):
    if fields[{STORES}] != 0:
        size = u8(s[1])
        for e in range(n * u8(s[0])):
            if place[e] >= 0:
                a = moved(arena, (u8(where[{FIRST}]) + e) * size)
                for j in range(size):
                    a[j] = {{k}}(0)
"""


@dataclass(frozen=True, slots=True)
class ProductForm:
    """The form of a product."""

    width: int  # rows of the arena that a call multiplies, side by side
    height: int  # numbers of such a row
    size: int  # numbers of the product of a call
    dtype: str  # the dtype of the factors and the product
    precision: str = "fp32"  # the precision of the multiplication
    # for each column, the axis of its rows in a level
    axes: tuple[Axis, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "axes", tuple(ragged() for _ in range(self.width)))

    @property
    def kind(self) -> str:
        return KINDS[self.dtype]

    @property
    def bytes(self) -> int:
        return np.dtype(self.dtype).itemsize

    @property
    def bindings(self) -> int:
        """How many bindings its codes read besides those of their routine."""
        return COUNTS + self.width


def can_multiply(dtype: str) -> bool:
    """Return whether there are products of rows for this dtype on this processor."""
    return dtype in ("float32", "float64") and tiles.blocks() is not None


def own_bindings(routine: Routine) -> int:
    """Return how many bindings a routine has, without those of a product, which follow them."""
    return len(routine.slots) + len(routine.results)


def known_rows(form: ProductForm) -> KernelCode:
    """Return the code that multiplies known rows, on the level that follows the last rank."""
    coder = _empty("known_rows", form)
    _multiply(coder, form, 0, TABLE, adds=False)
    return coder.finish()


def forward_step(form: ProductForm, routine: Routine) -> KernelCode:
    """Return the code of a forward step that looks up products of known rows before it runs its routine.

    Args:
        form: the sizes and the dtype of the product.
        routine: the routine of the step, which reads the product as an input.
    """
    at = own_bindings(routine)
    (product,) = [i for i, slot in enumerate(routine.slots) if slot.binding == PRODUCT_SLOT]

    def multiply(coder: Coder) -> None:
        """Append, for the input's slot, the sum of known products, and the products of the other rows."""
        pointers = [
            coder.cell(at + TABLE, FROM_BASE),
            coder.cell(at + PLACE, ENTRIES, CALL),
            coder.slot(product),
        ]
        _add(coder, ADD_UP, form, CALL, pointers, [form.width, form.size])
        _multiply(coder, form, at, product, adds=True)

    return encode(_counted(routine, form), first=multiply)


def prepared(form: ProductForm) -> KernelCode:
    """Return the code that runs before the backward levels, on one level of all calls."""
    coder = _empty("prepared", form)
    weight, back = coder.cell(WEIGHT, FROM_BASE), coder.cell(BACK, FROM_BASE)
    _add(coder, TRANSPOSE, form, UNBATCHED, [weight, back], [form.width * form.height, form.size])
    cells = (PLACE, ENTRIES, CALL), (COTANGENTS, FROM_BASE), (PLACE, FIELDS_OF), (COTANGENTS, FIELDS_OF)
    pointers = [coder.cell(*cell) for cell in cells]
    _add(coder, CLEAR, form, CALL, pointers, [form.width, form.height])
    return coder.finish()


def backward_step(form: ProductForm, routine: Routine) -> KernelCode:
    """Return the code of a backward step whose routine stores the product's cotangent."""
    last = partial(_multiply_back, form=form, at=own_bindings(routine), adds=False)
    return encode(_counted(routine, form), last=last)


def summed(form: ProductForm) -> KernelCode:
    """Return the code that sums the cotangents of each known row, on a level with a call for each row."""
    coder = _empty("summed", form)
    cells = (
        (PRODUCTS, FROM_BASE),
        (PRODUCTS, ENTRIES, CALL),
        (PRODUCTS, COPIES_OF, CALL),
        (PRODUCTS, FIELDS_OF),
    )
    pointers = [coder.cell(*cell) for cell in cells]
    pointers.append(coder.cell(BEHIND, BY_LAUNCH, CALL, form.size * form.bytes))
    _add(coder, move_texts.take(form.kind), form, CALL, pointers, [form.size])
    return coder.finish()


def returned(form: ProductForm) -> KernelCode:
    """Return the code that adds the cotangents of known rows, on the level that follows the last rank."""
    coder = _empty("returned", form)
    _multiply_back(coder, form=form, at=0, adds=True)
    return coder.finish()


def gradient(form: ProductForm) -> KernelCode:
    """Return the code that computes the weight's gradient, on one level of all ranks and known rows."""
    coder = _empty("gradient", form)
    function = _function(form, products.outer_text)
    for column, axis in enumerate(form.axes):
        pointers = [
            (coder.cell(VALUES, FROM_BASE), 0),
            (coder.cell(ROWS, ENTRIES, axis), 0),
            (coder.cell(PRODUCTS, FROM_BASE), 0),
            (coder.cell(RANKS, ENTRIES, axis), 0),
            (coder.cell(GRADIENT, FROM_BASE), column * form.height * form.size * form.bytes),
            (coder.cell(GRADIENT, FIELDS_OF), 0),
        ]
        statics = [form.height, form.size, form.height, form.size, form.size]
        cut = by_columns(pointers, statics, 1, {2: form.bytes, 4: form.bytes}, form.height)
        coder.add(function, axis, pointers, statics, cut)
    return coder.finish()


def _multiply(coder: Coder, form: ProductForm, at: int, out: int, *, adds: bool) -> None:
    """Append the products of a level's rows, stored or added to binding `out`, whose rows are by rank."""
    function = _function(form, products.rows_text)
    statics = [form.height, form.size, form.height, form.size, 1, form.size, int(adds)]
    for column, axis in enumerate(form.axes):
        pointers = [
            (coder.cell(at + VALUES, FROM_BASE), 0),
            (coder.cell(at + ROWS, ENTRIES, axis), 0),
            (coder.cell(at + WEIGHT, FROM_BASE), column * form.height * form.size * form.bytes),
            # ranks count from the first of the batch: a negative row size takes the cell back to rank 0
            (coder.cell(out, BY_RANK, CALL, -form.size * form.bytes), 0),
            (coder.cell(at + RANKS, ENTRIES, axis), 0),
            (coder.cell(out, FIELDS_OF), 0),
        ]
        cut = by_columns(pointers, statics, 1, {2: form.bytes, 3: form.bytes}, form.height)
        coder.add(function, axis, pointers, statics, cut)


def _multiply_back(coder: Coder, *, form: ProductForm, at: int, adds: bool) -> None:
    """Append products of a level's cotangents by the transposed weight, stored in or added to the arena."""
    function = _function(form, products.rows_text)
    breadth = form.width * form.height
    for column, axis in enumerate(form.axes):
        pointers = [
            (coder.cell(at + PRODUCTS, FROM_BASE), 0),
            (coder.cell(at + RANKS, ENTRIES, axis), 0),
            (coder.cell(at + BACK, FROM_BASE), column * form.height * form.bytes),
            (coder.cell(at + COTANGENTS, FROM_BASE), 0),
            (coder.cell(at + ROWS, ENTRIES, axis), 0),
            (coder.cell(at + COTANGENTS, FIELDS_OF), 0),
        ]
        statics = [form.size, form.height, form.size, breadth, 1, form.height, int(adds)]
        cut = by_columns(pointers, statics, 1, {2: form.bytes, 3: form.bytes}, form.size)
        coder.add(function, axis, pointers, statics, cut)


def _empty(name: str, form: ProductForm) -> Coder:
    """Return a code that has no routine: its bindings are those of the product."""
    return Coder(_counted(Routine(name, (), (), ()), form))


def _counted(routine: Routine, form: ProductForm) -> Routine:
    """Return a routine for a code that also counts rows along the axes of columns."""
    first = own_bindings(routine) + COUNTS
    counts = {axis: first + column for column, axis in enumerate(form.axes)}
    return replace(routine, segments={**routine.segments, **counts})


def _add(
    coder: Coder, text: str, form: ProductForm, axis: Axis, cells: Sequence[int], statics: Sequence[int]
) -> None:
    """Append a call of a text's function on cells."""
    coder.add(native(text.format(k=form.kind)), axis, [(cell, 0) for cell in cells], statics)


def _function(form: ProductForm, text: products.Text) -> Native:
    cut = products.cut_of(form.kind, form.precision)
    assert cut is not None, "without tiles there are no products of rows"
    return products.compiled(text, form.kind, cut)
