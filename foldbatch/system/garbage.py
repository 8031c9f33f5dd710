"""Python's garbage collector: a pause while very many objects are made, and objects that it leaves out."""

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


def set_aside() -> None:
    """Look for cyclic garbage once, and leave what stays out of later looks until this is called again.

    A look through the objects of a compiled model takes a tenth of a second, in which no thread runs.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
