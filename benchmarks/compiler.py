"""The case ``compiler``: what stages, passes, planned buffers and loops save on the SST Tree-LSTM.

Counts follow from the routines of the cells and one batch's schedule. Times are CPU seconds of the one thread
that runs, so that other processes disturb them less; what is compared runs in turn, and the run with the
least is kept. Where a step's time goes is found by kernels that read a clock between their statements.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.clocks import KINDS, Seconds, replaced, timed
from benchmarks.ours import Step
from benchmarks.workload import tree_lstm
from foldbatch import Program, compile
from foldbatch.engines.arrays import ArrayEngine
from foldbatch.engines.engine import choose_engine
from foldbatch.engines.launch import HEAD
from foldbatch.errors import BackendError
from foldbatch.program import schedule
from foldbatch.static import cell as staging
from foldbatch.static import passes
from foldbatch.static.cell import split
from foldbatch.static.cellgraph import STEP
from foldbatch.static.graph import Node
from foldbatch.trees import Tree, Vocabulary
from foldbatch.views.explain import parts_of, planned, unplanned

BACKENDS = "numpy", "llvm"
EXECUTOR, UPDATE = "executor and schedule", "update of parameters"


@dataclass(frozen=True, slots=True)
class Counts:
    """What one batch calls.

    Attributes:
        levels: groups of calls of recursive cells, which run one after the other.
        kernels: kernel calls, forward and backward.
        statements: of these calls: ops and copies, each a pass over the rows or several; a fused loop is one.
    """

    levels: int
    kernels: tuple[int, int]
    statements: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes for one batch.

    Attributes:
        unplanned: of a buffer for every node, a row per call.
        planned: of the buffers that there are, a row per call; `kept` are those read by other kernels.
        held: of all that the program holds: scratch has rows for one level only; arenas are included.
    """

    unplanned: int
    planned: int
    kept: int
    held: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run found.

    Attributes:
        hidden: the model's size.
        trees: the batch's; `nodes` all their nodes.
        load: of the machine before and after (one minute's mean).
        counts: by variant, with the CPU seconds of loss and gradients.
        memory: by variant, with the CPU seconds of loss and gradients.
        steps: CPU seconds of a training step, by backend and kind, with clocks in the kernels.
        undisturbed: CPU seconds of a training step without these clocks, by backend.
    """

    hidden: int
    trees: int
    nodes: int
    load: str
    counts: dict[str, tuple[Counts, float]]
    memory: dict[str, tuple[Memory, float]]
    steps: dict[str, Seconds]
    undisturbed: dict[str, float]


# -- other compilers: the same one with something left out


@contextmanager
def unoptimized() -> Iterator[None]:
    """Compile without passes: graphs stay as blocks and differentiation build them."""
    with replaced(passes, "PIPELINE", ()), replaced(passes, "STAGED", ()):
        yield


@contextmanager
def unstaged() -> Iterator[None]:
    """Compile without stages: all that a cell computes runs with each group of its calls."""

    def whole(outputs: Any, inputs: Any, wanted: Any, given: Any) -> dict[Node, str]:
        return dict.fromkeys(split(outputs, inputs, wanted, given), STEP)

    with replaced(staging, "split", whole):
        yield


VARIANTS: dict[str, tuple[str, tuple[Callable[[], Any], ...]]] = {
    "as compiled": ("by_component", ()),
    "no stages": ("by_component", (unstaged,)),
    "no stages, by depth": ("by_depth", (unstaged,)),
    "no passes": ("by_component", (unoptimized,)),
    "neither, by depth": ("by_depth", (unoptimized, unstaged)),
}


# -- counting


def count(program: Program, trees: Sequence[Tree]) -> Counts:
    """Return what a batch calls, as its launch tables have it."""
    batch, engine = schedule(program, trees), _engine(program)
    ready = engine.ready(batch, training=True)
    routines = ready.kernels.bound.routines
    sizes = [sum(statement.op != "check_range" for statement in r.statements) for r in routines]
    kernels, statements = [], []
    for table in (ready.tables.forward, ready.tables.backward):
        assert table is not None, "ready for training"
        calls = [(kernel, stop - first) for kernel, first, stop in table.launches[:, :HEAD].tolist()]
        kernels.append(sum(times for _, times in calls))
        statements.append(sum(sizes[kernel] * times for kernel, times in calls))
    recursive = [k for k, signature in enumerate(program.model.signatures) if signature.recursive]
    levels = sum(len(batch.schedule.widths(k)) for k in recursive)
    return Counts(levels, (kernels[0], kernels[1]), (statements[0], statements[1]))


def _engine(program: Program) -> ArrayEngine:
    engine = program._runner.engine
    assert isinstance(engine, ArrayEngine), "not the reference"
    return engine


def memory(program: Program, trees: Sequence[Tree]) -> Memory:
    """Return the bytes of a batch's buffers, of a program without sequences."""
    tables, target = schedule(program, trees).schedule.cells, _engine(program).target
    whole = used = kept = 0
    for cell, table in zip(program.model.cells, tables, strict=True):
        rows = {"N": len(table.order), "1": 1}
        parts = parts_of(cell.training, target)
        whole += sum(size * rows[axis] for axis, size in unplanned(parts).items())
        used += sum(size * rows[axis] for axis, size in planned(parts).items())
        kept += sum(buffer.type.nbytes * rows[buffer.axis.name] for buffer in cell.training.kept)
    return Memory(whole, used, kept, program.describe(list(trees)).buffer_bytes)


# -- timing


class _TimedStep:
    """A training step; returns its CPU seconds by kind."""

    def __init__(self, program: Program, trees: Sequence[Tree]) -> None:
        self.spent: Seconds = {}
        self.step = Step(timed(program, self.spent))
        self.trees = trees

    def __call__(self) -> Seconds:
        self.spent.update(dict.fromkeys(KINDS, 0.0))
        start = time.thread_time()
        _, gradients = self.step.program.value_and_grad(self.trees)
        middle = time.thread_time()
        self.step.update(gradients, len(self.trees))
        rest = {EXECUTOR: middle - start - sum(self.spent.values()), UPDATE: time.thread_time() - middle}
        return self.spent | rest


def _timed_whole(task: Callable[[], object]) -> Callable[[], Seconds]:
    def run_once() -> Seconds:
        start = time.thread_time()
        task()
        return {"all": time.thread_time() - start}

    return run_once


def least(tasks: Mapping[str, Callable[[], Seconds]], repeats: int, warmup: int = 2) -> dict[str, Seconds]:
    """Run every task in turn, `repeats` times after warming up; return each one's run of least seconds."""
    found: dict[str, list[Seconds]] = {name: [] for name in tasks}
    for _ in range(warmup + repeats):
        for name, task in tasks.items():
            found[name].append(task())
    return {name: min(runs[warmup:], key=lambda spent: sum(spent.values())) for name, runs in found.items()}


# -- all of it


def run(trees: Sequence[Tree], hidden: int, repeats: int) -> Outcome:
    """Count and measure one batch, on every backend that is installed."""
    load = f"{os.getloadavg()[0]:.1f}"
    vocabulary = Vocabulary.count(word for tree in trees for word in tree.words())
    block = tree_lstm(hidden, vocabulary)
    backends: tuple[Any, ...] = tuple(_backends())
    programs: dict[str, Program] = {}
    for name in backends:
        for variant, (policy, contexts) in VARIANTS.items():
            if name == backends[0] or not contexts:
                with ExitStack() as stack:
                    for context in contexts:
                        stack.enter_context(context())
                    options: Any = {"policy": policy}
                    programs[f"{name}, {variant}"] = compile(block, name, threads=1, options=options)
    plain = {f"{name}, as compiled": programs[f"{name}, as compiled"] for name in backends}
    counts = {name: count(program, trees) for name, program in programs.items()}
    sizes = {name: memory(program, trees) for name, program in plain.items()}
    tasks: dict[str, Callable[[], Seconds]] = {}
    for name, program in programs.items():
        tasks[name] = _timed_whole(partial(program.value_and_grad, trees))
    for name, program in plain.items():
        tasks[f"{name}, step"] = _timed_whole(partial(Step(program), trees))
        tasks[f"{name}, timed"] = _TimedStep(program, trees)
    found = least(tasks, repeats)
    return Outcome(
        hidden,
        len(trees),
        sum(tree.size for tree in trees),
        f"{load} to {os.getloadavg()[0]:.1f}",
        {name: (counted, found[name]["all"]) for name, counted in counts.items()},
        {name: (size, found[name]["all"]) for name, size in sizes.items()},
        {name: found[f"{name}, as compiled, timed"] for name in backends},
        {name: found[f"{name}, as compiled, step"]["all"] for name in backends},
    )


def _backends() -> Iterator[str]:
    for name in BACKENDS:
        with suppress(BackendError):
            yield choose_engine(name)
