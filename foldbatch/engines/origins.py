"""Where a value that is not finite begins: examples evaluated op by op, every value with its origin.

The *origin* of a value that is NaN or infinite is the first op on the way to it whose result is not finite
while its operands are. An infinite constant is no origin, for masks hold such constants; the op that makes
a NaN of it is one. This is slow, and only run when the user asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from foldbatch.engines.keys import keyed
from foldbatch.engines.nonfinite import NotFinite, has_nan, is_finite, shown
from foldbatch.engines.results import map_tensors
from foldbatch.model.model import Model
from foldbatch.params.parameters import Array, Parameter
from foldbatch.scheduler.trace import CellSignature, Trace, arguments_of, lengths_of
from foldbatch.static.cell import Cell, ResultKey, cotangents
from foldbatch.static.evaluate import Value, evaluate
from foldbatch.static.graph import CONSTANT, PARAMETER, Graph, Node

Origins: TypeAlias = dict[Node, NotFinite]


def find_nonfinite(
    model: Model,
    traces: Sequence[Trace],
    seed: int,
    step: int,
    names: Mapping[Parameter, str],
    dtype: str | None = None,
) -> NotFinite | None:
    """Return where a loss begins not to be finite, else a gradient, else a result or metric, else None.

    The model is evaluated as it trains, in this precision of all floats; None is that of each tensor.
    """
    cells = [directions_of(cell) for cell in model.cells]
    gradients: dict[Parameter, Array] = {}
    with np.errstate(all="ignore"):
        runs = []
        for number, trace in enumerate(traces):
            examples = [np.full(len(rows), number) for rows in trace.calls]
            feeds = keyed(trace.feeds, model.keys, seed, step, examples)
            reading = Reading(model.signatures, replace(trace, feeds=feeds))
            runs.append(_ExampleRun(model, cells, reading, number, names, dtype))
            runs[-1].forward()
        losses = (run.sinks.get("the loss") for run in runs)
        backward = (run.backward(gradients) for run in runs)
        side_outputs = (run.sinks.get("a metric") or run.result() for run in runs)
        for origin in chain(losses, backward, side_outputs):
            if origin is not None:
                return origin
    return None


@dataclass(slots=True)
class Reading:
    """The values that the calls of one example read, call by call."""

    signatures: Sequence[CellSignature]  # the scheduler's view, for how calls are packed
    trace: Trace  # the example
    values: dict[int, Array] = field(default_factory=dict)  # every value so far, by number
    _starts: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    def sweep(self) -> list[tuple[int, int, int]]:
        """Return the calls in the order of the trace: the first value's number, the cell, the call."""
        return sorted(
            (int(base), k, i) for k, rows in enumerate(self.trace.calls) for i, base in enumerate(rows[:, 0])
        )

    def read(self, k: int, i: int) -> tuple[list[Any], list[list[int]]]:
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
                numbers = self.trace.elements[k][operand.sequence][start:stop, operand.member].tolist()
                inputs.append([self.values[n] for n in numbers])
            read.append(numbers)
        inputs += [column[i] for column in self.trace.feeds[k]]
        return inputs, read

    def terms(
        self, k: int, target: ResultKey, value: Value, read: Sequence[Sequence[int]]
    ) -> list[tuple[Parameter | int, Array]]:
        """Return the terms that a result of a cell's backward graph adds to a gradient, or to cotangents."""
        _, key = target
        if isinstance(key, Parameter):
            return [(key, value)]
        assert isinstance(key, int)
        operand = self.signatures[k].operands[key]
        single = operand.sequence is None and len(operand.columns) == 1
        return list(zip(read[key], [value] if single else value, strict=True))

    def _elements(self, k: int, sequence: int) -> list[int]:
        """Return where the elements of each of a cell's calls start, and where the last ones end."""
        if (k, sequence) not in self._starts:
            lengths = lengths_of(self.trace, self.signatures, k, sequence)
            self._starts[k, sequence] = [0, *np.cumsum(lengths).tolist()]
        return self._starts[k, sequence]


@dataclass(frozen=True, slots=True)
class Directions:
    """A cell's forward graph, and that of its gradients with what it is given and what it yields."""

    forward: Graph
    nodes: frozenset[Node]
    seeds: Mapping[int, Node]
    targets: Sequence[tuple[ResultKey, Node]]
    backward: Graph


def directions_of(cell: Cell) -> Directions:
    forward = Graph(cell.graph.inputs, cell.graph.results)
    seeds, targets = cotangents(cell.graph, cell.ends)
    backward = Graph((*cell.graph.inputs, *seeds.values()), tuple(node for _, node in targets))
    return Directions(forward, frozenset(forward.nodes), seeds, targets, backward)


@dataclass(slots=True)
class _ExampleRun:
    """One example, evaluated call by call."""

    model: Model
    cells: Sequence[Directions]  # the graphs of its cells
    reading: Reading  # holds the example, and the values so far by number
    example: int  # the number of the example
    names: Mapping[Parameter, str]  # the parameters' names
    dtype: str | None  # the precision, or None for that of each tensor
    # the origins of values that are not finite, by number
    origins: dict[int, NotFinite] = field(default_factory=dict)
    # the origins of the first loss and the first metric that are not finite
    sinks: dict[str, NotFinite] = field(default_factory=dict)
    # by cell and call, the inputs, the numbers of values that they are read from, and the origins of inputs
    # that are not finite
    inputs: dict[tuple[int, int], tuple[list[Value], list[list[int]], Origins]] = field(default_factory=dict)

    def forward(self) -> None:
        """Evaluate every call, in the order of the trace."""
        for base, k, i in self.reading.sweep():
            graph = self.model.cells[k].graph
            inputs, read = self.reading.read(k, i)
            input_origins = self._input_origins(k, i, inputs, read)
            self.inputs[k, i] = inputs, read, input_origins
            values, origins = self._evaluate(k, i, self.cells[k].forward, inputs, input_origins)
            for j, (node, value) in enumerate(zip(graph.results, values, strict=True)):
                if j < len(graph.outputs):
                    self.reading.values[base + j] = value
                    if node in origins:
                        self.origins[base + j] = origins[node]
                elif not is_finite(value):
                    origin = origins.get(node) or self._origin(k, i, node.op.name, value)
                    kind = "the loss" if j < len(graph.outputs + graph.losses) else "a metric"
                    self.sinks.setdefault(kind, replace(origin, reached=kind))

    def backward(self, gradients: dict[Parameter, Array]) -> NotFinite | None:
        """Run the backward pass of the example, call by call.

        Args:
            gradients: by parameter, the sums so far; those of this example are added in place.

        Returns:
            The op that made the first gradient which is not finite; None if all are finite.
        """
        totals: dict[int, Array] = {}
        reached: dict[int, NotFinite] = {}
        for base, k, i in reversed(self.reading.sweep()):
            cell = self.cells[k]
            inputs, read, input_origins = self.inputs[k, i]
            seeds = [totals.get(base + j, np.zeros(x.shape, x.dtype)) for j, x in cell.seeds.items()]
            input_origins = input_origins | {
                x: reached[base + j] for j, x in cell.seeds.items() if base + j in reached
            }
            values, origins = self._evaluate(k, i, cell.backward, [*inputs, *seeds], input_origins)
            for (target, node), value in zip(cell.targets, values, strict=True):
                for key, term in self.reading.terms(k, target, value, read):
                    sums: dict[Any, Array] = gradients if isinstance(key, Parameter) else totals
                    before = [sums[key]] if key in sums else []
                    sums[key] = np.asarray(sum(before, start=term))
                    if is_finite(sums[key]):
                        continue
                    origin = origins.get(node) or self._origin(
                        k, i, "add", sums[key], [*before, term], "backward"
                    )
                    if isinstance(key, Parameter):
                        return replace(origin, reached=f"the gradient of {self.names[key]}")
                    reached.setdefault(key, origin)
        return None

    def result(self) -> NotFinite | None:
        """Return the origin of the first tensor of the example's result that is not finite."""
        numbers: list[int] = []
        map_tensors(self.model.result, iter(self.reading.trace.result), numbers.append)
        origins = (self.origins[number] for number in numbers if number in self.origins)
        return next((replace(origin, reached="the result") for origin in origins), None)

    def _input_origins(
        self, k: int, i: int, inputs: Sequence[Value], read: Sequence[Sequence[int]]
    ) -> Origins:
        """Return the origins of what a call reads: of results of other calls, and of data."""
        graph = self.model.cells[k].graph
        origins: Origins = {}
        for node, numbers in zip(graph.operands, read, strict=True):
            for number in numbers:
                if number in self.origins:
                    origins.setdefault(node, self.origins[number])
        data = inputs[len(graph.operands) :]
        for node, feed, value in zip(graph.feeds, self.model.feeds[k], data, strict=True):
            if not is_finite(value):
                origins[node] = replace(self._origin(k, i, "data", value), where=feed.where)
        return origins

    def _evaluate(
        self, k: int, i: int, graph: Graph, inputs: Sequence[Value], input_origins: Origins
    ) -> tuple[list[Value], Origins]:
        """Return the outputs of a graph, and the origins of its nodes that are not finite."""
        origins = dict(input_origins)

        def watch(node: Node, operands: Sequence[Value], value: Value) -> None:
            """Note the origin of a value that is not finite: that of an operand, or this op."""
            if node.op is CONSTANT or is_finite(value):
                return
            origin = next((origins[x] for x in node.inputs if x in origins), None)
            if origin is None:
                if not has_nan(value) and not all(map(is_finite, operands)):
                    return  # an infinity that a constant holds
                op = node.op.name
                if node.op is PARAMETER:
                    op += f" {self.names[node.attrs['parameter']]}"
                direction = "forward" if node in self.cells[k].nodes else "backward"
                origin = self._origin(k, i, op, value, operands, direction)
            origins[node] = origin

        return evaluate(graph, inputs, self.dtype, watch), origins

    def _origin(
        self,
        k: int,
        i: int,
        op: str,
        value: Value,
        operands: Sequence[Value] = (),
        direction: str = "forward",
    ) -> NotFinite:
        """Return an origin at a call: the op, its value and its operands, as text."""
        where = self.model.cells[k].name
        return NotFinite(self.example, where, op, direction, shown(value), tuple(map(shown, operands)), k, i)
