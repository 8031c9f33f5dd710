"""Where a batch of a walk that decides spends its CPU time, part by part.

Two parts are found by running the walks alone, one after the other, with the numbers that they had asked for:
with cells that do nothing, which is the user's own Python, and with cells that note their calls. Others are
timed in place.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.deciding_walks import Tensors
from foldbatch.engines.arrays import ArrayEngine, ArrayRun
from foldbatch.engines.runner import Runner
from foldbatch.functions.cells import COUNTERS
from foldbatch.functions.deciding import UnderWay
from foldbatch.functions.notes import Notes, begin, noting, session
from foldbatch.functions.readings import Reading, Readings
from foldbatch.functions.store import Store
from foldbatch.functions.tracer import FunctionTracer

PAIRS = ("leaf", "node", "step", "halt", "likely")  # the cells that return two tensors
CALLS = 1_000_000  # that an example may make

# What is timed: a class, its method, and the part whose time it is.
WATCHED: tuple[tuple[Any, str, str], ...] = (
    (FunctionTracer, "trace_all", "traced"),
    (UnderWay, "go", "going"),
    (UnderWay, "compute", "computing"),
    (Store, "read", "numbers"),
    (Runner, "scheduled", "scheduled"),
    (ArrayEngine, "ready", "ready"),
    (ArrayRun, "_launch", "kernels"),
)


def _watched() -> tuple[tuple[Any, str, str], ...]:
    """Return `WATCHED`, with the rounds of the engine that runs them at once, where it is installed."""
    if not find_spec("llvmlite"):
        return WATCHED
    from foldbatch.engines.llvm.rounds import RoundRunner  # noqa: PLC0415 - it needs llvmlite

    return *WATCHED, (RoundRunner, "_launch", "kernels")


class _Read:
    """What stands for a value in a walk without tensors: it is the next number that was read."""

    numbers: Iterator[Any] = iter(())

    def __int__(self) -> int:
        return int(next(_Read.numbers))

    def __float__(self) -> float:
        return float(next(_Read.numbers))

    def tolist(self) -> Any:
        return np.asarray(next(_Read.numbers)).tolist()


def without_tensors(own: Tensors) -> Tensors:
    """Return tensors whose cells do nothing."""
    one = _Read()

    def cell(function: Callable[..., Any]) -> Callable[..., Any]:
        found = (one, one) if function.__name__ in PAIRS else one
        return lambda a, b=None, c=None: found

    return replace(own, cell=cell, loss=lambda x: None, number=lambda x: one, read=float)


def split(
    own: Callable[[], Any], walk: Any, bare: Any, examples: Sequence[Any], repeats: int
) -> dict[str, float]:
    """Return the CPU milliseconds of each part of a batch.

    Args:
        own: runs the batch.
        walk: the walk.
        bare: the same one without tensors.
        examples: the batch.
        repeats: how often all runs; medians count.
    """
    read: list[list[Any]] = [[] for _ in examples]
    learnt: list[Any] = []

    def recorded(self: UnderWay, value: Any, what: str) -> Any:
        learnt[:] = [*self._tracer.learnt.cells]
        place = self._fiber.walked.place
        read[place].append(found := of(self, value, what))
        return found

    of = UnderWay._read
    with mock.patch.object(UnderWay, "_read", recorded):
        own()

    def alone() -> None:
        for example, numbers in zip(examples, read, strict=True):
            _Read.numbers = iter(numbers)
            bare(example)

    def noted() -> None:
        numbers = deque(x for some in read for x in some)
        with noting(Notes(COUNTERS[0]), learnt, lambda value, what: numbers.popleft()):
            for k, example in enumerate(examples):
                begin(k, CALLS)
                walk(example)

    reading = Reading(examples, range(len(examples)), Readings())
    runs = [_run(own, alone, partial(session, noted, reading)) for _ in range(repeats)]
    return {part: 1e3 * median(run[part] for run in runs) for part in runs[0]}


def _run(own: Callable[[], Any], alone: Callable[[], None], noted: Callable[[], None]) -> dict[str, float]:
    watched = _watched()
    spent, inside = dict.fromkeys([*(part for *_, part in watched), "kernels of rounds"], 0.0), list[str]()
    with ExitStack() as stack:
        for owner, name, part in watched:
            stack.enter_context(
                mock.patch.object(owner, name, _timed(getattr(owner, name), part, spent, inside))
            )
        whole = _cpu(own)
    walk, notes = _cpu(alone), _cpu(noted)
    rounds = spent["kernels of rounds"]
    trace = spent["traced"] and spent["traced"] - spent["going"] + spent["scheduled"] + spent["ready"]
    found = {
        "the walk": walk,
        "noting": notes - walk,
        "switches": spent["going"] - spent["computing"] - spent["numbers"] - notes,
        "integers of rounds": spent["computing"] - rounds,
        "kernels of rounds": rounds,
        "numbers read": spent["numbers"],
        "complete trace": trace,
        "its kernels": spent["kernels"],
    }
    return {**found, "once a batch": whole - sum(found.values()), "whole": whole}


def _timed(
    work: Callable[..., Any], part: str, spent: dict[str, float], inside: list[str]
) -> Callable[..., Any]:
    def timed(*args: Any, **options: Any) -> Any:
        start = time.thread_time()
        inside.append(part)
        try:
            return work(*args, **options)
        finally:
            inside.pop()
            if "computing" not in inside:
                spent[part] += time.thread_time() - start
            elif part == "kernels":
                spent["kernels of rounds"] += time.thread_time() - start

    return timed


def _cpu(work: Callable[[], Any]) -> float:
    start = time.thread_time()
    work()
    return time.thread_time() - start
