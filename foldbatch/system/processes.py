"""The limits of a process of Python: forks, calls deeper than its limit, pauses of its garbage collector.

A forked process has a copy of all memory, but only one of the threads. A lock that another thread held stays
locked for ever there, and a pool of threads waits for threads that do not exist.

Calls of plain functions take no stack of the machine. But up to Python 3.11 those through built-in functions
do, without a check, so what runs deep gets a thread with a large stack.
"""

import _thread
import contextvars
import ctypes
import gc
import os
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from foldbatch.errors import BackendError, FoldbatchError

Owner = TypeVar("Owner")
_STARTS: weakref.WeakKeyDictionary[object, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def start_in_each_process(owner: Owner, start: Callable[[Owner], None]) -> None:
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


NO_THREAD: Final = -1  # no thread has this number
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


# a note to errors of what has run in a thread of its own
APART = "foldbatch: calls this deep run in a thread of their own, where what belongs to another thread fails"


class _Apart:
    """A call in a thread of its own, which is broken off where a handler of signals raises meanwhile.

    Else it would go on, deeper than Python lets it from then on, and beside what is run next.
    """

    def __init__(self, run: Callable[[], object], locals_: Sequence[threading.local]) -> None:
        self._run, self._context = run, contextvars.copy_context()
        self._locals = [
            (local, vars(local)) for local in locals_
        ]  # with their attributes in the thread that waits
        self._runner = dict[str, int]()  # the one that began first: a thread by its number, or NO_THREAD
        self._ends = threading.Lock()
        self._ends.acquire()
        self.outcome: list[Any] = []  # what was returned or raised

    def start(self) -> None:
        _thread.start_new_thread(self._begin, ())  # `Thread.start` waits, and so could be interrupted

    def _begin(self) -> None:
        """Run the function with the thread locals of the thread that waits; keep its result or error."""
        if self._runner.setdefault("is", threading.get_ident()) == NO_THREAD:
            return
        try:
            for local, attributes in self._locals:
                vars(local).update(attributes)
            sys.settrace(threading.gettrace())  # of debuggers
            self.outcome.append(self._context.run(self._run))
        except BaseException as error:  # noqa: BLE001 - it is raised where it belongs
            if not isinstance(error, RecursionError | FoldbatchError):
                error.add_note(APART)
            self.outcome.append(error)
        finally:
            for local, attributes in self._locals:
                attributes.update(vars(local))
            self._ends.release()

    def wait(self) -> None:
        while not self._ends.acquire(timeout=0.1):
            if self._runner.get("is", NO_THREAD) not in (NO_THREAD, *sys._current_frames()):
                return  # it was broken off before it said that it has ended

    def break_off(self) -> None:
        """End the thread as soon as it runs Python code, and wait for it."""
        if (ident := self._runner.setdefault("is", NO_THREAD)) == NO_THREAD:
            return
        thread, leave = ctypes.c_ulong(ident), ctypes.py_object(SystemExit)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, leave)
        try:
            self.wait()
        except BaseException:
            self.break_off()
            raise


def in_place(run: Callable[[], Result], limit: int) -> Result:
    """Run a function in the present thread, with calls as deep as `limit`.

    Python 3.12 counts calls through built-in functions by themselves, and raises a `RecursionError` before
    the stack of the machine ends. Python 3.11 does not count them, and 3.13 lets too many of them.

    >>> def deep(n):
    ...     return n and 1 + deep(n - 1)
    >>> in_place(lambda: deep(2_000), 10_000)
    2000
    """
    _raise_limit(limit)
    try:
        return run()
    finally:
        _give_back_limit()


def _raise_limit(limit: int) -> None:
    """Raise Python's limit of recursion for a run; `_give_back_limit` ends that."""
    with _Raised.lock:
        if not _Raised.runs:
            _Raised.before = sys.getrecursionlimit()
        _Raised.runs += 1
        sys.setrecursionlimit(max(sys.getrecursionlimit(), limit))


def _give_back_limit() -> None:
    with _Raised.lock:
        _Raised.runs -= 1
        if not _Raised.runs:
            sys.setrecursionlimit(_Raised.before)


def in_depth(run: Callable[[], Result], limit: int, locals_: Sequence[threading.local] = ()) -> Result:
    """Run a function in a thread of its own, in which calls may go as deep as `limit`.

    Args:
        run: the function.
        limit: how deep.
        locals_: what has the attributes there that it has in the present thread.

    Raises:
        BackendError: when there is no room for such a thread.

    >>> def deep(n):
    ...     return n and 1 + deep(n - 1)
    >>> in_depth(lambda: deep(50_000), 100_000)
    50000
    """
    apart = _Apart(run, locals_)
    _raise_limit(limit)
    try:
        with _Raised.lock:
            size = threading.stack_size(STACK)
            try:
                apart.start()
            except RuntimeError as error:
                room, fix = "1 GiB of addresses for a stack", "allow more, as by ulimit -v, or nest less"
                raise BackendError("deep calls", room, f"none: {error}", fix) from None
            finally:
                threading.stack_size(size)
        apart.wait()
    except BaseException:
        apart.break_off()
        raise
    finally:
        _give_back_limit()
    (result,) = apart.outcome
    if isinstance(result, BaseException):
        raise result
    returned: Result = result
    return returned


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
