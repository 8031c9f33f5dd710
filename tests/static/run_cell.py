"""Runs the routines of a cell on a batch of one level, stage after stage, in buffers full of NaN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from foldbatch.engines.sums import sum_rows
from foldbatch.params.parameters import Array
from foldbatch.static.cell import Cell, RowSums
from foldbatch.static.routines import routine_of
from foldbatch.static.stages import STAGES
from foldbatch.static.statements import Binding, Result, Routine
from foldbatch.types import TensorType
from tests.engines.numpy.launching import At, Batch, poisoned
from tests.static.run_kernel import TARGET, Rows

Results = dict[tuple[str, Any], Array]


def run_cell(cell: Cell, rows: Rows, cotangents: Mapping[int, Array], *, training: bool = True) -> Results:
    """Return what a cell's routines yield, by what it is.

    Args:
        cell: the cell.
        rows: the values of its inputs.
        cotangents: of its outputs, by number.
        training: False runs the routines of inference, which have no backward.
    """
    phase, graph = cell.phase(training=training), cell.graph
    slots = {Binding("kept", i): At(poisoned(k.type, rows.count(k.axis))) for i, k in enumerate(phase.kept)}
    inputs = [Binding("operand", i) for i in range(len(graph.operands))]
    inputs += [Binding("feed", i) for i in range(len(graph.feeds))]
    slots |= {binding: At(array, 0) for binding, array in zip(inputs, rows.values, strict=True)}
    slots |= {Binding("cotangent", i): At(g, 0) for i, g in cotangents.items()}
    offsets = [np.cumsum([0, *rows.lengths[axis]]).tolist() for axis in graph.axes]
    sums: Results = {}
    for stages in (phase.forward, phase.backward):
        for stage in (stages[name] for name in STAGES if name in stages):
            routine = routine_of(stage, TARGET)
            ends = {result.binding: _memory(result, routine, rows) for result in routine.results}
            stores = {slot.binding for slot in routine.slots if slot.binding.kind == "store"}
            for binding in stores:
                operand = graph.operands[binding.key]
                slots[binding] = At(poisoned(operand.type, rows.count(operand.axis)), 0, stores=True)
            Batch(slots, ends, offsets).run(routine, [(0, rows.calls)])
            ends |= {Binding("cotangent", binding.key): slots[binding] for binding in stores}
            for (kind, key), at in ends.items():
                array = at.buffer[0] if kind == "gradient" else at.buffer
                sums[kind, key] = sums[kind, key] + array if (kind, key) in sums else array
    for row_sums in cell.sums if training else ():
        gradient = _summed(row_sums, slots)
        key = "gradient", row_sums.parameter
        sums[key] = sums[key] + gradient if key in sums else gradient
    return sums


def _memory(result: Result, routine: Routine, rows: Rows) -> At:
    type_ = TensorType(result.place.shape, routine.slots[result.place.slot].type.dtype)
    if result.binding.kind == "gradient":  # a parameter may have several, which are added up
        return At(np.zeros((1, *type_.shape), type_.dtype), 0)
    return At(poisoned(type_, rows.count(result.place.axis)), 0, stores=True)


def _summed(row_sums: RowSums, slots: Mapping[Binding, At]) -> Array:
    values, ids = slots[row_sums.values].buffer, slots[row_sums.ids].buffer
    return sum_rows(values, ids, row_sums.parameter.value.shape[0]).dense()
