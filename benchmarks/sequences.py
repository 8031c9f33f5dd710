"""The case ``sequences``: an LSTM and a GRU over the words of sentences, beside PyTorch's.

The contest is that of the case ``sst``: the same batches for everybody, the same parameters, losses compared
before anything is timed and once more after a training step, and runs that take turns. Ours run with known
examples, which were prepared, and with new ones, which are traced in the run.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from benchmarks.case import Case
from benchmarks.contest import TASKS, Contender, Timings, contenders_of, contest, our_contender, verify
from benchmarks.figures import COLOURS, Figure, log_axes, new_figure
from benchmarks.options import add_backend, add_data, add_repeats, positive, trees_of
from benchmarks.remote import Remote
from benchmarks.sequence_ours import CELLS, OurSequences, sentence_of
from benchmarks.sst_tables import TITLES
from benchmarks.task import Task
from benchmarks.workload import draw_batches
from foldbatch.errors import BackendError
from foldbatch.trees import Tree, Vocabulary
from foldbatch.types import BackendName


@dataclass(frozen=True, slots=True)
class Found:
    """What was found for one kind and size of model and one size of batch; seconds are those of one batch.

    Attributes:
        kind: ``lstm`` or ``gru``.
        hidden: the model's size.
        batch: sentences in a batch; `batches` how many different ones there were, `words` in all of them.
        timings: by contender, then ``train`` and ``infer``; first ours with known, then with new examples.
    """

    kind: str
    hidden: int
    batch: int
    batches: int
    words: int
    timings: Timings

    def per_second(self, name: str, task: str) -> float:
        """Return the sentences that a contender runs per second."""
        return self.batch / self.timings[name][task].median

    def ratio(self, task: str, *, new: bool) -> float | None:
        """Return how many times faster ours is than the best peer; None where there is none."""
        known, traced, *peers = self.timings
        best = max((self.per_second(name, task) for name in peers), default=None)
        return None if best is None else self.per_second(traced if new else known, task) / best

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data, derived figures too."""
        derived = {
            task: {
                "sentences_per_second": {name: self.per_second(name, task) for name in self.timings},
                "ratio_to_best_peer": {
                    "known": self.ratio(task, new=False),
                    "new": self.ratio(task, new=True),
                },
            }
            for task in TASKS
        }
        return asdict(self) | {"derived": derived}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run found; `absent` says of peers why they were not measured."""

    source: str
    found: tuple[Found, ...]
    absent: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "source": self.source,
            "found": [each.as_dict() for each in self.found],
            "absent": self.absent,
        }


def run(
    trees: Sequence[Tree],
    source: str,
    *,
    kinds: Sequence[str],
    hidden: Sequence[int],
    batches: Sequence[int],
    repeats: int,
    backend: BackendName = "auto",
    python: str | None = sys.executable,
) -> Outcome:
    """Measure batches of the sentences of some trees.

    Args:
        trees: whose words, and whose root's class, are the sentences.
        source: what they are.
        kinds: ``lstm``, ``gru`` or both.
        hidden: sizes of the states and the embedding.
        batches: sentences in a batch.
        repeats: timed runs of each task.
        backend: of ours.
        python: the interpreter that has PyTorch; None for no peer.

    Raises:
        FoldbatchError: when the peer computes another loss, which would make the comparison void.
    """
    found: list[Found] = []
    absent: dict[str, str] = {}
    for kind in kinds:
        remote: Remote | None = None
        try:
            if python is not None:
                remote = Remote(f"torch-{kind}", python)
        except BackendError as error:
            absent[f"PyTorch, {kind}"] = f"not installed: {error}"
        try:
            for size in hidden:
                found += _measured(trees, kind, size, batches, repeats, backend, remote, absent)
        finally:
            if remote is not None:
                remote.close()
    return Outcome(source, tuple(found), absent)


def _measured(
    trees: Sequence[Tree],
    kind: str,
    hidden: int,
    sizes: Sequence[int],
    repeats: int,
    backend: BackendName,
    remote: Remote | None,
    absent: dict[str, str],
) -> list[Found]:
    """Verify all contenders, then time them, size by size."""
    vocabulary = Vocabulary.count(word for tree in trees for word in tree.words())
    model = OurSequences(kind, hidden, vocabulary, backend)
    batches: list[Any] = []
    numbers: dict[int, list[int]] = {}  # of the batches, by size
    for size in sizes:
        drawn = draw_batches(trees, size)
        numbers[size] = list(range(len(batches), len(batches) + len(drawn)))
        batches += [[sentence_of(tree) for tree in batch] for batch in drawn]
    known = our_contender(model, [model.program.prepare(batch) for batch in batches])
    new = our_contender(model, batches, list)
    peers = []
    if remote is not None:
        try:
            peers = _verified(model, batches, known, remote)
        except BackendError as error:
            absent[f"{remote.title}, {kind}, hidden {hidden}"] = str(error)
    found = []
    for size in sizes:
        result = contest([known, new, *peers], numbers[size], repeats, {})
        absent |= {f"{name}, batch {size}, hidden {hidden}": why for name, why in result.failed.items()}
        words = sum(len(words) for k in numbers[size] for words, _ in batches[k])
        found.append(Found(kind, hidden, size, len(numbers[size]), words, result.quiet))
    return found


def _verified(
    model: OurSequences, batches: Sequence[Any], ours: Contender, remote: Remote
) -> list[Contender]:
    """Return the peer's variants, which compute what we do, and learn what we learn."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "task.npz"
        flat = [[model.flat(sentence) for sentence in batch] for batch in batches]
        Task(model.hidden, model.parameters(), flat).save(file)
        peers = contenders_of(remote, file)
    losses = {k: ours.loss(k) for k in range(len(batches))}
    ours.train([0])
    after = 0, ours.loss(0)
    for peer in peers:
        verify(peer, losses, after)
    return peers


# -- as the command shows it


def _add_arguments(parser: ArgumentParser) -> None:
    add_data(parser)
    kinds, what = list(CELLS), "lstm, gru or both (default)"
    parser.add_argument("--kind", choices=kinds, nargs="+", default=kinds, metavar="KIND", help=what)
    for option, default, what in (
        ("--hidden", [150, 300], "sizes of the states and the embedding (default 150 300)"),
        ("--batch", [16, 64, 256], "sentences per batch (default 16 64 256)"),
    ):
        parser.add_argument(option, type=positive, nargs="+", default=default, metavar="N", help=what)
    add_repeats(parser, 9)
    add_backend(parser)
    where = "the interpreter that has PyTorch (default: this one)"
    parser.add_argument("--python", default=sys.executable, metavar="PATH", help=where)
    parser.add_argument("--no-peers", action="store_true", help="measure ours alone")


def _run(options: Namespace) -> Outcome:
    trees, source = trees_of(options, 16 * max(16, *options.batch), whole=True)
    return run(
        trees,
        f"{len(trees)} sentences: {source}",
        kinds=options.kind,
        hidden=options.hidden,
        batches=options.batch,
        repeats=options.repeats,
        backend=options.backend,
        python=None if options.no_peers else options.python,
    )


def tables(outcome: Outcome) -> list[RenderableType]:
    """Return what is printed: a table for each kind, size and task."""
    what = f"Words to one class; batches drawn from {outcome.source}"
    runs = "medians of interleaved runs, ± half the distance of the quartiles"
    ours = "of ours, prepared examples, and new ones, which are traced in the run"
    parts: list[RenderableType] = [f"{what}; {runs}; {ours}"]
    models = dict.fromkeys((each.kind, each.hidden) for each in outcome.found)
    for kind, hidden in models:
        found = [each for each in outcome.found if (each.kind, each.hidden) == (kind, hidden)]
        parts += [_speeds(found, task) for task in TASKS]
    return [*parts, *(f"not measured: {name}: {why}" for name, why in outcome.absent.items())]


def _speeds(found: Sequence[Found], task: str) -> Table:
    kind, hidden = found[0].kind.upper(), found[0].hidden
    table = Table(title=f"Sentences per second, {TITLES[task]}, {kind}, hidden {hidden}")
    table.add_column("contender")
    for each in found:
        table.add_column(f"batch {each.batch}", justify="right")
    for name in dict.fromkeys(name for each in found for name in each.timings):
        timed = [(each, each.timings.get(name, {}).get(task)) for each in found]
        cells = (f"{e.per_second(name, task):.0f} ±{t.spread:.0%}" if t else "" for e, t in timed)
        table.add_row(name, *cells)
    table.add_section()
    for title, new in (("against the best peer, known", False), ("against the best peer, new", True)):
        ratios = [each.ratio(task, new=new) for each in found]
        if any(ratios):
            table.add_row(title, *("" if ratio is None else f"{ratio:.2f}x" for ratio in ratios))
    return table


def figure(outcome: Outcome) -> Figure:
    """Draw the speed over the size of batch."""
    models = list(dict.fromkeys((each.kind, each.hidden) for each in outcome.found))
    drawn, panels = new_figure(len(models), len(TASKS))
    for row, (kind, hidden) in enumerate(models):
        found = [each for each in outcome.found if (each.kind, each.hidden) == (kind, hidden)]
        for task, axes in zip(TASKS, panels[len(TASKS) * row :], strict=False):
            for colour, name in zip(COLOURS, found[0].timings, strict=False):
                there = [each for each in found if name in each.timings]
                speeds = [each.per_second(name, task) for each in there]
                axes.plot([each.batch for each in there], speeds, "o-", color=colour, label=name)
            log_axes(axes, "sentences in a batch", "sentences a second")
            axes.set_title(f"{kind.upper()}, hidden {hidden}, {TITLES[task]}")
    return drawn


CASE = Case(
    "sequences",
    "an LSTM and a GRU over the words of sentences, beside PyTorch's on packed sequences",
    _add_arguments,
    _run,
    tables,
    Outcome.as_dict,
    figure,
)
