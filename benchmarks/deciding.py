"""The case ``deciding``: walks whose next step depends on computed numbers, beside PyTorch."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any
from unittest import mock

import numpy as np
from rich.console import RenderableType
from rich.table import Table

import foldbatch as fb
from benchmarks.case import Case
from benchmarks.deciding_walks import ours, walks, weights
from benchmarks.figures import Figure, new_figure
from benchmarks.options import add_backend, add_batch, add_data, add_repeats, positive, trees_of
from foldbatch.functions.rounds import Rounds
from foldbatch.types import BackendName

WORDS = 500
TURNS = 20  # of two programs, a repeat
ONE_BY_ONE, MASKED = PEERS = "PyTorch one by one", "PyTorch masked"


@dataclass(frozen=True, slots=True)
class Row:
    """What a task took; of ratios and milliseconds the first is of new examples, the other one of known ones.

    Attributes:
        task: its name, with the size of states.
        rounds: of a batch.
        ours: the CPU milliseconds of a batch.
        ratios: by peer, how many times ours it took, in the median of batches.
        agree: by peer, the share of examples with the same result; of a training step, of losses within 1e-4.
    """

    task: str
    rounds: int
    ours: tuple[float, float]
    ratios: dict[str, tuple[float, float]]
    agree: dict[str, float]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What all tasks took, and walks that read no number, by the number of examples; see `unread`."""

    tasks: list[Row]
    unread: dict[int, float]


def measured(
    task: str, own: Callable[[Any], Any], peers: dict[str, Callable[[Any], Any]], batches: Sequence[Any]
) -> Row:
    """Time ours and peers by turns, on a batch after the other; the first one warms ours up."""
    for _ in range(3):
        own(batches[0])
    agree: dict[str, list[float]] = {name: [] for name in peers}
    spent: dict[str, list[float]] = {name: [] for name in ("new", "known", *peers)}
    for batch in batches[1:]:
        right = None
        for name, work in {"new": own, "known": own, **peers}.items():
            if name != "known":
                work(batches[0])  # what ran before has left the processor's caches to others
            start = time.process_time()
            found = work(batch)
            spent[name].append(time.process_time() - start)
            right = found if right is None else right
            if name in peers:
                agree[name].append(_agreement(right, found))
    mine = spent["new"], spent["known"]
    ratios = {
        name: (median(np.divide(spent[name], mine[0])), median(np.divide(spent[name], mine[1])))
        for name in peers
    }
    with mock.patch.object(Rounds, "compute", autospec=True, side_effect=Rounds.compute) as rounds:
        own(batches[0])
    taken = 1e3 * median(mine[0]), 1e3 * median(mine[1])
    means = {name: float(np.mean(shares)) for name, shares in agree.items()}
    return Row(task, rounds.call_count, taken, ratios, means)


def _agreement(a: Any, b: Any) -> float:
    if isinstance(a, float):
        return float(abs(a - b) <= 1e-4 * abs(a))
    return float(np.mean([x == y for x, y in zip(a, b, strict=True)]))


class _Unable:
    """What stands for the rounds of a program that cannot decide."""

    def results(self, *given: Any, **options: Any) -> None:
        """Say that others know the results."""

    def decide(self, *given: Any, **options: Any) -> None:
        """Run no walk in rounds."""

    run_small = decide  # nor a small batch from its notes


def unread(examples: Sequence[Any], repeats: int, backend: BackendName) -> float:
    """Return how much CPU time a walk that reads no number takes, in that of a program that cannot decide.

    Both run by turns, each as often first.
    """
    walk = walks(ours(weights(64, WORDS)), 64)["encode"]
    able, unable = (fb.compile(walk, backend, threads=1) for _ in range(2))
    unable._deciding = _Unable()  # type: ignore[assignment]
    programs, ratios = [able, unable], list[float]()
    for turn in range(TURNS * repeats):
        spent = {}
        for program in programs[:: 1 if turn % 2 else -1]:
            start = time.process_time()
            for _ in range(max(1, 64 // len(examples))):
                program.run(examples)
            spent[program] = time.process_time() - start
        ratios.append(spent[able] / spent[unable])
    return median(ratios)


def as_pairs(tree: Any) -> Any:
    """Return a tree as nested pairs of numbers of words."""
    if tree.is_leaf:
        return sum(map(ord, tree.token or "")) % (WORDS - 2) + 2
    return as_pairs(tree[0]), as_pairs(tree[1])


def run(
    batches: Sequence[Sequence[Any]], hidden: Sequence[int], backend: BackendName, *, only: Sequence[str] = ()
) -> list[Row]:
    """Measure all tasks on batches, each of which is new to ours.

    Args:
        batches: of trees, as nested pairs of numbers; the first one warms ours up.
        hidden: sizes of states; decoding and the halting loop take all, others the first.
        backend: of ours.
        only: the tasks wanted; all by default.
    """
    draw, rows = np.random.default_rng(0), []

    def biased(low: float, high: float) -> list[Any]:
        return [
            [(int(draw.integers(2, WORDS)), float(draw.uniform(low, high))) for _ in batch]
            for batch in batches
        ]

    data: dict[str, Sequence[Any]] = {"decode": batches, "beams": batches}
    data |= {"halting": biased(-3, 1), "adaptive": biased(0, 4)}
    data["parse"] = [
        [draw.integers(2, WORDS, int(draw.integers(3, 30))).tolist() for _ in batch] for batch in batches
    ]
    for name, examples in data.items():
        if only and name not in only:
            continue
        for size in hidden if name in ("decode", "halting") else hidden[:1]:
            values = weights(size, WORDS)
            program = fb.compile(walks(ours(values), size)[name], backend, threads=1)
            trains = name in ("halting", "adaptive")
            peers: dict[str, Callable[[Any], Any]] = {}
            if find_spec("torch"):
                from benchmarks.deciding_torch import Peer  # noqa: PLC0415 - optional

                peer = Peer(values, size)
                peers[ONE_BY_ONE] = partial(peer.train if trains else peer.run, name)
                if name == "decode":
                    peers[MASKED] = peer.padded_decode
                if name == "beams":
                    peers[MASKED] = peer.padded_beams
                if name == "halting":
                    peers[MASKED] = peer.masked_halting
            own = partial(_loss if trains else _results, program)
            rows.append(measured(f"{name}, {size}", own, peers, examples))
    return rows


def _loss(program: fb.Program, examples: list[Any]) -> float:
    return program.value_and_grad(examples)[0]


def _results(program: fb.Program, examples: list[Any]) -> list[Any]:
    return list(program.run(examples))


def _run(options: Namespace) -> Outcome:
    trees, _ = trees_of(options, options.batch * (options.repeats + 1))
    pairs = [as_pairs(tree) for tree in trees]
    batches = [pairs[i : i + options.batch] for i in range(0, len(pairs), options.batch)]
    rows = run(batches, options.hidden, options.backend, only=options.only)
    some = {len(part): part for part in (batches[0][:1], batches[0])}
    return Outcome(rows, {n: unread(part, options.repeats, options.backend) for n, part in some.items()})


def _add_arguments(parser: ArgumentParser) -> None:
    add_data(parser)
    add_batch(parser, 64)
    add_repeats(parser, 5)
    add_backend(parser)
    parser.add_argument(
        "--hidden", type=positive, nargs="+", default=[64, 128, 256, 512], help="sizes of states"
    )
    tasks = ("decode", "beams", "halting", "adaptive", "parse")
    parser.add_argument("--only", nargs="+", choices=tasks, default=tasks, help="the tasks wanted")


def _tables(outcome: Outcome) -> list[RenderableType]:
    rows = outcome.tasks
    table = Table(title="Walks that decide, a batch of new examples (and of known ones)")
    for name in ("task, size of states", "rounds", "ours, ms of CPU", *PEERS, "agree"):
        table.add_column(name, justify="left" if name.startswith("task") else "right")
    for row in rows:
        ratios = [
            "{:.2f}x ({:.2f}x)".format(*row.ratios[name]) if name in row.ratios else "" for name in PEERS
        ]
        agree = ", ".join(f"{share:.0%}" for share in row.agree.values())
        new, known = row.ours
        table.add_row(row.task, str(row.rounds), f"{new:.1f} ({known:.1f})", *ratios, agree)
    ratios = [f"{ratio:.3f}x ({n} examples)" for n, ratio in outcome.unread.items()]
    nothing = f"A walk that reads no number takes {', '.join(ratios)} of what it takes where none can be read"
    return [table, "1.50x: the peer takes 1.5 times our CPU time", nothing]


def _as_dict(outcome: Outcome) -> dict[str, Any]:
    return asdict(outcome)


def _figure(outcome: Outcome) -> Figure:
    rows = outcome.tasks
    figure, (axes,) = new_figure()
    for k, name in enumerate(PEERS):
        own = [(i, row.ratios[name][0]) for i, row in enumerate(rows) if name in row.ratios]
        axes.barh([i + 0.3 * k for i, _ in own], [ratio for _, ratio in own], 0.25, label=name)
    axes.set_yticks(range(len(rows)), [row.task for row in rows])
    axes.set_xlabel("times our CPU time")
    axes.legend()
    return figure


CASE = Case(
    "deciding",
    "walks whose next step depends on computed numbers, beside PyTorch one by one and with masks",
    _add_arguments,
    _run,
    _tables,
    _as_dict,
    _figure,
)
