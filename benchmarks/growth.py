"""The cases ``chain``, ``star`` and ``balanced``: how a training step grows with one example's nodes.

A chain is an LSTM over a sentence, a level for each word; a star a child-sum Tree-LSTM of one node with many
leaves, one level however many they are; a balanced tree a binary Tree-LSTM whose levels grow with the
logarithm of its leaves. Whatever the shape, seconds for each node should stay the same.

Every step traces its example anew, and no word occurs twice in one, so that nothing is shared. The loss is
half the square of the last state.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import log
from statistics import median
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.case import Case
from benchmarks.figures import Figure, log_axes, new_figure
from benchmarks.inside import backend_name
from benchmarks.measure import Timing, interleave
from benchmarks.options import positive
from foldbatch import (
    RNN,
    AllOf,
    Block,
    ChildSumTreeLSTM,
    Embedding,
    ForwardDeclaration,
    Function,
    GetItem,
    Loss,
    LSTMCell,
    Map,
    OneOf,
    Record,
    Scalar,
    TreeLSTM,
    Void,
    compile,
    ops,
)
from foldbatch.errors import FoldbatchError
from foldbatch.trees import Tree
from foldbatch.types import BackendName

SMALLEST = 64  # nodes; below, what a step costs whatever its size is all there is to see
PHASES = ("trace", "merge", "tables", "ready", "forward", "backward")


@dataclass(frozen=True, slots=True)
class Row:
    """What one size costs.

    Attributes:
        nodes: words of the chain, children of the star, leaves of the balanced tree.
        step: seconds of a training step.
        phases: seconds of its parts, see `PHASES`; medians of runs of their own.
        levels: groups of calls that run one after the other.
        kernels: kernels called, forward and backward.
        buffer_bytes: bytes of the buffers that an example needs.
    """

    nodes: int
    step: Timing
    phases: dict[str, float]
    levels: int
    kernels: int
    buffer_bytes: int

    @property
    def each(self) -> float:
        """Seconds of a step for each node."""
        return self.step.median / self.nodes


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run of a case found.

    Attributes:
        case: its name.
        options: hidden, repeats, backend.
        rows: by size, ascending.
    """

    case: str
    options: dict[str, Any]
    rows: tuple[Row, ...]

    @property
    def exponent(self) -> float | None:
        """By what power of the nodes time grows over the last doublings (three at most): 1 is linear."""
        rows = self.rows[-4:]
        if len(rows) < 2:
            return None
        return log(rows[-1].step.median / rows[0].step.median) / log(rows[-1].nodes / rows[0].nodes)


@dataclass(frozen=True, slots=True)
class Growth:
    """One case.

    Attributes:
        nodes: what they are called.
        model: made for a size of h and c, and a number of words.
        example: made for a number of nodes.
    """

    nodes: str
    model: Callable[[int, int], Block[Any, Any]]
    example: Callable[[int], Any]


def chain(hidden: int, words: int) -> Block[Any, Any]:
    """Return the model of a chain: an LSTM over a list of words."""
    last = Map(_word(hidden, words)) >> RNN(LSTMCell(hidden)) >> GetItem(1) >> GetItem(0)
    return last >> _loss()


def star(hidden: int, words: int) -> Block[Any, Any]:
    """Return the model of a star: one node over a list of words."""
    cell = ChildSumTreeLSTM(hidden)
    leaf = AllOf(_word(hidden, words), Record(())) >> cell
    return AllOf(Void(), Map(leaf)) >> cell >> GetItem(0) >> _loss()


def balanced(hidden: int, words: int) -> Block[Any, Any]:
    """Return the model of a binary tree, whose leaves' labels are words."""
    cell = TreeLSTM(hidden)
    tree = ForwardDeclaration(output_type=(hidden, hidden), name="tree")
    leaf = AllOf(GetItem("label") >> _word(hidden, words), Record(())) >> cell
    node = AllOf(Void(), Record((tree(), tree()))) >> cell
    tree.resolve_to(OneOf(lambda t: t.is_leaf, {True: leaf, False: node}))
    return tree() >> GetItem(0) >> _loss()


def balanced_tree(leaves: int) -> Tree:
    """Return a binary tree each of whose nodes has as many leaves left as right, or one less.

    >>> balanced_tree(5).height, balanced_tree(8).height, balanced_tree(8).size
    (3, 3, 15)
    """
    parents: list[int] = []
    labels: list[int | None] = []
    todo = [(0, leaves, -1)]
    while todo:  # a node, then what lies right of it: post-order from its end
        start, stop, parent = todo.pop()
        if stop - start > 1:
            middle = (start + stop) // 2
            todo += [(start, middle, len(parents)), (middle, stop, len(parents))]
        labels.append(None if stop - start > 1 else start)
        parents.append(parent)
    last = len(parents) - 1
    return Tree([last - p if p >= 0 else -1 for p in reversed(parents)], labels[::-1])


def _words(count: int) -> list[int]:
    return list(range(count))


# a tree's root, in place of the tree, is traced anew each time
SHAPES = {
    "chain": Growth("words", chain, _words),
    "star": Growth("children", star, _words),
    "balanced": Growth("leaves", balanced, lambda leaves: balanced_tree(leaves).root),
}


def _word(hidden: int, words: int) -> Block[Any, Any]:
    return Scalar("int32") >> Embedding(words, hidden)


def _loss() -> Block[Any, Any]:
    return Function(lambda h: 0.5 * ops.sum(h * h)) >> Loss()


def run(
    case: str, nodes: int = 16_384, hidden: int = 150, repeats: int = 7, backend: BackendName = "auto"
) -> Outcome:
    """Measure a case at sizes that double, up to a largest.

    Args:
        case: one of `SHAPES`.
        nodes: the largest size.
        hidden: size of h and c.
        repeats: runs of each size.
        backend: what computes (see `foldbatch.compile`).
    """
    growth = SHAPES[case]
    program = compile(growth.model(hidden, nodes), backend)
    examples = {size: [growth.example(size)] for size in sizes(nodes)}
    first = {size: program.describe(example) for size, example in examples.items()}
    tasks = {str(size): partial(program.value_and_grad, example) for size, example in examples.items()}
    steps = interleave(tasks, repeats)
    rows = []
    for size, example in examples.items():
        found = [program.describe(example, compare=False).phases for _ in range(repeats)]
        phases = {name: median(seconds[name] for seconds in found) for name in PHASES}
        report = first[size]
        kernels = report.calls_forward + report.calls_backward
        rows.append(Row(size, steps[str(size)], phases, report.steps, kernels, report.buffer_bytes))
    options = {"hidden": hidden, "repeats": repeats, "backend": backend_name(backend)}
    return Outcome(case, options, tuple(rows))


def sizes(nodes: int) -> list[int]:
    """Return sizes that double up to a largest.

    >>> sizes(1000), sizes(3)
    ([125, 250, 500, 1000], [3])
    """
    found = [nodes]
    while found[0] // 2 >= SMALLEST:
        found.insert(0, found[0] // 2)
    return found


def tables(outcome: Outcome) -> list[Table]:
    """Return the figures for people: a row for each size."""
    growth = SHAPES[outcome.case]
    title = "{}: a training step, hidden {hidden}, backend {backend}".format(outcome.case, **outcome.options)
    exponent = outcome.exponent
    grows = None if exponent is None else f"time grows as the nodes to the power of {exponent:.2f}"
    table = Table(title=title, caption=grows)
    heads = (growth.nodes, "ms", "quartiles", "us a node", "to size before")
    for head in (*heads, *(f"{name}, us a node" for name in PHASES), "levels", "kernel calls", "MB"):
        table.add_column(head, justify="right")
    befores: Sequence[Row | None] = (None, *outcome.rows)
    for before, row in zip(befores, outcome.rows, strict=False):
        step = row.step
        table.add_row(
            str(row.nodes),
            f"{step.median * 1e3:.4g}",
            f"{step.low * 1e3:.4g} to {step.high * 1e3:.4g}",
            f"{row.each * 1e6:.3g}",
            "" if before is None else f"{row.each / before.each:.2f}",
            *(f"{seconds / row.nodes * 1e6:.3g}" for seconds in row.phases.values()),
            str(row.levels),
            str(row.kernels),
            f"{row.buffer_bytes / 1e6:.1f}",
        )
    return [table]


def as_dict(outcome: Outcome) -> dict[str, Any]:
    """Return everything as plain data, with seconds for each node."""
    rows = zip(outcome.rows, asdict(outcome)["rows"], strict=True)
    each = [plain | {"seconds_a_node": row.each} for row, plain in rows]
    return asdict(outcome) | {"rows": each, "exponent": outcome.exponent}


def figure(outcome: Outcome) -> Figure:
    """Return the seconds of a step and of its parts over the nodes; the grey line is linear."""
    found, (axes,) = new_figure()
    nodes = np.array([row.nodes for row in outcome.rows])
    axes.plot(nodes, [row.step.median * 1e3 for row in outcome.rows], "o-", color="black", label="step")
    for name in PHASES:
        axes.plot(nodes, [row.phases[name] * 1e3 for row in outcome.rows], "o-", ms=3, label=name)
    axes.plot(nodes, nodes * outcome.rows[-1].each * 1e3, "--", color="0.7", zorder=0, label="linear")
    log_axes(axes, f"{outcome.case}: {SHAPES[outcome.case].nodes}", "ms")
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of these cases."""
    largest = "the largest size; the others are a half, a quarter, ... of it (default 16384)"
    parser.add_argument("--nodes", type=positive, default=16_384, metavar="N", help=largest)
    parser.add_argument(
        "--hidden", type=positive, default=150, metavar="N", help="size of h and c (default 150)"
    )
    parser.add_argument("--repeats", type=positive, default=7, metavar="N", help="runs a size (default 7)")
    parser.add_argument("--backend", default="auto", help="auto, llvm or numpy (default auto)")


def run_options(options: argparse.Namespace, case: str) -> Outcome:
    """Run a case with parsed options."""
    least = 2 if case == "balanced" else 1
    for name, value, limit in (
        ("nodes", options.nodes, least),
        ("hidden", options.hidden, 1),
        ("repeats", options.repeats, 1),
    ):
        if value < limit:
            raise FoldbatchError(f"--{name}", f"{limit} or more", str(value))
    return run(case, options.nodes, options.hidden, options.repeats, options.backend)


CASES = tuple(
    Case(
        name,
        f"a training step as one {name} example doubles: time should grow as its nodes do",
        add_arguments,
        partial(run_options, case=name),
        tables,
        as_dict,
        figure,
    )
    for name in SHAPES
)
