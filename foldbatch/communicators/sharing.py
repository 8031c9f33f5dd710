"""Sharing: values of all ranks, errors that all ranks learn of, and cores that ranks share."""

import os
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar
from weakref import WeakSet

import numpy as np

from foldbatch.communicators.communicator import Communicator
from foldbatch.errors import ProcessError

T = TypeVar("T")
_FAILED: Final[WeakSet[Communicator]] = WeakSet()  # communicators of which all ranks know of a failure
TOLD: Final = "__told_to_all_ranks__"  # an attribute of errors


def share(communicator: Communicator, value: T) -> list[T]:
    """Return the values of all ranks, in the order of ranks.

    Values are pickled; all ranks run the same program, so they may trust each other.

    Raises:
        ProcessError: when another rank has failed (see `together`) or ended.

    >>> from foldbatch.communicators.communicator import in_threads
    >>> in_threads(lambda communicator: share(communicator, "abc"[communicator.rank]), 3)[1]
    ['a', 'b', 'c']
    """
    if communicator.size == 1:
        return [value]
    return _exchanged(communicator, value, None)


def from_first(communicator: Communicator, value: T | None) -> T:
    """Return the value of rank 0; those of the other ranks are not looked at.

    Raises:
        ProcessError: when another rank has failed or ended.
    """
    first: T = share(communicator, value if communicator.rank == 0 else None)[0]  # type: ignore[assignment]
    return first


@contextmanager
def together(communicator: Communicator) -> Iterator[None]:
    """Let an error that leaves the ``with`` statement reach all ranks, at their next exchange.

    So no rank waits for one that has failed. The others raise a `ProcessError` that says which rank it was,
    and why.

    >>> from foldbatch.communicators.communicator import in_threads
    >>> def work(communicator):
    ...     try:
    ...         with together(communicator):
    ...             if communicator.rank:
    ...                 raise ValueError("a bad example")
    ...             share(communicator, None)
    ...     except ProcessError as error:
    ...         return str(error)
    ...     except ValueError:
    ...         return "failed"
    >>> for line in in_threads(work, 2):
    ...     print(line)
    rank 1: expected a process that goes on, found ValueError: a bad example; mend that, and go on
    failed
    """
    before = sys.exc_info()[1]  # which the caller handles, so it is of an earlier try
    try:
        yield
    except BaseException as error:
        if communicator.size > 1 and not is_known(error, before):
            told(error)
            try:
                _exchanged(communicator, None, f"{type(error).__name__}: {error}".rstrip(": "))
            except ProcessError as other:  # several fail at once, or another one has ended
                error.add_note(f"beside this error: {other}")
        raise


def is_known(error: BaseException, before: BaseException | None = None) -> bool:
    """Return whether all ranks know of an error, or of one during whose handling it was raised."""
    return any(map(is_told, _causes(error, before)))


def leave(communicator: Communicator) -> None:
    """Tell the others, where a process ends, that it does: whoever waits for it would wait for ever.

    Where all end, they meet here. Where an error was told before, nobody waits.

    >>> from foldbatch.communicators.communicator import in_threads
    >>> def work(communicator):
    ...     try:
    ...         return leave(communicator) if communicator.rank else share(communicator, None)
    ...     except ProcessError as error:
    ...         return str(error)
    >>> in_threads(work, 2)
    ['rank 1: expected a process that goes on, found one that has ended; mend that, and go on', None]
    """
    if communicator not in _FAILED:
        with suppress(ProcessError):
            _exchanged(communicator, None, "one that has ended")


def _causes(error: BaseException | None, before: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those during whose handling it was raised, up to an earlier one.

    The others have left when an error is told, so whatever is raised while one is handled must not be told.
    """
    while error is not None and error is not before:
        yield error
        error = error.__context__


def told(error: BaseException) -> None:
    """Mark an error of which all ranks know."""
    setattr(error, TOLD, True)


def is_told(error: BaseException) -> bool:
    """Return whether all ranks know of an error; of each other's errors they do."""
    return isinstance(error, ProcessError) or getattr(error, TOLD, False)


def cores(communicator: Communicator) -> int:
    """Return how many cores this rank may use: its own, or its part of those that ranks of a machine share.

    >>> from foldbatch.communicators.communicator import Alone
    >>> cores(Alone()) >= 1
    True
    """
    affinity = getattr(os, "sched_getaffinity", None)
    own = frozenset(affinity(0)) if affinity else frozenset(range(os.cpu_count() or 1))
    places = share(communicator, (os.uname().nodename, own))
    sharing = [host for host, theirs in places if host == places[communicator.rank][0] and theirs & own]
    return max(1, len(own) // len(sharing))


def _exchanged(communicator: Communicator, value: Any, failure: str | None) -> list[Any]:
    data = np.frombuffer(pickle.dumps((failure, value), pickle.HIGHEST_PROTOCOL), np.uint8)
    answers = [pickle.loads(answer.data) for answer in communicator.all_gather(data)]  # noqa: S301 - our own
    if any(other is not None for other, _ in answers):
        _FAILED.add(communicator)
    for rank, (other, _) in enumerate(answers):
        if other is not None and rank != communicator.rank:
            fix = "mend that, and go on"
            raise ProcessError(f"rank {rank}", "a process that goes on", other, fix)
    return [answer for _, answer in answers]
