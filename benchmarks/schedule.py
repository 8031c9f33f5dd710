"""The case ``schedule``: what it costs to trace a batch and to plan it, and that the cost grows linearly.

Planning is to merge traces, to group calls by the policy and build control tables, and to make launch
tables of these for the engine (``ready``).

Tracing is that of examples seen for the first time; all other parts start from traces, as from the
second epoch on, on one thread. Index arithmetic is that of the backend. What a batch costs in training is
timed as a whole, right after a training step, which leaves nothing of it in the processor's caches.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from benchmarks.case import Case
from benchmarks.figures import COLOURS, Figure, log_axes, new_figure
from benchmarks.inside import make_ready
from benchmarks.measure import interleave
from benchmarks.options import add_backend, add_batch, add_data, add_repeats, positive, trees_of
from benchmarks.ours import Step
from benchmarks.workload import tree_lstm
from foldbatch import Block, Embedding, Fold, Function, Map, Program, Scalar, Sum, Zeros, compile, ops
from foldbatch.errors import FoldbatchError
from foldbatch.program import schedule
from foldbatch.scheduler.layout import find_layout
from foldbatch.scheduler.merge import merge
from foldbatch.scheduler.policies import find_policy
from foldbatch.scheduler.sharing import find_share
from foldbatch.scheduler.tables import build
from foldbatch.trees import Tree, Vocabulary
from foldbatch.types import BackendName

PARTS = TRACE, MERGE, TABLES, READY = "trace", "merge", "tables", "ready"
STEP, PLANNED = "step", "planned"
WORDS = 1000  # of stars and chains
FEATURES = 2  # of their words: nothing is computed


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
        """Seconds from traces to launch tables."""
        return sum(self.seconds[part] for part in (MERGE, TABLES, READY))

    @property
    def share(self) -> float | None:
        """The share of scheduling, known traces looked up, in a training step; None where none was timed."""
        return self.seconds[PLANNED] / self.seconds[STEP] if STEP in self.seconds else None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found: a row for each batch of trees and the star, and one for each chain.

    Attributes:
        trees: of the largest batch.
        source: where they are from.
        hidden: of the Tree-LSTM whose training step is the measure.
        rows: of batches and the star.
        chains: by length.
    """

    trees: int
    source: str
    hidden: int
    rows: list[Row]
    chains: list[Row]


def run(
    trees: Sequence[Tree], hidden: int, repeats: int, nodes: int, backend: BackendName = "auto"
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
        raise FoldbatchError(
            "benchmarks schedule", "one tree or more", "none", "give a treebank that has some"
        )
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
    model, options, tracer = program.model, program.options, program.lowered
    policy, layout = find_policy(options.policy), find_layout(options.layout)
    cells, arenas, share = model.signatures, len(model.arenas), find_share(options.share)
    traces = [prepared.trace for prepared in program.prepare(examples)]
    engine = program._runner.engine
    arithmetic, batch = engine.arithmetic, schedule(program, examples)
    merged = merge(traces, cells, arithmetic)
    tasks: dict[str, Any] = {
        TRACE: lambda: [tracer.trace_all([example], [i])[0] for i, example in enumerate(examples)],
        MERGE: lambda: merge(traces, cells, arithmetic),
        TABLES: lambda: build(merged, cells, policy, layout, arenas, share, arithmetic),
        READY: lambda: engine.ready(batch, training=True),
    }
    if step is not None:
        tasks |= {STEP: lambda: step(examples), PLANNED: lambda: make_ready(program, examples)}
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


# -- for the command


def _run(options: Namespace) -> Outcome:
    trees, source = trees_of(options, options.batch)
    rows, chains = run(trees, options.hidden, options.repeats, options.nodes, options.backend)
    return Outcome(len(trees), source, options.hidden, rows, chains)


def _add_arguments(parser: ArgumentParser) -> None:
    add_data(parser)
    size = "size of h and c (default 150)"
    parser.add_argument("--hidden", type=positive, default=150, metavar="N", help=size)
    add_batch(parser, 1024)
    longest = "nodes of the star and of the longest chain (default 100000)"
    parser.add_argument("--nodes", type=positive, default=100_000, metavar="N", help=longest)
    add_repeats(parser, 11)
    add_backend(parser)


def _tables(outcome: Outcome) -> list[RenderableType]:
    step = f"a step is one of the SST Tree-LSTM, hidden {outcome.hidden}"
    return [f"{outcome.trees} {outcome.source}; {step}", table(outcome.rows, outcome.chains)]


def _as_dict(outcome: Outcome) -> dict[str, Any]:
    return asdict(outcome)


def figure(outcome: Outcome) -> Figure:
    """Draw the milliseconds of each part against the nodes of a chain, both in powers of ten.

    Where the cost is linear, the lines rise like the dashed one.
    """
    drawn, (axes,) = new_figure()
    nodes = [row.nodes for row in outcome.chains]
    ms = {part: [row.seconds[part] * 1e3 for row in outcome.chains] for part in PARTS}
    for colour, (part, values) in zip(COLOURS, ms.items(), strict=False):
        axes.plot(nodes, values, "o-", color=colour, label=part)
    least = min(map(min, ms.values()))
    axes.plot(nodes, [least * n / nodes[0] for n in nodes], "--", color="#9aa4af", label="linear")
    log_axes(axes, "nodes of a chain", "ms")
    return drawn


CASE = Case(
    "schedule",
    "what tracing and planning a batch take, and that they grow linearly",
    _add_arguments,
    _run,
    _tables,
    _as_dict,
    figure,
)
