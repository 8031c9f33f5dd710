"""Communicator: what training needs of the library that connects its processes; one alone, and threads."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import ProcessError

Bytes = NDArray[np.uint8]


class Communicator(Protocol):
    """The processes of a training, as one of them sees the others.

    Three methods suffice. `all_gather` is for what differs in size from rank to rank: losses, rows of
    embeddings, figures. `all_to_all` is one half of a sum of large gradients, of which each rank adds one
    slice; `all_gather` is the other half. `abort` is for an error after which the others would wait in vain.

    All ranks must call `all_gather` and `all_to_all` in the same order, from one thread at a time.
    """

    rank: int  # the number of this process, from 0
    size: int  # how many processes there are

    def all_gather(self, data: Bytes, sizes: Sequence[int] | None = None) -> list[Bytes]:
        """Return the bytes of all ranks, in the order of ranks.

        Args:
            data: ``[n] uint8``, of this rank.
            sizes: how many bytes each rank gives, where all ranks know them; else they are asked first.

        Raises:
            ProcessError: when another process has ended.
        """
        ...

    def all_to_all(self, data: Bytes, sizes: Sequence[int]) -> list[Bytes]:
        """Send one part to each rank; return the parts sent to this rank, in the order of their senders.

        Args:
            data: ``[sum(sizes)] uint8``: the parts, in the order of ranks.
            sizes: of the part for each rank; the same on all ranks.

        Raises:
            ProcessError: when another process has ended.
        """
        ...

    def abort(self, reason: str) -> NoReturn:
        """End this process, and let the others end too.

        Raises:
            ProcessError: with the reason, where the library cannot end processes at once.
        """
        ...


R = TypeVar("R")


class Alone:
    """The communicator of a process that trains alone.

    >>> Alone().rank, Alone().size
    (0, 1)
    """

    rank = 0
    size = 1

    def all_gather(self, data: Bytes, sizes: Sequence[int] | None = None) -> list[Bytes]:
        return [data]

    def all_to_all(self, data: Bytes, sizes: Sequence[int]) -> list[Bytes]:
        return [data]

    def abort(self, reason: str) -> NoReturn:
        raise _ended("rank 0 of 1", reason)


class ThreadRank:
    """One of several ranks that are threads of this process; made by `in_threads`."""

    def __init__(self, rank: int, size: int, barrier: threading.Barrier, table: list[Any]) -> None:
        self.rank = rank
        self.size = size
        self._barrier = barrier
        self._table = table

    def all_gather(self, data: Bytes, sizes: Sequence[int] | None = None) -> list[Bytes]:
        given: list[Bytes] = self._exchanged(data)
        return given

    def all_to_all(self, data: Bytes, sizes: Sequence[int]) -> list[Bytes]:
        first = sum(sizes[: self.rank])
        return [given[first : first + sizes[self.rank]] for given in self._exchanged(data)]

    def abort(self, reason: str) -> NoReturn:
        self._barrier.abort()
        raise _ended(f"rank {self.rank} of {self.size}", reason)

    def _exchanged(self, own: Any) -> list[Any]:
        try:
            self._table[self.rank] = own
            self._barrier.wait()
            everything = list(self._table)
            self._barrier.wait()  # or the next exchange would overwrite what others still read
        except threading.BrokenBarrierError:
            raise _ended(f"rank {self.rank} of {self.size}", "a rank that ended") from None
        return everything


def in_threads(work: Callable[[Communicator], R], size: int) -> list[R]:
    """Run a function in threads that are ranks of each other; return what it returns, rank by rank.

    It tries without a launcher what several processes would do, and is no faster than one process.

    Args:
        work: called with the communicator of its rank.
        size: how many ranks there are.

    Raises what the first rank raised that did not fail for another one's sake.

    >>> import numpy as np
    >>> def ask(communicator):
    ...     own = np.array([communicator.rank], np.uint8)
    ...     return [int(data[0]) for data in communicator.all_gather(own)]
    >>> in_threads(ask, 3)
    [[0, 1, 2], [0, 1, 2], [0, 1, 2]]
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


def _ended(where: str, reason: str) -> ProcessError:
    return ProcessError(where, "all processes to go on", reason, "look at what the others say")
