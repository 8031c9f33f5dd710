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

from foldbatch.engines.nonfinite import NotFinite, has_nan, is_finite, shown
from foldbatch.model.decoding import map_tensors
from foldbatch.model.evaluation import Directions, Evaluation, directions_of
from foldbatch.model.keys import keyed
from foldbatch.model.model import Model
from foldbatch.params.parameters import Array, Parameter
from foldbatch.scheduler.trace import Trace
from foldbatch.static.evaluate import Value, evaluate
from foldbatch.static.graph import CONSTANT, PARAMETER, Graph, Node

Origins: TypeAlias = dict[Node, NotFinite]
LOSS = "the loss"
METRIC = "a metric"
GRADIENT = "a gradient"


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
    gradients: dict[Parameter, Array] = {}  # summed over the examples
    with np.errstate(all="ignore"):
        runs = []
        for number, trace in enumerate(traces):
            examples = [np.full(len(rows), number) for rows in trace.calls]
            feeds = keyed(trace.feeds, model.keys, seed, step, examples)
            runs.append(
                _ExampleRun(
                    model,
                    replace(trace, feeds=feeds),
                    dtype,
                    gradients=gradients,
                    directions=cells,
                    example=number,
                    names=names,
                )
            )
            runs[-1].forward()
        losses = (run.sinks.get(LOSS) for run in runs)
        backward = (run.gradient() for run in runs)
        side_outputs = (run.sinks.get(METRIC) or run.result() for run in runs)
        for origin in chain(losses, backward, side_outputs):
            if origin is not None:
                return origin
    return None


@dataclass(slots=True, eq=False, kw_only=True)
class _ExampleRun(Evaluation):
    """One example, evaluated call by call with the origins of values that are not finite."""

    example: int  # the number of the example
    names: Mapping[Parameter, str]  # the parameters' names
    # the origins of values that are not finite, by number
    origins: dict[int, NotFinite] = field(default_factory=dict)
    # the origins of cotangents that are not finite, by number
    reached: dict[int, NotFinite] = field(default_factory=dict)
    # the origins of the first loss, the first metric and the first gradient that are not finite
    sinks: dict[str, NotFinite] = field(default_factory=dict)
    # by cell and call, the origins of inputs that are not finite
    input_origins: dict[tuple[int, int], Origins] = field(default_factory=dict)
    # the origins of nodes of the backward graph that was evaluated last
    node_origins: Origins = field(default_factory=dict)

    def evaluate_call(
        self, base: int, k: int, i: int, inputs: list[object], numbers: list[list[int]]
    ) -> list[Value]:
        """Evaluate a call, and note the origins of its results that are not finite."""
        self.read[k, i] = inputs, numbers
        graph = self.model.cells[k].graph
        input_origins = self.input_origins[k, i] = self._input_origins(k, i, inputs, numbers)
        values, origins = self._evaluate(k, i, self.directions[k].forward, inputs, input_origins)
        for j, (node, value) in enumerate(zip(graph.results, values, strict=True)):
            if j < len(graph.outputs):
                if node in origins:
                    self.origins[base + j] = origins[node]
            elif not is_finite(value):
                origin = origins.get(node) or self._origin(k, i, node.op.name, value)
                kind = LOSS if j < len(graph.outputs + graph.losses) else METRIC
                self.sinks.setdefault(kind, replace(origin, reached=kind))
        return values

    def evaluate_backward(self, base: int, k: int, i: int, cell: Directions) -> list[Value]:
        """Evaluate the backward graph of a call; the origins of its results are those of the last call."""
        inputs = self.backward_inputs(base, k, i, cell)
        seed_origins = {x: self.reached[base + j] for j, x in cell.seeds.items() if base + j in self.reached}
        input_origins = self.input_origins[k, i] | seed_origins
        values, self.node_origins = self._evaluate(k, i, cell.backward, inputs, input_origins)
        return values

    def add(self, k: int, i: int, key: Parameter | int, term: Array, node: Node) -> None:
        """Add a term to a gradient or cotangent, and note the origin of a sum that is not finite."""
        sums: dict[Any, Array] = self.gradients if isinstance(key, Parameter) else self.cotangents
        before = [sums[key]] if key in sums else []
        Evaluation.add(self, k, i, key, term, node)
        if is_finite(sums[key]):
            return
        origin = self.node_origins.get(node) or self._origin(
            k, i, "add", sums[key], [*before, term], "backward"
        )
        if isinstance(key, Parameter):
            reached = f"the gradient of {self.names[key]}"
            self.sinks.setdefault(GRADIENT, replace(origin, reached=reached))
        else:
            self.reached.setdefault(key, origin)

    def gradient(self) -> NotFinite | None:
        """Run backward; return the origin of the first gradient that is not finite."""
        self.backward()
        return self.sinks.get(GRADIENT)

    def result(self) -> NotFinite | None:
        """Return the origin of the first tensor of the example's result that is not finite."""
        numbers: list[int] = []
        map_tensors(self.model.result, iter(self.trace.result), numbers.append)
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
                direction = "forward" if node in self.directions[k].nodes else "backward"
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
