"""Ranks that are threads of this process, to try without a launcher what several processes would do."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn, TypeVar

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


def in_threads(work: Callable[[Communicator], R], size: int) -> list[R]:
    """Run a function in threads that are ranks of each other; return what it returns, rank by rank.

    Raises what the first rank raised that did not fail for another one's sake.
    """
    barrier, table = threading.Barrier(size), [None] * size

    def run(rank: int) -> R:
        try:
            return work(ThreadRank(rank, size, barrier, table))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(run, rank) for rank in range(size)]
        errors = [error for future in futures if (error := future.exception()) is not None]
    if errors:
        raise next((error for error in errors if not isinstance(error, ProcessError)), errors[0])
    return [future.result() for future in futures]
