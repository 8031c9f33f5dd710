"""The case ``compiler`` as the command shows it: options, tables, picture."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from benchmarks import compiler
from benchmarks.case import Case
from benchmarks.figures import COLOURS, Figure, new_figure
from benchmarks.options import add_batch, add_data, add_repeats, positive, trees_of

LEGEND = """\
kernels a level: all kernel calls by the levels of the batch (aims: below 3 forward, below 4 backward)
no stages: all that a cell computes runs with each group of its calls; by depth: every cell at each level
statements: ops and copies that these calls run, each a pass over the rows or several; a fused loop is one
one per node: a buffer for each node of all kernels, a row per call; planned: the buffers there are, likewise
(aim: half); kept: those of them that one kernel writes for others; held: by the program, arenas included,
scratch for the widest level only
CPU ms: of one thread, the run with the least; of loss and gradients, and below of a whole training step"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found for each size of the model, and where the trees are from."""

    source: str
    sizes: tuple[compiler.Outcome, ...]


def _run(options: Namespace) -> Outcome:
    trees, source = trees_of(options, options.batch)
    return Outcome(source, tuple(compiler.run(trees, hidden, options.repeats) for hidden in options.hidden))


def _add_arguments(parser: ArgumentParser) -> None:
    add_data(parser)
    sizes = "sizes of h and c (default 150)"
    parser.add_argument("--hidden", type=positive, nargs="+", default=[150], metavar="N", help=sizes)
    add_batch(parser, 256)
    add_repeats(parser, 11)


def _tables(outcome: Outcome) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for size in outcome.sizes:
        parts.append(f"SST Tree-LSTM, hidden {size.hidden}, {size.trees} {outcome.source}; load {size.load}")
        parts += [_counts_table(size), _memory_table(size), _steps_table(size)]
    return [*parts, LEGEND]


def _counts_table(outcome: compiler.Outcome) -> Table:
    table = _table(
        f"Calls per batch of {max(found.levels for found, _ in outcome.counts.values())} levels",
        ("forward + backward", "kernels", "a level", "statements", "CPU ms"),
    )
    for name, (counts, seconds) in outcome.counts.items():
        per_level = " + ".join(f"{calls / counts.levels:.2f}" for calls in counts.kernels)
        pairs = [f"{a} + {b}" for a, b in (counts.kernels, counts.statements)]
        table.add_row(name, pairs[0], per_level, *pairs[1:], f"{seconds * 1e3:.1f}")
    return table


def _memory_table(outcome: compiler.Outcome) -> Table:
    table = _table(
        "Megabytes of buffers for one batch",
        ("", "one per node", "planned", "share", "kept", "held", "CPU ms"),
    )
    for name, (found, seconds) in outcome.memory.items():
        sizes = [f"{size / 1e6:.1f}" for size in (found.unplanned, found.planned, found.kept, found.held)]
        table.add_row(
            name, *sizes[:2], f"{found.planned / found.unplanned:.0%}", *sizes[2:], f"{seconds * 1e3:.1f}"
        )
    return table


def _steps_table(outcome: compiler.Outcome) -> Table:
    names = list(outcome.steps)
    columns = (column for name in names for column in (f"{name}, ms", "share"))
    table = _table("CPU time of a training step", ("kind", *columns))
    whole = {name: sum(spent.values()) for name, spent in outcome.steps.items()}
    for kind in outcome.steps[names[0]]:
        figures = ((spent[kind], spent[kind] / whole[name]) for name, spent in outcome.steps.items())
        table.add_row(kind, *(text for t, share in figures for text in (f"{t * 1e3:.1f}", f"{share:.1%}")))
    for kind, all_of_it in (("all", whole), ("without clocks in kernels", outcome.undisturbed)):
        table.add_row(kind, *(text for name in names for text in (f"{all_of_it[name] * 1e3:.1f}", "")))
    return table


def _table(title: str, columns: tuple[str, ...]) -> Table:
    table = Table(title=title)
    for i, name in enumerate(columns):
        table.add_column(name, justify="right" if i else "left")
    return table


def _as_dict(outcome: Outcome) -> dict[str, Any]:
    return asdict(outcome)


def _figure(outcome: Outcome) -> Figure:
    """Draw where the CPU time of a training step goes, as stacked bars."""
    figure, (axes,) = new_figure()
    bars = {
        f"{name},\nhidden {size.hidden}": spent
        for size in outcome.sizes
        for name, spent in size.steps.items()
    }
    below = [0.0] * len(bars)
    for colour, kind in zip(COLOURS, next(iter(bars.values())), strict=False):
        ms = [spent[kind] * 1e3 for spent in bars.values()]
        axes.bar(list(bars), ms, 0.6, below, color=colour, label=kind)
        below = [a + b for a, b in zip(below, ms, strict=True)]
    axes.set_ylabel("CPU ms of a training step")
    axes.legend()
    return figure


CASE = Case(
    "compiler",
    "what stages, passes, planned buffers and loops save on the SST Tree-LSTM",
    _add_arguments,
    _run,
    _tables,
    _as_dict,
    _figure,
)
