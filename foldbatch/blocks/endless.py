"""Endless: examples that contain themselves, or make more calls than they may."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from types import GeneratorType
from typing import Any, TypeAlias

from foldbatch.blocks.drafts import Procedure
from foldbatch.types import TensorType

Steps: TypeAlias = "GeneratorType[Any, Any, tuple[Any, ...]]"


class TooManyCallsError(Exception):
    """An example makes more calls than it may."""


def call_numbers(calls: int, width: int) -> Iterator[int]:
    """Return the numbers of an example's calls, `width` values each, and one number more.

    Raises:
        TooManyCallsError: when another number is asked for.

    >>> list(zip(range(3), call_numbers(2, 10)))
    [(0, 0), (1, 10), (2, 20)]
    """
    stop = min(calls * width + 1, 2**31 - width)
    return chain(range(0, stop, width), _too_many())


def _too_many() -> Iterator[int]:
    raise TooManyCallsError
    yield


def cycle(stack: Sequence[Steps], functions: Sequence[Procedure]) -> int | None:
    """Return the place of the first call in a stack whose objects an earlier call of its function has too.

    What a function does depends on the objects that it is given, and never on tensors. So such a call never
    ends, unless an object is an iterator, which changes as it is read.
    """
    objects = {
        f.name: [slot.code for slot in f.parameters if not isinstance(slot.type, TensorType)]
        for f in functions
    }
    seen: set[tuple[object, ...]] = set()
    for place, steps in enumerate(stack):
        frame = steps.gi_frame
        assert frame is not None, "a call on the stack is not done"
        name, scope = frame.f_code.co_name, frame.f_locals
        arguments = [scope[code] for code in objects[name]]
        if not arguments or any(hasattr(x, "__next__") for x in arguments):
            continue
        call = (name, *map(id, arguments))
        if call in seen:
            return place
        seen.add(call)
    return None
