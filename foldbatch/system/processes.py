"""The process: cores and nodes of memory it may use, what a fork makes anew, how deep calls go, garbage.

A forked process has a copy of all memory, but only one of the threads. A lock that another thread held stays
locked for ever there, and a pool of threads waits for threads that do not exist.

Calls of plain functions take no stack of the machine. But up to Python 3.11 those through built-in functions
do, without a check, so what runs deep gets a thread with a large stack.
"""

import contextvars
import gc
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from math import ceil, inf
from pathlib import Path
from typing import Any, Final, TypeVar

from foldbatch.errors import BackendError

VARIABLE = "FOLDBATCH_THREADS"
CONTROL = Path("/sys/fs/cgroup")
NODES = Path("/sys/devices/system/node")


def available_cores() -> int:
    """Return the cores this process may use; ``FOLDBATCH_THREADS`` in the environment decides."""
    wanted = os.environ.get(VARIABLE)
    if wanted:
        if not wanted.isascii() or not wanted.isdigit() or int(wanted) < 1:
            raise BackendError(VARIABLE, "a number of threads, 1 or more", repr(wanted), "or leave it unset")
        return int(wanted)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, quota()))


@cache
def quota() -> int:
    """Return how many cores' time the control groups of a container grant; many where they do not say."""
    granted = inf
    with suppress(OSError, ValueError):
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        own = next((line[3:] for line in lines if line.startswith("0::")), "/")
        group = CONTROL / own.strip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(CONTROL):
                granted = min(granted, _share(folder / "cpu.max"))
    with suppress(OSError, ValueError):  # control groups of the first kind
        folder = CONTROL / "cpu"
        limit, period = (int((folder / f"cpu.cfs_{word}_us").read_text()) for word in ("quota", "period"))
        granted = min(granted, limit / period) if limit > 0 else granted
    return 1_000_000 if granted == inf else max(1, ceil(granted))


def _share(file: Path) -> float:
    """Return the cores that a file grants: it holds microseconds, or ``max``, and those of a period."""
    if not file.exists():
        return inf
    limit, period = file.read_text(encoding="utf-8").split()
    return inf if limit == "max" else int(limit) / int(period)


@contextmanager
def on_node(place: int) -> Iterator[None]:
    """Keep this thread on the cores of one node of memory, the same one for equal places.

    Memory lies on the node of the thread that first writes to it. Nothing happens where this thread's cores
    are of one node, or where the system does not tell.
    """
    before = os.sched_getaffinity(0) if nodes() else set[int]()
    own = [node & before for node in nodes() if node & before]
    if len(own) < 2:
        yield
        return
    os.sched_setaffinity(0, own[place % len(own)])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@cache
def nodes() -> list[set[int]]:
    """Return the cores of each node of memory of this machine; none where there is one node."""
    found = []
    with suppress(OSError, ValueError):
        for file in sorted(NODES.glob("node*/cpulist")):
            runs = [run.split("-") for run in file.read_text(encoding="utf-8").strip().split(",") if run]
            found.append({core for run in runs for core in range(int(run[0]), int(run[-1]) + 1)})
    return found if len(found) > 1 and hasattr(os, "sched_setaffinity") else []


_STARTS: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def start_in_each_process(owner: Any, start: Callable[[Any], None]) -> None:
    """Call ``start(owner)`` now, and again in every process that is forked while `owner` lives.

    >>> class Counter:
    ...     pass
    >>> counter = Counter()
    >>> start_in_each_process(counter, lambda owner: setattr(owner, "process", os.getpid()))
    >>> counter.process == os.getpid()
    True
    """
    start(owner)
    _STARTS[owner] = start


def _start_all() -> None:
    for owner, start in list(_STARTS.items()):
        start(owner)


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_start_all)


STACK: Final = 1 << 30  # bytes, which are used only as far as the calls are deep

Result = TypeVar("Result")


class _Raised:
    """How many runs have raised the limit, and what it was before."""

    lock: Final = threading.Lock()
    runs: int = 0
    before: int = 0


def raise_limit(limit: int) -> None:
    """Let calls go as deep as `limit` until the last deep run ends; it is never lowered under one."""
    with _Raised.lock:
        sys.setrecursionlimit(max(sys.getrecursionlimit(), limit))


def in_depth(run: Callable[[], Result], limit: int) -> Result:
    """Run a function in a thread of its own, in which calls may go as deep as `limit`.

    >>> def deep(n):
    ...     return n and 1 + deep(n - 1)
    >>> in_depth(lambda: deep(50_000), 100_000)
    50000
    """
    found: list[Any] = []
    context = contextvars.copy_context()

    def target() -> None:
        try:
            found.append(context.run(run))
        except BaseException as error:  # noqa: BLE001 - it is raised where it belongs
            found.append(error)

    with _Raised.lock:
        if not _Raised.runs:
            _Raised.before = sys.getrecursionlimit()
        _Raised.runs += 1
        sys.setrecursionlimit(max(sys.getrecursionlimit(), limit))
        size = threading.stack_size(STACK)
        try:
            thread = threading.Thread(target=target, name="foldbatch depth")
            thread.start()
        finally:
            threading.stack_size(size)
    try:
        thread.join()
    finally:
        with _Raised.lock:
            _Raised.runs -= 1
            if not _Raised.runs:
                sys.setrecursionlimit(_Raised.before)
    (result,) = found
    if isinstance(result, BaseException):
        raise result
    done: Result = result
    return done


class _Pause:
    __slots__ = ("_enabled",)

    def __enter__(self) -> None:
        self._enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._enabled:
            gc.enable()


def no_garbage() -> _Pause:
    """Return a context in which Python does not look for cyclic garbage.

    The more objects there are, the more often Python looks, and the longer each time: where very many are
    made, the search may take most of the time.

    >>> with no_garbage():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    return _Pause()


def set_aside() -> None:
    """Look for cyclic garbage once, and leave what stays out of later looks until this is called again.

    A look through the objects of a compiled model takes a tenth of a second, in which no thread runs.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
