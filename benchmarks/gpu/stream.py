"""``python -m benchmarks.gpu.stream``: steps that follow each other, on a simulated card.

A Tree-LSTM trains on a card that computes nothing (`benchmarks.gpu.nothing`), where a graph takes as long as
is said: who waits for it, sleeps. Batches are planned before, known, or new; new ones are traced by the
process that trains, or by workers that open the trees or are sent them. *Ready in time* are batches that the
workers had sent before the first step: so many workers that they keep up cost the process that trains as
much. The wall clock says what a step takes with the cores that there are. The CPU time is that of the process
that trains alone: while it is below the card's time, the card need not wait, given workers enough.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import foldbatch as fb
from benchmarks.gpu import nothing
from benchmarks.gpu.contenders import launch_due
from benchmarks.options import add_batch, positive
from benchmarks.workers import batches_of, model, opened, trees_of
from benchmarks.workload import unseen, words_of
from foldbatch.system.showing import table
from foldbatch.train import LazyAdam, prefetched
from foldbatch.trees import Tree

CARD = 1.17  # milliseconds of a graph: what an H100 takes for 256 trees, see docs/gpu.md
KNOWN = 8  # batches that come in turn, where they are known or planned
WARM = 24  # steps before the first that counts
AHEAD = 2  # losses that are read later


class Clock:
    """The time at which the simulated card has done all that was launched."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds  # of a graph
        self.end = 0.0

    def launch(self, *_: Any) -> None:
        """Launch a graph behind those before it."""
        self.end = max(time.perf_counter(), self.end) + self.seconds


@contextmanager
def simulated(seconds: float) -> Iterator[None]:
    """Let each graph of the card that does nothing take so long."""
    clock = Clock(seconds)

    def record(event: Any, *_: Any) -> None:
        event.at = clock.end

    def wait(event: Any, *_: Any) -> None:
        remaining = getattr(event, "at", clock.end) - time.perf_counter()
        if remaining > 0:
            time.sleep(remaining)

    done = property(lambda event: getattr(event, "at", 0.0) <= time.perf_counter())
    methods: dict[str, Any] = {"launch": clock.launch, "record": record, "synchronize": wait, "done": done}
    with mock.patch.multiple(nothing._Nothing, **methods), nothing.entered():
        yield


def times(program: Any, batches: Iterator[Any], size: int, count: int) -> tuple[float, float]:
    """Return milliseconds a step, by the wall clock and of this process's CPU time.

    Args:
        program: the program.
        batches: without end.
        size: examples of a batch.
        count: how many steps count.
    """
    optimizer, losses = LazyAdam(lr=1e-3), deque[Any]()

    def train(steps: int) -> None:
        for batch in islice(batches, steps):
            loss, gradients = program.value_and_grad(batch)
            optimizer.update(program.params, gradients, scale=1.0 / size)
            launch_due(program)
            losses.append(loss)
            if len(losses) > AHEAD:
                float(losses.popleft())
        while losses:
            float(losses.popleft())

    train(WARM)
    wall, cpu = time.perf_counter(), time.process_time()
    train(count)
    return 1e3 * (time.perf_counter() - wall) / count, 1e3 * (time.process_time() - cpu) / count


def ways(program: Any, trees: Sequence[Tree], options: Any) -> dict[str, Callable[[], Iterator[Any]]]:
    """Return what makes the batches of each way, without end."""
    size = options.batch
    known = list(islice(batches_of(trees, size), KNOWN))
    sending: Callable[[Any], Iterator[Any]] = partial(prefetched, program, workers=options.workers)

    def new() -> Iterator[list[Tree]]:
        return map(unseen, batches_of(trees, size))

    return {
        "planned": lambda: cycle([program.plan(batch) for batch in known]),
        "known": lambda: cycle(known),
        "new, traced here": new,
        f"new, {options.workers} workers open them": lambda: sending(partial(opened, options.data, size)),
        "new, from workers, ready in time": partial(sent_before, sending, options),
        f"new, {options.workers} workers are sent them": lambda: sending(new()),
    }


def sent_before(sending: Callable[[Any], Iterator[Any]], options: Any) -> Iterator[Any]:
    """Return batches that workers have sent, as many as all steps of a table's row run."""
    batches = sending(partial(opened, options.data, options.batch))
    sent = list(islice(batches, options.rounds * (WARM + options.steps)))
    batches.close()  # type: ignore[attr-defined] # a generator
    return iter(sent)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a table; return the exit status."""
    parser = ArgumentParser(
        prog="python -m benchmarks.gpu.stream", description=(__doc__ or "").partition("\n")[0]
    )
    add_batch(parser, 256)
    parser.add_argument("--data", type=Path, metavar="DIR", help="with train.txt (default: random trees)")
    parser.add_argument("--workers", type=positive, default=2, metavar="N", help="processes (default 2)")
    parser.add_argument("--steps", type=positive, default=64, metavar="N", help="that count (default 64)")
    parser.add_argument("--rounds", type=positive, default=3, metavar="N", help="of all steps (default 3)")
    parser.add_argument("--card", type=float, default=CARD, metavar="MS", help=f"of a graph (default {CARD})")
    options = parser.parse_args(arguments)
    trees, backend = trees_of(options.data), nothing.NAME
    with simulated(options.card / 1e3):
        program = fb.compile(model(words_of(trees)), backend, launch="captured")  # type: ignore[arg-type]
        program.warm(trees, options.batch)
        rows = []
        for name, begin in ways(program, trees, options).items():
            batches = begin()
            spent = [times(program, batches, options.batch, options.steps) for _ in range(options.rounds)]
            rows.append([name, *(f"{median(column):.2f}" for column in zip(*spent, strict=True))])
            if hasattr(batches, "close"):
                batches.close()
    print(f"{options.batch} trees a batch; a graph takes {options.card} ms")
    print(table(["batches", "wall, ms a step", "CPU of this process, ms"], rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
