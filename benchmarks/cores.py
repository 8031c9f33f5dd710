"""What many cores gain, ``python -m benchmarks.cores``: a model on paper, from figures of one core.

A batch is cut into parts, one a core (`foldbatch.engines.threads`). A training step of P parts takes::

    plan(whole) + kernels(part) + (P - 1) * add + update

`plan` is Python and holds the interpreter, so parts wait for each other there; `kernels` of a part are
measured on the part itself, whose levels are thinner; `add` is the sum of two parts' gradients, `update`
Adam's. Weights are read from each core's own cache, so memory is no term. Beside it stands a step in one
and in two threads, by the clock. Run it where nobody else works; or look at CPU time alone (``--cpu``).
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import Any

import numpy as np

import foldbatch as fb
from benchmarks.functions import words_of
from benchmarks.inside import available_cores
from benchmarks.options import add_backend, add_data, add_repeats, positive, trees_of
from benchmarks.workload import tree_lstm, unseen
from foldbatch.errors import FoldbatchError

CORES = 1, 2, 4, 8, 16, 32, 64


def _milliseconds(work: Callable[[], Any], repeats: int, clock: Callable[[], float]) -> float:
    times = []
    for _ in range(repeats):
        start = clock()
        work()
        times.append(clock() - start)
    return 1e3 * median(times)


def _next(program: fb.Program, batches: Iterator[Any]) -> None:
    program.value_and_grad(next(batches))


def predicted(
    trees: Sequence[Any], hidden: int, repeats: int, backend: Any, clock: Callable[[], float]
) -> list[tuple[int, int, float, float]]:
    """Return for each number of cores: the parts, and milliseconds of a step on known and on new trees."""
    block = tree_lstm(hidden, words_of(trees))
    program, optimizer = fb.compile(block, backend, threads=1), fb.Adam(lr=1e-3)
    _, gradients = program.value_and_grad(trees)
    sums = [np.asarray(getattr(gradient, "values", gradient)) for gradient in gradients.values()]
    others = [each.copy() for each in sums]

    def add() -> None:
        for mine, other in zip(sums, others, strict=True):
            np.add(mine, other, out=mine)

    plan = _milliseconds(lambda: program.plan(trees), repeats, clock)
    fresh = iter([unseen(trees) for _ in range(repeats)])
    plan_new = _milliseconds(lambda: program.plan(next(fresh)), repeats, clock)
    adding = _milliseconds(add, repeats, clock)
    update = _milliseconds(lambda: optimizer.update(program.params, gradients), repeats, clock)
    rows = []
    for cores in CORES:
        parts = len(fb.compile(block, backend, threads=cores).plan(trees).parts)
        planned = [program.plan(trees[i::parts]) for i in range(min(parts, 3))]
        turns = iter([*planned] * (2 * repeats))
        program.value_and_grad(next(turns))
        kernels = _milliseconds(partial(_next, program, turns), repeats, clock)
        rest = kernels + (parts - 1) * adding + update
        rows.append((cores, parts, plan + rest, plan_new + rest))
    return rows


def measured(
    trees: Sequence[Any], hidden: int, repeats: int, backend: Any, threads: int
) -> tuple[float, float]:
    """Return milliseconds of a step on known and on new trees, by the clock."""
    program, optimizer = (
        fb.compile(tree_lstm(hidden, words_of(trees)), backend, threads=threads),
        fb.Adam(lr=1e-3),
    )

    def step(batch: Sequence[Any]) -> None:
        _, gradients = program.value_and_grad(batch)
        optimizer.update(program.params, gradients)

    step(trees)
    fresh = iter([unseen(trees) for _ in range(repeats)])
    known = _milliseconds(lambda: step(trees), repeats, time.perf_counter)
    return known, _milliseconds(lambda: step(next(fresh)), repeats, time.perf_counter)


def main() -> None:
    """Print a table for each size of a batch."""
    parser = ArgumentParser("python -m benchmarks.cores", description=__doc__.split("\n")[0])
    add_data(parser)
    add_backend(parser)
    add_repeats(parser, 9)
    parser.add_argument("--hidden", type=positive, default=150, help="size of states")
    parser.add_argument("--batch", type=positive, nargs="+", default=[64, 256, 1024], help="sizes of batches")
    parser.add_argument("--cpu", action="store_true", help="measure CPU time, on a busy machine")
    options = parser.parse_args()
    try:
        report(options)
    except FoldbatchError as error:
        parser.exit(1, f"error: {error}\n")


def report(options: Namespace) -> None:
    """Measure, and print."""
    clock = time.process_time if options.cpu else time.perf_counter
    trees, what = trees_of(options, max(options.batch))
    print(f"A training step, {what}, hidden {options.hidden}; ms by the model")
    for batch in options.batch:
        print(f"{'batch':>6}{'cores':>7}{'parts':>7}{'known':>9}{'gain':>7}{'new':>9}{'gain':>7}")
        rows = predicted(trees[:batch], options.hidden, options.repeats, options.backend, clock)
        for cores, parts, known, new in rows:
            gains = rows[0][2] / known, rows[0][3] / new
            print(f"{batch:6}{cores:7}{parts:7}{known:9.1f}{gains[0]:7.1f}{new:9.1f}{gains[1]:7.1f}")
        for threads in (1, 2)[: 0 if options.cpu else available_cores()]:
            known, new = measured(trees[:batch], options.hidden, options.repeats, options.backend, threads)
            print(f"{batch:6}{threads:7}{'clock':>7}{known:9.1f}{'':7}{new:9.1f}")


if __name__ == "__main__":
    main()
