"""The case ``planning``: recursions of many cells, planned in several ways, and what the ways cost.

One layer for each label of a tree is one cell for each label, and they all call each other. Level by level
they run in many narrow steps; as calls become ready in fewer, which takes longer to plan. The policy
``auto`` chooses by `foldbatch.scheduler.arithmetic.Costs`; the last line is what these figures are here.
All is CPU time of one thread.
"""

from __future__ import annotations

import random
import statistics
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from benchmarks.case import Case
from benchmarks.figures import COLOURS, Figure, log_axes, new_figure
from benchmarks.options import add_backend, add_repeats, positive
from foldbatch import (
    Block,
    ForwardDeclaration,
    Function,
    GetItem,
    Linear,
    Loss,
    OneOf,
    Program,
    Zeros,
    compile,
    ops,
)
from foldbatch.program import schedule
from foldbatch.scheduler.policies import find_policy
from foldbatch.types import BackendName

LEVELS, READY, AUTO, DEPTH = "by level", "as ready", "auto", "by_depth"
PLANS = (AUTO, READY, LEVELS, DEPTH)
SHORTEST, LONGEST = 20, 40  # chains
Chain = tuple[int, Any] | None


@dataclass(frozen=True, slots=True)
class Row:
    """A batch, planned in one way.

    Attributes:
        cells: that call each other.
        calls: of the batch.
        numbers: in the trace of its calls.
        plan: one of `PLANS`.
        steps: in which the calls run.
        seconds: of a training step, without the update of parameters.
        planning: of these, the seconds of the policy.
    """

    cells: int
    calls: int
    numbers: int
    plan: str
    steps: int
    seconds: float
    planning: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found: the rows, and medians of what `Costs` holds, in microseconds; None where unknown."""

    backend: BackendName
    hidden: int
    rows: list[Row]
    step: float | None
    number: float | None


def labelled(cells: int, hidden: int) -> Block[Any, Any]:
    """Return a recursion over chains of labels, with one layer for each label, and a loss at the root."""
    chain = ForwardDeclaration(output_type=hidden, name="chain")
    layers = {label: GetItem(1) >> chain() >> Linear(hidden, "tanh") for label in range(cells)}
    link = OneOf(GetItem(0), layers)
    chain.resolve_to(OneOf(lambda rest: rest is None, {True: Zeros(hidden), False: link}))
    return chain() >> Function(lambda x: ops.sum(x * x)) >> Loss()


def chains(count: int, cells: int) -> list[Chain]:
    """Return chains of 20 to 40 random labels: pairs of a label and the rest.

    >>> [chain[0] for chain in chains(3, 1)]
    [0, 0, 0]
    """
    rng = random.Random(0)  # noqa: S311 - no secret is made of it
    made = []
    for _ in range(count):
        chain: Chain = None
        for _ in range(rng.randint(SHORTEST, LONGEST)):
            chain = rng.randrange(cells), chain
        made.append(chain)
    return made


def planned(block: Block[Any, Any], backend: BackendName, plan: str) -> Program:
    """Compile a block so that it plans in one of the `PLANS`."""
    options: Any = {"policy": DEPTH if plan == DEPTH else AUTO}
    program = compile(block, backend, threads=1, options=options)
    if plan in (LEVELS, READY):
        engine = _engine(program)
        costs = replace(engine.arithmetic.costs, **({"plan": 1e12} if plan == LEVELS else {"step": 1e12}))
        engine.arithmetic = replace(engine.arithmetic, costs=costs)
    return program


def _engine(program: Program) -> Any:
    """Return the engine, one of arrays."""
    return program.engine


def measure(
    block: Block[Any, Any], examples: Sequence[Any], cells: int, backend: BackendName, repeats: int
) -> list[Row]:
    """Time training steps of one batch, planned in each way in turn."""
    tasks: dict[tuple[str, bool], Callable[[], object]] = {}
    sizes = {}
    for plan in PLANS:
        program = planned(block, backend, plan)
        prepared = program.prepare(examples)
        batch, policy = schedule(program, prepared), find_policy(program.options.policy)
        trace, signatures = batch.merged.trace, program.model.signatures
        numbers = sum(rows.size for rows in trace.calls)
        sizes[plan] = trace.size, numbers, batch.schedule.groups
        given = trace, signatures, _engine(program).arithmetic
        tasks[plan, False] = partial(program.value_and_grad, prepared)
        tasks[plan, True] = partial(policy.plan, *given)
    seconds = _thread_seconds(tasks, repeats)
    rows = []
    for plan, (calls, numbers, steps) in sizes.items():
        rows.append(Row(cells, calls, numbers, plan, steps, seconds[plan, False], seconds[plan, True]))
    return rows


def _thread_seconds(
    tasks: Mapping[tuple[str, bool], Callable[[], object]], repeats: int
) -> dict[tuple[str, bool], float]:
    """Return the median CPU seconds of each task, run in turn; the first run of each is left out."""
    found: dict[tuple[str, bool], list[float]] = {key: [] for key in tasks}
    for turn in range(1 + repeats):
        for key, task in tasks.items():
            start = time.thread_time()
            task()
            if turn:
                found[key].append(time.thread_time() - start)
    return {key: statistics.median(values) for key, values in found.items()}


def costs(rows: Sequence[Row]) -> tuple[float | None, float | None]:
    """Return what a step and the planning of a number cost, in microseconds: medians over batches."""
    by_plan = {(row.cells, row.plan): row for row in rows}
    steps, numbers = [], []
    for cells in dict.fromkeys(row.cells for row in rows):
        level, ready = by_plan[cells, LEVELS], by_plan[cells, READY]
        if level.steps > ready.steps:
            saved = level.seconds - level.planning - (ready.seconds - ready.planning)
            steps.append(1e6 * saved / (level.steps - ready.steps))
            numbers.append(1e6 * (ready.planning - level.planning) / ready.numbers)
    return (statistics.median(steps), statistics.median(numbers)) if steps else (None, None)


# -- for the command


def _run(options: Namespace) -> Outcome:
    rows = []
    for cells in options.cells:
        block = labelled(cells, options.hidden)
        rows += measure(block, chains(options.batch, cells), cells, options.backend, options.repeats)
    return Outcome(options.backend, options.hidden, rows, *costs(rows))


def _add_arguments(parser: ArgumentParser) -> None:
    several = "how many cells call each other (default 1 2 5 10 25 50 100)"
    default = [1, 2, 5, 10, 25, 50, 100]
    parser.add_argument("--cells", type=positive, nargs="+", default=default, metavar="N", help=several)
    parser.add_argument(
        "--batch", type=positive, default=68, metavar="N", help="chains per batch (default 68)"
    )
    parser.add_argument(
        "--hidden", type=positive, default=32, metavar="N", help="size of vectors (default 32)"
    )
    add_repeats(parser, 15)
    add_backend(parser)


def _tables(outcome: Outcome) -> list[RenderableType]:
    table = Table(title="A training step of chains with a layer for each label, by plan")
    for i, name in enumerate(("cells", "calls", "plan", "steps", "CPU ms", "policy ms", "share")):
        table.add_column(name, justify="left" if i == 2 else "right")
    for row in outcome.rows:
        times = f"{row.seconds * 1e3:.2f}", f"{row.planning * 1e3:.2f}", f"{row.planning / row.seconds:.1%}"
        table.add_row(str(row.cells), str(row.calls), row.plan, str(row.steps), *times)
    parts: list[RenderableType] = [f"backend {outcome.backend}, hidden {outcome.hidden}", table]
    if outcome.step is not None:
        parts.append(f"costs: a step {outcome.step:.1f} us, a number to plan {outcome.number:.3f} us")
    return parts


def _as_dict(outcome: Outcome) -> dict[str, Any]:
    return asdict(outcome)


def _figure(outcome: Outcome) -> Figure:
    """Draw the milliseconds of a step against the number of cells."""
    figure, (axes,) = new_figure()
    for colour, plan in zip(COLOURS, PLANS, strict=False):
        rows = [row for row in outcome.rows if row.plan == plan]
        axes.plot(
            [row.cells for row in rows], [row.seconds * 1e3 for row in rows], "o-", color=colour, label=plan
        )
    log_axes(axes, "cells that call each other", "CPU ms of a step")
    return figure


CASE = Case(
    "planning",
    "recursions of many cells: steps, time and planning, by the way they are planned",
    _add_arguments,
    _run,
    _tables,
    _as_dict,
    _figure,
)
