"""``python -m benchmarks.gpu.trials``: kernels on trial beside those that do the same work by default.

The SST Tree-LSTM trains on planned batches and runs them, with each trial of `foldbatch.engines.cuda.trials`
and without, in turns: the median of the seconds until the card has done a step, and how many launches and
products the step has where its kernels are launched one by one. A trial that is faster here on a card may
become the default.
"""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from statistics import median
from typing import Any
from unittest import mock

from benchmarks.gpu import nothing
from benchmarks.gpu.contenders import MODELS, SST, OurModel, launch_due
from benchmarks.gpu.cost import counting
from benchmarks.gpu.trees import WORDS, sst_like_trees
from benchmarks.gpu.ways import prepare
from benchmarks.inside import device_of
from benchmarks.options import positive
from foldbatch.engines.cuda.trials import TRIALS, VARIABLE
from foldbatch.errors import FoldbatchError
from foldbatch.system.showing import table
from foldbatch.trees import Tree

BATCHES = 4  # that come in turn
HEAD = [
    "trial",
    "trees",
    "step",
    "default, ms",
    "on trial, ms",
    "launches",
    "on trial",
    "products",
    "on trial",
]


def made(trial: str, way: str, hidden: int, backend: Any, batches: Sequence[Sequence[Tree]]) -> OurModel:
    """Return our model with a trial, or with the defaults where that is empty, ready to run batches."""
    with mock.patch.dict(os.environ, {VARIABLE: trial}):
        ours = OurModel(MODELS[SST], hidden, WORDS, backend, engine=way)
        prepare(ours, batches)
        ours.infer(batches[0])
    return ours


def training(ours: OurModel, batch: Any, size: int) -> None:
    """Train on a batch, and wait for the card."""
    ours.step(batch, size)
    launch_due(ours.program)
    _wait(ours)


def inference(ours: OurModel, batch: Any, _: int) -> None:
    """Run a batch; its results are there when it returns."""
    ours.infer(batch)


def _wait(ours: OurModel) -> None:
    device_of(ours.program).synchronize()


STEPS: dict[str, Callable[[OurModel, Any, int], None]] = {"training": training, "inference": inference}


def rows_of(trial: str, size: int, hidden: int, backend: Any, repeats: int) -> list[list[str]]:
    """Return the rows of the table for a trial, on batches of so many trees."""
    trees = sst_like_trees(BATCHES * size)
    batches = [trees[start : start + size] for start in range(0, len(trees), size)]
    sides = "", trial
    rows = []
    straight = [made(side, "straight", hidden, backend, batches) for side in sides]
    asked = {name: [_asked(ours, step, batches[0]) for ours in straight] for name, step in STEPS.items()}
    models = [made(side, "captured", hidden, backend, batches) for side in sides]
    planned = [[ours.program.plan(batch) for batch in batches] for ours in models]
    for name, step in STEPS.items():
        seconds: tuple[list[float], list[float]] = [], []
        for turn in range(2 + repeats):
            for number in range(BATCHES):
                for ours, plans, times in zip(models, planned, seconds, strict=True):
                    start = time.perf_counter()
                    step(ours, plans[number], size)
                    if turn > 1:  # the first ones capture graphs
                        times.append(time.perf_counter() - start)
        launches, products = zip(*asked[name], strict=True)
        spent = [f"{1e3 * median(times):.3f}" for times in seconds]
        rows.append([trial, str(size), name, *spent, *map(str, launches), *map(str, products)])
    return rows


def _asked(
    ours: OurModel, step: Callable[[OurModel, Any, int], None], trees: Sequence[Tree]
) -> tuple[int, int]:
    """Return the launches and the products of a step."""
    with counting(device_of(ours.program)) as cost:
        step(ours, trees, len(trees))
    return cost.launches, cost.products


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a table; return the exit status."""
    parser = ArgumentParser(
        prog="python -m benchmarks.gpu.trials", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--no-card", action="store_true", help="count; times are then the host's alone")
    parser.add_argument(
        "--hidden", type=positive, default=150, metavar="N", help="size of states (default 150)"
    )
    parser.add_argument(
        "--batches", type=positive, nargs="+", default=[64, 256], metavar="N", help="trees (default 64 256)"
    )
    parser.add_argument("--repeats", type=positive, default=20, metavar="N", help="of all steps (default 20)")
    options = parser.parse_args(arguments)
    backend = nothing.NAME if options.no_card else "cuda"
    try:
        with nothing.entered() if options.no_card else nullcontext():
            rows = [
                row
                for trial in TRIALS
                for size in options.batches
                for row in rows_of(trial, size, options.hidden, backend, options.repeats)
            ]
    except FoldbatchError as error:
        print(error, file=sys.stderr)
        return 2
    print(table(HEAD, rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
