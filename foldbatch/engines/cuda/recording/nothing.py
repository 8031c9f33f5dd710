"""A driver that does nothing, for records of what an engine asks of a GPU: without memory or a compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from foldbatch.engines.cuda.drivers.driver import Buffer, Product, Touched
from foldbatch.params import Array

ALIGNMENT = 256


class NoBuffer:
    """An address without memory; see `driver.Buffer`."""

    __slots__ = ("__weakref__", "nbytes", "pointer")

    def __init__(self, pointer: int, nbytes: int) -> None:
        self.pointer = pointer
        self.nbytes = nbytes


class NoModule(NamedTuple):
    """Kernels that are not compiled; see `driver.Module`."""

    source: str

    def function(self, name: str) -> str:
        """Return the name."""
        return name


class Nothing:
    """A driver that does nothing; what is copied to the host is zero. See `driver.Driver`."""

    name = "no device"
    recording = False
    multiprocessors = 1

    def __init__(self) -> None:
        self._free = ALIGNMENT

    def allocate(self, nbytes: int) -> NoBuffer:
        buffer = NoBuffer(self._free, nbytes)
        self._free += -(-(nbytes + 1) // ALIGNMENT) * ALIGNMENT
        return buffer

    def pinned(self, nbytes: int) -> Array:
        return np.zeros(nbytes, np.uint8)

    def stream(self) -> None:
        pass

    def event(self) -> None:
        pass

    def record(self, event: Any, stream: Any) -> None:
        pass

    def wait(self, stream: Any, event: Any) -> None:
        pass

    def synchronize(self, event: Any) -> None:
        pass

    def copy_in(self, pointer: int, source: Array, stream: Any) -> None:
        pass

    def copy_out(self, target: Array, pointer: int, stream: Any) -> None:
        target[...] = 0

    def copy(self, target: int, source: int, nbytes: int, stream: Any) -> None:
        pass

    def fill(self, pointer: int, byte: int, nbytes: int, stream: Any) -> None:
        pass

    def load(self, source: str) -> NoModule:
        return NoModule(source)

    def launch(
        self,
        function: str,
        blocks: int,
        threads: tuple[int, int],
        arguments: Sequence[int],
        stream: Any,
        touched: Callable[[], Touched] | None = None,
    ) -> None:
        pass

    def blocks_together(self, function: str, threads: tuple[int, int]) -> int:
        return self.multiprocessors

    def launch_together(
        self,
        function: str,
        blocks: int,
        threads: tuple[int, int],
        arguments: Sequence[int],
        stream: Any,
        touched: Callable[[], Touched] | None = None,
    ) -> None:
        pass

    def multiply(self, product: Product, stream: Any) -> None:
        pass

    def multiply_at(self, product: Product, words: int, stream: Any) -> None:
        pass

    def begin_capture(self, stream: Any) -> None:
        pass

    def end_capture(self, stream: Any) -> None:
        pass

    def replay(self, graph: None, stream: Any, touched: Callable[[], Touched] | None = None) -> None:
        pass

    def array(self, buffer: Buffer, shape: tuple[int, ...], dtype: str) -> Array:
        return np.zeros(shape, dtype)
