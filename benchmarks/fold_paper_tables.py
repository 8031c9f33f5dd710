"""The case ``fold-paper`` for people and programs: its options, tables, picture and plain data."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from benchmarks.case import Case
from benchmarks.figures import Figure, log_axes, new_figure
from benchmarks.fold_paper import (
    BY_NODE,
    DIFFERENT,
    FOLD_CPU,
    IDENTICAL,
    PLAN,
    SIDES,
    TASKS,
    TRAIN,
    Outcome,
    run,
)
from benchmarks.options import positive
from foldbatch.errors import FoldbatchError


def tables(outcome: Outcome) -> list[Table]:
    """Return the figures for people: times and ratios of each task, Fold's own beside them."""
    return [table(outcome, task) for task in TASKS for table in (_times, _ratios)]


def _times(outcome: Outcome, task: str) -> Table:
    about = "{leaves} leaves, states of {size}, backend {backend}, {cores} cores".format(**outcome.options)
    what = "Training" if task == TRAIN else "Inference"
    heads = [
        "batch",
        *(f"{side}, ms" for side in SIDES),
        "quartiles",
        "ms a tree",
        "planning",
        "first tracing",
    ]
    table = _table(f"{what}: random binary trees of {about}", heads)
    for row in outcome.rows:
        times = [row.seconds[f"{task} {side}"] for side in SIDES]
        last = times[-1]
        table.add_row(
            str(row.batch),
            *(f"{t.median * 1e3:.4g}" for t in times),
            f"{last.low * 1e3:.4g} to {last.high * 1e3:.4g}",
            f"{row.each(task, DIFFERENT) * 1e3:.3g}",
            f"{row.seconds[PLAN].median / last.median:.1%}",
            f"{row.trace / last.median:.1%}",
        )
    for batch, reason in outcome.left_out.items():
        table.add_row(str(batch), reason)
    return table


def _ratios(outcome: Outcome, task: str) -> Table:
    heads = (
        "batch",
        "cost, identical",
        "cost, different",
        "identical to node by node",
        "Fold's cost",
        "speed-up",
    )
    table = _table("", (*heads, "to node by node", "Fold's speed-up"))
    for row in outcome.rows:
        alone, by_node = (outcome.speedup(row, task, side) for side in (DIFFERENT, BY_NODE))
        fold = _fold(row.batch)
        table.add_row(
            str(row.batch),
            *(f"{row.cost(task, side):.2f}" for side in (IDENTICAL, DIFFERENT)),
            f"{row.cost(task, IDENTICAL, BY_NODE):.2f}",
            f"{fold[0]:.2f}" if fold else "",
            *("" if ratio is None else f"{ratio:.1f}x" for ratio in (alone, by_node)),
            f"{fold[1]:.1f}x" if fold else "",
        )
    return table


def _fold(batch: int) -> tuple[float, float] | None:
    """Return the cost and the speed-up that Fold had on its machine's CPU."""
    if batch not in FOLD_CPU:
        return None
    manual, identical, different = FOLD_CPU[batch]
    return identical / manual, FOLD_CPU[1][0] / (different / batch)


def _table(title: str, heads: Sequence[str]) -> Table:
    table = Table(title=title)
    for head in heads:
        table.add_column(head, justify="right")
    return table


def as_dict(outcome: Outcome) -> dict[str, Any]:
    """Return everything as plain data, with costs and speed-ups."""
    rows = []
    for row, plain in zip(outcome.rows, asdict(outcome)["rows"], strict=True):
        ratios = {
            task: {
                "cost_identical": row.cost(task, IDENTICAL),
                "cost_different": row.cost(task, DIFFERENT),
                "cost_to_node_by_node": row.cost(task, IDENTICAL, BY_NODE),
                "speedup": outcome.speedup(row, task, DIFFERENT),
                "speedup_over_node_by_node": outcome.speedup(row, task, BY_NODE),
            }
            for task in TASKS
        }
        rows.append(plain | {"ratios": ratios})
    fold = {str(batch): seconds for batch, seconds in FOLD_CPU.items()}
    left_out = {str(batch): reason for batch, reason in outcome.left_out.items()}
    return asdict(outcome) | {"rows": rows, "left_out": left_out, "fold_cpu_seconds": fold}


def figure(outcome: Outcome) -> Figure:
    """Return milliseconds of a tree, and costs, over the size of the batch."""
    found, axes = new_figure(1, 2)
    batches = [row.batch for row in outcome.rows]
    for task, style in zip(TASKS, ("-", "--"), strict=True):
        for number, side in enumerate(SIDES):
            ms = [row.each(task, side) * 1e3 for row in outcome.rows]
            axes[0].plot(batches, ms, f"o{style}", color=f"C{number}", label=f"{task}, {side}")
        for number, side in enumerate((IDENTICAL, DIFFERENT), 2):
            costs = [row.cost(task, side) for row in outcome.rows]
            axes[1].plot(batches, costs, f"o{style}", color=f"C{number}", label=f"{task}, {side}")
    fold = [identical / manual for manual, identical, _ in FOLD_CPU.values()]
    axes[1].plot(list(FOLD_CPU), fold, "x:", color="0.5", label="Fold, its machine, to node by node")
    axes[1].axhline(1.0, color="0.8", zorder=0)
    log_axes(axes[0], "trees in a batch", "ms a tree")
    log_axes(axes[1], "trees in a batch", "cost: time over that by hand, by level", y=False)
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this case's options."""
    quick = "trees of 32 leaves, states of 256, batches up to 256: well below a minute"
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--leaves", type=positive, metavar="N", help="leaves of a tree (default 128)")
    parser.add_argument("--size", type=positive, metavar="N", help="size of a state (default 1024)")
    sizes = "trees of a batch; what does not fit into memory is left out (default 1 4 16 64 256 1024)"
    parser.add_argument("--batches", type=positive, nargs="+", metavar="N", help=sizes)
    parser.add_argument("--repeats", type=positive, default=11, help="most runs of each task (default 11)")
    most = "about how long a size of batch may take, beyond what must run (default 60, quick 5)"
    parser.add_argument("--seconds", type=float, help=most)
    parser.add_argument("--backend", default="auto", help="auto, llvm or numpy (default auto)")


def run_options(options: argparse.Namespace) -> Outcome:
    """Run with parsed options."""
    quick = (32, 256, (1, 4, 16, 64, 256), 5.0)
    full = (128, 1024, (1, 4, 16, 64, 256, 1024), 60.0)
    leaves, size, batches, seconds = quick if options.quick else full
    for name, value, least in (
        ("leaves", options.leaves, 2),
        ("size", options.size, 1),
        ("batches", min(options.batches or [1]), 1),
        ("repeats", options.repeats, 2),
    ):
        if value is not None and value < least:
            raise FoldbatchError(f"--{name}", f"{least} or more", str(value))
    return run(
        options.leaves or leaves,
        options.size or size,
        options.batches or batches,
        options.repeats,
        seconds if options.seconds is None else options.seconds,
        options.backend,
    )


CASE = Case(
    "fold-paper",
    "Table 1 of TensorFlow Fold's paper: the cost of scheduling against a program by hand, and the speed-up",
    add_arguments,
    run_options,
    tables,
    as_dict,
    figure,
)
