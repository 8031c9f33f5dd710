"""Processes that an MPI launcher started, over mpi4py."""

import atexit
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from mpi4py import MPI

from foldbatch.communicators.communicator import Bytes, call_at_an_error, leave
from foldbatch.errors import ProcessError


class MPICommunicator:
    """The processes of an MPI communicator.

    >>> MPICommunicator(MPI.COMM_SELF).size
    1
    """

    def __init__(self, comm: Any = None) -> None:
        self._comm = MPI.COMM_WORLD.Dup() if comm is None else comm
        self._comm.Set_errhandler(MPI.ERRORS_RETURN)
        self.rank: int = self._comm.Get_rank()
        self.size: int = self._comm.Get_size()
        if comm is None and self.size > 1:
            call_at_an_error(lambda reason: self._comm.Abort(1))
            atexit.register(_leave, self)

    def all_gather(self, data: Bytes, sizes: Sequence[int] | None = None) -> list[Bytes]:
        """Return the data of all ranks, in order; `sizes` saves asking for them."""
        try:
            if sizes is None:
                counts = np.empty(self.size, np.int64)
                self._comm.Allgather(np.array([len(data)]), counts)
                sizes = counts.tolist()
            received = np.empty(sum(sizes), np.uint8)
            self._comm.Allgatherv([data, MPI.BYTE], [received, (sizes, _starts(sizes)), MPI.BYTE])
        except MPI.Exception as error:
            raise self._lost() from error
        return np.split(received, np.cumsum(sizes)[:-1])

    def all_to_all(self, data: Bytes, sizes: Sequence[int]) -> list[Bytes]:
        """Send each rank its part of the data; return the parts that the ranks sent to this one."""
        receive_sizes = [sizes[self.rank]] * self.size
        received = np.empty(sum(receive_sizes), np.uint8)
        try:
            self._comm.Alltoallv(
                [data, (sizes, _starts(sizes)), MPI.BYTE],
                [received, (receive_sizes, _starts(receive_sizes)), MPI.BYTE],
            )
        except MPI.Exception as error:
            raise self._lost() from error
        return list(received.reshape(self.size, -1))

    def abort(self, reason: str) -> NoReturn:
        print(f"error: rank {self.rank} of {self.size}: {reason}", file=sys.stderr, flush=True)
        self._comm.Abort(2)
        raise AssertionError  # not reached

    def _lost(self) -> ProcessError:
        where, fix = f"rank {self.rank} of {self.size}", "go on from the last checkpoint"
        return ProcessError(where, f"{self.size} processes", "one that has ended", fix)


def _leave(communicator: MPICommunicator) -> None:
    if not MPI.Is_finalized():
        leave(communicator)


def _starts(sizes: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(sizes)[:-1].tolist()]
