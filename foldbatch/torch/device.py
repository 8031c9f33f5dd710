"""A card of PyTorch as a device of the engine: memory of PyTorch's allocator, work on its current stream.

The engine for CUDA asks a `Driver` for all that it does. `TorchDriver` answers by another driver, but takes
memory from PyTorch, so tensors and the engine's arrays are the same memory. `Card` is the only piece that
differs between a GPU and the stand-in of tests, whose memory is that of PyTorch's tensors on the CPU.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from math import prod
from typing import Any, Protocol

import numpy as np
import torch

from foldbatch.engines.cuda.cupy_driver import check, load_driver
from foldbatch.engines.cuda.device import CopyOut, Device, DeviceArray, Guard
from foldbatch.engines.cuda.driver import Stream
from foldbatch.engines.cuda.updates import OnDevice
from foldbatch.errors import BackendError, DeviceMemoryError
from foldbatch.params.parameters import Array, Parameter

ALIGNMENT = 256  # bytes
# by NumPy's dtype, as its names take long to find
DTYPES = {
    np.dtype(name): getattr(torch, name)
    for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
}
WATCHED = 64  # batches that run ahead of the host's look at whether they are bad


class Card(Protocol):
    """A device of PyTorch, and the driver that computes on it."""

    place: torch.device  # where its tensors lie
    backend: str  # the engine that computes on it, of `foldbatch.engines.engine.ENGINES`
    driver: Any  # a `Driver` that computes there; its memory and its first stream are not asked for
    pins: bool  # whether copies need memory of the host that is pinned
    name: str  # of the device, for people

    def current(self) -> tuple[int, Stream]:
        """Return PyTorch's current stream of the device: its number, and as the driver takes it."""

    def uses(self, tensor: torch.Tensor) -> None:
        """Let PyTorch know that the current stream uses memory of a tensor, which another one allocated."""

    def array(self, tensor: torch.Tensor) -> Any:
        """Return an array of the device's library over the memory of a tensor."""

    def prepare(self, stream: Stream) -> None:
        """Make ready a stream of the driver that is to be captured."""


class CudaCard:
    """A GPU that PyTorch computes on; see `Card`."""

    backend, pins = "cuda", True

    def __init__(self, number: int) -> None:
        self.place = torch.device("cuda", number)
        self._number = number
        self._cupy = check()
        with self._cupy.cuda.Device(number):
            self.driver = load_driver()
        self.name = f"{self.driver.name}, {self.place}"
        self._streams: dict[int, Stream] = {}

    def current(self) -> tuple[int, Stream]:
        """Return PyTorch's current stream, see `Card.current`.

        Raises:
            BackendError: while PyTorch captures it as a graph.
        """
        if torch.cuda.is_current_stream_capturing():
            fix = (
                "leave the module out of torch.cuda.graph; it captures its own with FOLDBATCH_LAUNCH=captured"
            )
            actual = "a capture, which would keep the shapes of one batch"
            raise BackendError("fb.torch.Module", "to be run", actual, fix)
        number = torch.cuda.current_stream(self._number).cuda_stream
        stream = self._streams.get(number)
        if stream is None:
            stream = self._streams[number] = self._cupy.cuda.ExternalStream(number, self._number)
        return number, stream

    def uses(self, tensor: torch.Tensor) -> None:
        """Let PyTorch's allocator know of a stream, see `Card.uses`."""
        tensor.record_stream(torch.cuda.current_stream(self._number))

    def array(self, tensor: torch.Tensor) -> Any:
        """Return an array of CuPy, see `Card.array`."""
        return self._cupy.asarray(tensor)

    def prepare(self, stream: Stream) -> None:
        """Make ready a stream, see `Card.prepare`."""
        self.driver.prepare(stream)


class TorchBuffer:
    """Memory that a tensor holds; see `foldbatch.engines.cuda.driver.DeviceBuffer`."""

    __slots__ = ("__weakref__", "_typed", "nbytes", "pointer", "tensor")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.pointer: int = tensor.data_ptr()
        self.nbytes: int = tensor.nbytes
        self._typed: dict[torch.dtype, torch.Tensor] = {}

    def typed(self, dtype: torch.dtype) -> torch.Tensor:
        """Return the memory as numbers of a dtype, as many as fit into it whole: ``[n]``."""
        typed = self._typed.get(dtype)
        if typed is None:
            memory = self.tensor.reshape(-1).view(torch.uint8)
            full = memory[: self.nbytes // dtype.itemsize * dtype.itemsize]
            typed = self._typed[dtype] = full.view(dtype)
        return typed


class TorchDriver:
    """The driver of a card, but for its memory, which is PyTorch's; see `foldbatch.engines.cuda.driver`."""

    def __init__(self, card: Card) -> None:
        self.card, self.name, self.identity = card, card.name, card.driver.identity
        inner = card.driver
        # bound here, so that a launch costs no call more
        self.launch, self.multiply, self.load, self.clock = (
            inner.launch,
            inner.multiply,
            inner.load,
            inner.clock,
        )
        self.copy_in, self.copy_out, self.copy, self.fill = (
            inner.copy_in,
            inner.copy_out,
            inner.copy,
            inner.fill,
        )
        self.event, self.record, self.wait = inner.event, inner.record, inner.wait
        self.synchronize, self.completed = inner.synchronize, inner.completed
        self.begin_capture, self.end_capture = inner.begin_capture, inner.end_capture
        self.replay = inner.replay
        self._streams = 0
        self.buffers: weakref.WeakSet[TorchBuffer] = weakref.WeakSet()  # all that somebody holds

    def stream(self) -> Stream:
        """Return PyTorch's current stream when first asked, where everything is computed; then new ones."""
        self._streams += 1
        return self.card.current()[1] if self._streams == 1 else self.card.driver.stream()

    def allocate(self, nbytes: int) -> TorchBuffer:
        """Return memory of PyTorch's allocator.

        Raises:
            DeviceMemoryError: when it has too little left.
        """
        return self.empty((nbytes,), torch.uint8)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> TorchBuffer:
        """Return memory that is a tensor with any content; errors are those of `allocate`."""
        try:
            tensor = torch.empty(shape, dtype=dtype, device=self.card.place)
            if tensor.data_ptr() % ALIGNMENT:  # as may be on the CPU
                tensor = _aligned(shape, dtype, self.card.place)
        except torch.OutOfMemoryError as error:
            raise self._short(prod(shape) * dtype.itemsize, error) from None
        buffer = TorchBuffer(tensor)
        self.buffers.add(buffer)
        return buffer

    def _short(self, nbytes: int, error: Exception) -> DeviceMemoryError:
        expected = f"{nbytes / 1e6:,.2f} MB more memory on {self.name}"
        fix = "take smaller batches, or free tensors; torch.cuda.empty_cache() gives back what PyTorch keeps"
        return DeviceMemoryError("backend cuda", expected, str(error).partition("\n")[0], fix)

    def pinned(self, nbytes: int) -> Array:
        """Return memory of the host that copies go to and from: ``[nbytes] uint8``."""
        memory: Array = torch.empty(nbytes, dtype=torch.uint8, pin_memory=self.card.pins).numpy()
        return memory

    def array(self, buffer: TorchBuffer, shape: tuple[int, ...], dtype: str) -> Any:
        """Return an array of the device's library over the memory of a buffer."""
        tensor = buffer.tensor.reshape(-1).view(getattr(torch, dtype)).reshape(shape)
        return self.card.array(tensor)


@cache
def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a tensor without gaps, in numbers.

    >>> strides((2, 3, 4))
    (12, 4, 1)
    """
    return tuple([prod(shape[axis + 1 :]) for axis in range(len(shape))])


def _aligned(shape: tuple[int, ...], dtype: torch.dtype, place: torch.device) -> torch.Tensor:
    """Return a tensor that begins at a multiple of `ALIGNMENT`."""
    nbytes = prod(shape) * dtype.itemsize
    memory = torch.empty(nbytes + ALIGNMENT, dtype=torch.uint8, device=place)
    start = -memory.data_ptr() % ALIGNMENT
    return memory[start : start + nbytes].view(dtype).view(shape)


class LivesThere(OnDevice):
    """A parameter's numbers in the memory of PyTorch's; see `foldbatch.params.parameters.DeviceCopy`."""

    __slots__ = ()
    stays = True


class WatchedBatch(Guard, Protocol):
    """A batch that was launched, and of which nobody has heard yet whether it is bad."""

    copy: CopyOut | None  # of what tells so; None where somebody has heard of it


class TorchDevice(Device):
    """A device whose memory is PyTorch's, and whose stream is PyTorch's current one."""

    driver: TorchDriver

    def __init__(self, card: Card) -> None:
        self.card = card
        self._current, _ = card.current()
        self._watched: deque[WatchedBatch] = deque()
        self._capturing: Stream | None = None  # the stream of captures
        super().__init__(TorchDriver(card))

    @property
    def place(self) -> torch.device:
        """Where its tensors lie."""
        return self.card.place

    def enter(self) -> None:
        """Let what comes run on PyTorch's current stream, and raise the error of a bad batch that has run."""
        self.follow()
        while self._watched:
            copy = self._watched[0].copy
            if copy is not None and len(self._watched) <= WATCHED and not self.driver.completed(copy.event):
                return
            self._watched.popleft().check()

    def watch(self, batch: WatchedBatch) -> None:
        """Look at whether a batch was bad when another one begins, as nobody waits for this one."""
        self.flush()
        self._watched.append(batch)

    def follow(self) -> None:
        """Let what comes run on PyTorch's current stream, behind what was launched on another one."""
        number, stream = self.card.current()
        if number == self._current:
            return
        with self.lock:
            self._current = number  # first, as what is due asks, too
            self.flush()
            event = self.driver.event()
            self.driver.record(event, self.stream)
            self.driver.wait(stream, event)
            self.stream = stream
            for buffer in [*self.driver.buffers]:
                self.card.uses(buffer.tensor)

    @contextmanager
    def capturing(self) -> Iterator[Stream]:
        """Let what is enqueued go to a stream of its own: PyTorch's default one cannot be captured."""
        with self.lock:
            if self._capturing is None:
                self._capturing = self.card.driver.stream()
                self.card.prepare(self._capturing)
            before, self.stream = self.stream, self._capturing
            try:
                yield self.stream
            finally:
                self.stream = before

    # -- arrays that are tensors

    def empty(self, shape: tuple[int, ...], dtype: str) -> DeviceArray:
        """Return an array with any content, whose memory is a tensor of its shape and dtype."""
        return DeviceArray(self, self.driver.empty(shape, DTYPES[np.dtype(dtype)]), shape, dtype)

    def tensor(self, array: DeviceArray) -> torch.Tensor:
        """Return the tensor that is an array's memory."""
        buffer: Any = array.buffer
        tensor: torch.Tensor = buffer.tensor
        dtype = DTYPES[array.dtype]
        if not array.offset and tensor.dtype == dtype and tuple(tensor.shape) == array.shape:
            return tensor
        numbers: torch.Tensor = buffer.typed(dtype)
        first = numbers.storage_offset() + array.offset // dtype.itemsize
        return numbers.as_strided(array.shape, strides(array.shape), first)

    def array(self, tensor: torch.Tensor) -> DeviceArray:
        """Return an array over the memory of a tensor of this device, or of its copy without gaps."""
        dense = tensor.detach().contiguous()
        dtype = str(dense.dtype).removeprefix("torch.")
        return DeviceArray(self, TorchBuffer(dense), tuple(dense.shape), dtype)

    def index(self, numbers: Sequence[int] | Array, device: torch.device | None = None) -> torch.Tensor:
        """Return integers as a tensor ``[n] int64``, of this device unless another is named."""
        array = np.asarray(numbers, np.int64)
        if device is not None and device != self.place:
            return torch.from_numpy(array).to(device)
        return self.tensor(self.put(array))

    def home_of(self, parameter: Parameter, tensor: torch.Tensor) -> torch.Tensor:
        """Let a parameter's numbers live in a tensor of this device, or its copy; return the one it is."""
        away = parameter.away
        if isinstance(away, LivesThere) and away.device is self and away.array.pointer == tensor.data_ptr():
            return tensor
        numbers = tensor.detach()
        is_home = numbers.data_ptr() == parameter.value.ctypes.data
        if is_home or numbers.data_ptr() % ALIGNMENT or not numbers.is_contiguous():
            numbers = _aligned(tuple(numbers.shape), numbers.dtype, self.place).copy_(numbers)
        parameter.settle(None)
        array = self.array(numbers)
        self.values[parameter] = array
        parameter.settle(LivesThere(array))
        return numbers


@cache
def _on_cuda(number: int) -> TorchDevice:
    return TorchDevice(CudaCard(number))


def find(place: torch.device) -> TorchDevice | None:
    """Return the device of the engine for a device of PyTorch, one for all modules; None for the CPU.

    Raises:
        BackendError: when CuPy, which launches kernels, is not there or does not work.
    """
    if place.type != "cuda":
        return None
    return _on_cuda(torch.cuda.current_device() if place.index is None else place.index)


def default() -> torch.device:
    """Return the device on which PyTorch makes tensors where none is named."""
    return torch.get_default_device()
