"""Tracing very many examples: in several processes where that pays, with a bar that shows how far it is.

Functions of the user's may be of any kind, so worker processes are forked: they have the functions, and the
examples, without being sent them. They send back records, a few arrays for hundreds of examples.

What a worker's functions change, such as a dictionary that grows, changes in that worker alone. So there are
workers where all functions of the user are known to be pure, or where the user asks for them. Then some
examples of every part are traced here, too. Where that yields something else, everything is traced here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from itertools import chain
from typing import Any

from foldbatch.bars import Bar
from foldbatch.blocks.columnar.calling import are_pure
from foldbatch.blocks.lower import ATOMS, holds_objects
from foldbatch.blocks.tracer import TraceAll, Tracer
from foldbatch.blocks.values import refuse_no_count
from foldbatch.engines.threads import available_cores
from foldbatch.scheduler.record import Record
from foldbatch.scheduler.trace import Trace
from foldbatch.workers import FAILED, can_fork, forks_safely, in_processes

LOOK = 0.05  # seconds of tracing here, after which it is foreseen how long the rest takes
PAYS = 0.5  # seconds of tracing, from which on workers pay
LARGEST = 512  # examples in a worker's part
PARTS = 8  # a worker has at least so many, if there are enough examples
CHECKED = 4  # examples of each part that are traced here, too


def tracing(tracer: Tracer, processes: int | None = None, *, progress: bool = False) -> TraceAll:
    """Return a function that does what `Tracer.trace_all` does, where it pays in worker processes.

    That function raises `BackendError` when a worker ends before its work does.

    Args:
        tracer: traces some of the examples here.
        processes: how many workers, 1 for none; by default one for each core, where they pay and all
            functions of the user are known to be pure.
        progress: whether to show a bar.

    Raises:
        BlockValueError: when `processes` is no whole number of 1 or more.
    """
    if processes is not None:
        refuse_no_count("processes", processes, 1)
    return partial(_trace_many, tracer, processes, progress)


def _trace_many(
    tracer: Tracer,
    processes: int | None,
    progress: bool,  # noqa: FBT001 - given by `tracing`
    examples: Sequence[Any],
    numbers: Sequence[int],
) -> list[Trace]:
    # asked before there is a bar, which has a thread
    most = available_cores() if forks_safely() and are_pure(tracer.globals) else 1
    with Bar("tracing", len(examples), shown=progress) as bar:
        first, workers = _first(tracer, examples, numbers, processes, most, bar)
        rest = range(len(first), len(examples))
        if not rest:
            return first
        size = max(1, min(LARGEST, -(-len(rest) // (PARTS * workers))))
        parts = [slice(start, min(start + size, rest.stop)) for start in rest[::size]]
        try:
            return first + _in_workers(tracer, examples, numbers, parts, workers, bar)
        except _ChangedError:
            return first + tracer.trace_all(examples[rest.start :], numbers[rest.start :])


def _first(
    tracer: Tracer,
    examples: Sequence[Any],
    numbers: Sequence[int],
    processes: int | None,
    most: int,
    bar: Bar,
) -> tuple[list[Trace], int]:
    """Trace examples here, up to all; return their traces, and by how many workers the others are traced.

    By default it is at most `most`.
    """
    traces: list[Trace] = []
    begun, size = time.perf_counter(), 1
    while len(traces) < len(examples):
        start = time.perf_counter()
        part = slice(len(traces), len(traces) + size)
        made = tracer.trace_all(examples[part], numbers[part])
        traces += made
        bar.advance(len(made))
        seconds, left = time.perf_counter() - start, len(examples) - len(traces)
        settled = time.perf_counter() - begun >= LOOK
        workers = _workers(processes, most, seconds / len(made) * left if settled else 0.0)
        if min(workers, left) > 1 and not any(holds_objects(tracer.model, trace) for trace in made):
            return traces, workers
        if seconds < LOOK:
            size *= 2
    return traces, 1


def _workers(processes: int | None, most: int, seconds: float) -> int:
    """Return how many workers to start for what would take so many seconds; 1 for none."""
    if processes is not None:
        return processes if can_fork() else 1
    return most if seconds >= PAYS else 1


def _in_workers(
    tracer: Tracer,
    examples: Sequence[Any],
    numbers: Sequence[int],
    parts: Sequence[slice],
    workers: int,
    bar: Bar,
) -> list[Trace]:
    """Return the traces of parts of examples.

    Raises:
        _ChangedError: when an example is traced otherwise here.
    """

    def work(number: int) -> list[Record]:
        part = parts[number]
        records: list[Record] = []
        done = part.start
        while done < part.stop:
            records.append(tracer.record(examples[done : part.stop], numbers[done : part.stop]))
            done += len(records[-1].results)
        labels = chain.from_iterable(chain.from_iterable(record.labels) for record in records)
        if not all(isinstance(label, ATOMS) for label in chain.from_iterable(labels)):
            raise _ChangedError  # an object that is sent becomes another one
        return records

    traces: list[Trace] = []
    with closing(in_processes(work, len(parts), workers)) as results:
        for part, records in zip(parts, results, strict=True):
            if records is FAILED:  # here it fails with all that there is to tell
                traces += tracer.trace_all(examples[part], numbers[part])
            else:
                made = [trace for record in records for trace in tracer.traces_of(record)]
                _check(tracer, examples[part], made)
                traces += made
            bar.advance(part.stop - part.start)
    return traces


class _ChangedError(Exception):
    """An example is traced otherwise in a worker than here."""


def _check(tracer: Tracer, examples: Sequence[Any], traces: Sequence[Trace]) -> None:
    """Trace some examples again, the last one among them, and compare."""
    places = range(len(examples) - 1, -1, -max(1, len(examples) // CHECKED))
    try:
        again = tracer.trace_all([examples[place] for place in places], list(places))
    except Exception as error:
        raise _ChangedError from error
    if any(_content(traces[place]) != _content(trace) for place, trace in zip(places, again, strict=True)):
        raise _ChangedError


def _content(trace: Trace) -> tuple[Any, ...]:
    assert trace.packed is not None, "tracing packs"
    feeds = [feed.tobytes() for feeds in trace.feeds for feed in feeds]
    return trace.packed.tobytes(), feeds, trace.labels, trace.result
