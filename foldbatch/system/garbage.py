"""Python's garbage collector: a pause while very many objects are made, and objects that it leaves out."""

import gc


class _Pause:
    __slots__ = ("_enabled",)

    def __enter__(self) -> None:
        self._enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._enabled:
            gc.enable()


def no_garbage() -> _Pause:
    """Return a context in which Python does not look for cyclic garbage.

    The more objects there are, the more often Python looks, and the longer each time: where very many are
    made, the search may take most of the time.

    >>> with no_garbage():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    return _Pause()


def set_aside() -> None:
    """Look for cyclic garbage once, and leave what stays out of later looks until this is called again.

    A look through the objects of a compiled model takes a tenth of a second, in which no thread runs.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
