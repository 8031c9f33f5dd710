"""Communicator: what training needs of the library that connects its processes.

Values and errors of all ranks, and the cores they share; one process alone is a communicator, too.
"""

import os
import pickle
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Final, NoReturn, Protocol, TypeVar
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import ProcessError

Bytes = NDArray[np.uint8]


class Communicator(Protocol):
    """The processes of a training, as one of them sees the others.

    Three methods suffice. `all_gather` is for what differs in size from rank to rank: losses, rows of
    embeddings, figures. `all_to_all` is one half of a sum of large gradients, of which each rank adds one
    slice; `all_gather` is the other half. `abort` is for an error after which the others would wait in vain.

    All ranks must call `all_gather` and `all_to_all` in the same order, from one thread at a time. Both raise
    `ProcessError` when another process has ended; so does what is built on them.
    """

    rank: int  # the number of this process, from 0
    size: int  # how many processes there are

    def all_gather(self, data: Bytes, sizes: Sequence[int] | None = None) -> list[Bytes]:
        """Return the bytes of all ranks, in the order of ranks.

        Args:
            data: ``[n] uint8``, of this rank.
            sizes: how many bytes each rank gives, where all ranks know them; else they are asked first.
        """

    def all_to_all(self, data: Bytes, sizes: Sequence[int]) -> list[Bytes]:
        """Send one part to each rank; return the parts sent to this rank, in the order of their senders.

        Args:
            data: ``[sum(sizes)] uint8``: the parts, in the order of ranks.
            sizes: of the part for each rank; the same on all ranks.
        """

    def abort(self, reason: str) -> NoReturn:
        """End this process, and let the others end too.

        Raises:
            ProcessError: with the reason, where the library cannot end processes at once.
        """


class DeviceCommunicator(Communicator, Protocol):
    """A communicator that exchanges arrays in the memory of devices, too, without a copy on the host.

    A communicator need not be one: else `foldbatch.train.DataParallel` copies gradients to the host. Arrays
    are those of the device's library; `stream` is the address of the stream that computes them, None where
    they are ready. What is enqueued on this stream later finds the result. Both methods must be called, and
    fail, as those of a `Communicator`.
    """

    def reaches(self, array: Any) -> bool:
        """Return whether arrays that lie where this one does can be exchanged."""

    def all_to_all_there(self, target: Any, source: Any, stream: int | None) -> None:
        """Send each rank its part of an array; fill another one with the parts sent to this rank.

        Args:
            target: ``[size * n]``, for the parts in the order of their senders.
            source: ``[size * n]``: `size` parts of n numbers, in the order of ranks.
            stream: see above.
        """

    def all_gather_there(self, target: Any, source: Any, stream: int | None) -> None:
        """Fill an array with those of all ranks, in the order of ranks.

        Args:
            target: ``[size * n]``.
            source: ``[n]``, of this rank.
            stream: see above.
        """


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
        raise ended("rank 0 of 1", reason)


def ended(where: str, reason: str) -> ProcessError:
    """Return the error of a rank that cannot go on."""
    return ProcessError(where, "all processes to go on", reason, "look at what the others say")


T = TypeVar("T")
_FAILED: Final[WeakSet[Communicator]] = WeakSet()  # communicators of which all ranks know of a failure
SHARED_ERROR: Final = "__told_to_all_ranks__"  # an attribute of errors


def share(communicator: Communicator, value: T) -> list[T]:
    """Return the values of all ranks, in the order of ranks.

    Values are pickled; all ranks run the same program, so they may trust each other.

    >>> share(Alone(), "a")
    ['a']
    """
    if communicator.size == 1:
        return [value]
    return _exchanged(communicator, value, None)


def from_first(communicator: Communicator, value: T | None) -> T:
    """Return the value of rank 0; those of the other ranks are not looked at."""
    first: T = share(communicator, value if communicator.rank == 0 else None)[0]  # type: ignore[assignment]
    return first


@contextmanager
def together(communicator: Communicator) -> Iterator[None]:
    """Let an error that leaves the ``with`` statement reach all ranks, at their next exchange.

    So no rank waits for one that has failed. The others raise a `ProcessError` that says which rank it was,
    and why.
    """
    before = sys.exc_info()[1]  # which the caller handles, so it is of an earlier try
    try:
        yield
    except BaseException as error:
        if communicator.size > 1 and not is_known(error, before):
            mark_as_shared(error)
            try:
                _exchanged(communicator, None, _text_of(error))
            except ProcessError as second:  # several fail at once, or another one has ended
                error.add_note(f"beside this error: {second}")
        raise


def is_known(error: BaseException, before: BaseException | None = None) -> bool:
    """Return whether all ranks know of an error, or of one during whose handling it was raised."""
    return any(map(is_told, _causes(error, before)))


def leave(communicator: Communicator) -> None:
    """Report to the other ranks that this process ends, as a rank that waits for it would wait for ever.

    Where all end, they meet here. Where an error was told before, nobody waits.
    """
    if not has_failed(communicator):
        with suppress(ProcessError):
            _exchanged(communicator, None, "one that has ended")


def call_at_an_error(end: Callable[[str], None]) -> None:
    """Let an error that leaves the program be printed as ever, and `end` then be called with its text.

    It is not called for an error of which all ranks know: they end by themselves, when they have written a
    checkpoint, say.
    """
    printed = sys.excepthook

    def report(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        """Print an error as ever, and then end what it must end."""
        try:
            printed(kind, error, traceback)
            sys.stderr.flush()
        finally:
            if not is_known(error):
                end(_text_of(error))

    sys.excepthook = report


def _text_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


def has_failed(communicator: Communicator) -> bool:
    """Return whether all ranks know that one of them has failed."""
    return communicator in _FAILED


def _causes(error: BaseException | None, before: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those during whose handling it was raised, up to an earlier one.

    The others have left when an error is told, so whatever is raised while one is handled must not be told.
    """
    while error is not None and error is not before:
        yield error
        error = error.__context__


def mark_as_shared(error: BaseException) -> None:
    """Mark an error of which all ranks know."""
    setattr(error, SHARED_ERROR, True)


def is_told(error: BaseException) -> bool:
    """Return whether all ranks know of an error; of each other's errors they do."""
    return isinstance(error, ProcessError) or getattr(error, SHARED_ERROR, False)


def cores(communicator: Communicator) -> int:
    """Return how many cores this rank may use: its own, or its part of those that ranks of a machine share.

    >>> cores(Alone()) >= 1
    True
    """
    affinity = getattr(os, "sched_getaffinity", None)
    local = frozenset(affinity(0)) if affinity else frozenset(range(os.cpu_count() or 1))
    places = share(communicator, (platform.node(), local))
    sharing = [host for host, peers in places if host == places[communicator.rank][0] and peers & local]
    return max(1, len(local) // len(sharing))


def _exchanged(communicator: Communicator, value: object, failure: str | None) -> list[Any]:
    """Return the values of all ranks; raise an error if another rank reports a failure."""
    data = np.frombuffer(pickle.dumps((failure, value), pickle.HIGHEST_PROTOCOL), np.uint8)
    answers = [pickle.loads(answer.data) for answer in communicator.all_gather(data)]  # noqa: S301 - our own
    if any(failed is not None for failed, _ in answers):
        _FAILED.add(communicator)
    for rank, (failed, _) in enumerate(answers):
        if failed is not None and rank != communicator.rank:
            fix = "mend that, and go on"
            raise ProcessError(f"rank {rank}", "a process that goes on", failed, fix)
    return [answer for _, answer in answers]
