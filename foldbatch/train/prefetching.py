"""Batches planned ahead, by a thread or by worker processes, and yielded in their order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeAlias

from foldbatch.engines.batch import Planned
from foldbatch.errors import DecidingError, ExampleTypeError, TrainingError
from foldbatch.model.rereading import Snapshot, obstacle
from foldbatch.program.program import Program
from foldbatch.program.traced import listed
from foldbatch.train.numbers import whole_number
from foldbatch.train.resuming import AGAIN
from foldbatch.train.workers import END, Asked, Workers

Batches: TypeAlias = Iterable[object] | Callable[[], Iterable[object]]


class Waiting(Protocol):
    """A batch that was asked for."""

    def result(self) -> Any:
        """Wait for it, and return it; END after the last."""


@dataclass(frozen=True, slots=True)
class Unasked:
    """A batch that nobody has to prepare, or END."""

    batch: Any

    def result(self) -> Any:
        """Return it."""
        return self.batch


def asked_in_order(ask: Callable[[], Waiting], ahead: int) -> Iterator[Any]:
    """Yield the batches that are asked for, in order, up to END; `ahead` of them are waited for.

    >>> numbers = iter([1, 2, 3])
    >>> list(asked_in_order(lambda: Unasked(next(numbers, END)), 2))
    [1, 2, 3]
    """
    waiting = deque(ask() for _ in range(ahead))
    while (batch := waiting.popleft().result()) is not END:
        waiting.append(ask())
        yield batch
    for asked in waiting:
        asked.result()


def prefetched(program: Program, batches: Batches, ahead: int = 2, *, workers: int = 0) -> Iterator[Any]:
    """Yield every batch planned, in order; one thread, or worker processes, plan those that follow.

    Batches of a plain function that reads numbers come as they are: what it calls depends on parameters.

    Without workers, it is in a thread that `batches` is read and that functions of the user's run while
    examples are traced. The thread ends with the iterator, also when that is closed early or dropped, when it
    has read and planned what is under way: so what it reads must not block for ever.

    With workers, these processes trace and plan. Where `batches` is a function, each of them opens the
    batches, and takes those that are its turn; else this process reads them, and sends their examples. They
    end with the iterator. A script that begins processes runs under ``if __name__ == "__main__":``.

    An error is raised where its batch would have come, with the traceback of where it arose.

    Args:
        program: the program that will run them.
        batches: of examples, as `foldbatch.Program.plan` takes them; it may be endless. Or a function, of a
            module, that returns such batches, the same in each process.
        ahead: how many batches may lie ready besides the one last yielded: memory for speed. Each worker has
            one at least.
        workers: how many processes plan; 0 for a thread of this one.

    Raises:
        TrainingError: when `ahead` is no whole number of 1 or more, `workers` none of 0 or more, no thread or
            process can start, examples do not pickle, or a worker traces them in another way.
        ExampleError: when an example does not fit the block.
        ModelError: when another process cannot open the model, as one with a lambda.
        ProcessError: when a worker has ended.

    >>> program = fb.compile(fb.Scalar() >> fb.Function(lambda x: x * x))
    >>> [[float(x) for x in program.run(plan)] for plan in prefetched(program, [[1, 2], [3]])]
    [[1.0, 4.0], [9.0]]
    >>> program = fb.compile(fb.Map(fb.Scalar()) >> fb.Sum())
    >>> [[float(x) for x in program.run(p)] for p in prefetched(program, [[[1, 2]], [[3]]], workers=1)]
    [[3.0], [3.0]]
    """
    ahead = whole_number("prefetched ahead", ahead, 1, "2 is enough")
    workers = whole_number("prefetched workers", workers, 0, "0 plans in a thread")
    if not workers or program.lowered.decides:
        return _by_thread(program, iter(_opened(batches)), ahead)
    return _by_workers(program, batches, max(ahead, workers), workers)


def _opened(batches: Batches) -> Iterable[object]:
    return batches if isinstance(batches, Iterable) else batches()


def _planned(program: Program, batch: Any) -> Any:
    """Return a batch as a plan; as it is where its walks decide."""
    if batch is END or program.lowered.decides or isinstance(batch, Planned):
        return batch
    batch = listed(batch)
    before = None if program.model.cells else Snapshot(batch)
    try:
        return program.plan(batch)
    except DecidingError:
        if (blocked := obstacle(batch, before)) is not None:
            where = f"example {blocked.place}"
            expected = "data that can be read again, as the walk asks for a number, which is no plan's"
            fix = "run a batch that asks for one, or give the batches themselves"
            raise ExampleTypeError(where, expected, blocked.actual, fix) from None
    return batch


@dataclass(frozen=True, slots=True)
class _InThread:
    """A batch that a thread of this process plans."""

    future: Future[Any]
    process: int

    def result(self) -> Any:
        """Wait for it; refuse a process forked meanwhile, which has no such thread."""
        if os.getpid() != self.process:
            expected, actual = "the process that began to iterate", "a process forked from it"
            raise TrainingError("prefetched", expected, actual, "begin in the process that trains")
        return self.future.result()


def _by_thread(program: Program, batches: Iterator[object], ahead: int) -> Iterator[Any]:
    """Yield batches planned in a thread that is `ahead` batches before the caller."""
    process, pool = os.getpid(), ThreadPoolExecutor(1, "foldbatch-prefetch")

    def ask() -> Waiting:
        try:
            return _InThread(pool.submit(lambda: _planned(program, next(batches, END))), process)
        except RuntimeError as error:
            room, fix = ("a thread of its own", "allow more, as by ulimit -u, or train on the batches")
            raise TrainingError("prefetched", room, f"none: {error}", fix) from None

    try:
        yield from asked_in_order(ask, ahead)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


class Sent:
    """Batches that the parent reads, and sends: a `foldbatch.train.workers.Reading`."""

    def head(self) -> Sequence[Any]:
        """Return nothing: the parent sends the first examples."""
        return ()

    def begin(self, worker: int, workers: int, place: None) -> None:
        """Do nothing: each task is a batch."""

    def read(self, task: Sequence[Any]) -> tuple[None, Sequence[Any]]:
        """Return the batch that was sent."""
        return None, task

    def parts(self, facts: None, examples: Sequence[Any]) -> list[Sequence[Any]]:
        """Return the places of the examples of a batch, as one part."""
        return [examples]

    def name(self, error: Exception, facts: None, part: int) -> None:
        """Add nothing: examples are counted within the batch."""


class OpenedThere(Sent):
    """Batches that each worker opens by a function, to take those that are its turn."""

    def __init__(self, open: Callable[[], Iterable[object]]) -> None:
        self._open = open
        self._batches: Iterator[Any] = iter(())

    def begin(self, worker: int, workers: int, place: None) -> None:
        """Open the batches."""
        self._batches = islice(iter(self._open()), worker, None, workers)

    def read(self, task: Any) -> tuple[None, Sequence[Any]] | None:  # type: ignore[override] # they end
        """Return the next batch."""
        batch: Any = next(self._batches, END)
        return None if batch is END else (None, listed(batch))


@dataclass(frozen=True, slots=True)
class _Sent:
    """A batch that was sent to a worker, with its examples."""

    asked: Asked
    examples: Sequence[Any]
    program: Program

    def result(self) -> Any:
        arrival = self.asked.result()
        return _planned(self.program, self.examples) if arrival.plans is None else arrival.plans[0]


@dataclass(frozen=True, slots=True)
class _Opened:
    """A batch that a worker was asked to open."""

    asked: Asked
    program: Program

    def result(self) -> Any:
        arrival = self.asked.result()
        if arrival is END:
            return END
        return _planned(self.program, arrival.examples()) if arrival.plans is None else arrival.plans[0]


def _by_workers(program: Program, batches: Batches, ahead: int, count: int) -> Iterator[Any]:
    """Yield batches that workers plan, which are `ahead` batches before the caller."""
    where = "prefetched workers"
    if not isinstance(batches, Iterable):
        workers = Workers(program, OpenedThere(batches), count, ahead, where)
        workers.begin()
        try:
            yield from asked_in_order(lambda: _Opened(workers.ask(), program), ahead)
        finally:
            workers.close()
        return
    remaining = iter(batches)
    first: Any = next(remaining, END)
    if first is not END and not isinstance(first, Planned):
        first = listed(first)
    head = first[:AGAIN] if isinstance(first, list | tuple) else ()
    workers, begun = Workers(program, Sent(), count, ahead, where, head), [first]

    def ask() -> Waiting:
        batch: Any = begun.pop() if begun else next(remaining, END)
        if batch is END or program.lowered.decides or isinstance(batch, Planned):
            return Unasked(batch)
        examples = listed(batch)
        return _Sent(workers.ask(examples), examples, program)

    try:
        yield from asked_in_order(ask, ahead)
    finally:
        workers.close()
