"""The case ``functions``: a plain function beside the same model of blocks, and what learning costs."""

from __future__ import annotations

import statistics
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from rich.console import RenderableType
from rich.table import Table

import foldbatch as fb
from benchmarks.case import Case
from benchmarks.figures import COLOURS, Figure, new_figure
from benchmarks.options import add_data, positive, trees_of
from benchmarks.workload import CLASSES, draw_batches, lstm_reading, tree_lstm, unseen
from foldbatch import ops
from foldbatch.functions.notes import note
from foldbatch.functions.readings import Reading, Readings
from foldbatch.trees import Tree, Vocabulary

MOST = 1 << 60  # numbers of an example
CELLS = 200  # of the large model


class Plain(NamedTuple):
    """A node of a tree as a plain object."""

    word: int
    label: int
    kids: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A way to give examples, at a batch size: rates of the function as multiples of the block's.

    Attributes:
        examples: trees, ``new``, never seen before, or ``known``; or ``objects``, which are always new.
        batch: the size.
        train: of training steps.
        infer: of inference.
    """

    examples: str
    batch: int
    train: float
    infer: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found.

    Attributes:
        source: of the trees.
        noted: microseconds a node to note, by the kind of objects, the user's walk included.
        alone: the same of the walk alone, without cells.
        calls: kernel calls of a batch, forward and backward, by door.
        rows: the rates.
        compiled: CPU seconds to learn and link a model of `CELLS` cells, to link it again for a new wire, and
            of the first steps after each.
    """

    source: str
    noted: dict[str, float]
    alone: dict[str, float]
    calls: dict[str, tuple[int, int]]
    rows: tuple[Row, ...]
    compiled: dict[str, float]


def words_of(trees: Sequence[Tree]) -> Vocabulary:
    """Return the words of trees."""
    return Vocabulary(sorted({word for tree in trees for word in tree.tokens if word}))


def walk_of(hidden: int, vocabulary: Vocabulary) -> Any:
    """Return the model of `benchmarks.workload` as a function of a `Tree`."""
    leaf, node, score, root = cells_of(hidden, len(vocabulary))
    number = vocabulary.__getitem__

    def tree(t: Any) -> Any:
        if t.is_leaf:
            state = leaf(number(t.token))
        else:
            left, right = t
            state = node(tree(left), tree(right))
        score(state, t.label)
        return state

    return lambda t: root(tree(t))


def cells_of(hidden: int, words: int) -> tuple[Any, Any, Any, Any]:
    """Return the cells of a leaf, of a node, of a score, and of the result."""
    embedding = fb.Embedding(words, hidden, name="embedding")
    leaf_gates, node_gates = fb.Linear(3 * hidden, name="leaf"), fb.Linear(5 * hidden, name="node")
    classify = fb.Linear(CLASSES, name="out")

    @fb.cell
    def leaf(word: Any) -> Any:
        gates = leaf_gates(embedding(word))
        i, o = ops.split(ops.sigmoid(gates[: 2 * hidden]), 2)
        c = i * ops.tanh(gates[2 * hidden :])
        return o * ops.tanh(c), c

    @fb.cell
    def node(left: Any, right: Any) -> Any:
        gates = node_gates(ops.concat([left[0], right[0]]))
        i, f_left, f_right, o = ops.split(ops.sigmoid(gates[: 4 * hidden]), 4)
        c = i * ops.tanh(gates[4 * hidden :]) + f_left * left[1] + f_right * right[1]
        return o * ops.tanh(c), c

    @fb.cell
    def score(state: Any, label: Any) -> None:
        fb.loss(ops.cross_entropy(classify(state[0]), label))

    @fb.cell
    def root(state: Any) -> Any:
        return classify(state[0])

    return leaf, node, score, root


def plain(node: Any, vocabulary: Vocabulary) -> Plain:
    """Return a node of a tree as plain objects."""
    if node.is_leaf:
        return Plain(vocabulary[node.token], node.label, ())
    return Plain(0, node.label, tuple([plain(kid, vocabulary) for kid in node]))


def of_plain(hidden: int, words: int) -> tuple[Any, Any]:
    """Return the model for `Plain` nodes, as a block and as a function."""
    leaf, node, score, root = cells_of(hidden, words)

    def tree(t: Plain) -> Any:
        if t.kids:
            left, right = t.kids
            state = node(tree(left), tree(right))
        else:
            state = leaf(t.word)
        score(state, t.label)
        return state

    word, label = (fb.InputTransform(attrgetter(name)) >> fb.Scalar("int32") for name in ("word", "label"))
    block = lstm_reading(hidden, words, word, label, lambda t: not t.kids, attrgetter("kids"))
    return block, lambda t: root(tree(t))


def noting(trees: Sequence[Tree], vocabulary: Vocabulary, repeats: int) -> tuple[dict[str, float], Any]:
    """Return microseconds a node to note plain objects and trees, and those of the walks alone."""

    def bare(t: Plain) -> int:
        if t.kids:
            left, right = t.kids
            return bare(left) + bare(right) + t.label
        return t.word + t.label

    def bare_tree(t: Any) -> Any:
        if t.is_leaf:
            return vocabulary[t.token] + t.label
        left, right = t
        return bare_tree(left) + bare_tree(right) + t.label

    objects = [plain(t, vocabulary) for t in trees]
    nodes = sum(len(t.parents) for t in trees)
    ways: dict[str, tuple[Any, Any, list[Any]]] = {
        "plain objects": (of_plain(8, len(vocabulary))[1], bare, objects)
    }
    ways["trees"] = walk_of(8, vocabulary), bare_tree, list(trees)
    noted, alone = {}, {}
    for name, (walk, without, examples) in ways.items():
        program = fb.compile(walk)
        program.warm(examples[:8])
        known = [*program.lowered.learnt.cells]  # type: ignore[attr-defined]
        reading = Reading(examples, range(len(examples)), Readings())
        run = partial(note, walk, reading, known, MOST)
        loop = partial(_each, without, examples)
        noted[name], alone[name] = (
            1e6 * min(cpu(timed) for _ in range(repeats)) / nodes for timed in (run, loop)
        )
    return noted, alone


def _each(function: Any, examples: Sequence[Any]) -> None:
    for example in examples:
        function(example)


def cpu(run: Callable[[], Any]) -> float:
    """Return the CPU seconds of a call."""
    start = time.process_time()
    run()
    return time.process_time() - start


def paired(one: Callable[[], Any], other: Callable[[], Any], repeats: int) -> float:
    """Return how much faster the second is: the median of turns that alternate."""
    return ratio(partial(cpu, one), partial(cpu, other), repeats)


def ratio(one: Callable[[], float], other: Callable[[], float], repeats: int) -> float:
    """Return the same of what return their times."""
    one(), other()
    return statistics.median(one() / other() for _ in range(repeats))


def rates(trees: Sequence[Tree], hidden: int, sizes: Sequence[int], repeats: int) -> tuple[Any, list[Row]]:
    """Return kernel calls of both doors, and the function's rates as multiples of the block's."""
    vocabulary = words_of(trees)
    readers = (tree_lstm(hidden, vocabulary), walk_of(hidden, vocabulary))
    programs = [fb.compile(model, threads=1) for model in readers]
    objects = [fb.compile(model, threads=1) for model in of_plain(hidden, len(vocabulary))]
    programs[1].warm(unseen(trees[:64]))
    objects[1].warm([plain(tree, vocabulary) for tree in trees[:64]])
    rows, calls = [], {}
    for name, program in zip(("blocks", "functions"), programs, strict=True):
        report = program.describe(unseen(trees[:16]))
        calls[name] = report.calls_forward, report.calls_backward
    ways: dict[str, tuple[list[Any], Any]] = {"new": (programs, unseen), "known": (programs, list)}
    ways["objects"] = objects, partial(_plainly, vocabulary)
    for size in sizes:
        for examples, (pair, given) in ways.items():
            made = partial(_made, given, draw_batches(trees, size))
            timed = [[_on(program, made, learn=learn) for program in pair] for learn in (True, False)]
            rows.append(Row(examples, size, *(ratio(a, b, repeats) for a, b in timed)))
    return calls, rows


def _made(given: Callable[[Any], Any], batches: Sequence[Any]) -> list[Any]:
    return [given(batch) for batch in batches]


def _plainly(vocabulary: Vocabulary, trees: Sequence[Tree]) -> list[Plain]:
    return [plain(tree, vocabulary) for tree in trees]


def _on(program: fb.Program, batches: Callable[[], Any], *, learn: bool) -> Callable[[], float]:
    """Return what runs a program on some batches, and returns the CPU seconds of it."""
    adam = fb.Adam(lr=1e-3)

    def run(made: Sequence[Any]) -> None:
        for batch in made:
            if learn:
                adam.update(program.params, program.value_and_grad(batch)[1])
            else:
                program.run(batch)

    return lambda: cpu(partial(run, batches()))


def compiling() -> dict[str, float]:
    """Return CPU seconds of a model of many cells: learning all, and again for a new wire."""
    made = [_layer(number) for number in range(CELLS)]

    def walk(example: Any) -> Any:
        h = fb.tensor([1.0] * 8)
        for number in example:
            h = made[number](h)
        return ops.sum(h)

    program = fb.compile(lambda x: fb.loss(walk(x)))
    found = {}
    whole, crossed = list(range(CELLS)), [0, *range(2, CELLS)]
    for name, example in (("all cells", whole), ("a new wire", crossed)):
        found[f"learn and link {name}"] = cpu(partial(program.warm, [example]))
        found[f"first step after {name}"] = cpu(partial(program.value_and_grad, [example]))
    found["a step"] = min(cpu(lambda: program.value_and_grad([crossed])) for _ in range(5))
    return found


def _layer(number: int) -> Any:
    linear = fb.Linear(8, name=f"layer{number}")
    return fb.cell(lambda h: ops.tanh(linear(h)))


def _run(options: Namespace) -> Outcome:
    trees, source = trees_of(options, options.trees)
    vocabulary = words_of(trees)
    noted, alone = noting(trees[:256], vocabulary, options.repeats)
    calls, rows = rates(trees, options.hidden, options.batch, options.repeats)
    return Outcome(f"{len(trees)} {source}", noted, alone, calls, tuple(rows), compiling())


def _add_arguments(parser: ArgumentParser) -> None:
    add_data(parser)
    parser.add_argument("--trees", type=positive, default=1024, help="how many trees (default 1024)")
    parser.add_argument("--hidden", type=positive, default=150, help="size of states (default 150)")
    parser.add_argument("--batch", type=positive, nargs="+", default=[16, 256], help="batch sizes")
    parser.add_argument("--repeats", type=positive, default=15, help="alternations (default 15)")


def _tables(outcome: Outcome) -> list[RenderableType]:
    noted = Table(title="Microseconds a node of two calls")
    for name in ("objects", "noted", "the walk alone"):
        noted.add_column(name)
    for name, time_ in outcome.noted.items():
        noted.add_row(name, f"{time_:.2f}", f"{outcome.alone[name]:.2f}")
    rates_ = Table(title="The function's rate, as a multiple of the block's")
    for name in ("examples", "batch", "training", "inference"):
        rates_.add_column(name)
    for row in outcome.rows:
        rates_.add_row(row.examples, str(row.batch), f"{row.train:.2f}", f"{row.infer:.2f}")
    compiled = Table(title=f"A model of {CELLS} cells, CPU milliseconds")
    for name in ("what", "ms"):
        compiled.add_column(name)
    for name, seconds in outcome.compiled.items():
        compiled.add_row(name, f"{1e3 * seconds:.0f}")
    calls = ", ".join(f"{door} {a} + {b}" for door, (a, b) in outcome.calls.items())
    return [f"on {outcome.source}", noted, rates_, f"kernel calls of 16 trees: {calls}", compiled]


def _as_dict(outcome: Outcome) -> dict[str, Any]:
    return asdict(outcome)


def _figure(outcome: Outcome) -> Figure:
    """Draw the rates, and 1 as a line."""
    figure, (axes,) = new_figure()
    for k, what in enumerate(("train", "infer")):
        heights = [i + (k - 0.5) * 0.4 for i in range(len(outcome.rows))]
        axes.barh(heights, [getattr(row, what) for row in outcome.rows], 0.38, color=COLOURS[k], label=what)
    axes.axvline(1.0, color="grey")
    axes.set_yticks(range(len(outcome.rows)), [f"{row.examples}, {row.batch}" for row in outcome.rows])
    axes.invert_yaxis()
    axes.set_xlabel("rate, as a multiple of the block's")
    axes.legend()
    return figure


CASE = Case(
    "functions",
    "what a plain function costs beside the same model of blocks, and what learning costs",
    _add_arguments,
    _run,
    _tables,
    _as_dict,
    _figure,
)
