"""The case ``schedule``: what it costs to trace a batch and to plan it, and that the cost grows linearly.

Tracing is that of examples seen for the first time; all other parts start from traces, as from the
second epoch on, on one thread. Index arithmetic is that of the backend. What a batch costs in training is
timed as a whole, right after a training step, which leaves nothing of it in the processor's caches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from math import ceil, floor, log10
from typing import Any

from rich.table import Table

from foldbatch.bench.measure import interleave
from foldbatch.bench.sst import Step
from foldbatch.bench.workload import tree_lstm
from foldbatch.blocks import Block, Embedding, Fold, Function, Map, Scalar, Sum, Zeros
from foldbatch.engine import backend_of
from foldbatch.errors import FoldbatchError
from foldbatch.program import Program, compile
from foldbatch.scheduler.compiled import find_arithmetic
from foldbatch.scheduler.layout import find_layout
from foldbatch.scheduler.merge import merge
from foldbatch.scheduler.policies import find_policy
from foldbatch.scheduler.sharing import find_share
from foldbatch.scheduler.tables import build
from foldbatch.static import ops
from foldbatch.trees import Tree, Vocabulary

PARTS = TRACE, MERGE, PLAN, TABLES = "trace", "merge", "policy", "tables"
STEP, PLANNED = "step", "planned"
WORDS = 1000  # of stars and chains
FEATURES = 2  # of their words: nothing is computed
COLOURS = {TRACE: "#4d8ce5", MERGE: "#3fa66b", PLAN: "#d99a2b", TABLES: "#e5584d"}

# Lengths of the drawing in pixels.
_WIDTH, _HEIGHT, _LEFT, _TOP, _LINE = 480.0, 300.0, 70.0, 30.0, 18.0


@dataclass(frozen=True, slots=True)
class Row:
    """What one batch costs.

    Attributes:
        name: of the batch.
        nodes: of all its examples; `calls` are those of cells.
        calls: that the traces hold.
        seconds: medians by part, see `PARTS`; where a training step was timed too, that is `STEP`, and
            `PLANNED` is all from a batch of examples whose traces are known to one that is ready to run.
    """

    name: str
    nodes: int
    calls: int
    seconds: Mapping[str, float]

    @property
    def scheduling(self) -> float:
        """Seconds from traces to control tables."""
        return sum(self.seconds[part] for part in (MERGE, PLAN, TABLES))

    @property
    def share(self) -> float | None:
        """The share of scheduling, known traces looked up, in a training step; None where none was timed."""
        return self.seconds[PLANNED] / self.seconds[STEP] if STEP in self.seconds else None


def run(
    trees: Sequence[Tree], hidden: int, repeats: int, nodes: int, backend: str = "auto"
) -> tuple[list[Row], list[Row]]:
    """Measure batches of trees, then a star and chains.

    Args:
        trees: the largest batch; the others have a 64th, a 16th and a quarter of them.
        hidden: of the Tree-LSTM whose training step is the measure.
        repeats: of each part.
        nodes: of the star and of the longest chain; the others have 1, 3, 10 and 30 % of them.
        backend: what computes the training step.

    Returns:
        A row for each batch of trees and the star, and one for each chain.
    """
    if not trees:
        raise FoldbatchError("bench schedule", "one tree or more", "none", "give a treebank that has some")
    vocabulary = Vocabulary.count(word for tree in trees for word in tree.words())
    program = compile(tree_lstm(hidden, vocabulary), backend, threads=1)
    step = Step(program)
    rows = []
    for size in sorted({max(1, len(trees) * share // 64) for share in (1, 4, 16, 64)}):
        batch = list(trees[:size])
        name = f"SST, {size} trees"
        rows.append(measure(name, program, batch, sum(tree.size for tree in batch), repeats, step))
    rows.append(
        measure(
            f"star, {nodes} children", compile(star(), backend, threads=1), [_words(nodes)], nodes, repeats
        )
    )
    chained = compile(chain(), backend, threads=1)
    lengths = sorted({max(1, nodes * share // 100) for share in (1, 3, 10, 30, 100)})
    return rows, [measure(f"chain of {n}", chained, [_words(n)], n, repeats) for n in lengths]


def star() -> Block:
    """Return the model of a node with any number of children: their sum."""
    return Map(_child()) >> Sum()


def chain() -> Block:
    """Return the model of a chain: a recurrent cell along any number of words."""
    return Map(_child()) >> Fold(Function(lambda h, x: ops.tanh(h + x)), Zeros([FEATURES]))


def _words(count: int) -> list[int]:
    return [i % WORDS for i in range(count)]


def _child() -> Block:
    return Scalar("int32") >> Embedding(WORDS, FEATURES)


def measure(
    name: str, program: Program, examples: list[Any], nodes: int, repeats: int, step: Step | None = None
) -> Row:
    """Time the parts of scheduling a batch, each on its own; and `step`, a training step, if there is one.

    After that, scheduling is timed once more as a whole.
    """
    lowered, options = program.lowered, program.options
    policy, layout = find_policy(options.policy), find_layout(options.layout)
    cells, arenas, share = lowered.signatures, len(lowered.arenas), find_share(options.share)
    traces = [prepared.trace for prepared in program.prepare(examples)]
    arithmetic = find_arithmetic(backend_of(options.backend).name)
    merged = merge(traces, cells, arithmetic)
    plan = policy.plan(merged.trace, cells)
    planned = replace(policy, plan=lambda *_: plan)
    tasks: dict[str, Any] = {
        TRACE: lambda: [lowered.tracer.trace(example, i) for i, example in enumerate(examples)],
        MERGE: lambda: merge(traces, cells, arithmetic),
        PLAN: lambda: policy.plan(merged.trace, cells),
        TABLES: lambda: build(merged, cells, planned, layout, arenas, share, arithmetic),
    }
    if step is not None:
        tasks |= {STEP: lambda: step(examples), PLANNED: lambda: program.plan(examples)}
    timings = interleave(tasks, repeats)
    return Row(name, nodes, merged.trace.size, {part: timings[part].median for part in tasks})


def table(rows: Sequence[Row], chains: Sequence[Row]) -> Table:
    """Return the figures for people: milliseconds by part."""
    titles = ("batch", "nodes", "calls", *PARTS, "us a call, traced", "us a node, scheduled", "of a step")
    found = Table(title="Milliseconds of scheduling a batch")
    for i, title in enumerate(titles):
        found.add_column(title, justify="right" if i else "left")
    for row in (*rows, *chains):
        ms = [f"{row.seconds[part] * 1e3:.3f}" for part in PARTS]
        rates = [row.seconds[TRACE] / row.calls, row.scheduling / row.nodes]
        share = "" if row.share is None else f"{row.share:.1%}"
        found.add_row(
            row.name, str(row.nodes), str(row.calls), *ms, *(f"{rate * 1e6:.2f}" for rate in rates), share
        )
    return found


def plot(chains: Sequence[Row]) -> str:
    """Return the milliseconds of each part against the nodes of a chain as SVG, both in powers of ten.

    Where the cost is linear, the lines rise like the dashed one.
    """
    ms = [row.seconds[part] * 1e3 for row in chains for part in PARTS]
    left, right = _decades([row.nodes for row in chains])
    bottom, top = _decades(ms)

    def x(nodes: float) -> float:
        return _LEFT + _WIDTH * (log10(nodes) - left) / (right - left)

    def y(value: float) -> float:
        return _TOP + _HEIGHT * (top - log10(value)) / (top - bottom)

    width, height = _LEFT + _WIDTH + 110, _TOP + _HEIGHT + 50
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" font-family="system-ui, sans-serif" font-size="12">'
    )
    lines = [head, f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>']
    for power in range(left, right + 1):
        at = x(10.0**power)
        lines.append(_line([(at, _TOP), (at, _TOP + _HEIGHT)], "#d8dde3"))
        lines.append(_text(at, _TOP + _HEIGHT + 16, f"{10**power:,}", "middle"))
    for power in range(bottom, top + 1):
        at = y(10.0**power)
        lines.append(_line([(_LEFT, at), (_LEFT + _WIDTH, at)], "#d8dde3"))
        lines.append(_text(_LEFT - 6, at + 4, f"{10.0**power:g}", "end"))
    lines.append(_text(_LEFT + _WIDTH / 2, height - 12, "nodes of a chain", "middle"))
    lines.append(_text(_LEFT, _TOP - 12, "ms", "end"))
    least = min(ms)  # the dashed line starts at the least figure
    run = min(right - log10(chains[0].nodes), top - log10(least))
    ends = [(x(chains[0].nodes), y(least)), (x(chains[0].nodes * 10**run), y(least * 10**run))]
    lines.append(_line(ends, "#9aa4af", "5 4"))
    for number, part in enumerate(PARTS):
        points = [(x(row.nodes), y(row.seconds[part] * 1e3)) for row in chains]
        lines.append(_line(points, COLOURS[part]))
        dots = (f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{COLOURS[part]}"/>' for a, b in points)
        lines += dots
        lines.append(_text(_LEFT + _WIDTH + 10, _TOP + 12 + _LINE * number, part, "start", COLOURS[part]))
    return "\n".join([*lines, "</svg>"]) + "\n"


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """Return the powers of ten around some positive numbers.

    >>> _decades([3, 10, 400])
    (0, 3)
    """
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    return low, max(high, low + 1)


def _line(points: Sequence[tuple[float, float]], colour: str, dashes: str = "") -> str:
    places = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<polyline points="{places}" fill="none" stroke="{colour}"{dashed}/>'


def _text(x: float, y: float, text: str, anchor: str, colour: str = "#1b1f24") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'
