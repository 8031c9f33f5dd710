"""The case ``one``: what inference of one new example takes, as a server has it, beside peers.

No example is ever run twice, and each is run alone. Peers get theirs as arrays; what they compute is compared
with ours before anything is timed. All take turns, and each turn runs all examples.
"""

from __future__ import annotations

import random
import statistics
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import RenderableType
from rich.table import Table

import foldbatch as fb
from benchmarks.case import Case
from benchmarks.contest import compare, contenders_of
from benchmarks.figures import COLOURS, Figure, new_figure
from benchmarks.options import add_backend, add_data, add_repeats, positive, trees_of
from benchmarks.ours import Ours
from benchmarks.remote import Remote
from benchmarks.sequence_ours import OurSequences, sentence_of
from benchmarks.sst_tables import add_peers, pythons_of
from benchmarks.task import Task
from benchmarks.workload import unseen, words_of
from foldbatch import ops
from foldbatch.errors import BackendError
from foldbatch.trees import Tree
from foldbatch.types import BackendName

WORDS = 50  # of the vocabulary of records and of child-sum trees
CLASSES = 5
SMALL = 16  # the size of a record's states
ITEMS = 6  # of a record
ID = fb.Scalar("int32")
PEERS_OF = {"tree": ("torch", "dynet", "jax"), "sentence": ("torch-lstm",)}


@dataclass(frozen=True, slots=True)
class Row:
    """Microseconds of one example of a model: the median of turns, and the least."""

    model: str
    who: str
    median: float
    least: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run found; `absent` says of peers why they were not measured."""

    source: str
    hidden: int
    rows: list[Row]
    absent: dict[str, str]


# returns the seconds that all examples of a model took
Turn = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Model:
    """A model as a block and as a plain function of the same layers, and a function that draws an example."""

    block: fb.Block
    walk: Callable[[Any], Any]
    draw: Callable[[random.Random], Any]


def child_sum(size: int) -> Model:
    """Return a child-sum Tree-LSTM over dependency trees, which classifies the root (Tai et al. 2015)."""
    lstm, embed, out = fb.ChildSumTreeLSTM(size), fb.Embedding(WORDS, size), fb.Linear(CLASSES)
    token = fb.ForwardDeclaration(output_type=(size, size), name="token")
    word = fb.GetItem("word") >> ID >> embed
    State = tuple[size, size]  # type: ignore[valid-type]
    token.resolve_to(fb.AllOf(word, fb.GetItem("children") >> fb.Map(token())) >> lstm)

    @fb.cell
    def node(word: Any, children: list[State]) -> Any:
        return lstm(embed(word), children)

    @fb.cell
    def root(state: Any) -> Any:
        return out(state)

    def visit(t: Any) -> Any:
        return node(t["word"], [visit(child) for child in t["children"]])

    def walk(t: Any) -> Any:
        return root(visit(t)[0])

    def draw(rng: random.Random, depth: int = 4) -> Any:
        children = [draw(rng, depth - 1) for _ in range(rng.randrange(4) if depth else 0)]
        return {"word": rng.randrange(WORDS), "children": children}

    return Model(token() >> fb.GetItem(0) >> out, walk, draw)


def record() -> Model:
    """Return a small model of records: the sum of some items, each an embedding times a number."""
    embed, mix, out = fb.Embedding(WORDS, SMALL), fb.Linear(SMALL, "tanh"), fb.Linear(2)
    weighed = fb.GetItem("kind") >> ID >> embed, fb.GetItem("amount") >> fb.Scalar()
    item = fb.AllOf(*weighed) >> fb.Function(lambda kind, amount: kind * amount) >> mix
    block = fb.GetItem("items") >> fb.Map(item) >> fb.Sum() >> out

    @fb.cell
    def read(kind: int, amount: float) -> Any:
        return mix(embed(kind) * amount)

    @fb.cell
    def root(items: Any) -> Any:
        return out(ops.segment_sum(items))

    def walk(r: Any) -> Any:
        return root([read(item["kind"], item["amount"]) for item in r["items"]])

    def draw(rng: random.Random) -> Any:
        return {"items": [{"kind": rng.randrange(WORDS), "amount": rng.random()} for _ in range(ITEMS)]}

    return Model(block, walk, draw)


def run(
    trees: Sequence[Tree],
    source: str,
    *,
    hidden: int,
    repeats: int,
    backend: BackendName = "auto",
    pythons: dict[str, str] | None = None,
) -> Outcome:
    """Measure one example at a time; `pythons` are the interpreters that have peers.

    Raises:
        FoldbatchError: when a peer computes another loss.
    """
    words, rng = words_of(trees), random.Random(0)  # noqa: S311
    tree, walk = (Ours(hidden, words, backend, walks=walks) for walks in (False, True))
    sentence = OurSequences("lstm", hidden, words, backend)
    sentences = [sentence_of(each) for each in trees]
    turns: dict[tuple[str, str], Turn] = {
        ("tree", "blocks"): _turn(tree.program, trees, unseen),
        ("tree", "function"): _turn(walk.program, trees, unseen),
        ("sentence", "blocks"): _turn(sentence.program, sentences, deepcopy),
    }
    for name, model in (("record", record()), ("child-sum", child_sum(hidden))):
        examples = [model.draw(rng) for _ in trees]
        turns[name, "blocks"] = _turn(fb.compile(model.block, backend), examples, deepcopy)
        turns[name, "function"] = _turn(fb.compile(model.walk, backend), examples, deepcopy)
    absent: dict[str, str] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        for kind, ours, batches in (
            ("tree", tree, [[each] for each in trees]),
            ("sentence", sentence, [[each] for each in sentences]),
        ):
            for peer in PEERS_OF[kind]:
                python = (pythons or {}).get(peer.partition("-")[0])
                if python is None:
                    continue
                try:
                    remote = stack.enter_context(Remote(peer, python))
                    turns |= _peers(kind, ours, hidden, batches, remote, folder / f"{peer}.npz")
                except BackendError as error:
                    absent[f"{peer}, {kind}"] = str(error)
        seconds: dict[tuple[str, str], list[float]] = {key: [] for key in turns}
        for _ in range(repeats):
            for key, turn in turns.items():
                seconds[key].append(turn())
    scaled = {key: [1e6 * s / len(trees) for s in own] for key, own in seconds.items()}
    rows = [Row(*key, statistics.median(own), min(own)) for key, own in scaled.items()]
    return Outcome(source, hidden, rows, absent)


def _turn(program: fb.Program, examples: Sequence[Any], fresh: Callable[[Any], Any]) -> Turn:
    program.run(fresh(examples))  # what there is to learn is learnt now

    def turn() -> float:
        new = fresh(examples)
        start = time.perf_counter()
        for example in new:
            program.run([example])
        return time.perf_counter() - start

    return turn


def _peers(
    model: str, ours: Ours | OurSequences, hidden: int, batches: list[Any], remote: Remote, file: Path
) -> dict[tuple[str, str], Turn]:
    """Return the turns of a peer's variants, which compute what we do."""
    Task(hidden, ours.parameters(), [[ours.flat(one) for one in batch] for batch in batches]).save(file)
    numbers, found = [*range(len(batches))], dict[tuple[str, str], Turn]()
    losses = {k: ours.loss(batches[k]) for k in numbers[:4]}
    for peer in contenders_of(remote, file):
        compare(peer, losses)
        peer.infer(numbers)  # what is compiled for a shape is compiled now
        found[model, peer.name] = partial(peer.infer, numbers)
    return found


# -- as the command shows it


def _add_arguments(parser: ArgumentParser) -> None:
    add_data(parser)
    sizes = f"size of states and embeddings, but for records, of {SMALL} (default 150)"
    parser.add_argument("--hidden", type=positive, default=150, metavar="N", help=sizes)
    many = "examples of each model (default 128)"
    parser.add_argument("--examples", type=positive, default=128, metavar="N", help=many)
    add_repeats(parser, 9)
    add_backend(parser)
    add_peers(parser)


def _run(options: Namespace) -> Outcome:
    trees, source = trees_of(options, options.examples)
    measured = {"hidden": options.hidden, "repeats": options.repeats, "backend": options.backend}
    return run(trees, f"{len(trees)} {source}", **measured, pythons=pythons_of(options))


def _tables(outcome: Outcome) -> list[RenderableType]:
    table = Table(
        title=f"Inference of one new example, microseconds; hidden {outcome.hidden}, {outcome.source}"
    )
    for name, justify in (("model", "left"), ("who", "left"), ("median", "right"), ("least", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for row in outcome.rows:
        table.add_row(row.model, row.who, f"{row.median:.0f}", f"{row.least:.0f}")
    return [table, *(f"not measured: {name}: {why}" for name, why in outcome.absent.items())]


def _figure(outcome: Outcome) -> Figure:
    figure, (axes,) = new_figure()
    axes.barh(
        [f"{row.model}, {row.who}" for row in outcome.rows],
        [r.median for r in outcome.rows],
        color=COLOURS[0],
    )
    axes.set_xlabel("microseconds")
    return figure


CASE = Case("one", "inference of one new example", _add_arguments, _run, _tables, asdict, _figure)
