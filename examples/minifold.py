"""The idea of foldbatch in about 300 lines of NumPy: static cells, integer schedules, batched kernels.

    python examples/minifold.py

Read it from top to bottom. It trains a small recursive network on arithmetic expressions of any shape: is
``3 + (4 - 5)`` positive? Every part has its counterpart in the package, named at the head of each section.

The problem: the network has the shape of the expression, and no two expressions are alike. Run one by one,
each node of each tree costs several NumPy calls on a single row. The solution has four steps:

1. Everything that computes on tensors is a *cell*: a function whose graph is recorded once, on symbols.
2. Walking an example computes nothing. It only notes which cell is called on which earlier results: integers.
3. A *schedule* groups calls of one cell that do not wait for each other, across all examples of a batch.
4. Each group is one kernel on many rows, forward; and in the reverse order, backward.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Expression = Any  # an int from 0 to 9, or a tuple (operator, left, right)

# -- 1. Operators: how to compute each one for a batch of rows, and its derivative
#       (foldbatch/static/ops: one paragraph an operator)
#
# A batched value has the shape [N, width]: a row for each call. A parameter has no batch axis: all rows read
# the same numbers, so its gradient is a sum over rows.


def _summed_to(gradient: Array, shape: tuple[int, ...]) -> Array:
    """Sum a gradient over the batch axis if the operand that it belongs to has none, as a bias."""
    return gradient if gradient.shape == shape else gradient.sum(axis=0)


def _lookup_derivative(gradient: Array, ids: Array, table: Array) -> Array:
    """Add up the gradients of all rows that read the same row of the table."""
    total = np.zeros_like(table)
    np.add.at(total, ids, gradient)
    return total


def _softmax(logits: Array) -> Array:
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def _cross_entropy(logits: Array, labels: Array) -> Array:
    """Return the loss of each row. Shapes: logits [N, classes], labels [N], result [N]."""
    return -np.log(_softmax(logits)[np.arange(len(labels)), labels])


def _cross_entropy_derivative(gradient: Array, logits: Array, labels: Array) -> Array:
    probabilities = _softmax(logits)
    probabilities[np.arange(len(labels)), labels] -= 1
    return gradient[:, None] * probabilities


# name -> (forward(*operands), backward(gradient, result, *operands) -> a gradient, or None, for each operand)
OPERATORS: dict[str, tuple[Callable[..., Array], Callable[..., tuple[Array | None, ...]]]] = {
    "add": (lambda a, b: a + b, lambda g, y, a, b: (_summed_to(g, a.shape), _summed_to(g, b.shape))),
    "matmul": (lambda a, b: a @ b, lambda g, y, a, b: (g @ b.T, a.T @ g)),
    "tanh": (np.tanh, lambda g, y, a: (g * (1 - y * y),)),
    "concat": (
        lambda a, b: np.concatenate([a, b], axis=1),
        lambda g, y, a, b: (g[:, : a.shape[1]], g[:, a.shape[1] :]),
    ),
    "lookup": (
        lambda ids, table: table[ids],
        lambda g, y, ids, table: (None, _lookup_derivative(g, ids, table)),
    ),
    "cross_entropy": (
        _cross_entropy,
        lambda g, y, logits, labels: (_cross_entropy_derivative(g, logits, labels), None),
    ),
}


# -- 2. Graphs: symbols that record which operators a function applies (foldbatch/static/graph.py)


@dataclass(eq=False)
class Symbol:
    """A tensor that has no numbers yet: an input, a parameter, or an operator applied to other symbols."""

    operator: str
    operands: tuple[Symbol, ...] = ()
    name: str = ""  # of a parameter

    def __add__(self, other: Symbol) -> Symbol:
        return Symbol("add", (self, other))

    def __matmul__(self, other: Symbol) -> Symbol:
        return Symbol("matmul", (self, other))


def parameter(name: str) -> Symbol:
    """A table or matrix that training changes."""
    return Symbol("parameter", name=name)


def tanh(a: Symbol) -> Symbol:
    """Apply the hyperbolic tangent to each element."""
    return Symbol("tanh", (a,))


def concat(a: Symbol, b: Symbol) -> Symbol:
    """Join two rows, one after the other."""
    return Symbol("concat", (a, b))


def lookup(ids: Symbol, table: Symbol) -> Symbol:
    """Choose a row of a table for each id."""
    return Symbol("lookup", (ids, table))


def cross_entropy(logits: Symbol, labels: Symbol) -> Symbol:
    """Compute the loss of a classification."""
    return Symbol("cross_entropy", (logits, labels))


# -- 3. Cells: a graph that is recorded once, and runs on any number of rows (foldbatch/static/cell.py)


class Cell:
    """A function of tensors as a static graph.

    The function runs once, here, on symbols. Its first arguments are *operands*, results of other calls; the
    last ones are *data* of the example: an id or a label.
    """

    def __init__(self, function: Callable[..., Symbol], operands: int, data: int) -> None:
        self.name = function.__name__
        self.operands = operands
        self.inputs = [Symbol("input") for _ in range(operands + data)]
        self.output = function(*self.inputs)
        self.order = _topological_order(self.output)

    def forward(self, inputs: Sequence[Array], parameters: dict[str, Array]) -> dict[Symbol, Array]:
        """Compute the graph on rows; return the value of each symbol.

        Shapes: operands [N, width], data [N].
        """
        values = dict(zip(self.inputs, inputs, strict=True))
        for symbol in self.order:
            if symbol.operator == "parameter":
                values[symbol] = parameters[symbol.name]
            elif symbol.operator != "input":
                compute, _ = OPERATORS[symbol.operator]
                values[symbol] = compute(*[values[x] for x in symbol.operands])
        return values

    def backward(
        self, values: dict[Symbol, Array], gradient: Array, parameter_gradients: dict[str, Array]
    ) -> list[Array | None]:
        """Reverse-mode differentiation: from the gradient of the output to those of the inputs.

        Gradients of parameters are added to `parameter_gradients`. The result has a gradient for each input.
        """
        gradients: dict[Symbol, Array] = {self.output: gradient}
        for symbol in reversed(self.order):
            if symbol not in gradients:
                continue
            if symbol.operator == "parameter":
                parameter_gradients[symbol.name] += gradients[symbol]
            elif symbol.operator != "input":
                _, derivative = OPERATORS[symbol.operator]
                operands = [values[x] for x in symbol.operands]
                terms = derivative(gradients[symbol], values[symbol], *operands)
                for operand, term in zip(symbol.operands, terms, strict=True):
                    if term is not None:
                        gradients[operand] = gradients[operand] + term if operand in gradients else term
        return [gradients.get(symbol) for symbol in self.inputs]


def _topological_order(output: Symbol) -> list[Symbol]:
    """Return all symbols that an output needs, each after its operands."""
    order: list[Symbol] = []
    visited: set[Symbol] = set()

    def visit(symbol: Symbol) -> None:
        if symbol not in visited:
            visited.add(symbol)
            for operand in symbol.operands:
                visit(operand)
            order.append(symbol)

    visit(output)
    return order


# -- 4. The model, for ONE expression (what a user of foldbatch writes: cells, and a recursive function)

OPERATIONS = ("+", "-")


def leaf(digit: Symbol) -> Symbol:
    """The state of a number."""
    return tanh(lookup(digit, parameter("digits")))


def node(left: Symbol, right: Symbol, operation: Symbol) -> Symbol:
    """The state of an operation, from the states of both sides."""
    sides = concat(left, right) @ parameter("sides")
    return tanh(sides + lookup(operation, parameter("operations")))


def score(state: Symbol, label: Symbol) -> Symbol:
    """The loss of a whole expression: is its value positive?"""
    return cross_entropy(state @ parameter("classes") + parameter("bias"), label)


# A cell reads results of cells before it in this list, or of its own earlier calls.
CELLS = [Cell(leaf, operands=0, data=1), Cell(node, operands=2, data=1), Cell(score, operands=1, data=1)]
LEAF, NODE, SCORE = range(len(CELLS))


def walk(expression: Expression, trace: Trace) -> None:
    """Describe the model for an expression: note its calls in the trace, and compute nothing."""

    def visit(part: Expression) -> int:
        if isinstance(part, int):
            return trace.call(LEAF, operands=[], data=part)
        operation, left, right = part
        return trace.call(NODE, operands=[visit(left), visit(right)], data=OPERATIONS.index(operation))

    trace.call(SCORE, operands=[visit(expression)], data=int(value_of(expression) > 0))


# -- 5. Traces: the calls of a batch as integers (foldbatch/scheduler/trace.py, functions/notes.py)


@dataclass
class Trace:
    """The calls that examples make, in order. The result of a call is known by the call's number."""

    cells: list[int] = field(default_factory=list)  # per call: which cell
    operands: list[list[int]] = field(default_factory=list)  # per call: the calls whose results it reads
    data: list[int] = field(default_factory=list)  # per call: its id or label
    levels: list[int] = field(default_factory=list)  # per call: how many calls must run before it, one by one

    def call(self, cell: int, operands: list[int], data: int) -> int:
        """Note a call of a cell on the results of earlier calls; return its number."""
        self.cells.append(cell)
        self.operands.append(operands)
        self.data.append(data)
        self.levels.append(1 + max((self.levels[number] for number in operands), default=-1))
        return len(self.cells) - 1


# -- 6. The schedule: calls that may run together (foldbatch/planning/policies.py, layout.py)


@dataclass
class Group:
    """Calls of one cell that run as one kernel, and the rows of memory that they read and write."""

    cell: int
    first_row: int  # the group's results lie side by side from here on
    rows: int
    operand_rows: list[Array]  # per operand of the cell: [rows], where the results that it reads lie
    data: Array  # [rows]


def schedule(trace: Trace) -> list[Group]:
    """Group calls by cell and level, in an order in which every call runs after the calls that it reads.

    All leaves are one group, whatever expression they are from. Nodes are a group a level, as they wait for
    each other. No call waits for a loss, so all losses are one group at the end.
    """
    groups: dict[tuple[int, int], list[int]] = {}
    for number, (cell, level) in enumerate(zip(trace.cells, trace.levels, strict=True)):
        # a loss reads the last node, which is deeper in deeper trees; that is no reason to compute it apart
        groups.setdefault((cell, level if cell == NODE else 0), []).append(number)
    row_of = np.empty(len(trace.cells), np.int64)
    steps: list[Group] = []
    first_row = 0
    for cell, level in sorted(groups):
        calls = groups[cell, level]
        row_of[calls] = np.arange(first_row, first_row + len(calls))
        read = [[trace.operands[call][i] for call in calls] for i in range(CELLS[cell].operands)]
        operand_rows = [row_of[numbers] for numbers in read]
        data = np.array([trace.data[call] for call in calls])
        steps.append(Group(cell, first_row, len(calls), operand_rows, data))
        first_row += len(calls)
    return steps


# -- 7. Running a schedule: forward, and backward in reverse (foldbatch/engines/numpy)


def loss_and_gradients(
    expressions: Sequence[Expression], parameters: dict[str, Array]
) -> tuple[float, dict[str, Array], int]:
    """Run a batch; return the sum of losses, the gradient of each parameter, and the number of kernels."""
    trace = Trace()
    for expression in expressions:
        walk(expression, trace)
    groups = schedule(trace)

    width = parameters["digits"].shape[1]
    arena = np.zeros((len(trace.cells), width))  # a row for the result of each call
    values: list[dict[Symbol, Array]] = []  # per group, of each symbol: the backward pass reads them
    loss = 0.0
    for group in groups:
        cell = CELLS[group.cell]
        inputs = [*(arena[rows] for rows in group.operand_rows), group.data]  # gather
        values.append(cell.forward(inputs, parameters))
        result = values[-1][cell.output]
        if group.cell == SCORE:
            loss += float(result.sum())
        else:
            arena[group.first_row : group.first_row + group.rows] = result

    gradients = {name: np.zeros_like(array) for name, array in parameters.items()}
    arena_gradients = np.zeros_like(arena)
    for group, computed in zip(reversed(groups), reversed(values), strict=True):
        if group.cell == SCORE:
            gradient = np.ones(group.rows)
        else:
            gradient = arena_gradients[group.first_row : group.first_row + group.rows]
        terms = CELLS[group.cell].backward(computed, gradient, gradients)
        for rows, term in zip(group.operand_rows, terms, strict=False):
            np.add.at(arena_gradients, rows, term)  # scatter-add: several calls may have read one result
    return loss, gradients, len(groups)


# -- 8. Data and training


def value_of(expression: Expression) -> int:
    """Compute an expression; this is the answer that the network has to learn."""
    if isinstance(expression, int):
        return expression
    operation, left, right = expression
    a = value_of(left)
    b = value_of(right)
    return a + b if operation == "+" else a - b


def random_expression(generator: random.Random, depth: int) -> Expression:
    """Draw an expression of at most this depth."""
    if depth == 0 or generator.random() < 0.25:
        return generator.randrange(10)
    left = random_expression(generator, depth - 1)
    right = random_expression(generator, depth - 1)
    return generator.choice(OPERATIONS), left, right


def random_parameters(width: int, seed: int = 0) -> dict[str, Array]:
    """Draw parameters for states of a width."""
    generator = np.random.default_rng(seed)
    shapes = {
        "digits": (10, width),
        "sides": (2 * width, width),
        "operations": (len(OPERATIONS), width),
        "classes": (width, 2),
        "bias": (2,),
    }
    return {name: generator.normal(0, 0.3, shape) for name, shape in shapes.items()}


def main(batches: int = 300) -> float:
    """Train on new expressions in each batch; print losses and the gain. Returns the last mean loss."""
    generator = random.Random(0)  # noqa: S311 - drawn data need no secrets
    parameters = random_parameters(width=24)
    mean = 0.0
    for number in range(batches):
        batch = [random_expression(generator, depth=4) for _ in range(64)]
        loss, gradients, kernels = loss_and_gradients(batch, parameters)
        for name, gradient in gradients.items():
            parameters[name] -= 0.5 * gradient / len(batch)
        mean = 0.95 * mean + 0.05 * loss / len(batch) if number else loss / len(batch)
        if number % 100 == 0 or number == batches - 1:
            print(f"batch {number}: mean loss {mean:.3f}, {kernels} kernels for {len(batch)} expressions")

    begin = time.perf_counter()
    loss_and_gradients(batch, parameters)
    together = time.perf_counter() - begin
    begin = time.perf_counter()
    for expression in batch:
        loss_and_gradients([expression], parameters)
    apart = time.perf_counter() - begin
    print(
        f"{len(batch)} expressions take {1000 * together:.1f} ms together, {1000 * apart:.1f} ms one by one"
    )
    return mean


if __name__ == "__main__":
    main()
