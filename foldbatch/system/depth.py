"""Depth: running functions that call each other deeper than Python lets them by default.

Calls of plain functions take no stack of the machine. But up to Python 3.11 those through built-in functions
do, without a check, so what runs deep gets a thread with a large stack.
"""

import contextvars
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

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
