"""A pause for Python's garbage collector, while very many small objects are made and all are needed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage() -> Iterator[None]:
    """Return a context in which Python does not look for cyclic garbage.

    The more objects there are, the more often Python looks, and the longer each time: where very many are
    made, the search may take most of the time.

    >>> with no_garbage():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
