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
from benchmarks.options import add_backend, add_batch, add_data, add_repeats, trees_of
from foldbatch.program.deciding import RoundEngine
from foldbatch.types import BackendName

WORDS = 500
ONE_BY_ONE, MASKED = "PyTorch one by one", "PyTorch masked"


@dataclass(frozen=True, slots=True)
class Row:
    """What a task took.

    Attributes:
        task: its name, with the size of states.
        rounds: of a batch.
        ours: the CPU milliseconds of a batch.
        ratios: by peer, how many times ours it took, in the median of runs by turns.
        agree: by peer, the share of examples with the same result; of a training step, of losses within 1e-4.
    """

    task: str
    rounds: int
    ours: float
    ratios: dict[str, float]
    agree: dict[str, float]


def measured(task: str, own: Callable[[], Any], peers: dict[str, Callable[[], Any]], repeats: int) -> Row:
    """Time ours and peers by turns; figures of CPU time."""
    right = own()
    agree = {name: _agreement(right, peer()) for name, peer in peers.items()}
    spent: dict[str, list[float]] = {name: [] for name in ("", *peers)}
    for _ in range(repeats):
        for name, work in {"": own, **peers}.items():
            start = time.process_time()
            work()
            spent[name].append(time.process_time() - start)
    mine = spent.pop("")
    ratios = {name: median(np.divide(theirs, mine).tolist()) for name, theirs in spent.items()}
    with mock.patch.object(RoundEngine, "run", autospec=True, side_effect=RoundEngine.run) as rounds:
        own()
    return Row(task, rounds.call_count, 1e3 * median(mine), ratios, agree)


def _agreement(a: Any, b: Any) -> float:
    if isinstance(a, float):
        return float(abs(a - b) <= 1e-4 * abs(a))
    return float(np.mean([x == y for x, y in zip(a, b, strict=True)]))


def as_pairs(tree: Any) -> Any:
    """Return a tree as nested pairs of numbers of words."""
    if tree.is_leaf:
        return sum(map(ord, tree.token or "")) % (WORDS - 2) + 2
    return as_pairs(tree[0]), as_pairs(tree[1])


def run(
    pairs: Sequence[Any],
    hidden: Sequence[int],
    repeats: int,
    backend: BackendName,
    *,
    only: Sequence[str] = (),
) -> list[Row]:
    """Measure all tasks on a batch of trees.

    Args:
        pairs: the trees, as nested pairs of numbers.
        hidden: sizes of states; decoding and the halting loop take all, others the first.
        repeats: how often everything runs.
        backend: of ours.
        only: the tasks wanted; all by default.
    """
    draw, rows = np.random.default_rng(0), []
    count = len(pairs)
    data: dict[str, list[Any]] = {"decode": [*pairs], "beams": [*pairs]}
    data["halting"] = [(int(draw.integers(2, WORDS)), float(draw.uniform(-3, 1))) for _ in range(count)]
    data["adaptive"] = [(int(draw.integers(2, WORDS)), float(draw.uniform(0, 4))) for _ in range(count)]
    data["parse"] = [draw.integers(2, WORDS, int(draw.integers(3, 30))).tolist() for _ in range(count)]
    for name, examples in data.items():
        if only and name not in only:
            continue
        for size in hidden if name in ("decode", "halting") else hidden[:1]:
            values = weights(size, WORDS)
            program = fb.compile(walks(ours(values), size)[name], backend, threads=1)
            trains = name in ("halting", "adaptive")
            peers: dict[str, Callable[[], Any]] = {}
            if find_spec("torch"):
                from benchmarks.deciding_torch import Peer  # noqa: PLC0415 - optional

                peer = Peer(values, size)
                peers[ONE_BY_ONE] = partial(peer.train if trains else peer.run, name, examples)
                if name == "decode":
                    peers[MASKED] = partial(peer.padded_decode, examples)
                if name == "halting":
                    peers[MASKED] = partial(peer.masked_halting, examples)
            own = partial(_loss, program, examples) if trains else partial(_results, program, examples)
            for _ in range(3):
                own()
            rows.append(measured(f"{name}, {size}", own, peers, repeats))
    return rows


def _loss(program: fb.Program, examples: list[Any]) -> float:
    return program.value_and_grad(examples)[0]


def _results(program: fb.Program, examples: list[Any]) -> list[Any]:
    return list(program.run(examples))


def _run(options: Namespace) -> list[Row]:
    trees, _ = trees_of(options, options.batch)
    return run(
        [as_pairs(tree) for tree in trees],
        options.hidden,
        options.repeats,
        options.backend,
        only=options.only,
    )


def _add_arguments(parser: ArgumentParser) -> None:
    add_data(parser)
    add_batch(parser, 64)
    add_repeats(parser, 5)
    add_backend(parser)
    parser.add_argument("--hidden", type=int, nargs="+", default=[64, 128, 256, 512], help="sizes of states")
    parser.add_argument(
        "--only", nargs="+", default=(), metavar="TASK", help="decode, beams, halting, adaptive, parse"
    )


def _tables(rows: list[Row]) -> list[RenderableType]:
    table = Table(title="Walks that decide, a batch")
    for name in ("task, size of states", "rounds", "ours, ms of CPU", ONE_BY_ONE, MASKED, "agree"):
        table.add_column(name, justify="left" if name.startswith("task") else "right")
    for row in rows:
        ratios = [f"{row.ratios[name]:.2f}x" if name in row.ratios else "" for name in (ONE_BY_ONE, MASKED)]
        agree = ", ".join(f"{share:.0%}" for share in row.agree.values())
        table.add_row(row.task, str(row.rounds), f"{row.ours:.1f}", *ratios, agree)
    return [table, "1.50x: the peer takes 1.5 times our CPU time"]


def _as_dict(rows: list[Row]) -> dict[str, Any]:
    return {"tasks": [asdict(row) for row in rows]}


def _figure(rows: list[Row]) -> Figure:
    figure, (axes,) = new_figure()
    for k, name in enumerate((ONE_BY_ONE, MASKED)):
        own = [(i, row.ratios[name]) for i, row in enumerate(rows) if name in row.ratios]
        axes.barh([i + 0.4 * k for i, _ in own], [ratio for _, ratio in own], 0.35, label=name)
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
