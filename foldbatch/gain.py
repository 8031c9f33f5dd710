"""The gain of batching on a user's own block and examples: `foldbatch.bench`, all measured in turn."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import Any

from foldbatch.blocks.drafts import refuse_no_count
from foldbatch.engines.engine import choose_engine
from foldbatch.engines.report import Report
from foldbatch.errors import BlockValueError, ExampleError, counted
from foldbatch.program.compiling import compile
from foldbatch.program.program import Program
from foldbatch.program.traced import Prepared, listed
from foldbatch.system.showing import Printed, table
from foldbatch.train import LazyAdam
from foldbatch.trees import Tree
from foldbatch.types import BackendName

__all__ = ["BatchFigures", "Outcome", "Seconds", "bench"]


TRAIN, INFER = "training", "inference"


@dataclass(frozen=True, slots=True)
class Seconds:
    """Seconds for one example, of runs that took turns with all else that was measured.

    Attributes:
        median: of the runs; `low` and `high` are the quickest and the slowest.
    """

    median: float
    low: float
    high: float

    @property
    def rate(self) -> float:
        """Examples per second.

        >>> Seconds(0.25, 0.2, 0.5).rate
        4.0
        """
        return 1 / self.median


def seconds_of(runs: Sequence[float], examples: int) -> Seconds:
    """Return the seconds for one example of runs over that many.

    >>> seconds_of([3.0, 1.0, 8.0], 2)
    Seconds(median=1.5, low=0.5, high=4.0)
    """
    return Seconds(statistics.median(runs) / examples, min(runs) / examples, max(runs) / examples)


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """The figures measured with batches of one size.

    Attributes:
        size: of a batch.
        batches: how many were run; together they hold `examples`.
        examples: the same ones for each size, but for what is left over.
        known: by task (`TRAIN`, `INFER`), seconds for one example whose trace is known, as of a `Tree` from
            the second epoch on, or of any example after `Program.prepare`.
        new: the same for examples that are traced in the run.
        phases: by phase of a training step (of inference, where that alone is measured), the median seconds
            for one example, never seen before. A batch is one part on one thread here, so phases can add up
            to more than a run takes.
        calls: of cells, in all batches; `steps` are groups of them, `lower_bound` the groups that no
            schedule can do without.
        kernel_calls: of compiled functions, forward and (in training) backward.
    """

    size: int
    batches: int
    examples: int
    known: dict[str, Seconds]
    new: dict[str, Seconds]
    phases: dict[str, float]
    calls: int
    steps: int
    lower_bound: int
    kernel_calls: int


@dataclass(frozen=True, slots=True)
class Outcome(Printed):
    """The gain of batching on a block and its examples; prints itself.

    Attributes:
        backend: that computed; `threads` is into how many parts a large batch may be cut.
        threads: see above.
        repeats: runs of each task.
        tasks: that were measured: `TRAIN` is loss, gradients and an update by Adam, `INFER` is results.
        batches: by size, from 1 on.
        advice: what to try for batches of the largest size, a sentence each.
    """

    backend: str
    threads: int
    repeats: int
    tasks: tuple[str, ...]
    batches: tuple[BatchFigures, ...]
    advice: tuple[str, ...]

    def gain(self, batch: BatchFigures, task: str, *, new: bool = False) -> float:
        """Return how many times as fast an example, known or `new`, is in such a batch as alone."""
        alone, there = [
            figures.new[task] if new else figures.known[task] for figures in (self.batches[0], batch)
        ]
        return alone.median / there.median

    def as_dict(self) -> dict[str, Any]:
        """Return all figures as plain data, derived ones too."""
        data = asdict(self)
        for batch, written in zip(self.batches, data["batches"], strict=True):
            written["gain"] = {task: self.gain(batch, task) for task in self.tasks}
            written["gain_of_new"] = {task: self.gain(batch, task, new=True) for task in self.tasks}
            written["examples_per_second"] = {task: batch.known[task].rate for task in self.tasks}
        return data

    def to_json(self) -> str:
        """Return all figures as JSON text."""
        return json.dumps(self.as_dict(), indent=1)

    def __str__(self) -> str:
        first, last = self.batches[0], self.batches[-1]
        examples, calls = counted(first.examples, "example"), counted(first.calls, "call")
        steps = f"{counted(last.steps, 'step')}, of which {last.lower_bound} must be"
        runs = counted(self.repeats, "run")
        ran = f"backend {self.backend}, up to {counted(self.threads, 'thread')}, medians of {runs}"
        parts = [
            f"{examples}, {calls}; in batches of {last.size} {steps}; {ran}",
            *map(self._gains, self.tasks),
            self._phases(),
        ]
        if self.advice:
            parts.append("\n".join(["What to try", *(f"- {sentence}" for sentence in self.advice)]))
        return "\n\n".join(parts)

    def __repr__(self) -> str:
        sizes = ", ".join(str(batch.size) for batch in self.batches)
        return f"Outcome(batches of {sizes}, backend {self.backend}; print it to read it)"

    def _gains(self, task: str) -> str:
        """Return the table of rates and gains of a task."""
        title = f"What batching gains in {task}: examples a second, traced before (known) or in the run (new)"
        header = ("batch", "known", "gain", "slowest to quickest", "new", "gain")
        rows = []
        for batch in self.batches:
            figures = batch.known[task]
            row = (
                f"{batch.size}",
                f"{figures.rate:.0f}",
                f"{self.gain(batch, task):.1f}x",
                f"{1 / figures.high:.0f} to {1 / figures.low:.0f}",
                f"{batch.new[task].rate:.0f}",
                f"{self.gain(batch, task, new=True):.1f}x",
            )
            rows.append(row)
        return table(header, rows, title=title)

    def _phases(self) -> str:
        """Return the table of the time of each phase."""
        task = TRAIN if TRAIN in self.tasks else INFER
        title = f"Where the time of {task} goes: microseconds a new example, and shares"
        header = ("batch", *self.batches[0].phases, "sum")
        rows = []
        for batch in self.batches:
            total = sum(batch.phases.values())
            parts = [f"{seconds * 1e6:.1f} {seconds / total:4.0%}" for seconds in batch.phases.values()]
            rows.append((f"{batch.size}", *parts, f"{total * 1e6:.1f}"))
        return table(header, rows, title=title)


SIZES = 1, 16, 64, 256
UPDATE = "update"
BACKWARD = "backward"


def bench(
    block_or_program: object,
    examples: Iterable[object],
    batch_sizes: Sequence[int] | None = None,
    repeats: int = 5,
    *,
    backend: BackendName | None = None,
    threads: int | None = None,
    train: bool | None = None,
) -> Outcome:
    """Measure what batching gains on a block and its examples; the result prints itself.

    The same examples run one at a time and in batches of each size, known ones (traced before) and new
    ones, in turn; medians count. Parameters are afterwards what they were.

    Args:
        block_or_program: a block (or what stands for one) or a plain function to compile, or a compiled
            program.
        examples: as many as the largest batch or more, of which a sample is taken, evenly spaced.
        batch_sizes: by default 1, 16, 64 and 256, as far as there are examples. 1 is always measured.
        repeats: timed runs of each task.
        backend: of a block: see `foldbatch.compile`. A program has its own.
        threads: see above.
        train: True measures training steps (loss, gradients, an update by `LazyAdam`), False inference; by
            default both, or inference where there is nothing to train.

    Raises:
        BlockTypeError: when the block is ill typed.
        BlockValueError: when a size or a number of repeats is none, a program is given a backend or threads
            or does not batch, or there is nothing to train and `train` asks for it.
        ExampleError: when there are too few examples, or one does not fit the block.

    >>> outcome = fb.bench(fb.Map(fb.Scalar()) >> fb.Sum(), [[1, 2], [3], [], [4]], [1, 4], repeats=1)
    >>> outcome.tasks, [(batch.size, batch.batches, batch.steps) for batch in outcome.batches]
    (('inference',), [(1, 4, 7), (4, 1, 2)])
    """
    program = _program(block_or_program, backend, threads)
    if program.engine.one_by_one or not program.options.batched:
        actual = "one that runs examples one by one"
        raise BlockValueError("program", "one that batches", actual, "compile it for auto, numpy or llvm")
    refuse_no_count("repeats", repeats, 1)
    sample, sizes = _sample(examples, batch_sizes)
    program._read_first(sample, "bench reads it in each run")  # so that the cells of a walk are known, too
    trainable = any(cell.training.backward for cell in program.model.cells)
    if train and not trainable:
        fix = "give the block a Loss, or measure inference"
        raise BlockValueError("bench", "a block with losses and parameters to train", "none", fix)
    tasks = {True: (TRAIN,), False: (INFER,), None: (TRAIN, INFER) if trainable else (INFER,)}[train]
    with unchanged(program):
        measured = _in_turn(program, sample, sizes, tasks, repeats)
        report = program.describe(unseen(measured[-1].new)[0])
    figures = tuple(batches.figures() for batches in measured)
    name, cores = choose_engine(program.options.backend), program.options.threads
    # medians, in place of the phases of a single run
    phases = {phase: seconds * figures[-1].size for phase, seconds in figures[-1].phases.items()}
    return Outcome(name, cores, repeats, tasks, figures, replace(report, phases=phases).advice)


def _program(block_or_program: object, backend: BackendName | None, threads: int | None) -> Program:
    """Return the program to measure: compiled of a block, or as it was given."""
    if not isinstance(block_or_program, Program):
        return compile(block_or_program, backend or "auto", threads=threads)
    for name, value in (("backend", backend), ("threads", threads)):
        if value is not None:
            fix = "leave it out, or give the block"
            raise BlockValueError(name, "none beside a program, which has its own", repr(value), fix)
    return block_or_program


def _sample(examples: Iterable[object], batch_sizes: Sequence[int] | None) -> tuple[list[Any], list[int]]:
    """Return as many examples as the largest batch has, evenly spaced, and the sizes from 1 on."""
    population = list(listed(examples))
    if not population:
        raise ExampleError("examples", "one or more", "none", "give some")
    if any(isinstance(example, Prepared) for example in population):
        fix = "give the examples themselves, as tracing them is measured too"
        raise ExampleError("examples", "examples", "prepared ones", fix)
    for size in batch_sizes or ():
        refuse_no_count("batch size", size, 1)
    sizes = sorted({1, *(batch_sizes or [size for size in SIZES if size <= len(population)])})
    if sizes[-1] > len(population):
        expected = f"{sizes[-1]} or more, for a batch of that size"
        raise ExampleError("examples", expected, str(len(population)), "give more, or smaller batch sizes")
    return [population[i * len(population) // sizes[-1]] for i in range(sizes[-1])], sizes


@contextmanager
def unchanged(program: Program) -> Iterator[None]:
    """Return a context after which the parameters are what they were before."""
    before = {name: value.copy() for name, value in program.params.items()}
    try:
        yield
    finally:
        for name, value in before.items():
            program.params[name] = value


def _in_turn(
    program: Program, sample: list[Any], sizes: Sequence[int], tasks: Sequence[str], repeats: int
) -> list[Batches]:
    """Run batches of all sizes in turn, so that a drift of the machine meets all of them."""
    traced = traced_before(program, sample)
    measured = [Batches(program, size, cut(sample, size), cut(traced, size), tasks) for size in sizes]
    for turn in range(1 + repeats):
        for batches in measured:
            if turn == 1:
                batches.forget()
            batches.run()
    return measured


def traced_before(program: Program, examples: Sequence[object]) -> list[Any]:
    """Return examples for runs that do not trace: trees as they are, others prepared."""
    prepared = program.prepare(examples)
    return [x if isinstance(x, Tree) else p for x, p in zip(examples, prepared, strict=True)]


def cut(examples: list[Any], size: int) -> list[list[Any]]:
    """Return the full batches of examples; a smaller last one is dropped."""
    return [examples[i : i + size] for i in range(0, len(examples) - size + 1, size)]


def unseen(batches: Sequence[Sequence[object]]) -> list[list[Any]]:
    """Return batches whose trees are copies, as a program knows the traces of trees it has seen."""
    return [
        [Tree(item.parents, item.labels, item.tokens) if isinstance(item, Tree) else item for item in batch]
        for batch in batches
    ]


@dataclass(slots=True)
class Batches:
    """Batches of one size, and the seconds that they have taken so far."""

    program: Program  # that runs them
    size: int  # of each
    new: list[list[Any]]  # batches of examples as given; `known` the same ones, traced before
    known: list[list[Any]]
    tasks: Sequence[str]  # to be measured
    # of all batches, run by run, by task and whether examples were known
    seconds: dict[tuple[str, bool], list[float]] = field(default_factory=dict)
    phases: dict[str, list[float]] = field(default_factory=dict)  # the same by phase
    updating: float = 0.0  # seconds of all updates in the last run
    reports: list[Report] = field(default_factory=list)  # on each batch, of the last run
    optimizer: LazyAdam = field(default_factory=lambda: LazyAdam(lr=1e-6))

    def forget(self) -> None:
        """Forget all seconds so far."""
        self.seconds.clear()
        self.phases.clear()

    def run(self) -> None:
        """Run every task once over all batches, then once more phase by phase."""
        for task in self.tasks:
            for is_known in (True, False):
                batches = self.known if is_known else unseen(self.new)
                spent = self.train(batches) if task == TRAIN else self.infer(batches)
                self.seconds.setdefault((task, is_known), []).append(spent)
        self.reports = [self.program.describe(batch, compare=False) for batch in unseen(self.new)]
        for name in self.reports[0].phases:
            if name != BACKWARD or TRAIN in self.tasks:
                self._add_phase(name, sum(report.phases[name] for report in self.reports))
        if TRAIN in self.tasks:  # last of the phases, and timed within the last steps
            self._add_phase(UPDATE, self.updating)

    def _add_phase(self, name: str, seconds: float) -> None:
        self.phases.setdefault(name, []).append(seconds)

    def infer(self, batches: Sequence[list[Any]]) -> float:
        """Run batches; return the seconds."""
        start = time.perf_counter()
        for batch in batches:
            self.program.run(batch, step=0)
        return time.perf_counter() - start

    def train(self, batches: Sequence[list[Any]]) -> float:
        """Take a training step on each of some batches; return the seconds."""
        start, self.updating = time.perf_counter(), 0.0
        for batch in batches:
            _, gradients = self.program.value_and_grad(batch, step=0)  # which draws the same each time
            computed = time.perf_counter()
            self.optimizer.update(self.program.params, gradients, scale=1 / self.size)
            self.updating += time.perf_counter() - computed
        return time.perf_counter() - start

    def figures(self) -> BatchFigures:
        """Return the figures of the runs so far."""
        examples = self.size * len(self.new)
        known_seconds, new_seconds = (
            {task: seconds_of(self.seconds[task, is_known], examples) for task in self.tasks}
            for is_known in (True, False)
        )
        backward = TRAIN in self.tasks
        return BatchFigures(
            self.size,
            len(self.new),
            examples,
            known_seconds,
            new_seconds,
            {name: median(runs) / examples for name, runs in self.phases.items()},
            sum(report.calls for report in self.reports),
            sum(report.steps for report in self.reports),
            sum(report.lower_bound for report in self.reports),
            sum(report.calls_forward + backward * report.calls_backward for report in self.reports),
        )


ALONE = 16  # so many examples of a batch are run one by one
GLANCE_TURNS = 7  # timed turns, as far as they fit into
SECONDS = 2.0  # of measuring; one turn is taken even if it takes longer


def glance(program: Program, examples: Sequence[object], size: int) -> str:
    """Measure what batching gains in training, as a line; "" for a program or a batch that does not batch."""
    size = min(size, len(examples))
    if size < 2 or program.engine.one_by_one or not program.options.batched:
        return ""
    batch = [examples[i * len(examples) // size] for i in range(size)]
    by_size = sorted(range(size), key=[example.trace.size for example in program.prepare(batch)].__getitem__)
    count = min(ALONE, size)
    chosen = [by_size[(2 * i + 1) * size // (2 * count)] for i in range(count)]  # the middles of equal parts
    traced = traced_before(program, batch)
    alone = Batches(program, 1, [[batch[i]] for i in chosen], [[traced[i]] for i in chosen], [TRAIN])
    together = Batches(program, size, [batch], [traced], [TRAIN])
    runs: list[list[float]] = []
    begun = time.perf_counter()
    with unchanged(program):  # the first turn warms up
        while len(runs) < 2 or (len(runs) <= GLANCE_TURNS and time.perf_counter() - begun < SECONDS):
            sides = [
                (side, batches) for side in (alone, together) for batches in (side.known, unseen(side.new))
            ]
            runs.append([side.train(batches) / len(batches) / side.size for side, batches in sides])
    known_alone, new_alone, known_batch, new_batch = map(median, zip(*runs[1:], strict=True))
    gains = f"{known_alone / known_batch:.1f}x as many examples a second as one by one"
    return f"batching: {gains} (new examples: {new_alone / new_batch:.1f}x), in training steps of {size}"
