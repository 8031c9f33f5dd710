"""The case ``models``: what batching gains on well-known models, and what their batches are made of.

A training step is loss, gradients and the update of parameters; a sentence's trace is kept, as from the
second epoch on, and the first tracing is timed apart. Batch 1 is the same program, one sentence at a time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.case import Case
from benchmarks.figures import Figure, log_axes, new_figure
from benchmarks.inside import backend_name, make_ready
from benchmarks.measure import Timing, interleave
from benchmarks.options import positive
from benchmarks.workload import load_trees, random_trees, unseen
from benchmarks.zoo_models import MODELS
from foldbatch import Program, compile
from foldbatch.errors import FoldbatchError, UnknownNameError
from foldbatch.train import LazyAdam
from foldbatch.trees import Tree, Vocabulary
from foldbatch.types import BackendName

TRAIN, INFER, PLAN = "train", "infer", "plan"
SENTENCES = 16  # at least so many run at each time, since they differ in length


@dataclass(frozen=True, slots=True)
class Row:
    """What one model does with one size of batch.

    Attributes:
        model: its name.
        size: of its states.
        batch: number of sentences.
        seconds: of one batch: ``train``, ``infer``, and ``plan``, from traces to launch tables.
        trace: seconds of tracing a batch that is seen for the first time.
        calls: of cells, of one batch; `distinct` are those that run.
        groups: of calls that run together; `bound` is how many no schedule can do without.
        kernels: kernels called, forward and backward.
        gathered: rows copied together because they did not lie side by side.
    """

    model: str
    size: int
    batch: int
    seconds: dict[str, Timing]
    trace: float
    calls: int
    distinct: int
    groups: int
    bound: int
    kernels: int
    gathered: int

    def rate(self, task: str) -> float:
        """Return sentences per second."""
        return self.batch / self.seconds[task].median

    @property
    def planning(self) -> float:
        """The share of planning in a training step."""
        return self.seconds[PLAN].median / self.seconds[TRAIN].median


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run found.

    Attributes:
        options: hidden, repeats, backend, sentences.
        rows: by model, then by size of batch, ascending.
    """

    options: dict[str, Any]
    rows: tuple[Row, ...]

    def speedup(self, row: Row, task: str) -> float | None:
        """Return what batching gains over one sentence at a time; None if that was not run."""
        alone = [other for other in self.rows if other.model == row.model and other.batch == 1]
        return row.rate(task) / alone[0].rate(task) if alone else None


def run(
    trees: Sequence[Tree],
    hidden: int = 150,
    batches: Iterable[int] = (1, 16, 64, 256),
    repeats: int = 7,
    backend: BackendName = "auto",
    models: Iterable[str] = tuple(MODELS),
) -> Outcome:
    """Measure models on batches of sentences.

    Args:
        trees: the largest batch or more; smaller ones are samples of it, evenly spaced.
        hidden: size of states, where a model has none of its own.
        batches: numbers of sentences.
        repeats: runs of each task.
        backend: what computes (see `foldbatch.compile`).
        models: names in `MODELS`.

    Raises:
        FoldbatchError: when there are fewer trees than the largest batch.
        UnknownNameError: when there is no model of a name.
    """
    ordered = sorted(set(batches))
    if len(trees) < max(*ordered, SENTENCES):
        expected = f"{max(*ordered, SENTENCES)} sentences or more"
        raise FoldbatchError("benchmarks models", expected, str(len(trees)), "give more, or smaller batches")
    vocabulary = Vocabulary.count(word for tree in trees for word in tree.words())
    rows = []
    for name in models:
        if name not in MODELS:
            raise UnknownNameError("benchmarks models", f"one of {', '.join(MODELS)}", repr(name))
        model = MODELS[name]
        size = model.size or hidden
        program = compile(model.block(size, vocabulary), backend)
        examples = [model.example(tree) for tree in trees]
        rows += _measure(name, size, program, {b: _batches(examples, b) for b in ordered}, repeats)
    options = {
        "hidden": hidden,
        "repeats": repeats,
        "backend": backend_name(backend),
        "sentences": len(trees),
    }
    return Outcome(options, tuple(rows))


def _batches(examples: Sequence[Tree], batch: int) -> list[list[Tree]]:
    """Return batches of examples that are evenly spaced: one, or as many as make `SENTENCES`.

    >>> _batches(list(range(64)), 32)[0][:3], len(_batches(list(range(64)), 1))
    ([0, 2, 4], 16)
    """
    count = max(1, SENTENCES // batch)
    chosen = [examples[i * len(examples) // (count * batch)] for i in range(count * batch)]
    return [chosen[i * batch : (i + 1) * batch] for i in range(count)]


def _measure(
    name: str, size: int, program: Program, batches: dict[int, list[list[Tree]]], repeats: int
) -> list[Row]:
    optimizer = LazyAdam(lr=1e-4)

    def train(trees: list[Tree]) -> None:
        _, gradients = program.value_and_grad(trees)
        optimizer.update(program.params, gradients, scale=1.0 / len(trees))

    def each(task: Callable[[list[Tree]], object], runs: list[list[Tree]]) -> Callable[[], None]:
        def all_of_them() -> None:
            for trees in runs:
                task(trees)

        return all_of_them

    traces = {batch: _trace_seconds(program, runs) for batch, runs in batches.items()}
    tasks = {
        f"{batch} {task}": each(function, runs)
        for batch, runs in batches.items()
        for task, function in ((TRAIN, train), (INFER, program.run), (PLAN, partial(make_ready, program)))
    }
    found = interleave(tasks, repeats, warmup=2)
    rows = []
    for batch, runs in batches.items():
        timings = {}
        for task in (TRAIN, INFER, PLAN):
            t, n = found[f"{batch} {task}"], len(runs)
            timings[task] = Timing(t.median / n, t.low / n, t.high / n, t.runs)
        report = program.describe(runs[0])
        counts = (report.calls, report.distinct, report.steps, report.lower_bound)
        kernels = report.calls_forward + report.calls_backward
        rows.append(Row(name, size, batch, timings, traces[batch], *counts, kernels, report.gathered_rows))
    return rows


def _trace_seconds(program: Program, runs: list[list[Tree]]) -> float:
    """Return the seconds of tracing one of some batches, of trees as they are when first seen."""
    copies = [unseen(trees) for trees in runs]
    start = time.perf_counter()
    for trees in copies:
        program.prepare(trees)
    return (time.perf_counter() - start) / len(runs)


def tables(outcome: Outcome) -> list[Table]:
    """Return the figures for people: speed, and what batches are made of."""
    options = outcome.options
    title = "Sentences per second, states of {hidden}, backend {backend}".format(**options)
    speed = _table(
        title, ("model", "size", "batch", "training", "gain", "quartiles, ms", "inference", "gain"), 2
    )
    made = _table(
        "One batch",
        (
            "model",
            "batch",
            "calls",
            "run",
            "groups",
            "bound",
            "kernel calls",
            "rows gathered",
            "planning, of a step",
            "first tracing, us a call",
        ),
        1,
    )
    before = ""
    for row in outcome.rows:
        name = row.model if row.model != before else ""
        before = row.model
        train = row.seconds[TRAIN]
        gains = (outcome.speedup(row, task) for task in (TRAIN, INFER))
        shown = ["" if gain is None else f"{gain:.1f}x" for gain in gains]
        speed.add_row(
            name,
            str(row.size),
            str(row.batch),
            f"{row.rate(TRAIN):.0f}",
            shown[0],
            f"{train.low * 1e3:.1f} to {train.high * 1e3:.1f}",
            f"{row.rate(INFER):.0f}",
            shown[1],
        )
        counts = (row.calls, row.distinct, row.groups, row.bound, row.kernels, row.gathered)
        rates = f"{row.planning:.1%}", f"{row.trace / row.calls * 1e6:.2f}"
        made.add_row(name, str(row.batch), *map(str, counts), *rates)
    return [speed, made]


def _table(title: str, heads: Sequence[str], left: int) -> Table:
    table = Table(title=title)
    for i, head in enumerate(heads):
        table.add_column(head, justify="right" if i >= left else "left")
    return table


def as_dict(outcome: Outcome) -> dict[str, Any]:
    """Return everything as plain data, with rates and gains."""
    rows = []
    for row, plain in zip(outcome.rows, asdict(outcome)["rows"], strict=True):
        rates = {task: row.rate(task) for task in (TRAIN, INFER)}
        gains = {task: outcome.speedup(row, task) for task in (TRAIN, INFER)}
        rows.append(plain | {"sentences_per_second": rates, "gain": gains, "planning": row.planning})
    return asdict(outcome) | {"rows": rows}


def figure(outcome: Outcome) -> Figure:
    """Return sentences per second over the size of the batch, training and inference."""
    found, axes = new_figure(1, 2)
    names = list(dict.fromkeys(row.model for row in outcome.rows))
    for at, task, what in zip(axes, (TRAIN, INFER), ("training", "inference"), strict=True):
        for name in names:
            rows = [row for row in outcome.rows if row.model == name]
            at.plot([row.batch for row in rows], [row.rate(task) for row in rows], "o-", label=name)
        log_axes(at, "sentences in a batch", f"sentences per second, {what}")
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this case's options."""
    parser.add_argument("--data", type=Path, metavar="DIR", help="a directory with train.txt in bracket form")
    size = "size of states; the RNTN has one of its own (default 150)"
    parser.add_argument("--hidden", type=positive, default=150, metavar="N", help=size)
    batches = "sentences a batch (default 1 16 64 256)"
    parser.add_argument(
        "--batches", type=positive, nargs="+", default=[1, 16, 64, 256], metavar="N", help=batches
    )
    parser.add_argument("--repeats", type=positive, default=7, metavar="N", help="runs a task (default 7)")
    parser.add_argument("--backend", default="auto", help="auto, llvm or numpy (default auto)")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS), metavar="NAME")


def run_options(options: argparse.Namespace) -> Outcome:
    """Run with parsed options; without ``--data``, on random trees."""
    for name, value in (
        ("hidden", options.hidden),
        ("batches", min(options.batches)),
        ("repeats", options.repeats),
    ):
        if value < 1:
            raise FoldbatchError(f"--{name}", "1 or more", str(value))
    count = max(*options.batches, SENTENCES)
    trees = load_trees(options.data, count) if options.data else random_trees(count)
    return run(trees, options.hidden, options.batches, options.repeats, options.backend, options.models)


CASE = Case(
    "models",
    "six well-known models, batched and one at a time: what batching gains, and what batches are made of",
    add_arguments,
    run_options,
    tables,
    as_dict,
    figure,
)
