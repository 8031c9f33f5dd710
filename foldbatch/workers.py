"""Worker processes: forked, so that functions and data of any kind are there without being sent.

What the workers return is sent through pipes. A worker is given no locks and no queues, so one that ends
too early harms nobody.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from gc import freeze
from importlib import import_module
from typing import Any, Final

from foldbatch.errors import BackendError

FAILED: Final = object()  # stands for the result of a part where the function raised an exception

Connection = (
    Any  # multiprocessing.connection.Connection; what few programs need is imported when it is needed
)


def can_fork() -> bool:
    """Return whether this process may have workers: it needs fork, and a worker of a pool may have none."""
    return hasattr(os, "fork") and not import_module("multiprocessing").current_process().daemon


def forks_safely() -> bool:
    """Return whether workers may be started where nobody asks for them.

    Libraries of macOS may fail in a forked process. And OpenBLAS hangs where one thread forks while another
    one multiplies: so only the main thread may, beside no other threads than those of programs, which wait.
    """
    others = [thread for thread in threading.enumerate() if not thread.name.startswith("foldbatch")]
    return others == [threading.current_thread()] and sys.platform != "darwin" and can_fork()


def in_processes(work: Callable[[int], Any], parts: int, processes: int) -> Generator[Any, None, None]:
    """Yield ``work(number)`` for each part in order; workers compute them.

    The workers start with the first part asked for. All have ended when the iterator has, also when that is
    closed early. Close it where an exception may leave the loop.

    Args:
        work: called in a worker, with numbers from 0; what it returns must be fit for pickling. Where it
            raises, or returns what is not fit, `FAILED` comes in place of the result.
        parts: how many numbers there are.
        processes: how many workers share them. Each takes the next one in turn, so parts should be alike.

    Raises:
        BackendError: when a worker ends before its work does.

    >>> list(in_processes(lambda number: number * number, 4, 2))
    [0, 1, 4, 9]
    """
    context = import_module("multiprocessing").get_context("fork")
    workers: dict[Connection, Any] = {}
    left: dict[Connection, int] = {}  # parts that are still to come
    try:
        for first in range(min(processes, parts)):
            numbers = range(first, parts, processes)
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(sender, work, numbers), daemon=True)
            with warnings.catch_warnings():  # of threads: a worker takes none of the locks that they may hold
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            sender.close()  # the worker has the only one left, so its end can be seen
            workers[receiver], left[receiver] = process, len(numbers)
        yield from _in_order(workers, left)
    finally:
        for receiver, process in workers.items():
            receiver.close()
            process.kill()
            process.join()


def _in_order(workers: Mapping[Connection, Any], left: dict[Connection, int]) -> Iterator[Any]:
    """Yield the results of all parts in order; `left` counts the parts that a worker still owes."""
    wait = import_module("multiprocessing.connection").wait
    ready: dict[int, Any] = {}
    following = 0
    while left:
        for receiver in wait(list(left)):
            try:
                message = receiver.recv_bytes()
            except (EOFError, OSError):
                workers[receiver].join()
                raise _died(workers[receiver].exitcode) from None
            left[receiver] -= 1
            if not left[receiver]:
                del left[receiver]
            number, succeeded, result = pickle.loads(message)  # noqa: S301 - our own
            ready[number] = result if succeeded else FAILED
        while following in ready:
            yield ready.pop(following)
            following += 1


def _died(code: int) -> BackendError:
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
    fix = "give processes=1, which shows what it does; a process that is killed may lack memory"
    return BackendError("worker process", "one that does its work", f"one that ended by {how}", fix)


def _work(sender: Connection, work: Callable[[int], Any], numbers: range) -> None:
    """Do the parts of one worker, in the worker."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # of Ctrl-C all processes hear; the first one ends the others
    freeze()  # or the search for garbage would copy all memory
    for number in numbers:
        try:
            message = pickle.dumps((number, True, work(number)), pickle.HIGHEST_PROTOCOL)
        except BaseException:  # noqa: BLE001 - whatever it is, the first process may see it too
            message = pickle.dumps((number, False, None))
        try:
            sender.send_bytes(message)
        except OSError:  # nobody reads any more
            return
