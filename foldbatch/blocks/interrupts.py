"""Interrupts: recognising exceptions that no example has caused, such as those of signal handlers.

A handler that raises, such as that of a timeout, interrupts any code that runs. Code that catches errors of
examples passes such an exception on as it is.
"""

from __future__ import annotations

from inspect import CO_VARARGS
from itertools import pairwise
from traceback import walk_tb
from types import FrameType
from typing import Any

import numpy as np

from foldbatch.errors import BackendError
from foldbatch.model.columns import BadDataError
from foldbatch.trees import Tree, TreeNode

PLAIN = (str, int, float, bool, bytes, type(None), np.ndarray, Tree, TreeNode)


def interrupted(error: BaseException) -> bool:
    """Return whether an exception came out of a signal handler, or reports a missing resource of the process.

    A handler is given the frame that it interrupts.
    """
    if isinstance(error, BackendError):
        return True
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    return any(_has_argument(inner, outer) for outer, inner in pairwise(frames))


def _has_argument(frame: FrameType, interrupted_frame: FrameType) -> bool:
    """Whether a function has a frame as an argument, directly or in a tuple of variable arguments."""
    code, variables = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & CO_VARARGS)
    arguments = [variables.get(name) for name in code.co_varnames[:count]]
    return any(
        x is interrupted_frame or (type(x) is tuple and any(y is interrupted_frame for y in x))
        for x in arguments
    )


def is_accident(error: Exception, example: object) -> bool:
    """Return whether an error that did not happen again cannot have come of an example.

    Our own code raised it, or the tracing program, and the example is plain data. So memory was short, or
    another thread has sent an exception.
    """
    if isinstance(error, BadDataError) or not _is_plain(example):
        return False
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    if not frames:
        return False
    file, name = frames[-1].f_code.co_filename, frames[-1].f_globals.get("__name__")
    return file.startswith("<foldbatch ") or str(name).startswith("foldbatch.")


def _is_plain(example: Any) -> bool:
    """Return whether an object is plain data: reading does not change it, and runs no code of the user."""
    waiting, seen = [example], set()
    while waiting:
        part = waiting.pop()
        if type(part) in (list, tuple, dict):
            if id(part) not in seen:
                seen.add(id(part))
                waiting += part.values() if type(part) is dict else part
        elif type(part) not in PLAIN:
            return False
    return True
