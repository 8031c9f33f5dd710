"""The case ``policies``: groups of calls in one batch of well-known models, by scheduling policy."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from benchmarks.case import Case
from benchmarks.figures import COLOURS, Figure, new_figure
from benchmarks.models import models
from benchmarks.options import add_batch, add_data, trees_of
from benchmarks.structures import count, random_lattices, structures
from foldbatch.trees import Tree

POLICIES = ("depth", "agenda", "component")
TRACES, BLOCKS = "traces", "blocks"


@dataclass(frozen=True, slots=True)
class Row:
    """What the policies make of a model.

    Attributes:
        model: its name.
        cells: `TRACES`, as papers count them and written by hand, or `BLOCKS`, a compiled model's.
        calls: of one batch.
        groups: by policy.
        bound: groups that no schedule can do without.
    """

    model: str
    cells: str
    calls: int
    groups: dict[str, int]
    bound: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The rows, and the trees they are of: how many, and from where."""

    trees: int
    source: str
    rows: tuple[Row, ...]


def run(trees: Sequence[Tree], source: str) -> Outcome:
    """Count the groups of one batch."""
    lattices = random_lattices(trees)
    compiled = models(trees, lattices)
    rows = []
    for name, batch in structures(trees, lattices).items():
        for written, cells in ((TRACES, batch), (BLOCKS, compiled[name])):
            found = count(cells)
            groups = {policy: found.groups[f"by_{policy}"] for policy in POLICIES}
            rows.append(Row(name, written, found.calls, groups, found.bound))
    return Outcome(len(trees), source, tuple(rows))


def _run(options: Namespace) -> Outcome:
    return run(*trees_of(options, options.batch))


def _add_arguments(parser: ArgumentParser) -> None:
    add_data(parser)
    add_batch(parser, 256)


def _tables(outcome: Outcome) -> list[RenderableType]:
    table = Table(title="Groups of calls in a batch, by policy")
    for name in ("model", "cells", "calls", *POLICIES, "bound"):
        table.add_column(name, justify="left" if name in ("model", "cells") else "right")
    for row in outcome.rows:
        name = row.model if row.cells == TRACES else ""
        table.add_row(name, row.cells, str(row.calls), *map(str, row.groups.values()), str(row.bound))
    return [
        f"sentences of {outcome.trees} {outcome.source}",
        table,
        "traces: cells as papers count them, calls written by hand; blocks: a compiled model's",
    ]


def _as_dict(outcome: Outcome) -> dict[str, Any]:
    return asdict(outcome)


def _figure(outcome: Outcome) -> Figure:
    """Draw the groups of the compiled models, and the bound as a mark."""
    figure, (axes,) = new_figure()
    rows = [row for row in outcome.rows if row.cells == BLOCKS]
    for k, policy in enumerate(POLICIES):
        heights = [i + (k - 1) * 0.27 for i in range(len(rows))]
        axes.barh(heights, [row.groups[policy] for row in rows], 0.25, color=COLOURS[k], label=f"by_{policy}")
    axes.plot([row.bound for row in rows], range(len(rows)), "k|", markersize=16, label="bound")
    axes.set_yticks(range(len(rows)), [row.model for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel(f"groups of calls in a batch of {outcome.trees}")
    axes.legend()
    return figure


CASE = Case(
    "policies",
    "groups of calls in a batch of well-known models, by scheduling policy",
    _add_arguments,
    _run,
    _tables,
    _as_dict,
    _figure,
)
