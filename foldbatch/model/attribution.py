"""Attribution: how much each number that an example brings has to do with a number that a model computes.

The inputs of a model are floats: those that an example holds, and those that whole numbers of an example
stand for, as the row of a table that a word's number chooses, or a one-hot vector. `opened` makes these
inputs of the cells' graphs; then the interpreter of one example computes gradients, in float64.

Source: Sundararajan, Taly and Yan 2017, Axiomatic Attribution for Deep Networks, section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import numpy as np

from foldbatch.model.evaluation import Directions, Evaluation
from foldbatch.model.model import Model
from foldbatch.params.parameters import Array, Parameter
from foldbatch.scheduler.trace import Trace
from foldbatch.static.cell import cotangents, transformed
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.evaluate import Value, evaluate
from foldbatch.static.graph import INPUT, PARAMETER, Graph, Node, input_node, reachable, substitute
from foldbatch.static.op import UNBATCHED
from foldbatch.static.passes.simplify import in_phase

# A value: an array, or a list of arrays, one for each element of a call's sequence.
Seeds: TypeAlias = Sequence[tuple[int, Array]]  # numbers of values, each with a cotangent


@dataclass(frozen=True, slots=True, eq=False)
class OpenedCell:
    """A cell's graph in inference, with floats that come of whole numbers as further feeds."""

    graph: CellGraph  # its feeds are those of the cell, then one for each of `derived`
    derived: Graph  # from the cell's inputs to the floats that whole numbers stand for
    directions: Directions
    # for each feed of `graph` that is a float, the feed of the cell that it comes of, and the table, if any
    origins: dict[int, tuple[int, Parameter | None]]
    fixed_values: dict[
        Node, Value
    ]  # what is the same in all calls: parameters, and what is made of them alone


@dataclass(frozen=True, slots=True)
class InputAttribution:
    """One read of an example's data, and its part of a number; arrays have the shape of `value`."""

    cell: int
    call: int
    feed: int  # the cell's feed that was read; -1 where the whole number is a result of another call
    table: Parameter | None  # whose row it is
    value: Array  # the floats
    gradient: Array  # how the number changes with them
    integrated: Array  # the integrated gradients; their sum over all reads is the number less that at zeros


def attributed(
    model: Model, trace: Trace, seeds: Seeds, steps: int
) -> tuple[float, float, list[InputAttribution]]:
    """Return a number f that a model computes of an example, f where inputs are 0, and their parts.

    f is the sum of values times their seeds. Integrated gradients are the mean of gradients on the straight
    line from zeros to the inputs, times the inputs; the integral is a sum of `steps` terms, that of
    Gauss and Legendre.

    Args:
        model: the model.
        trace: the example, its feeds keyed.
        seeds: values of the trace by number, and cotangents.
        steps: how many points on the line are computed.

    Raises:
        CallError: when an id is out of range.
    """
    cells = [opened(model, k) for k in range(len(model.cells))]

    def run(share: float) -> MovedEvaluation:
        evaluation = MovedEvaluation(
            model, trace, directions=[cell.directions for cell in cells], cells=cells, share=share
        )
        evaluation.forward()
        return evaluation

    def number(evaluation: MovedEvaluation) -> float:
        return float(sum(np.vdot(evaluation.values[i], seed) for i, seed in seeds))

    complete = run(1.0)
    complete.backward(seeds)
    points, weights = np.polynomial.legendre.leggauss(steps)
    sums: dict[tuple[int, int, int], Array] = {}
    for point, weight in zip((points + 1) / 2, weights / 2, strict=True):
        moved = run(float(point))
        moved.backward(seeds)
        for key, gradient in moved.gradients_of_reads():
            sums[key] = sums.get(key, 0.0) + weight * gradient
    gradients = dict(complete.gradients_of_reads())
    entries = []
    for (k, i, j), value in complete.reads.items():
        feed, table = cells[k].origins[j]
        x = np.asarray(value, np.float64)
        zeros = np.zeros_like(x)
        gradient, mean = gradients.get((k, i, j), zeros), sums.get((k, i, j), zeros)
        entries.append(InputAttribution(k, i, feed, table, x, gradient, x * mean))
    return number(complete), number(run(0.0)), entries


def opened(model: Model, k: int) -> OpenedCell:
    """Return a cell of a model with each float that whole numbers of an example stand for as a feed."""
    cell = model.cells[k]
    built = transformed(cell.built, partial(in_phase, training=False))
    data = [x for x in built.inputs if not x.type.is_float]
    derived = _first_floats(built, data)
    inputs = [input_node(node.type, node.axis, "derived") for node in derived]
    count = len(built.feeds)
    results = iter(substitute(built.results, dict(zip(derived, inputs, strict=True))))
    parts = [tuple(next(results) for _ in part) for part in (built.outputs, built.losses, built.metrics)]
    graph = CellGraph(built.name, built.operands, (*built.feeds, *inputs), *parts)
    origins: dict[int, tuple[int, Parameter | None]] = {
        i: (i, None) for i, x in enumerate(built.feeds) if x.type.is_float
    }
    keys = {built.feeds[i] for i in model.keys[k]}
    for j, node in enumerate(derived):
        behind = reachable([node], built.inputs)
        feeds = [i for i, x in enumerate(built.feeds) if x in behind and x not in keys]
        tables = [x.attrs["parameter"] for x in behind if x.op is PARAMETER]
        origins[count + j] = (feeds[0] if feeds else -1, tables[0] if len(tables) == 1 else None)
    floats = frozenset(i for i, x in enumerate(graph.operands) if x.type.is_float)
    outputs = frozenset(i for i, x in enumerate(graph.outputs) if x.type.is_float)
    ends = Ends(
        active_operands=floats,
        active_outputs=outputs,
        active_feeds=frozenset(origins),
        trained=False,
        losses=False,
    )
    forward = graph.joined
    seeds, targets = cotangents(graph, ends)
    backward = Graph((*graph.inputs, *seeds.values()), tuple(node for _, node in targets))
    derived_graph = Graph(built.inputs, tuple(derived))
    fixed = tuple(_fixed([*derived, *forward.outputs, *backward.outputs]))
    fixed_values = dict(zip(fixed, evaluate(Graph((), fixed), []), strict=True))
    directions = Directions(forward, frozenset(forward.nodes), seeds, targets, backward)
    return OpenedCell(graph, derived_graph, directions, origins, fixed_values)


def _fixed(nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes whose values are the same in all calls: those that depend on no input."""
    fixed: dict[Node, None] = {}
    for node in reachable(nodes):
        if node.op is not INPUT and node.axis.rank < 2 and all(x in fixed for x in node.inputs):
            fixed[node] = None
    return [*fixed]


def _first_floats(graph: CellGraph, data: Sequence[Node]) -> list[Node]:
    """Return the first floats on each way from whole numbers of an example to a cell's results.

    A float that depends on other floats of the example, as a loss on scores, is none: its whole numbers only
    choose among what is computed.
    """
    integers = set(data)
    floats = {x for x in graph.inputs if x.type.is_float}  # and what depends on them
    derived: dict[Node, None] = {}
    for node in reachable(graph.results, graph.inputs):
        if node in integers or node in floats:
            continue
        if any(x in floats or x in derived for x in node.inputs):
            floats.add(node)
        elif any(x in integers for x in node.inputs):
            if node.type.is_float and node.axis is not UNBATCHED:
                derived[node] = None
            else:
                integers.add(node)
    return [*derived]


@dataclass(slots=True, eq=False, kw_only=True)
class MovedEvaluation(Evaluation):
    """One example whose inputs are all multiplied by a share, from 0 to 1."""

    cells: Sequence[OpenedCell]
    share: float
    # by cell, call and feed of the opened cell, the inputs as the example has them
    reads: dict[tuple[int, int, int], Value] = field(default_factory=dict)

    def evaluate_call(
        self, base: int, k: int, i: int, inputs: list[object], numbers: list[list[int]]
    ) -> list[Value]:
        """Return the results of a call whose inputs are moved."""
        cell = self.cells[k]
        data = [*inputs, *self.evaluate_graph(k, i, cell.derived, inputs, cell.fixed_values)]
        first = len(cell.graph.operands)
        for j in cell.origins:
            self.reads[k, i, j] = data[first + j]
            data[first + j] = _scaled(data[first + j], self.share)
        self.read[k, i] = data, numbers
        return self.evaluate_graph(k, i, cell.graph.joined, data, cell.fixed_values)

    def evaluate_backward(self, base: int, k: int, i: int, cell: Directions) -> list[Value]:
        """Return the results of the backward graph of a call."""
        inputs = self.backward_inputs(base, k, i, cell)
        return evaluate(cell.backward, inputs, self.dtype, fixed=self.cells[k].fixed_values)

    def gradients_of_reads(self) -> list[tuple[tuple[int, int, int], Array]]:
        """Return the gradient of each input, by cell, call and feed of the opened cell."""
        return [
            ((k, i, j), np.asarray(gradient))
            for (k, j), by_call in self.inputs.items()
            for i, gradient in by_call.items()
        ]


def _scaled(value: Value, share: float) -> Value:
    if isinstance(value, list):
        return [np.asarray(x, np.float64) * share for x in value]
    return np.asarray(value, np.float64) * share
