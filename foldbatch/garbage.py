"""The search for garbage, spared while very many small objects are made, none of which is any."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage() -> Iterator[None]:
    """Return a context in which Python does not look for cyclic garbage: that may take most of the time.

    It looks the more often, and at the more, the more objects there are.

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
