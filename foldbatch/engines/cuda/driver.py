"""The few calls by which the CUDA engine drives a GPU: memory, copies, launches, products, graphs, events.

`cupy_driver` does it on a GPU. Everything is enqueued on a stream and done later, in that stream's order;
only `Driver.synchronize` waits. An address is a whole number; 0 is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from foldbatch.params.parameters import Array

Stream = Any  # what `Driver.stream` returns
Event = Any  # what `Driver.event` returns
Function = Any  # a kernel, as `Driver.load` finds it
Graph = Any  # what `Driver.end_capture` returns

HEADER = Path(__file__).with_name("device.h")  # what every text begins after
MAX_THREADS = 1024  # of a block, at most
ARGUMENTS = 16  # of a kernel, at most: each is a whole number of 64 bits


class DeviceBuffer(Protocol):
    """Memory of the device. When nobody holds it any more it is free for what is enqueued later."""

    pointer: int  # its address, a multiple of 256
    nbytes: int  # its size


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """Matrix products ``C = A B``, or ``C += A B`` where `adds`: `count` of them, side by side.

    Matrices lie row by row: A is ``[m, k]``, B ``[k, n]``, C ``[m, n]``. Where `a_across`, A lies as
    ``[k, m]``; where `b_across`, B lies as ``[n, k]``.
    """

    dtype: str  # ``float32`` or ``float64``
    m: int  # rows of A
    n: int  # columns of B
    k: int  # columns of A
    a: int  # address of the first A
    b: int  # address of the first B
    c: int  # address of the first C
    a_lead: int  # elements from one row of A, as it lies, to the next; at least the length of such a row
    b_lead: int  # the same of B
    c_lead: int  # the same of C
    a_across: bool = False  # whether A lies across
    b_across: bool = False  # whether B lies across
    adds: bool = False  # whether the products are added to what C holds; else C need hold nothing
    count: int = 1  # how many products
    a_step: int = 0  # elements from one A to the next; 0 where all are the same
    b_step: int = 0  # the same of B
    c_step: int = 0  # the same of C


class Driver(Protocol):
    """A GPU, or what stands for one."""

    name: str  # of the device, for people
    identity: str  # of the device, on all machines; empty where it is the CPU

    def allocate(self, nbytes: int) -> DeviceBuffer:
        """Return memory with any content.

        Raises:
            DeviceMemoryError: when the device has too little memory left.
        """

    def pinned(self, nbytes: int) -> Array:
        """Return memory of the host that copies go to and from while the host goes on: ``[nbytes] uint8``."""

    def stream(self) -> Stream:
        """Return a new stream. Streams run side by side, but for events."""

    def event(self) -> Event:
        """Return a new event."""

    def record(self, event: Event, stream: Stream) -> None:
        """Let an event happen when all that was enqueued on the stream so far is done."""

    def wait(self, stream: Stream, event: Event) -> None:
        """Let what is enqueued on the stream from now on wait for an event that was recorded."""

    def synchronize(self, event: Event) -> None:
        """Wait until an event that was recorded has happened."""

    def copy_in(self, pointer: int, source: Array, stream: Stream) -> None:
        """Copy pinned memory of the host, ``[n] uint8``, to the device."""

    def copy_out(self, target: Array, pointer: int, stream: Stream) -> None:
        """Copy from the device to pinned memory of the host, ``[n] uint8``."""

    def copy(self, target: int, source: int, nbytes: int, stream: Stream) -> None:
        """Copy from one place of the device to another; they do not overlap."""

    def fill(self, pointer: int, byte: int, nbytes: int, stream: Stream) -> None:
        """Set bytes of the device, all to one value."""

    def load(self, source: str) -> Callable[[str], Function]:
        """Compile the text of kernels, or read its compiled form from the disk; return its kernels.

        Args:
            source: the text, without ``device.h``, which the driver puts before it.

        Returns:
            A function from the name of a kernel to the kernel.

        Raises:
            BackendError: when no compiler is found.
        """

    def launch(
        self,
        function: Function,
        blocks: int,
        threads: tuple[int, int],
        arguments: Sequence[int],
        stream: Stream,
    ) -> None:
        """Run a kernel on so many blocks of ``threads = (x, y)``; `arguments` are all of its parameters."""

    def multiply(self, product: MatrixProduct, stream: Stream) -> None:
        """Do matrix products."""

    def begin_capture(self, stream: Stream) -> None:
        """Keep what is enqueued on a stream from now on, and do nothing of it.

        Until `end_capture`, the thread that captures may enqueue launches, products, fills and copies within
        the device. It may allocate nothing, load nothing and wait for nothing, and use no events.
        """

    def end_capture(self, stream: Stream) -> Graph:
        """Return the launches since `begin_capture` as a graph, which does not hold the memory it uses."""

    def replay(self, graph: Graph, stream: Stream) -> None:
        """Run all that a graph kept, in the same order, in one launch; the stream may be any."""

    def clock(self, stream: Stream) -> Any:
        """Return a clock that tells when streams reach a point; waits for the work of a stream until now.

        Its ``mark(stream)`` is made when all is done that a stream has to do now; ``seconds(mark)`` is when
        that was, as `time.perf_counter` would have told.
        """

    def array(self, buffer: Any, shape: tuple[int, ...], dtype: str) -> Any:
        """Return an array over a buffer: one of CuPy on a GPU, one of NumPy on the CPU."""
