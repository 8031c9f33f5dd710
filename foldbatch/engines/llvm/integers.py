"""Index arithmetic compiled: the functions of `integer_loops`, in the form of those of `arithmetic`.

Results are the same to the last bit. Where counting does not pay, or keys are of another type than those
that traces are packed in, NumPy sorts here too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.engines.llvm import integer_loops, round_loops, tables
from foldbatch.engines.llvm.compiling import compiled_function
from foldbatch.scheduler import arithmetic, heights, noting, turns
from foldbatch.scheduler.arithmetic import Arithmetic, Costs
from foldbatch.scheduler.trace import CellSignature, Form, Index, Ints

SIGNATURES = {
    "join": "i4[] i8[] i8[] i8[] i8[] i4[] i4[,]",
    "sort": "i4[] i8[] i8[]",
    "group": "i4[] i4[] i8[] i8[]",
    "weigh": "i8[] i8[] i8[] f8[]",
    "drain": "i8[] i8[] i8[] f8[] f8[] i8[] f8[] f8[] f8[] i8[] i8[] i4[] i4[] i8[]",
    "levels": "i4[] i8[,] i4[] i8[] i8[] i4[] i4[]",
    "noted": "i8[] i8[] i4[] i4[] i8[]",
    "reads": "i8[] i8[] i8[] i8[] i8[] i8[] i8[] i4[]",
}
COSTS = Costs(step=2.8, weight=0.001, plan=60.0, number=0.06)
FEW = 64  # keys, up to which each is compared with others
SPARSE = 16  # counting 16 times more numbers than there are keys takes longer than sorting by digits


@cache
def compiled() -> Arithmetic:
    """Return the compiled arithmetic: made once a process, read from the cache on disk where there is one.

    Raises:
        BackendError: when llvmlite is not installed.
    """
    functions = {**vars(turns), **vars(integer_loops), **vars(round_loops)}
    own = {
        name: compiled_function(functions[name], signature, turns, noting, integer_loops, round_loops)
        for name, signature in SIGNATURES.items()
    }
    return arithmetic_of({**own, **tables.compiled()})


def arithmetic_of(functions: dict[str, Callable[..., Any]]) -> Arithmetic:
    """Return the arithmetic of functions like those of `integer_loops`, given arrays to write to."""

    def join(traces: Sequence[Ints], form: Form) -> tuple[Ints, Ints]:
        blocks = np.concatenate(traces) if traces else np.zeros(0, np.int32)
        heads, cursors = np.empty((len(traces), form.head), np.int32), np.empty(len(traces), np.int64)
        packed = np.empty(max(form.head, len(blocks) - (len(traces) - 1) * form.head), np.int32)
        packed[: form.head] = 0
        fits = functions["join"](blocks, form.counters, form.widths, form.numbers, cursors, packed, heads)
        assert fits, "the traces differ in form"
        return packed, heads

    def sort(keys: NDArray[np.integer], size: int) -> tuple[Index, Index]:
        if keys.dtype != np.int32 or size > SPARSE * len(keys):
            return arithmetic.sort(keys, size)
        order, bounds = np.empty(len(keys), np.int64), np.zeros(size + 1, np.int64)
        functions["sort"](keys, order, bounds)
        return order, bounds

    def group(keys: NDArray[Any]) -> tuple[Index, Index]:
        count, size = len(keys), 0
        if keys.dtype != np.int32:
            return arithmetic.group(keys)
        if count > FEW and (size := arithmetic.above(keys)) > SPARSE * count:
            return arithmetic.group(keys)
        order, bounds = np.empty(count, np.int64), np.empty(count + 1, np.int64)
        groups = functions["group"](keys, np.zeros(size, np.int32), order, bounds)
        return order, bounds[: groups + 1]

    def drain(
        places: Index,
        order: Index,
        ends: Index,
        readers: Index,
        waits: Index,
        cells: int,
        preference: NDArray[np.float64],
    ) -> tuple[Ints, Index]:
        calls = len(places)
        weights = np.ones(calls)
        if not len(preference):
            functions["weigh"](order, ends, readers, weights)
        groups, taken = np.full(calls, -1, np.int32), np.empty(calls, np.int64)
        count = functions["drain"](
            places,
            ends,
            readers,
            weights,
            preference,
            waits.copy(),
            np.zeros(cells),
            np.zeros(cells),
            np.full(cells, -1.0),
            np.full(cells, -1),
            np.full(calls, -1),
            np.zeros(cells, np.int32),
            groups,
            taken,
        )
        return groups, taken[:count]

    def levels(
        cells: Sequence[CellSignature], calls: Sequence[Ints], elements: Sequence[Sequence[Ints]], values: int
    ) -> list[Ints]:
        counts = [len(rows) for rows in calls]
        shapes, widths = _shapes(tuple(cells))
        shapes = shapes.copy()
        shapes[:, 0] = counts
        found, of_value = np.empty(sum(counts), np.int32), np.empty(values, np.int32)
        cursors = np.empty(2 * len(counts) + len(widths), np.int64)
        read = [part for parts in elements for part in parts]
        if not functions["levels"](_flat(calls), shapes, _flat(read), widths, cursors, of_value, found):
            return heights.levels(cells, calls, elements, values)
        return [found[stop - count : stop] for count, stop in zip(counts, accumulate(counts), strict=True)]

    return Arithmetic(
        join,
        sort,
        group,
        drain,
        levels,
        COSTS,
        partial(tables.built, functions),
        functions["noted"],
        functions["reads"],
    )


@lru_cache(256)
def _shapes(cells: tuple[CellSignature, ...]) -> tuple[Index, Index]:
    """Return what `integer_loops.levels` is told of cells, but for their calls, and of their sequences."""
    widths = [width for cell in cells for width in cell.sequences]
    shapes, first = [], 0
    for cell in cells:
        shapes.append((0, cell.arguments, len(cell.outputs), first, len(cell.sequences)))
        first += len(cell.sequences)
    return np.array(shapes, np.int64), np.array(widths, np.int64)


def _flat(parts: Sequence[Ints]) -> Ints:
    """Return the numbers of all parts, one after the other; those of one part are not copied."""
    return (
        parts[0].ravel() if len(parts) == 1 else np.concatenate(parts or [np.zeros(0, np.int32)], axis=None)
    )
