"""Ranks that are threads of this process, to try without a launcher what several processes would do."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NoReturn, TypeVar

import pytest

from foldbatch.communicators import Communicator
from foldbatch.communicators.communicator import ended
from foldbatch.errors import ProcessError

R = TypeVar("R")


class ThreadRank:
    """One of several ranks; made by `in_threads`."""

    def __init__(self, rank: int, size: int, barrier: threading.Barrier, table: list[Any]) -> None:
        self.rank = rank
        self.size = size
        self._barrier = barrier
        self._table = table

    def all_gather(self, data, sizes=None):
        return self._exchanged(data)

    def all_to_all(self, data, sizes):
        first = sum(sizes[: self.rank])
        return [given[first : first + sizes[self.rank]] for given in self._exchanged(data)]

    def abort(self, reason: str) -> NoReturn:
        self._barrier.abort()
        raise ended(f"rank {self.rank} of {self.size}", reason)

    def _exchanged(self, own: Any) -> list[Any]:
        try:
            self._table[self.rank] = own
            self._barrier.wait()
            everything = list(self._table)
            self._barrier.wait()  # or the next exchange would overwrite what others still read
        except threading.BrokenBarrierError:
            raise ended(f"rank {self.rank} of {self.size}", "a rank that ended") from None
        return everything


def by_barrier(size: int) -> Callable[[int], Communicator]:
    """Return a function that makes ranks of each other, which exchange objects by a table."""
    barrier, table = threading.Barrier(size), [None] * size
    return lambda rank: ThreadRank(rank, size, barrier, table)


def by_gloo(size: int, seconds: float = 60) -> Callable[[int], Communicator]:
    """Return a function that makes ranks of each other, each called in its thread: those of torch.distributed."""
    module, timeout = import_module("foldbatch.communicators.distributed"), timedelta(seconds=seconds)
    store = module.dist.HashStore()

    def connected(rank: int) -> Communicator:
        group = module.dist.ProcessGroupGloo(store, rank, size, timeout)
        return module.TorchCommunicator(group, store)

    return connected


TRANSPORTS = [
    "barrier",
    pytest.param("gloo", marks=pytest.mark.skipif(not find_spec("torch"), reason="needs pip install -e '.[torch]'")),
]  # fmt: skip
CONNECTED = {"barrier": by_barrier, "gloo": by_gloo}
transport = ContextVar("transport", default="barrier")  # how `in_threads` connects ranks


def in_threads(work: Callable[[Communicator], R], size: int) -> list[R]:
    """Run a function in threads that are ranks of each other; return what it returns, rank by rank.

    Raises what the first rank raised that did not fail for another one's sake.
    """
    connected = CONNECTED[transport.get()](size)

    def run(rank: int) -> R:
        communicator = connected(rank)
        try:
            return work(communicator)
        except BaseException as error:
            with suppress(ProcessError):  # so that nobody waits for a rank that has failed
                communicator.abort(str(error))
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(run, rank) for rank in range(size)]
        errors = [error for future in futures if (error := future.exception()) is not None]
    if errors:
        raise next((error for error in errors if not isinstance(error, ProcessError)), errors[0])
    return [future.result() for future in futures]
