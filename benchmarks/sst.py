"""The case ``sst``: what batching gains on the SST Tree-LSTM, how peers fare beside it, and the floor.

Everything is measured in turn. A training step is loss, gradients and Adam's update (rows of the
embedding sparsely); inference yields the roots' scores and no losses. All work per batch counts,
from parsed trees on: ours with traces known, as from the second epoch on, and once more with new trees, which
are traced in the run, by blocks and by a plain function; peers from flat arrays of each tree.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.busy import Neighbours
from benchmarks.contest import WALK, Contender, Result, contenders_of, contest, our_contender, verify
from benchmarks.floor import Products, count
from benchmarks.measure import Timing, timing
from benchmarks.memory import Peak, peaks
from benchmarks.ours import Ours
from benchmarks.remote import Remote
from benchmarks.sst_outcome import Found, Outcome, Settings
from benchmarks.task import Task
from benchmarks.variants import OURS, PEERS
from benchmarks.workload import draw_batches, unseen
from foldbatch.errors import BackendError, FoldbatchError
from foldbatch.trees import Tree, Vocabulary

GEMM, TRACE = "products", "tracing"


def run(trees: Sequence[Tree], source: str, settings: Settings) -> Outcome:
    """Measure batches drawn from some trees.

    Raises:
        FoldbatchError: when a peer computes another loss, which would make the comparison void; or
            there are no trees.
    """
    if not trees:
        raise FoldbatchError("benchmarks sst", "one tree or more", "none", "give a treebank that has some")
    found: list[Found] = []
    absent: dict[str, str] = {}
    memory: dict[int, dict[str, Peak]] = {}
    with ExitStack() as stack:
        remotes = []
        for peer, python in settings.peers.items():
            try:
                remotes.append(stack.enter_context(Remote(peer, python)))
            except BackendError as error:
                absent[PEERS[peer].title] = f"not installed: {error}"
        neighbours = stack.enter_context(Neighbours(settings.busy)) if settings.busy else None
        folder = Path(stack.enter_context(TemporaryDirectory()))
        for hidden in settings.hidden:
            measurement = _Measurement(trees, hidden, settings, folder / f"{hidden}.npz")
            found += measurement.run(remotes, neighbours, absent)
            if settings.memory:
                memory[hidden] = measurement.memory(absent)
    return Outcome(source, settings, tuple(found), absent, memory)


class _Measurement:
    """All that is measured with one size of the model."""

    def __init__(self, trees: Sequence[Tree], hidden: int, settings: Settings, file: Path) -> None:
        self.hidden, self.settings, self.file = hidden, settings, file
        vocabulary = Vocabulary.count(word for tree in trees for word in tree.words())
        self.ours = Ours(hidden, vocabulary, settings.backend)
        self.walk = Ours(hidden, vocabulary, settings.backend, walks=True)
        self.walk.program.warm(trees[:64])
        self.walk.program.params.update(self.ours.program.params)
        self.batches: list[list[Tree]] = []
        self.numbers: dict[int, list[int]] = {}  # of the batches, by size
        for size in sorted({1, *settings.batches}):
            drawn = draw_batches(trees, size, settings.seed)
            self.numbers[size] = list(range(len(self.batches), len(self.batches) + len(drawn)))
            self.batches += drawn
        flat = {id(tree): self.ours.flat(tree) for batch in self.batches for tree in batch}
        as_flat = [[flat[id(tree)] for tree in batch] for batch in self.batches]
        Task(hidden, self.ours.parameters(), as_flat).save(file)

    def run(
        self, remotes: Sequence[Remote], neighbours: Neighbours | None, absent: dict[str, str]
    ) -> list[Found]:
        """Verify all contenders, then time them, size by size."""
        ours = our_contender(self.ours, self.batches)
        new = our_contender(self.ours, self.batches, unseen)
        walk = our_contender(self.walk, self.batches, unseen, WALK)
        peers = self._verified(ours, walk, remotes, absent)
        found = []
        one: dict[str, Timing] = {}
        products_seconds: list[float] = []
        with Products(self.hidden) as products:
            for size, numbers in self.numbers.items():
                asked = size in self.settings.batches
                further: dict[str, Callable[[], float]] = {
                    GEMM: products.seconds,
                    TRACE: partial(self._trace, numbers),
                }
                taking_part = [p for p in peers if p.batched or size <= self.settings.per_node_batch]
                result = contest(
                    [ours, new, walk, *taking_part] if asked else [ours],
                    numbers,
                    self.settings.repeats,
                    further,
                    neighbours if asked else None,
                )
                absent |= {
                    f"{name}, batch {size}, hidden {self.hidden}": why for name, why in result.failed.items()
                }
                one = one or result.quiet[ours.name]
                products_seconds += result.further[GEMM]
                if asked:
                    found.append(self._found(size, result, one))
        rate = products.operations / min(products_seconds)
        return [replace(each, rate=rate) for each in found]

    def _found(self, size: int, result: Result, one: dict[str, Timing]) -> Found:
        """Return what was found at a size of batch, but for the rate of products."""
        numbers = self.numbers[size]
        return Found(
            self.hidden,
            size,
            len(numbers),
            count([self.batches[k] for k in numbers]),
            result.quiet,
            result.busy,
            one,
            self._phases(numbers),
            timing(result.further[TRACE], len(numbers)),
            0.0,
            str(self.ours.program.describe(self.batches[numbers[0]])),
        )

    def memory(self, absent: dict[str, str]) -> dict[str, Peak]:
        """Return the memory of training on the largest batches."""
        numbers = self.numbers[max(self.settings.batches)]
        found, failed = peaks(self.file, numbers, {OURS: sys.executable, **self.settings.peers})
        absent |= {f"{PEERS[peer].title}, memory": why for peer, why in failed.items()}
        return found

    def _verified(
        self, ours: Contender, walk: Contender, remotes: Sequence[Remote], absent: dict[str, str]
    ) -> list[Contender]:
        """Return the peers' variants, which compute what we do, as our walk must; who fails is `absent`."""
        asked = [k for size in self.settings.batches for k in self.numbers[size]]
        losses = {k: ours.loss(k) for k in asked}
        first = asked[0]
        ours.train([first])
        after = first, ours.loss(first)
        verify(walk, losses, after)
        found = []
        for remote in remotes:
            try:
                for contender in contenders_of(remote, self.file):
                    mine = losses if contender.batched else {k: losses[k] for k in self._small()}
                    if mine:
                        verify(contender, mine, after)
                        found.append(contender)
            except BackendError as error:
                absent[f"{remote.title}, hidden {self.hidden}"] = str(error)
        return found

    def _small(self) -> list[int]:
        """Return the batches for those who gain nothing from large ones."""
        sizes = [size for size in self.settings.batches if size <= self.settings.per_node_batch]
        return [k for size in sizes for k in self.numbers[size]]

    def _trace(self, numbers: list[int]) -> float:
        """Return the seconds of tracing batches as if they had never been seen."""
        program = self.ours.program
        batches = [unseen(self.batches[k]) for k in numbers]
        start = time.perf_counter()
        for trees in batches:
            program.prepare(trees)
        return time.perf_counter() - start

    def _phases(self, numbers: list[int]) -> dict[str, float]:
        """Return the median seconds of each phase of a training step, the mean of some batches."""
        found: dict[str, list[float]] = {}
        program, step = self.ours.program, self.ours.step
        for _ in range(self.settings.repeats):
            phases: dict[str, float] = {}
            for k in numbers:
                batch = self.batches[k]
                for name, seconds in program.describe(batch, compare=False).phases.items():
                    phases[name] = phases.get(name, 0.0) + seconds
                _, gradients = program.value_and_grad(batch)
                start = time.perf_counter()
                step.update(gradients, len(batch))
                phases["update"] = phases.get("update", 0.0) + time.perf_counter() - start
            for name, seconds in phases.items():
                found.setdefault(name, []).append(seconds / len(numbers))
        return {name: median(values) for name, values in found.items()}
