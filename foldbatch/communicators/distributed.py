"""Processes of a group of torch.distributed: those that torchrun started, or that the program has connected.

Bytes go by gloo, between arrays of NumPy, from each rank to each other one. The group is one of our own, so
exchanges of the program, DDP's for example, may be under way meanwhile, and the program's group may be one of
NCCL alone.
"""

import atexit
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, NoReturn

import numpy as np
import torch
import torch.distributed as dist

from foldbatch.communicators.communicator import Bytes, ended, has_failed, is_known, leave
from foldbatch.errors import ProcessError

TOLD: Final = "foldbatch: why a rank has ended"  # a key of the group's store
PATIENCE: Final = 20.0  # seconds that a rank which ends after an error waits for the first one to say so
ATTEMPT: Final = "TORCHELASTIC_RESTART_COUNT"  # a variable of torchrun
INLINE: Final = 1016  # bytes of data that go with their number
LATE: Final = "Timed out"  # is in gloo's message where a rank lives, but does not answer


class TorchCommunicator:
    """The processes of a group of torch.distributed that has gloo.

    Args:
        group: a `torch.distributed.ProcessGroup` for this communicator alone, with the timeout that its
            exchanges are to have; by default a new one of all processes, with the timeout of theirs.
        store: a `torch.distributed.Store` that all ranks share, in which one that ends says why.

    >>> group = dist.ProcessGroupGloo(dist.HashStore(), 0, 1, timedelta(seconds=60))
    >>> TorchCommunicator(group).size
    1
    """

    def __init__(self, group: Any = None, store: Any = None) -> None:
        self._group = _group_of_all() if group is None else group
        self._store = _store_of_all() if group is None else store
        self.rank: int = self._group.rank()
        self.size: int = self._group.size()
        self._others = [(self.rank + step) % self.size for step in range(1, self.size)]
        if group is None and self.size > 1:
            _end_others_with_an_error(self._end)
            atexit.register(_leave, self)

    def all_gather(self, data: Bytes, sizes: Sequence[int] | None = None) -> list[Bytes]:
        """Return the data of all ranks, in order; `sizes` saves a first message that tells them.

        Data that has room in this message goes with it, as a message takes a third of a millisecond.
        """
        data = _sendable(data)
        if sizes is not None:
            return self._exchanged([data] * self.size, sizes)
        first = np.zeros(8 + INLINE, np.uint8)
        first[:8] = np.array([len(data)]).view(np.uint8)
        first[8 : 8 + len(data)] = data[:INLINE]
        firsts = self._exchanged([first] * self.size, [len(first)] * self.size)
        sizes = [int(each[:8].view(np.int64)[0]) for each in firsts]
        rests = self._exchanged([data[INLINE:]] * self.size, [max(0, size - INLINE) for size in sizes])
        return [
            np.concatenate([each[8 : 8 + size], rest])
            for each, size, rest in zip(firsts, sizes, rests, strict=True)
        ]

    def all_to_all(self, data: Bytes, sizes: Sequence[int]) -> list[Bytes]:
        """Send each rank its part of the data; return the parts that the ranks sent to this one."""
        parts = np.split(_sendable(data), np.cumsum(sizes)[:-1])
        return self._exchanged(parts, [sizes[self.rank]] * self.size)

    def abort(self, reason: str) -> NoReturn:
        """Let the other ranks' next exchange fail with the reason.

        Raises:
            ProcessError: with the reason: the process is the program's, or its launcher's, to end.
        """
        self._end(reason)
        raise ended(f"rank {self.rank} of {self.size}", reason)

    def _exchanged(self, parts: Sequence[Bytes], sizes: Sequence[int]) -> list[Bytes]:
        """Send a part to each rank, and return what each one sent, of these sizes; nothing is sent empty."""
        received = [np.empty(size, np.uint8) for size in sizes]
        received[self.rank] = parts[self.rank]
        works: list[Any] = []
        try:
            if self._group is None:
                raise RuntimeError("the connections are closed")  # noqa: TRY301 - as gloo would
            for peer in self._others:
                if sizes[peer]:
                    works.append(self._group.recv([torch.from_numpy(received[peer])], peer, 0))
            for peer in self._others:
                if len(parts[peer]):
                    works.append(self._group.send([torch.from_numpy(parts[peer])], peer, 0))
            for work in works:
                work.wait()
        except RuntimeError as error:
            works.clear()  # each of them holds the connections, and the traceback would hold them
            late = LATE in str(error)
            raise self._lost(late=late) from error
        return received

    def _end(self, reason: str) -> None:
        """Say why this rank ends, and end its connections."""
        if self._store is not None:
            with suppress(RuntimeError):  # rank 0 may have held the store, and have ended
                self._store.set(TOLD, f"{self.rank} {reason}")
        self._close()

    def _close(self) -> None:
        """End the connections, so that ranks that wait for this one learn of it at once."""
        group, self._group = self._group, None
        if group is not None:  # as no group stands for all of the program's
            with suppress(ValueError, AssertionError):  # PyTorch does not list it, or no longer
                dist.destroy_process_group(group)

    def _lost(self, *, late: bool) -> ProcessError:
        """Return the error of a rank that has lost another one, which others lose by it."""
        self._close()
        here, fix = f"rank {self.rank} of {self.size}", "go on from the last checkpoint"
        told = ""
        if self._store is not None:
            with suppress(RuntimeError):
                told = self._store.get(TOLD).decode() if self._store.check([TOLD]) else ""
        if told:
            rank, _, reason = told.partition(" ")
            return ProcessError(f"rank {rank}", "a process that goes on", reason, fix)
        actual = "one that does not answer within the group's timeout" if late else "one that has ended"
        return ProcessError(here, f"{self.size} processes", actual, fix)

    def wait_for_first(self, seconds: float = PATIENCE) -> None:
        """Wait until rank 0 has ended, which says what went wrong.

        Launchers end all ranks as soon as they see one that has failed.
        """
        if self.rank and self._group is not None:
            with suppress(RuntimeError):
                nothing = torch.empty(1, dtype=torch.uint8)
                self._group.recv([nothing], 0, 1).wait(timedelta(seconds=seconds))


def _group_of_all() -> Any:
    """Return a new group of all processes by gloo; where there is none yet, connect those of torchrun.

    torchrun begins anew with the store of its former attempt, which has the addresses of ended processes. So
    that none is taken for one of this attempt, each attempt has keys of its own.
    """
    if not dist.is_initialized():
        store, rank, size = next(dist.rendezvous("env://"))
        if os.environ.get("GROUP_WORLD_SIZE") == "1":  # a number of attempts is that of one machine
            store = dist.PrefixStore(f"attempt {os.environ.get(ATTEMPT, '0')}", store)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    return dist.new_group(backend="gloo", timeout=_timeout())


def _timeout() -> timedelta | None:
    """Return the timeout of the program's group; None, which is PyTorch's own, where that is not known."""
    group: Any = dist.group.WORLD
    for device in ("cpu", "cuda"):
        with suppress(AttributeError, RuntimeError):
            found: timedelta = group._get_backend(torch.device(device)).options._timeout
            return found
    return None


def _store_of_all() -> Any:
    """Return the store by which the program's group found each other; None where it is not known."""
    with suppress(AttributeError, RuntimeError, ValueError):
        return dist.distributed_c10d._get_default_store()
    return None


def _sendable(data: Bytes) -> Bytes:
    """Return data as PyTorch takes it: one after the other, in memory that may be written to."""
    return np.require(data, requirements=["C", "W"])


def _end_others_with_an_error(end: Callable[[str], None]) -> None:
    """Let an error that leaves a program be printed as ever, and then end the exchanges of all ranks.

    Ranks that know of the error end by themselves, when they have written a checkpoint, say.
    """
    printed = sys.excepthook

    def told(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        """Print an error as ever, and tell the other ranks of it."""
        try:
            printed(kind, error, traceback)
            sys.stderr.flush()
        finally:
            if not is_known(error):
                end(f"{kind.__name__}: {error}".rstrip(": "))

    sys.excepthook = told


def _leave(communicator: TorchCommunicator) -> None:
    if dist.is_initialized():
        leave(communicator)
        if has_failed(communicator):
            communicator.wait_for_first()
