"""Processes of a group of torch.distributed: those that torchrun started, or that the program has connected.

Bytes go by gloo, between arrays of NumPy, from each rank to each other one. The group is one of our own, so
exchanges of the program, DDP's for example, may be under way meanwhile, and the program's group may be one of
NCCL alone. Arrays in the memory of GPUs go by NCCL, in another group of our own, made for the first of them.
"""

import atexit
import os
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from datetime import timedelta
from typing import Any, Final, NoReturn
from uuid import uuid4

import numpy as np
import torch
import torch.distributed as dist

from foldbatch.communicators.communicator import Bytes, call_at_an_error, ended, from_first, has_failed, leave
from foldbatch.errors import ProcessError

REASON: Final = "foldbatch: why a rank has ended"  # begins a key of the group's store
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
        self._of_all = group is None
        self._nccl: Any = None  # the group that exchanges arrays of GPUs, once there were some
        self.rank: int = self._group.rank()
        self.size: int = self._group.size()
        self._peers = [(self.rank + step) % self.size for step in range(1, self.size)]
        self._key = REASON
        if group is None and self.size > 1:
            self._key += from_first(self, f" {uuid4()}")  # the store may have reasons of former groups
            call_at_an_error(self._end)
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
        sizes = [int(message[:8].view(np.int64)[0]) for message in firsts]
        tails = self._exchanged([data[INLINE:]] * self.size, [max(0, size - INLINE) for size in sizes])
        return [
            np.concatenate([message[8 : 8 + size], tail])
            for message, size, tail in zip(firsts, sizes, tails, strict=True)
        ]

    def all_to_all(self, data: Bytes, sizes: Sequence[int]) -> list[Bytes]:
        """Send each rank its part of the data; return the parts that the ranks sent to this one."""
        parts = np.split(_sendable(data), np.cumsum(sizes)[:-1])
        return self._exchanged(parts, [sizes[self.rank]] * self.size)

    def reaches(self, array: Any) -> bool:
        """Return whether arrays like this one can be exchanged where they lie.

        Those of NumPy can, and those on a GPU where PyTorch has NCCL. A group that was given is gloo's alone.
        """
        return isinstance(array, np.ndarray) or (
            self._of_all and torch.cuda.is_available() and dist.is_nccl_available()
        )

    def all_to_all_there(self, target: Any, source: Any, stream: int | None) -> None:
        """Send each rank its part of an array; see `DeviceCommunicator.all_to_all_there`."""
        self._exchange_there("alltoall_base", target, source, stream, [], [])

    def all_gather_there(self, target: Any, source: Any, stream: int | None) -> None:
        """Gather the arrays of all ranks; see `DeviceCommunicator.all_gather_there`."""
        self._exchange_there("_allgather_base", target, source, stream)

    def _exchange_there(
        self, method: str, target: Any, source: Any, stream: int | None, *options: Sequence[int]
    ) -> None:
        """Call a method of the group that reaches two arrays' memory, between two points of a stream.

        NCCL waits for what PyTorch's current stream has to do, and `wait` lets that stream wait for NCCL. The
        host does not wait, unless the arrays are its own.
        """
        tensors = torch.as_tensor(target), torch.as_tensor(source)  # over the same memory
        on_gpu, device = tensors[0].is_cuda, tensors[0].device
        try:
            if self._group is None:
                raise RuntimeError("the connections are closed")  # noqa: TRY301 - as gloo would
            if on_gpu and self._nccl is None:
                self._nccl = dist.new_group(backend="nccl", timeout=_timeout())
            with torch.cuda.stream(torch.cuda.ExternalStream(stream, device)) if on_gpu else nullcontext():
                # no name for the group: the traceback would hold its connections
                getattr(self._nccl if on_gpu else self._group, method)(*tensors, *options).wait()
        except RuntimeError as error:
            late, text = LATE in str(error), str(error).partition("\n")[0]
            raise self._lost(late=late, nccl=text if on_gpu else "") from error

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
            for peer in self._peers:
                if sizes[peer]:
                    works.append(self._group.recv([torch.from_numpy(received[peer])], peer, 0))
            for peer in self._peers:
                if len(parts[peer]):
                    works.append(self._group.send([torch.from_numpy(parts[peer])], peer, 0))
            while works:
                works.pop(0).wait()
        except RuntimeError as error:
            works.clear()  # each of them holds the connections, and the traceback would hold them
            late = LATE in str(error)
            raise self._lost(late=late) from error
        return received

    def _end(self, reason: str) -> None:
        """Report why this rank ends, and end its connections."""
        if self._store is not None:
            with suppress(RuntimeError):  # rank 0 may have held the store, and have ended
                self._store.set(self._key, f"{self.rank} {reason}")
        self._close()

    def _close(self) -> None:
        """End the connections, so that ranks that wait for this one learn of it at once."""
        nccl, self._nccl = self._nccl, None
        if nccl is not None:  # to destroy it would wait for what others will never send
            with suppress(RuntimeError, AttributeError):  # an older PyTorch cannot
                nccl.abort()
        group, self._group = self._group, None
        if group is not None:  # as no group stands for all of the program's
            with suppress(ValueError, AssertionError):  # PyTorch does not list it, or no longer
                dist.destroy_process_group(group)

    def _lost(self, *, late: bool, nccl: str = "") -> ProcessError:
        """Return the error of a rank that has lost another one, which others lose by it.

        Args:
            late: whether the other one lives, but does not answer.
            nccl: the message where it is NCCL that fails, which may have other causes.
        """
        self._close()
        here, fix = f"rank {self.rank} of {self.size}", "go on from the last checkpoint"
        reported = ""
        if self._store is not None:
            with suppress(RuntimeError):
                reported = self._store.get(self._key).decode() if self._store.check([self._key]) else ""
        if reported:
            rank, _, reason = reported.partition(" ")
            return ProcessError(f"rank {rank}", "a process that goes on", reason, fix)
        if nccl:
            fix = (
                "see what NCCL_DEBUG=INFO prints, or give DataParallel a TorchCommunicator of a group by gloo"
            )
            return ProcessError(here, "NCCL to exchange gradients", nccl, fix)
        actual = "one that does not answer within the group's timeout" if late else "one that has ended"
        return ProcessError(here, f"{self.size} processes", actual, fix)

    def end_nccl(self) -> None:
        """End the group of NCCL, if there is one, as PyTorch asks of who ends; all ranks have come here."""
        nccl, self._nccl = self._nccl, None
        if nccl is not None:
            with suppress(RuntimeError, ValueError, AssertionError):  # as in `_close`
                dist.destroy_process_group(nccl)

    def wait_for_first(self, seconds: float = PATIENCE) -> None:
        """Wait until rank 0 has ended, which says what went wrong.

        Launchers end all ranks as soon as they see one that has failed.
        """
        if self.rank and self._group is not None:
            with suppress(RuntimeError):
                empty = torch.empty(1, dtype=torch.uint8)
                self._group.recv([empty], 0, 1).wait(timedelta(seconds=seconds))


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
            timeout: timedelta = group._get_backend(torch.device(device)).options._timeout
            return timeout
    return None


def _store_of_all() -> Any:
    """Return the store by which the program's group found each other; None where it is not known."""
    with suppress(AttributeError, RuntimeError, ValueError):
        return dist.distributed_c10d._get_default_store()
    return None


def _sendable(data: Bytes) -> Bytes:
    """Return data as PyTorch takes it: one after the other, in memory that may be written to."""
    return np.require(data, requirements=["C", "W"])


def _leave(communicator: TorchCommunicator) -> None:
    """Report that the process ends, and end what PyTorch would warn of."""
    if dist.is_initialized():
        failed = has_failed(communicator)
        leave(communicator)
        if not failed:  # all ranks have met, so none waits for another one in an exchange
            communicator.end_nccl()
        if has_failed(communicator):
            communicator.wait_for_first()
