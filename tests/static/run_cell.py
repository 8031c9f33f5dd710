"""Runs a compiled cell on a batch as the runtime would, stage after stage, in buffers full of NaN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from foldbatch.params import Array, SparseRows
from foldbatch.static.cell import Cell, Kept
from foldbatch.static.codegen import Argument
from foldbatch.static.kernel import Kernel
from foldbatch.static.stages import STAGES
from tests.static.run_kernel import Rows, poisoned

Results = dict[tuple[str, Any], Array]


def run_cell(cell: Cell, rows: Rows, cotangents: Mapping[int, Array], *, training: bool = True) -> Results:
    """Return what a cell's kernels return, by what it is.

    Args:
        cell: the cell.
        rows: the values of its inputs.
        cotangents: of its outputs, by number.
        training: False runs the kernels of inference, which have no backward.
    """
    kept = [_buffer(k, rows) for k in (cell.kept if training else cell.kept_inference)]
    found: Results = {}
    for kernels in (cell.forward, cell.backward) if training else (cell.inference,):
        for stage in STAGES:
            if stage in kernels:
                _run(cell, kernels[stage], rows, cotangents, kept, found)
    return found


def _buffer(kept: Kept, rows: Rows) -> Array:
    return poisoned(kept.type, kept.axis, rows)


def _run(
    cell: Cell, kernel: Kernel, rows: Rows, cotangents: Mapping[int, Array], kept: list[Array], found: Results
) -> None:
    operands = cell.graph.operands

    def argument(a: Argument) -> Any:
        match a.kind:
            case "operand":
                return rows.values[a.key]
            case "feed":
                return rows.values[len(operands) + a.key]
            case "cotangent":
                return cotangents[a.key]
            case "kept":
                return kept[a.key]
            case "store":
                return poisoned(operands[a.key].type, operands[a.key].axis, rows)
            case "parameter":
                return a.key.value
            case "scratch":
                return poisoned(a.key.type, a.key.axis, rows)
            case "rows":
                return rows.count(a.key)
        counts = rows.lengths[a.key]
        starts = np.cumsum(counts) - counts
        return {"counts": counts, "starts": starts, "owner": np.repeat(np.arange(rows.calls), counts)}[a.kind]

    results = kernel.function(*[argument(a) for a in kernel.arguments])
    for (kind, key), value in zip(kernel.results, results, strict=True):
        dense = value.dense() if isinstance(value, SparseRows) else np.array(value)
        what = "cotangent" if kind == "stored" else kind, key
        found[what] = found[what] + dense if what in found else dense
