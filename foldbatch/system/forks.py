"""Forked processes: what belongs to threads of the parent process is made anew in the child.

A forked process has a copy of all memory, but only one of the threads. A lock that another thread held stays
locked for ever there, and a pool of threads waits for threads that do not exist.
"""

import os
import weakref
from collections.abc import Callable
from typing import Any

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
