"""Suspended: walks that stop where they ask for a number, and go on when it is there.

A *fiber* is a walk, or a part of one that `together` has begun, that can stop anywhere: a greenlet, or a
coroutine where the walk is an ``async def``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import cache, partial
from inspect import CO_COROUTINE, CORO_CREATED, getcoroutinestate
from threading import local
from types import CoroutineType
from typing import Any

from foldbatch.errors import WalkError
from foldbatch.functions import notes


@dataclass(eq=False, slots=True)
class Walked:
    """An example under way."""

    place: int  # in the list of examples
    number: int  # in the batch, for errors
    began: int  # in which round
    result: Any = None  # what its walk has returned
    error: Exception | None = None  # what its walk has raised, where others go on


class Fork:
    """Parts of a walk that go on side by side; awaiting it yields their results."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.parts = parts  # functions without arguments, or coroutines

    def __await__(self) -> Generator[Fork, Any, tuple[Any, ...]]:
        """Wait until all parts have ended."""
        return tuple((yield self))


@dataclass(eq=False, slots=True)
class Join:
    """Where the parts of a fork meet: who waits, results, how many are under way, what one has raised."""

    fiber: Fiber
    results: list[Any]
    left: int
    error: Exception | None = None


class Fiber:
    """A walk, or a part of one, that can stop.

    Args:
        walked: whose it is.
        part: a function, or a coroutine.
        given: the arguments of the function, one or none.
        join: where its result goes; None of a walk.
        place: where there.

    Attributes:
        switch: goes on with what was asked for, until it asks for something again: a `Value` or a `Fork`;
            None at the end.
        throw: goes on with an error.
        result: what it has returned, or the fork that it waits for.
        stops: whether it can stop without await.
    """

    __slots__ = ("given", "join", "part", "place", "result", "stops", "switch", "throw", "walked")

    def __init__(
        self, walked: Walked, part: Any, given: tuple[Any, ...], join: Join | None = None, place: int = 0
    ) -> None:
        self.walked, self.part, self.given, self.join, self.place = walked, part, given, join, place
        self.result: Any = None
        self.switch: Callable[[Any], Any]
        self.throw: Callable[[Any], Any]
        kind, coroutine = greenlets(), isinstance(part, CoroutineType)
        self.stops = kind is not None and not coroutine
        if coroutine:
            self.switch, self.throw = partial(self._awaited, part.send), partial(self._awaited, part.throw)
        elif kind is None:
            self.switch = self.throw = self.run
        else:
            greenlet = _waiting(kind)
            greenlet.parent, greenlet.gr_context, greenlet.fiber = kind.getcurrent(), copy_context(), self
            self.switch, self.throw = greenlet.switch, greenlet.throw

    def end(self) -> None:
        """Let it go on no more: greenlets that wait would be kept, coroutines not begun be warned of."""
        for part in (self.part, *(self.result.parts if isinstance(self.result, Fork) else [self.result])):
            if isinstance(part, CoroutineType) and getcoroutinestate(part) == CORO_CREATED:
                part.close()
        greenlet: Any = getattr(self.switch, "__self__", None)
        if self.stops and greenlet.fiber is self:  # else it has ended, and another one may use its greenlet
            greenlet.fiber = None
            with suppress(Exception):  # of what the walk does at its end
                greenlet.throw()

    def over(self) -> Exception | None:
        """Return the error that has ended its example, or another part of its fork, if there is one."""
        if self.walked.error is not None or self.join is None:
            return self.walked.error
        return self.join.error

    def run(self, _: Any) -> None:
        """Run the function from its beginning."""
        self.result = self.part(*self.given)

    def _awaited(self, go_on: Callable[[Any], Any], sent: Any) -> Any:
        try:
            return go_on(sent)
        except StopIteration as stop:
            self.result = stop.value
            return None


IDLE = 256  # greenlets of a thread that wait for a walk


class _Idle(local):
    """Greenlets of a thread that have ended a walk: to make one takes longer than a walk of a few calls."""

    def __init__(self) -> None:
        self.greenlets: list[Any] = []


_idle = _Idle()


def _work(greenlet: Any) -> None:
    """Do one part of a walk after the other, in a greenlet, given itself; an exception ends it."""
    while True:
        greenlet.parent.switch(None)
        fiber = greenlet.fiber
        # not with a star, which takes more of the machine's stack, and switches copy that
        fiber.result = fiber.part(fiber.given[0]) if fiber.given else fiber.part()
        if len(_idle.greenlets) >= IDLE:
            return
        _idle.greenlets.append(greenlet)
        fiber = greenlet.fiber = None  # which holds the example


def _waiting(kind: Any) -> Any:
    """Return a greenlet that waits for a part of a walk, a new one if need be."""
    while _idle.greenlets:
        if greenlet := _idle.greenlets.pop():  # else an interrupt has ended it
            return greenlet
    greenlet = kind(_work)
    greenlet.switch(greenlet)  # what it is first given it holds to its end
    return greenlet


@cache
def greenlets() -> Any:
    """Return the class of greenlets; None where the package is not installed."""
    try:
        from greenlet import greenlet  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    return greenlet


def together(*parts: Any) -> Any:
    """Do several parts of a walk side by side: where each waits for a number, they wait together.

    So a tree that grows by numbers grows in rounds of its depth, not of its nodes. In an ``async def`` the
    result is to be awaited.

    Args:
        parts: functions without arguments; in an ``async def`` coroutines, or functions that return some.

    Returns:
        Their results, in a tuple.

    Raises:
        WalkError: when no walk runs.

    >>> def halvings(x):
    ...     return 0 if float(x) < 1 else 1 + halvings(x * 0.5)
    >>> def walk(numbers):
    ...     return list(fb.together(*[lambda x=x: halvings(fb.tensor(x)) for x in numbers]))
    >>> fb.compile(walk, "numpy").run([[1.0, 5.0], []])
    [[1, 3], []]
    """
    if not notes.running():
        raise WalkError("fb.together", "a call in a walk", "one elsewhere", notes.OUTSIDE)
    if sys._getframe(1).f_code.co_flags & CO_COROUTINE:
        return Fork(parts)
    fork = notes.forking()
    if fork is not None:
        return tuple(fork(Fork(parts)))
    return tuple([part() for part in parts])


def finished(part: Any) -> Any:
    """Return the result of a function without arguments, or of a coroutine, that has all numbers at once."""
    result = part() if callable(part) else part
    if not isinstance(result, CoroutineType):
        return result
    answer: Any = None
    try:
        while True:
            asked = result.send(answer)
            answer = tuple(map(finished, asked.parts)) if isinstance(asked, Fork) else None
    except StopIteration as stop:
        return stop.value
