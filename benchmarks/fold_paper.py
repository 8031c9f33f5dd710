"""The case ``fold-paper``: Table 1 of TensorFlow Fold's paper, on this machine.

Random binary trees of 128 leaves, states of 1024, batches from 1 to 1024: a program written by hand for
one tree shape (`manual`) against ours on trees of that shape, and on trees that all differ. *Cost* is our
time over that of the program by hand, *speed-up* what batching gains over one tree at a time. All work
from trees on counts; their traces are kept, as from the second epoch on, and the first tracing is timed
apart. A step is loss and gradients; no side updates parameters.

The program by hand comes in two forms. *Node by node* it is Fold's: a network unrolled along the tree,
each node a call on the rows of all trees. *By level* is harder to reach: it batches within a tree, too, has
one product for each weight's gradient, and takes the faster of two ways to use the cores.

Source: Looks et al. 2017 (Deep Learning with Dynamic Computation Graphs), Table 1.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fold_model import fold_model, random_tree, words_of
from benchmarks.inside import available_cores, backend_name, make_ready
from benchmarks.manual import Manual, Rows, Shape, shape_of
from benchmarks.measure import Timing, interleave
from foldbatch import Program, compile
from foldbatch.errors import FoldbatchError
from foldbatch.params.parameters import dense
from foldbatch.trees import Tree
from foldbatch.types import BackendName

TASKS = TRAIN, INFER = "train", "infer"
SIDES = BY_NODE, BY_LEVEL, IDENTICAL, DIFFERENT = "node by node", "by level", "identical", "different"
PLAN = "plan"
TOLERANCE = 1e-3  # relative difference of loss and gradients above which the program by hand is another one
TREES = 8  # at least so many run at each time, as single trees differ in height
FLOATS = 32 * 4  # bytes for each inner node and element of its state, of both programs (measured: 30 floats)

# Fold's own times for this model (CPU: two Xeons of 8 cores; GPU: GTX 1080), Table 1: batch, then seconds of
# manual, dynamic with one shape, dynamic with all shapes.
FOLD_CPU = {
    1: (0.52, 0.26, 0.26),
    32: (1.27, 1.05, 1.10),
    64: (1.64, 1.76, 1.78),
    128: (2.48, 2.95, 3.08),
    256: (4.14, 5.22, 5.25),
    512: (7.54, 9.84, 9.57),
    1024: (14.62, 18.68, 18.37),
}


@dataclass(frozen=True, slots=True)
class Row:
    """What one size of batch costs.

    Attributes:
        batch: number of trees.
        levels: of inner nodes, of the one shape, and the most of the different trees' batches.
        seconds: of one batch, by task and side (``train by level``); ``plan`` is merging
            and scheduling different trees, and filling their launch tables.
        trace: seconds of tracing different trees that are seen for the first time.
        manual: what the program by hand uses cores for: ``sub-batches``, or a product at a time (``BLAS``).
    """

    batch: int
    levels: tuple[int, int]
    seconds: dict[str, Timing]
    trace: float
    manual: str

    def each(self, task: str, side: str) -> float:
        """Return the seconds of one tree."""
        return self.seconds[f"{task} {side}"].median / self.batch

    def cost(self, task: str, side: str, manual: str = BY_LEVEL) -> float:
        """Return our time over that of the program by hand."""
        return self.each(task, side) / self.each(task, manual)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run found.

    Attributes:
        options: leaves, size, backend, cores.
        rows: by size of batch, ascending.
        left_out: sizes of batches that were not run, and why.
    """

    options: dict[str, Any]
    rows: tuple[Row, ...]
    left_out: dict[int, str]

    def speedup(self, row: Row, task: str, side: str) -> float | None:
        """Return what batching gains over a side of its own at batch 1; None if that was not run.

        Fold's speed-up is over the program by hand, node by node.
        """
        first = self.rows[0]
        return first.each(task, side) / row.each(task, DIFFERENT) if first.batch == 1 else None


def run(
    leaves: int = 128,
    size: int = 1024,
    batches: Sequence[int] = (1, 4, 16, 64, 256, 1024),
    repeats: int = 11,
    seconds: float = 60.0,
    backend: BackendName = "auto",
) -> Outcome:
    """Measure batches of trees.

    Args:
        leaves: of each tree.
        size: of a state.
        batches: numbers of trees.
        repeats: the most runs of each task; at least 2.
        seconds: about how long one size of batch may take to be timed, beyond the runs that must be.
        backend: what computes ours (see `foldbatch.compile`).

    Raises:
        FoldbatchError: when the program by hand computes something else.
    """
    rng = np.random.default_rng(0)
    program = compile(fold_model(size, leaves), backend)
    shapes = sorted((random_tree(rng, leaves) for _ in range(33)), key=lambda tree: tree.height)
    shape = shapes[len(shapes) // 2]  # of median height
    rows, left_out = [], {}
    for batch in sorted(set(batches)):
        needed, free = batch * (leaves - 1) * size * FLOATS, _free_bytes()
        if needed > free:
            left_out[batch] = f"needs about {needed / 2**30:.1f} GiB, of which {free / 2**30:.1f} are free"
            continue
        rows.append(_measure(program, shape, batch, rng, repeats, seconds))
    options = {"leaves": leaves, "size": size, "backend": backend_name(backend), "cores": available_cores()}
    return Outcome(options, tuple(rows), left_out)


def _measure(
    program: Program, shape: Tree, batch: int, rng: np.random.Generator, repeats: int, seconds: float
) -> Row:
    count = max(1, TREES // batch)
    leaves = (shape.size + 1) // 2
    identical = [[words_of(shape, rng) for _ in range(batch)] for _ in range(count)]
    different = [[random_tree(rng, leaves) for _ in range(batch)] for _ in range(count)]
    start = time.perf_counter()
    for trees in different:
        program.prepare(trees)
    trace = (time.perf_counter() - start) / count
    words = [_words(trees) for trees in identical]
    name, manual, spent = _fastest(shape_of(shape), batch, _parameters(program), words)
    _check(program, manual, identical[0], words[0])
    tasks: dict[str, Callable[[], object]] = {PLAN: _each(partial(make_ready, program), different)}
    for task, by_hand, ours in (
        (TRAIN, manual.value_and_grad, program.value_and_grad),
        (INFER, manual.run, program.run),
    ):
        tasks |= {
            f"{task} {BY_NODE}": _each(partial(by_hand, by_node=True), words),
            f"{task} {BY_LEVEL}": _each(by_hand, words),
            f"{task} {IDENTICAL}": _each(ours, identical),
            f"{task} {DIFFERENT}": _each(ours, different),
        }
    runs = max(2, min(repeats, int(seconds / (len(SIDES) * spent))))
    found = interleave(tasks, runs)
    timings = {
        task: Timing(t.median / count, t.low / count, t.high / count, t.runs) for task, t in found.items()
    }
    levels = shape.height, max(tree.height for trees in different for tree in trees)
    return Row(batch, levels, timings, trace, name)


def _each(task: Callable[[Any], object], batches: Sequence[Any]) -> Callable[[], object]:
    return lambda: [task(batch) for batch in batches] and None


def _fastest(
    shape: Shape, batch: int, parameters: dict[str, Any], words: Sequence[Rows]
) -> tuple[str, Manual, float]:
    """Return the faster way to use the cores by hand, with its name and the seconds of both tasks."""
    cores = available_cores()
    ways = {"sub-batches": cores, "BLAS": 0} if cores > 1 else {"one core": 1}
    found: dict[str, float] = {}
    for name, parts in ways.items():
        manual = Manual(shape, batch, parameters, parts=parts)
        tasks = {TRAIN: _each(manual.value_and_grad, words), INFER: _each(manual.run, words)}
        found[name] = sum(timing.median for timing in interleave(tasks, 1).values())
        del manual, tasks  # two of them may not fit
    best = min(found, key=found.__getitem__)
    return best, Manual(shape, batch, parameters, parts=ways[best]), found[best]


def _check(program: Program, manual: Manual, trees: Sequence[Tree], words: Rows) -> None:
    """Refuse to compare what differs in loss or gradients."""
    where = "benchmarks fold-paper, the program by hand"
    (ours, gradients), (loss, found) = program.value_and_grad(trees), manual.value_and_grad(words)
    if not np.isclose(ours, loss, rtol=TOLERANCE):
        raise FoldbatchError(where, f"a loss of {ours:.6g}", f"{loss:.6g}", "the models differ")
    for name, gradient in gradients.items():
        a, b = dense(gradient), dense(found[name])
        difference = float(np.linalg.norm(a - b) / np.linalg.norm(a))
        if not difference <= TOLERANCE:
            expected = f"a gradient of {name} within {TOLERANCE:g}"
            raise FoldbatchError(where, expected, f"one off by {difference:.2g}", "the models differ")


def _parameters(program: Program) -> dict[str, Any]:
    return dict(program.params.items())


def _words(trees: Sequence[Tree]) -> Rows:
    """Return the words of trees of one shape: ``[trees, leaves]``."""
    return np.array([[label for label in tree.labels if label is not None] for tree in trees])


def _free_bytes() -> float:
    """Return the memory that is left, as far as the system tells."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return float("inf")
    available = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return float(available[0]) * 1024 if available else float("inf")
