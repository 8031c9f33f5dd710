"""The interpreter of a model: the calls of one example one after the other, op by op, without kernels.

It has no schedule, no arena and no generated code. The reference engine runs it in float64 as the oracle,
`find_nan` with a look at each value, and `Block.eval` for a single example.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from foldbatch.errors import ExampleError, ExamplePlace, counted
from foldbatch.model.model import Model
from foldbatch.params.parameters import Array, Parameter
from foldbatch.scheduler.trace import Trace, arguments_of, lengths_of
from foldbatch.static.cell import Cell, ResultKey, cotangents
from foldbatch.static.evaluate import IdError, Value, evaluate
from foldbatch.static.graph import Graph, Node
from foldbatch.static.op import OF_LIST, id_of_code

NO_VALUES: Mapping[Node, Value] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Directions:
    """The graphs of a cell: forward, and that of its gradients with what it is given and what it yields."""

    forward: Graph
    nodes: frozenset[Node]  # of the forward graph
    seeds: Mapping[int, Node]  # by output, the input that holds its cotangent
    targets: Sequence[tuple[ResultKey, Node]]  # the results of the backward graph, by what they are of
    backward: Graph


def directions_of(cell: Cell) -> Directions:
    """Return the graphs of a cell while it trains, forward and backward, to be evaluated op by op."""
    forward = cell.graph.joined
    seeds, targets = cotangents(cell.graph, cell.ends)
    backward = Graph((*cell.graph.inputs, *seeds.values()), tuple(node for _, node in targets))
    return Directions(forward, frozenset(forward.nodes), seeds, targets, backward)


class CallError(IndexError):
    """A call has computed an id that is negative, or too large.

    Attributes:
        cell: the number of the cell.
        call: the number of the call, among those of the cell.
        id: the integer.
        size: the number that it must stay below.
    """

    def __init__(self, cell: int, call: int, id: int, size: int) -> None:
        super().__init__(cell, call, id, size)
        self.cell, self.call, self.id, self.size = cell, call, id, size


@dataclass(slots=True, eq=False)
class Evaluation:
    """One example of a model, evaluated call by call."""

    model: Model
    trace: Trace  # the example
    dtype: str | None = "float64"  # the precision of all floats; None for that of each tensor
    # whether to evaluate the graphs of training, as `backward` needs, or those of inference
    training: bool = True
    directions: Sequence[Directions] = ()  # the graphs of the cells; by default made by `backward`
    values: dict[int, Array] = field(default_factory=dict)  # every value so far, by number
    # by (cell, number), the values in order of calls
    losses: dict[tuple[int, int], list[Array]] = field(default_factory=dict)
    # by (cell, number), the values in order of calls
    metrics: dict[tuple[int, int], list[Array]] = field(default_factory=dict)
    # by (cell, feed), the gradients of data by call, where cells yield them
    inputs: dict[tuple[int, int], dict[int, Array]] = field(default_factory=dict)
    # the gradients of parameters, to which those of the example are added
    gradients: dict[Parameter, Array] = field(default_factory=dict)
    # by cell and call, the inputs of the call, and for each operand the numbers of the values that it reads
    read: dict[tuple[int, int], tuple[list[object], list[list[int]]]] = field(default_factory=dict)
    cotangents: dict[int, Array] = field(default_factory=dict)  # of values, by number
    _starts: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    # -- both passes

    def forward(self) -> None:
        """Evaluate every call, in the order of the trace.

        Raises:
            CallError: when an id is out of range.
        """
        for base, k, i in self.calls():
            graph = self.model.cells[k].graph
            results = self.evaluate_call(base, k, i, *self.inputs_of(k, i))
            remaining = iter(results)
            for j in range(len(graph.outputs)):
                self.values[base + j] = next(remaining)
            for m in range(len(graph.losses)):
                self.losses.setdefault((k, m), []).append(next(remaining))
            for m in range(len(graph.metrics)):
                self.metrics.setdefault((k, m), []).append(next(remaining))

    def backward(self, seeds: Iterable[tuple[int, Array]] = ()) -> dict[Parameter, Array]:
        """Evaluate the backward graph of every call, last call first; return the gradients of parameters.

        Args:
            seeds: pairs of a value's number and a cotangent of it.
        """
        assert self.training, "forward must have run for training"
        for number, g in seeds:
            self.cotangents[number] = np.asarray(self.cotangents.get(number, 0.0) + g, self.dtype)
        directions = self.directions or [directions_of(cell) for cell in self.model.cells]
        for base, k, i in reversed(self.calls()):
            cell = directions[k]
            for (target, node), value in zip(
                cell.targets, self.evaluate_backward(base, k, i, cell), strict=True
            ):
                kind, feed = target
                if kind == "feed":
                    assert isinstance(feed, int)
                    self.inputs.setdefault((k, feed), {})[i] = value
                    continue
                for key, term in self._terms(k, i, target, value):
                    self.add(k, i, key, term, node)
        return self.gradients

    # -- one call; a subclass that looks at values extends these

    def evaluate_call(
        self, base: int, k: int, i: int, inputs: list[object], numbers: list[list[int]]
    ) -> list[Value]:
        """Return the results of a call whose first value has the number `base`."""
        self.read[k, i] = inputs, numbers
        return self.evaluate_graph(
            k, i, self.model.cells[k].phase(training=self.training).graph.joined, inputs
        )

    def evaluate_graph(
        self, k: int, i: int, graph: Graph, inputs: list[object], fixed: Mapping[Node, Value] = NO_VALUES
    ) -> list[Value]:
        """Return the results of a graph of a call; an id out of range is an error of the call."""
        try:
            return evaluate(graph, inputs, self.dtype, fixed=fixed)
        except IdError as error:
            raise CallError(k, i, error.id, error.size) from None

    def evaluate_backward(self, base: int, k: int, i: int, cell: Directions) -> list[Value]:
        """Return the results of the backward graph of a call, from the cotangents of its values."""
        return evaluate(cell.backward, self.backward_inputs(base, k, i, cell), self.dtype)

    def add(self, k: int, i: int, key: Parameter | int, term: Array, node: Node) -> None:
        """Add a term that `node` has yielded to a parameter's gradient, or to a value's cotangent."""
        sums: dict[Any, Array] = self.gradients if isinstance(key, Parameter) else self.cotangents
        sums[key] = np.asarray(sums[key] + term) if key in sums else np.asarray(term)

    # -- the trace

    def calls(self) -> list[tuple[int, int, int]]:
        """Return the calls in the order of the trace: the first value's number, the cell, the call."""
        return sorted(
            (int(base), k, i) for k, rows in enumerate(self.trace.calls) for i, base in enumerate(rows[:, 0])
        )

    def inputs_of(self, k: int, i: int) -> tuple[list[object], list[list[int]]]:
        """Return a call's inputs, and for each operand the numbers of the values it reads."""
        signatures = self.model.signatures
        inputs: list[Any] = []
        read: list[list[int]] = []
        for operand in signatures[k].operands:
            if operand.sequence is None:
                numbers = [int(arguments_of(self.trace, signatures, k)[i, c]) for c in operand.columns]
                parts = [self.values[n] for n in numbers]
                inputs.append(parts[0] if len(parts) == 1 else np.stack(parts))
            else:
                start, stop = self._elements(k, operand.sequence)[i : i + 2]
                numbers = self.trace.elements[k][operand.sequence][start:stop, operand.member].tolist()
                inputs.append([self.values[n] for n in numbers])
            read.append(numbers)
        inputs += [column[i] for column in self.trace.feeds[k]]
        return inputs, read

    def backward_inputs(self, base: int, k: int, i: int, cell: Directions) -> list[object]:
        """Return the inputs of the backward graph of a call: those of the call, and cotangents."""
        inputs, _ = self.read[k, i]
        seeds = [self.cotangents.get(base + j, np.zeros(x.shape, x.dtype)) for j, x in cell.seeds.items()]
        return [*inputs, *seeds]

    def error_of(self, error: CallError, example: int) -> ExampleError:
        """Return the error for users of an id out of range, given the number of the example."""
        sequences, length = len(self.model.signatures[error.cell].sequences), None
        if sequences == 1:
            start, stop = self._elements(error.cell, 0)[error.call : error.call + 2]
            length = stop - start
        where = ExamplePlace(self.model.cells[error.cell].name, example)
        return id_error(where, error.id, error.size, length)

    def _terms(self, k: int, i: int, target: ResultKey, value: Value) -> list[tuple[Parameter | int, Array]]:
        """Return the terms that a result of a cell's backward graph adds to a gradient, or to cotangents."""
        _, key = target
        if isinstance(key, Parameter):
            return [(key, value)]
        assert isinstance(key, int)
        operand = self.model.signatures[k].operands[key]
        single = operand.sequence is None and len(operand.columns) == 1
        return list(zip(self.read[k, i][1][key], [value] if single else value, strict=True))

    def _elements(self, k: int, sequence: int) -> list[int]:
        """Return where the elements of each of a cell's calls start, and where the last ones end."""
        if (k, sequence) not in self._starts:
            lengths = lengths_of(self.trace, self.model.signatures, k, sequence)
            self._starts[k, sequence] = [0, *np.cumsum(lengths).tolist()]
        return self._starts[k, sequence]


def id_error(where: str, id: int, size: int, length: int | None) -> ExampleError:
    """Return the error for an id out of range, or for the code of an element that a list does not have.

    Args:
        where: the cell and the example.
        id: the integer.
        size: the number that it must stay below; `OF_LIST` for a list's elements.
        length: that of the list; None where it is not known which list is meant.
    """
    fix = "correct what computes the id"
    if size != OF_LIST:
        return ExampleError(where, f"ids from 0 to {size - 1}", str(id), fix)
    number = id_of_code(id)
    if length is None:
        return ExampleError(where, "the number of an element of the list", number, fix)
    if not length:
        fix = "look elements up only where the list has some"
        return ExampleError(where, "a list of at least one element", f"an empty list, and id {number}", fix)
    expected = f"ids from 0 to {length - 1}, as the list has {counted(length, 'element')}"
    return ExampleError(where, expected, number, fix)
