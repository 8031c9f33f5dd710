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
from typing import Any, TypeAlias

from foldbatch.errors import WalkError
from foldbatch.functions import notes
from foldbatch.operators import OUTSIDE


@dataclass(eq=False, slots=True)
class Walked:
    """An example under way."""

    place: int  # its place among the examples under way
    number: int  # its number in the batch, for errors
    began: int  # the round in which it began
    result: Any = None  # the result of its walk, once that has ended
    error: Exception | None = None  # the exception of its walk, in a run that goes on after one


class Fork:
    """Parts of a walk that are to run side by side; awaiting a fork yields their results, in a tuple."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[object, ...]) -> None:
        self.parts = parts  # functions without arguments, or coroutines

    def __await__(self) -> Generator[Fork, Any, tuple[Any, ...]]:
        """Wait until all parts have ended, and return their results."""
        return tuple((yield self))


@dataclass(eq=False, slots=True)
class Join:
    """The state of a fork whose parts are under way."""

    fiber: Fiber  # the fiber that waits for the parts
    results: list[object]  # the results of parts, in their order; None for one that has not ended
    remaining: int  # how many parts have not ended
    error: Exception | None = None  # the exception of a part


class Fiber:
    """A walk, or a part of one, that can stop.

    Args:
        walked: the example that it belongs to.
        part: the function or the coroutine that it runs.
        arguments: the arguments of the function, at most one.
        join: the state of the fork that it is a part of; None for a walk.
        place: the index of its result in `join`.

    Attributes:
        switch: lets it go on, given the answer to its request; returns its next request, a `Value` or a
            `Fork`, or None at its end.
        throw: the same, given an exception to raise in it.
        result: the result of the function or coroutine; before its end, the fork that it waits for, if any.
        stops: whether it can wait anywhere, as a greenlet can, and not only at an await.
    """

    __slots__ = ("arguments", "join", "part", "place", "result", "stops", "switch", "throw", "walked")

    def __init__(
        self,
        walked: Walked,
        part: Any,
        arguments: tuple[object, ...],
        join: Join | None = None,
        place: int = 0,
    ) -> None:
        self.walked = walked
        self.part = part
        self.arguments = arguments
        self.join = join
        self.place = place
        self.result: Any = None
        self.switch: Callable[[Any], Any]
        self.throw: Callable[[Any], Any]
        kind, coroutine = greenlets(), isinstance(part, CoroutineType)
        self.stops = kind is not None and not coroutine
        if coroutine:
            self.switch = partial(self._resume_coroutine, part.send)
            self.throw = partial(self._resume_coroutine, part.throw)
        elif kind is None:
            self.switch = self.throw = self.run
        else:
            greenlet = _waiting(kind)
            greenlet.parent, greenlet.gr_context, greenlet.fiber = kind.getcurrent(), copy_context(), self
            self.switch, self.throw = greenlet.switch, greenlet.throw

    def end(self) -> None:
        """End the fiber for good: a greenlet that waits would be kept, a coroutine not begun be warned of."""
        for part in (self.part, *(self.result.parts if isinstance(self.result, Fork) else [self.result])):
            if isinstance(part, CoroutineType) and getcoroutinestate(part) == CORO_CREATED:
                part.close()
        greenlet: Greenlet = getattr(self.switch, "__self__", None)
        if self.stops and greenlet.fiber is self:  # else the greenlet runs another fiber by now
            greenlet.fiber = None
            with suppress(Exception):  # an exception of the walk's own clean-up
                greenlet.throw()

    def over(self) -> Exception | None:
        """Return the error that has ended its example or its fork; None as long as it may go on."""
        if self.walked.error is not None or self.join is None:
            return self.walked.error
        return self.join.error

    def run(self, _: object) -> None:
        """Run the function from its beginning."""
        self.result = self.part(*self.arguments)

    def _resume_coroutine(self, send_or_throw: Callable[[Any], object], argument: object) -> Any:
        """Let the fiber's coroutine run until it awaits or returns; return its request, None at its end.

        At the end the coroutine's result is kept in `result`.

        Args:
            send_or_throw: the method `send` or `throw` of the coroutine.
            argument: the answer to its last request, or the exception to raise in it.
        """
        try:
            return send_or_throw(argument)
        except StopIteration as stop:
            self.result = stop.value
            return None


IDLE = 256  # greenlets of a thread that wait for a walk


class _Idle(local):
    """The idle greenlets of a thread, kept as making one takes longer than a walk of a few calls."""

    def __init__(self) -> None:
        self.greenlets: list[Greenlet] = []


_idle = _Idle()


Greenlet: TypeAlias = Any  # of the library greenlet, which has no types


def _work(greenlet: Greenlet) -> None:
    """Run in a greenlet, given that itself, one fiber after the other; an exception of a fiber ends it."""
    while True:
        greenlet.parent.switch(None)
        fiber = greenlet.fiber
        # not with a star, which takes more of the machine's stack, and switches copy that
        fiber.result = fiber.part(fiber.arguments[0]) if fiber.arguments else fiber.part()
        if len(_idle.greenlets) >= IDLE:
            return
        _idle.greenlets.append(greenlet)
        fiber = greenlet.fiber = None  # a fiber holds its example


def _waiting(kind: Callable[[Callable[[Greenlet], None]], Greenlet]) -> Greenlet:
    """Return a greenlet that waits to be given a fiber, an idle one or a new one; `kind` is their class."""
    while _idle.greenlets:
        if greenlet := _idle.greenlets.pop():  # else an interrupt has ended it
            return greenlet
    greenlet = kind(_work)
    greenlet.switch(greenlet)  # it keeps its first argument to its end
    return greenlet


@cache
def greenlets() -> Greenlet:
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
        raise WalkError("fb.together", "a call in a walk", "one elsewhere", OUTSIDE)
    if sys._getframe(1).f_code.co_flags & CO_COROUTINE:
        return Fork(parts)
    fork = notes.forking()
    if fork is not None:
        return tuple(fork(Fork(parts)))
    return tuple([part() for part in parts])


def finished(part: object) -> object:
    """Return the result of a part of a walk, a function or a coroutine, whose values have numbers already."""
    result = part() if callable(part) else part
    if not isinstance(result, CoroutineType):
        return result
    answer: object = None
    try:
        while True:
            asked = result.send(answer)
            answer = tuple(map(finished, asked.parts)) if isinstance(asked, Fork) else None
    except StopIteration as stop:
        return stop.value
