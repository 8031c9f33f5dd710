"""The oracle: examples one at a time, calls one at a time, in float64, by the interpreter.

No schedule, no arena, no generated code: what every engine must agree with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foldbatch.params import Array, Parameter
from foldbatch.scheduler.trace import CellSignature, Trace, arguments_of, lengths_of
from foldbatch.static.cell import Cell
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph
from foldbatch.static.sides import cotangents


@dataclass(slots=True)
class Reference:
    """One example, evaluated call by call.

    Attributes:
        cells: the cells; only their graphs are read.
        signatures: the scheduler's view, for how calls are packed.
        trace: the example.
        training: whether to evaluate what is trained; backward does. Otherwise, what inference computes.
        values: every value so far, by number.
        losses: the sum of all losses.
        metrics: by (cell, number), the values in order of calls.
        inputs: by (cell, feed), the gradients of data by call, where cells yield them.
    """

    cells: Sequence[Cell]
    signatures: Sequence[CellSignature]
    trace: Trace
    training: bool = True
    values: dict[int, Array] = field(default_factory=dict)
    losses: float = 0.0
    metrics: dict[tuple[int, int], list[Array]] = field(default_factory=dict)
    inputs: dict[tuple[int, int], dict[int, Array]] = field(default_factory=dict)
    _inputs: dict[tuple[int, int], tuple[list[Any], list[list[int]]]] = field(default_factory=dict)
    _starts: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    def forward(self) -> None:
        """Evaluate every call, in the order of the trace."""
        chosen = [cell.graph if self.training else cell.inference_graph for cell in self.cells]
        graphs = [Graph(graph.inputs, graph.results) for graph in chosen]
        for _, k, i in self._sweep():
            cell = self.cells[k]
            inputs, read = self._read(k, i)
            self._inputs[k, i] = inputs, read
            results = iter(evaluate(graphs[k], inputs))
            base = int(self.trace.calls[k][i, 0])
            for j in range(len(cell.graph.outputs)):
                self.values[base + j] = next(results)
            self.losses += sum(float(next(results)) for _ in cell.graph.losses)
            for m in range(len(cell.graph.metrics)):
                self.metrics.setdefault((k, m), []).append(next(results))

    def backward(self) -> dict[Parameter, Array]:
        """Return the gradient of the summed losses for each trainable parameter reached."""
        assert self.training, "forward must have run for training"
        total: dict[int, Array] = {}
        gradients: dict[Parameter, Array] = {}
        derived = [cotangents(cell.graph, cell.ends) for cell in self.cells]
        graphs = [
            Graph((*cell.graph.inputs, *seeds.values()), tuple(node for _, node in results))
            for cell, (seeds, results) in zip(self.cells, derived, strict=True)
        ]
        for _, k, i in reversed(self._sweep()):
            seeds, results = derived[k]
            inputs, read = self._inputs[k, i]
            base = int(self.trace.calls[k][i, 0])
            given = [total.get(base + j, np.zeros(node.shape)) for j, node in seeds.items()]
            for (what, _), value in zip(results, evaluate(graphs[k], [*inputs, *given]), strict=True):
                kind, key = what
                if kind == "gradient":
                    assert isinstance(key, Parameter)
                    gradients[key] = np.asarray(gradients.get(key, 0.0) + value)
                    continue
                assert isinstance(key, int)
                if kind == "feed":
                    self.inputs.setdefault((k, key), {})[i] = value
                    continue
                operand = self.signatures[k].operands[key]
                single = operand.sequence is None and len(operand.columns) == 1
                for number, part in zip(read[key], [value] if single else value, strict=True):
                    total[number] = total.get(number, 0.0) + part
        return gradients

    def _sweep(self) -> list[tuple[int, int, int]]:
        return sorted(
            (int(base), k, i) for k, rows in enumerate(self.trace.calls) for i, base in enumerate(rows[:, 0])
        )

    def _read(self, k: int, i: int) -> tuple[list[Any], list[list[int]]]:
        """Return a call's inputs, and for each operand the numbers of the values it reads."""
        cell = self.signatures[k]
        inputs: list[Any] = []
        read: list[list[int]] = []
        for operand in cell.operands:
            if operand.sequence is None:
                numbers = [int(arguments_of(self.trace, self.signatures, k)[i, c]) for c in operand.columns]
                parts = [self.values[n] for n in numbers]
                inputs.append(parts[0] if len(parts) == 1 else np.stack(parts))
            else:
                start, stop = self._elements(k, operand.sequence)[i : i + 2]
                numbers = [
                    int(n) for n in self.trace.elements[k][operand.sequence][start:stop, operand.member]
                ]
                inputs.append([self.values[n] for n in numbers])
            read.append(numbers)
        inputs += [column[i] for column in self.trace.feeds[k]]
        return inputs, read

    def _elements(self, k: int, sequence: int) -> list[int]:
        """Return where the elements of each of a cell's calls start, and where the last ones end."""
        if (k, sequence) not in self._starts:
            lengths = lengths_of(self.trace, self.signatures, k, sequence)
            self._starts[k, sequence] = [0, *np.cumsum(lengths).tolist()]
        return self._starts[k, sequence]
