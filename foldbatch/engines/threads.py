"""Threads: sub-batches side by side, each with single-threaded BLAS.

BLAS threads that wait for each other by spinning collapse as soon as anything else wants their
core, and elementwise work between GEMMs does not use them at all. So engines that call BLAS hold it
to one thread while kernels run, and a batch is cut into one part per core instead; the parts share nothing
but the weights, and their gradients are added in the order of the batch.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from functools import cache
from itertools import accumulate, pairwise
from typing import Any, TypeAlias, TypeVar

from threadpoolctl import ThreadpoolController

from foldbatch.scheduler.trace import Trace
from foldbatch.system.cores import on_node
from foldbatch.system.processes import start_in_each_process

R = TypeVar("R")
Library: TypeAlias = Any  # a BLAS as threadpoolctl controls it, which has no types

# Fewer calls than this are not worth a thread of their own, nor are fewer multiplications by weights: levels
# get thin, and the threads wait for memory and for each other.
CALLS_PER_PART = 300
MULTIPLICATIONS_PER_PART = 80_000_000


@cache
def _libraries() -> tuple[Library, ...]:
    """Return the BLAS libraries that are loaded, as `threadpoolctl` controls them."""
    return tuple(ThreadpoolController().select(user_api="blas").lib_controllers)


class _SingleThreadedBlas:
    """Holds BLAS to one thread while any program is inside.

    Most libraries have one number of threads for the process: the first one in sets it to 1, and the last one
    out restores it. Libraries on OpenMP have a number for each thread: each thread sets and restores its own.
    """

    def __init__(self) -> None:
        self._process = _ThreadLimit(per_thread=False)
        start_in_each_process(self, _SingleThreadedBlas._start)

    def _start(self) -> None:
        if self._process.inside:  # threads of the process that this one was forked from
            self._process.restore()
        self._lock = threading.RLock()  # it stays taken where a signal handler raises just then
        self._process = _ThreadLimit(per_thread=False)
        self._threads = threading.local()

    def __enter__(self) -> None:
        if not hasattr(self._threads, "limit"):
            self._threads.limit = _ThreadLimit(per_thread=True)
        self._threads.limit.enter()
        with self._lock:
            self._process.enter()

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._process.leave()
        self._threads.limit.leave()


class _ThreadLimit:
    """The limit of those libraries whose number of threads is one for each thread, or of the others."""

    def __init__(self, *, per_thread: bool) -> None:
        self.inside = 0
        self._former: list[tuple[Library, int]] = []
        self._per_thread = per_thread

    def enter(self) -> None:
        """Set the libraries to one thread, at the first of nested entries."""
        if not self.inside:
            libraries = [x for x in _libraries() if _is_per_thread(x) == self._per_thread]
            counts = [(library, library.get_num_threads()) for library in libraries]
            self._former = [(library, count) for library, count in counts if count != 1]
            for library, _ in self._former:
                _set_threads(library, 1)
        self.inside += 1

    def leave(self) -> None:
        self.inside -= 1
        if not self.inside:
            self.restore()

    def restore(self) -> None:
        for library, count in self._former:
            _set_threads(library, count)


def _is_per_thread(library: object) -> bool:
    return getattr(library, "threading_layer", None) == "openmp"


def _set_threads(library: Library, count: int) -> None:
    """Set a library's number of threads, whichever thread asks."""
    # threadpoolctl ignores all threads but the first that ever set the number, unless that is gone round
    set_threads = getattr(library, "_real_set_num_threads", None)
    if set_threads is not None:
        set_threads(count)
        return
    forget = getattr(library, "clear_controlling_thread", None)
    if forget is not None:
        forget(force=True)
    library.set_num_threads(count)
    if forget is not None:
        forget(force=True)


_SINGLE_THREADED_BLAS = _SingleThreadedBlas()


def single_threaded_blas() -> AbstractContextManager[None]:
    """Return a context in which BLAS uses one thread; programs of several threads may be in it at once."""
    return _SINGLE_THREADED_BLAS


def split(
    traces: Sequence[Trace], parts: int, weights: Sequence[int] = (), scale: int = 1
) -> list[tuple[int, list[Trace]]]:
    """Cut a batch into at most `parts` runs of traces of about as many calls each.

    Returns each run with the number of its first trace. `weights` are, per cell, how many weights a call is
    multiplied by; where all are 0, calls alone decide. `scale` times the usual calls are worth a part.
    """
    if parts == 1 or len(traces) == 1:
        return [(0, list(traces))]
    sizes = [trace.size for trace in traces]
    parts = max(1, min(parts, len(traces), sum(sizes) // (CALLS_PER_PART * scale)))
    if parts > 1 and any(weights):
        counts = map(sum, zip(*[trace.counts for trace in traces], strict=True))
        work = sum(weight * count for weight, count in zip(weights, counts, strict=True))
        parts = max(1, min(parts, work // MULTIPLICATIONS_PER_PART))
    return [(first, list(traces[first:last])) for first, last in runs_of(sizes, parts)]


def runs_of(sizes: Sequence[float], parts: int) -> list[tuple[int, int]]:
    """Return where runs begin and end, at most `parts`, whose sums of sizes are about alike.

    >>> runs_of([1, 1, 1, 3], 2)
    [(0, 3), (3, 4)]
    """
    middles = [end - size / 2 for end, size in zip(accumulate(sizes), sizes, strict=True)]
    target, starts = sum(sizes) / parts, [0]
    for part in range(1, parts):
        start = max(starts[-1] + 1, bisect_right(middles, target * part))
        starts += [start] * (start < len(sizes))
    return [*pairwise([*starts, len(sizes)])]


def in_threads(pool: ThreadPoolExecutor, tasks: Sequence[Callable[[], R]]) -> list[R]:
    """Run tasks side by side, the first in this thread; return their results in order.

    Each runs on a node of memory that follows from its place, so that what it keeps stays near it. Those for
    which the process may start no thread run in this one.
    Raises what the first task that failed raised, or a handler of signals, after all have ended.
    """
    if len(tasks) == 1:
        return [tasks[0]()]
    caller, ended = threading.get_ident(), [threading.Event() for _ in tasks]
    takers = dict[int, int]()  # by the place of a task, the thread that has taken it
    results, failed = dict[int, R](), dict[int, BaseException]()

    def at(place: int) -> None:
        """Do a task, unless another thread has taken it."""
        if takers.setdefault(place, threading.get_ident()) != threading.get_ident():
            return
        try:
            with on_node(place):
                results[place] = tasks[place]()
        except BaseException as error:  # noqa: BLE001 - it is raised where it belongs
            failed[place] = error
        ended[place].set()

    def wait() -> None:  # buffers must not be in use when we leave
        """Wait until every task has ended that another thread has taken."""
        try:
            for place, event in enumerate(ended):
                if takers.setdefault(place, caller) != caller:
                    event.wait()
        except BaseException:  # of a handler of signals
            wait()
            raise

    try:
        with suppress(RuntimeError):  # the pool keeps a task for which it could not start a thread
            for place in range(1, len(tasks)):
                pool.submit(at, place)
        for place in range(len(tasks)):
            at(place)
    finally:
        wait()
    try:
        if failed:
            raise failed[min(failed)]
    finally:
        failed.clear()  # whose tracebacks lead here
    return [results[place] for place in range(len(tasks))]
