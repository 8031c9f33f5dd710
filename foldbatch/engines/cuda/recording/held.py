"""Buffers of one driver in the hands of another, which learns when nobody holds them any more."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from foldbatch.engines.cuda.drivers.driver import Buffer


class Held:
    """A buffer that stands for one of another driver; see `driver.Buffer`.

    Args:
        inner: the other driver's buffer.
        pointer: the address of this one, which lies in `inner`.
        nbytes: its size.
        freed: called when nobody holds this buffer any more.
    """

    __slots__ = ("__weakref__", "inner", "nbytes", "pointer")

    def __init__(self, inner: Buffer, pointer: int, nbytes: int, freed: Callable[[], object]) -> None:
        self.inner = inner
        self.pointer = pointer
        self.nbytes = nbytes
        call_when_gone(self, freed)

    def lend(self, array: Any) -> Any:
        """Return an array over this buffer, which holds it from now on."""
        weakref.finalize(array, lambda buffer: None, self).atexit = False
        return array


def call_when_gone(thing: object, gone: Callable[[], object]) -> None:
    """Call a function when nobody holds `thing` any more; for an array, nor a view of it."""
    weakref.finalize(owner_of(thing), gone).atexit = False


def owner_of(thing: Any) -> Any:
    """Return the array that all views of an array hold; of anything else, itself."""
    return thing.base if isinstance(thing, np.ndarray) and isinstance(thing.base, np.ndarray) else thing
