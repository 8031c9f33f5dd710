"""Threads: sub-batches side by side, each with single-threaded BLAS.

BLAS threads that wait for each other by spinning collapse as soon as anything else wants their
core, and elementwise work between GEMMs does not use them at all. So BLAS is held to one thread
while a program runs, and a batch is cut into one part per core instead; the parts share nothing
but the weights, and their gradients are added in the order of the batch.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from foldbatch.scheduler.trace import Trace

R = TypeVar("R")

# Fewer calls than this are not worth a thread of their own, nor are fewer multiplications by weights: levels
# get thin, and the threads wait for memory and for each other.
CALLS_PER_PART = 300
MULTIPLICATIONS_PER_PART = 80_000_000


def available_cores() -> int:
    """Return the cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


class _SingleThreadedBlas:
    """Holds BLAS to one thread while any program is inside; the last one out restores the former number."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._limiter: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._limiter = _controller().limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limiter.restore_original_limits()


_SINGLE_THREADED_BLAS = _SingleThreadedBlas()


def single_threaded_blas() -> AbstractContextManager[None]:
    """Return a context in which BLAS uses one thread; programs of several threads may be in it at once."""
    return _SINGLE_THREADED_BLAS


def split(traces: Sequence[Trace], parts: int, weights: Sequence[int] = ()) -> list[tuple[int, list[Trace]]]:
    """Cut a batch into at most `parts` runs of traces of about as many calls each.

    Returns each run with the number of its first trace. `weights` are, per cell, how many weights a call is
    multiplied by; where all are 0, calls alone decide.
    """
    if parts == 1:
        return [(0, list(traces))]
    sizes = [trace.size for trace in traces]
    parts = max(1, min(parts, len(traces), sum(sizes) // CALLS_PER_PART))
    if parts > 1 and any(weights):
        counts = (sum(len(trace.calls[k]) for trace in traces) for k in range(len(weights)))
        work = sum(weight * count for weight, count in zip(weights, counts, strict=True))
        parts = max(1, min(parts, work // MULTIPLICATIONS_PER_PART))
    target = sum(sizes) / parts
    runs: list[tuple[int, list[Trace]]] = [(0, [])]
    done = 0.0
    for number, (trace, size) in enumerate(zip(traces, sizes, strict=True)):
        if runs[-1][1] and len(runs) < parts and done + size / 2 > target * len(runs):
            runs.append((number, []))
        runs[-1][1].append(trace)
        done += size
    return runs


def in_threads(pool: ThreadPoolExecutor, tasks: Sequence[Callable[[], R]]) -> list[R]:
    """Run tasks side by side, the first in this thread; return their results in order.

    Raises what the first task that failed raised, after all have ended.
    """
    futures = [pool.submit(task) for task in tasks[1:]]
    try:
        first = tasks[0]()
    finally:
        for future in futures:
            future.exception()  # waits; buffers must not be in use when we leave
    return [first, *(future.result() for future in futures)]
