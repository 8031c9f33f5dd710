"""Interrupts: telling exceptions of signal handlers from errors of what they interrupt.

A handler that raises, such as a timeout's, raises in the midst of whatever runs. Its exception is nobody's
error, and whoever catches errors there hands it on as it is.
"""

from __future__ import annotations

from inspect import CO_VARARGS
from itertools import pairwise
from types import FrameType


def interrupted(error: BaseException) -> bool:
    """Return whether an exception came out of a handler of signals, which is given the frame it interrupts."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    return any(_is_given(inner, outer) for outer, inner in pairwise(frames))


def _is_given(frame: FrameType, other: FrameType) -> bool:
    """Return whether an argument of a function's frame is another frame, or a tuple of arguments with it."""
    code, known = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & CO_VARARGS)
    given = [known.get(name) for name in code.co_varnames[:count]]
    return any(x is other or (type(x) is tuple and any(y is other for y in x)) for x in given)
