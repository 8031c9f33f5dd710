"""What the case ``sst`` is asked and what it found: plain data, and the figures that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.contest import NEW, TASKS, TRAIN, Timings
from benchmarks.floor import Counts
from benchmarks.measure import Timing
from benchmarks.memory import Peak
from foldbatch.types import BackendName


@dataclass(frozen=True, slots=True)
class Settings:
    """What is measured.

    Attributes:
        hidden: sizes of h, c and the embedding.
        batches: numbers of trees in a batch.
        repeats: timed runs of each task.
        backend: of ours, see `foldbatch.compile`.
        peers: by name, the interpreter that has it.
        per_node_batch: the largest batch for peers that gain nothing from one.
        busy: processes that compute flat out, beside which everything is timed once more.
        memory: whether the memory of training on the largest batches is measured.
        seed: from which batches are drawn.
    """

    hidden: tuple[int, ...] = (150,)
    batches: tuple[int, ...] = (1, 16, 64, 256)
    repeats: int = 7
    backend: BackendName = "auto"
    peers: Mapping[str, str] = field(default_factory=dict)
    per_node_batch: int = 16
    busy: int = 0
    memory: bool = False
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """What was found for one size of the model and one size of batch; seconds are those of one batch.

    Attributes:
        hidden: the model's size.
        batch: trees in a batch; `batches` how many different ones there were.
        counts: what these hold, all together.
        timings: by contender, then ``train`` and ``infer``; the first is ours.
        busy: the same beside busy neighbours; empty if there were none.
        one: ours, of batches of a single tree.
        phases: seconds of each phase of a training step of ours, with the whole batch on one thread.
        trace: what tracing adds when a batch is seen for the first time.
        rate: of products on all cores, operations a second, in the fastest of all runs.
        report: `Program.describe` of the first batch.
    """

    hidden: int
    batch: int
    batches: int
    counts: Counts
    timings: Timings
    busy: Timings
    one: dict[str, Timing]
    phases: dict[str, float]
    trace: Timing
    rate: float
    report: str

    @property
    def ours(self) -> str:
        """Our name among the contenders, with trees whose traces are known."""
        return next(iter(self.timings))

    @property
    def new(self) -> str:
        """Our name among the contenders, with trees that are traced in the run."""
        return self.ours + NEW

    def per_second(self, name: str, task: str) -> float:
        """Return the trees that a contender runs per second."""
        return self.batch / self.timings[name][task].median

    def speedup(self, task: str) -> float:
        """Return how many times faster ours is than one tree at a time."""
        return self.per_second(self.ours, task) * self.one[task].median

    def best_peer(self, task: str) -> str | None:
        """Return the fastest peer's name; None where there is none."""
        names = [name for name in self.timings if not name.startswith(self.ours)]
        return max(names, key=lambda name: self.per_second(name, task), default=None)

    def ratio(self, name: str, task: str) -> float | None:
        """Return how many times faster a contender is than the best peer; None where there is none."""
        best = self.best_peer(task)
        return None if best is None else self.per_second(name, task) / self.per_second(best, task)

    def floor(self, task: str, *, shared: bool) -> float:
        """Return the seconds that the products of a batch take, each distinct word once (`shared`) or not."""
        operations = self.counts.operations(self.hidden, training=task == TRAIN, shared=shared)
        return operations / self.batches / self.rate

    def of_floor(self, task: str, *, shared: bool) -> float:
        """Return the floor as a share of what ours takes."""
        return self.floor(task, shared=shared) / self.timings[self.ours][task].median

    def kept(self, name: str, task: str) -> float:
        """Return the share of its undisturbed speed that a contender keeps beside busy neighbours."""
        return self.timings[name][task].median / self.busy[name][task].median

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data, derived figures too."""
        derived = {
            task: {
                "trees_per_second": {name: self.per_second(name, task) for name in self.timings},
                "speedup": self.speedup(task),
                "best_peer": self.best_peer(task),
                "ratio_to_best_peer": self.ratio(self.ours, task),
                "ratio_to_best_peer_of_new": self.ratio(self.new, task),
                "floor_seconds": {
                    "words shared": self.floor(task, shared=True),
                    "not": self.floor(task, shared=False),
                },
                "share_of_floor": {
                    "words shared": self.of_floor(task, shared=True),
                    "not": self.of_floor(task, shared=False),
                },
                "kept_beside_busy": {name: self.kept(name, task) for name in self.busy},
            }
            for task in TASKS
        }
        return asdict(self) | {"derived": derived}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run found.

    Attributes:
        source: what the trees are.
        settings: as asked.
        found: by size of the model, then of the batch.
        absent: by peer, why it was not measured, or not everywhere.
        memory: by size of the model, then by contender; empty if not asked for.
    """

    source: str
    settings: Settings
    found: tuple[Found, ...]
    absent: dict[str, str]
    memory: dict[int, dict[str, Peak]]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "source": self.source,
            "settings": asdict(self.settings),
            "found": [found.as_dict() for found in self.found],
            "absent": self.absent,
            "memory": {
                str(hidden): {name: asdict(peak) for name, peak in of.items()}
                for hidden, of in self.memory.items()
            },
        }
