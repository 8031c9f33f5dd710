"""A device under use, and arrays in its memory: what programs hand to their users, and sums of gradients.

To NumPy such an array is an array: whatever NumPy does with it is done with a copy on the host. What training
does with gradients (sums, products with a number, norms, a look for NaN) is done on the device; the results
carry the guards of what they were computed from.

Nobody waits for a device to find out that it refused an update. A word in its memory is 0 until an update
meets a bad gradient. From then on all updates on the device do nothing, so parameters and moments stay as
they were before that update. Whoever next reads something (a loss, a gradient, a parameter, an optimizer's
state) gets the error, and step counts go back. After that, updates work again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from math import prod
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from foldbatch.engines.cuda.driver import DeviceBuffer, Driver, Event, Function, Stream
from foldbatch.engines.cuda.fixed_kernels import KINDS, TEXT, bits, plan_of
from foldbatch.engines.pending import pending
from foldbatch.errors import ParameterError
from foldbatch.params.parameters import Array, Parameter, Remote, SparseRows, dense
from foldbatch.system.processes import start_in_each_process

P = ParamSpec("P")
R = TypeVar("R")
MAX_UPDATES = 1024  # updates that nobody asked about, after which the word is read: their records take memory


class GuardedUpdate(NamedTuple):
    """An update under way."""

    code: int  # what the word becomes if the batch is bad; ``code + 1 + k`` if gradient k is
    names: Sequence[str]  # of the gradients
    undo: Callable[[], None]  # takes back what the host counted


class Faults:
    """An integer on a device, the word, that the first bad update sets; and the updates since it was read."""

    def __init__(
        self,
        word: DeviceBuffer,  # 8 bytes on the device; update kernels do nothing unless they are 0
        read: Callable[[], int],  # waits for the device, and returns the word
        clear: Callable[[], None],  # makes it 0
        locked: Callable[[], AbstractContextManager[object]],  # what the thread holds that uses the device
    ) -> None:
        self.word, self._read, self._clear, self._locked = word, read, clear, locked
        self._updates: list[GuardedUpdate] = []
        self._next = 1
        clear()

    def tidy(self) -> None:
        """Read the word if very many updates have been registered; this launches the step that is due.

        Raises:
            ParameterError: as `look` does; the update that was to be promised must not be made.
        """
        if len(self._updates) >= MAX_UPDATES:
            self.look()

    def promised(self, names: Sequence[str], undo: Callable[[], None]) -> int:
        """Register an update that the caller will launch; return the code that stands for a fault in it.

        Before the update's kernels, the caller launches one that writes the code to the word if an id of the
        batch was out of range, or ``code + 1 + k`` if gradient k is not finite.

        Args:
            names: the names of the gradients.
            undo: takes back what the host has counted, if the device refuses the update.
        """
        code = self._next
        self._updates.append(GuardedUpdate(code, names, undo))
        self._next += 1 + len(names)
        return code

    def look(self, word: int | None = None) -> None:
        """Raise the error of the first bad update since the last look, if there is one.

        Args:
            word: the word, if it has been copied from the device already: then 0 needs no waiting.
        """
        with self._locked():
            if not self._updates or word == 0:
                return
            word = self._read()  # somebody may have been quicker
            updates, self._updates = self._updates, []
            if not word:
                return
            bad = [update for update in updates if update.code + len(update.names) >= word]
            self._clear()
            for update in reversed(bad):
                update.undo()
        first = bad[0]
        fix = "nothing was changed from then on; "
        if word == first.code:
            expected, actual = "ids within range in the batch it is of", "one that is not"
            fix += "read the loss of each batch, which names the example"
            raise ParameterError("gradients", expected, actual, fix)
        where = f"{first.names[word - first.code - 1]} gradient"
        fix += "call program.find_nan(examples), or lower the learning rate"
        raise ParameterError(where, "finite numbers", "a NaN or an infinity", fix)

    def forget(self) -> None:
        """Let updates work again, with the error of a bad one dropped: the caller raises a better one."""
        try:
            self.look()
        except ParameterError:
            return


IN_FLIGHT = 64  # copies whose pinned memory is kept, as nobody else may have it before they are done
THREADS, BLOCKS = 256, 1024
SUMS = 128  # blocks that add up squares


def _alone(method: Callable[P, R]) -> Callable[P, R]:
    """Let a method enqueue while no other thread does: who captures the stream would keep it in a graph."""

    @wraps(method)
    def run(*arguments: P.args, **options: P.kwargs) -> R:
        device: Any = arguments[0]
        with device.lock:
            return method(*arguments, **options)

    return run


class Device:
    """A device under use, by one thread at a time, which holds its `lock`."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.stream = driver.stream()  # where everything is computed
        self.copies = driver.stream()  # where batches are copied to the device
        # the array of each parameter that was ever here, see `updates.device_value`
        self.values: WeakKeyDictionary[Parameter, DeviceArray] = WeakKeyDictionary()
        self.due: Any = None  # a step whose launch is put off, see `foldbatch.engines.cuda.run`
        self._modules: dict[str, Callable[[str], Function]] = {}
        self._kernels: dict[tuple[str, str], Function] = {}
        # by the identity of the memory, the oldest first
        self._in_flight: dict[int, tuple[Event, Array]] = {}
        start_in_each_process(self, Device._start)

    def _start(self) -> None:
        self.lock = threading.RLock()

    def follow(self) -> None:
        """Let what comes be computed on the stream that it is to be on: here there is one.

        Called before a batch, a pass, an update, and a copy to the host or from it.
        """

    @contextmanager
    def capturing(self) -> Iterator[Stream]:
        """Let what is enqueued go to a stream that can be captured, which is yielded."""
        yield self.stream

    def flush(self) -> None:
        """Launch the step that is due. Whatever uses the device's arrays comes after it."""
        with self.lock:
            due, self.due = self.due, None
            if due is not None:
                due.fire()

    @cached_property
    def _common(self) -> Callable[[str], Function]:
        return self.driver.load(TEXT)

    @cached_property
    def faults(self) -> Faults:
        """The word that the first bad update sets, and the updates since it was read."""
        word = self.empty((1,), "int64")

        def clear() -> None:
            self.driver.fill(word.pointer, 0, 8, self.stream)

        with self.lock:
            return Faults(word.buffer, lambda: int(self.read(word)[0]), clear, lambda: self.lock)

    def kernel(self, text: str, name: str) -> Function:
        """Return a kernel of a text, which is loaded once."""
        if (text, name) not in self._kernels:
            if text not in self._modules:
                self._modules[text] = self.driver.load(text)
            self._kernels[text, name] = self._modules[text](name)
        return self._kernels[text, name]

    def names(self) -> dict[int, str]:
        """Return the names of the kernels loaded so far, by the identity of their functions."""
        return {id(kernel): name for (_, name), kernel in self._kernels.items()}

    def allocate(self, nbytes: int) -> DeviceBuffer:
        return self.driver.allocate(max(1, nbytes))

    def empty(self, shape: tuple[int, ...], dtype: str) -> DeviceArray:
        return DeviceArray(self, self.allocate(prod(shape) * np.dtype(dtype).itemsize), shape, dtype)

    @_alone
    def zeros(self, shape: tuple[int, ...], dtype: str) -> DeviceArray:
        """Return an array of zeros."""
        self.flush()
        array = self.empty(shape, dtype)
        if array.nbytes:
            self.driver.fill(array.pointer, 0, array.nbytes, self.stream)
        return array

    def put(self, array: Array) -> DeviceArray:
        target = self.empty(array.shape, array.dtype.name)
        self.write(target, array)
        return target

    @_alone
    def write(self, target: DeviceArray, source: Array) -> None:
        """Copy an array of the host to one of its shape and dtype; `source` may change then."""
        self.follow()
        self.flush()
        target.flag = None
        if source.nbytes:
            staged = self.driver.pinned(source.nbytes)
            staged[:] = np.ascontiguousarray(source).reshape(-1).view(np.uint8)
            self.driver.copy_in(target.pointer, staged, self.stream)
            self._mark(staged)

    def read(self, source: DeviceArray) -> Array:
        """Return a copy of an array of the device; waits until it is computed."""
        return self.read_later(source).wait()

    @_alone
    def read_later(self, source: DeviceArray) -> CopyOut:
        """Copy an array to the host when it is computed; return the copy, for which nobody waits yet."""
        self.follow()
        self.flush()
        staged = self.driver.pinned(max(1, source.nbytes))
        if source.nbytes:
            self.driver.copy_out(staged, source.pointer, self.stream)
        return CopyOut(self, self._mark(staged), staged, source.shape, source.dtype)

    def _mark(self, staged: Array) -> Event:
        """Keep pinned memory of a copy that was enqueued, and return the event of its end."""
        event = self.driver.event()
        self.driver.record(event, self.stream)
        self.keep(event, staged)
        return event

    def keep(self, event: Event, staged: Array) -> None:
        """Keep pinned memory until an event, also where nobody else holds it any more."""
        with self.lock:
            # a block that is sent again has recorded its event anew: nobody must wait for that as an old one
            self._in_flight.pop(id(staged), None)
            if len(self._in_flight) >= IN_FLIGHT:  # it is done, unless the host is many batches ahead
                oldest, _ = self._in_flight.pop(next(iter(self._in_flight)))
                self.driver.synchronize(oldest)
            self._in_flight[id(staged)] = event, staged

    def _forget(self, event: Event) -> None:
        """Let go of pinned memory that was kept until an event that has happened, or an earlier one."""
        with self.lock:
            events = [kept for kept, _ in self._in_flight.values()]
            count = events.index(event) + 1 if event in events else 0
            for place in list(self._in_flight)[:count]:
                del self._in_flight[place]

    def synchronize(self) -> None:
        """Wait until everything is computed."""
        self.flush()
        self.wait()

    def wait(self) -> None:
        """Wait until what was launched is computed."""
        with self.lock:  # what others keep from now on may not be done when the event is
            kept = list(self._in_flight.items())
            event = self.driver.event()
            self.driver.record(event, self.stream)
        self.driver.synchronize(event)
        with self.lock:  # what is computed waits for copies on the other stream
            for place, memory in kept:
                if self._in_flight.get(place) is memory:
                    del self._in_flight[place]

    @_alone
    def launch(
        self, kernel: str | Function, blocks: int, threads: tuple[int, int], arguments: Sequence[int]
    ) -> None:
        """Run a kernel, or one of `fixed_kernels` by its name."""
        self.flush()
        function = kernel
        if isinstance(kernel, str):
            function = self._kernels.get(("", kernel))
            if function is None:
                function = self._kernels["", kernel] = self._common(kernel)
        self.driver.launch(function, blocks, threads, arguments, self.stream)


class CopyOut(NamedTuple):
    """A copy of an array of a device to the host, which may be under way."""

    device: Device
    event: Event  # when it is done
    staged: Array  # pinned memory that it goes to
    shape: tuple[int, ...]  # of the array
    dtype: np.dtype[Any]

    def wait(self) -> Array:
        """Wait until the array is copied, and return it."""
        self.device.driver.synchronize(self.event)
        self.device._forget(self.event)
        nbytes = prod(self.shape) * self.dtype.itemsize
        return self.staged[:nbytes].view(self.dtype).reshape(self.shape).copy()


class Guard(Protocol):
    """Knows whether a batch is bad."""

    word: DeviceArray  # ``[1] int64`` or more, on the device; the first is not 0 where an id was out of range

    def check(self) -> None:
        """Wait for the batch, and raise its error if it is bad."""


class Words(Guard, Protocol):
    """The status of a batch."""

    def words(self) -> Array:
        """Wait for the batch, and return what it has written: ``[n] int64``."""


class Flag(NamedTuple):
    """Where a batch tells whether a gradient that it makes has a NaN or an infinity."""

    status: Words  # of the batch
    place: int  # the word of the status that is then 1
    room: int  # for how many numbers the gradient has room

    @property
    def pointer(self) -> int:
        """The address of the word."""
        return self.status.word.pointer + 8 * self.place


class DeviceArray(Remote, NDArrayOperatorsMixin):
    """An array in memory of a device, without gaps.

    It begins `offset` bytes from where its buffer does. `guards` are those of the batches that it was
    computed from; reading it raises the error of a bad one. A gradient that a batch has made, and that
    nobody has changed, has a `flag`.
    """

    __slots__ = (
        "buffer",
        "device",
        "dtype",
        "flag",
        "guards",
        "nbytes",
        "offset",
        "pointer",
        "shape",
        "size",
    )

    def __init__(
        self,
        device: Device,
        buffer: DeviceBuffer,
        shape: tuple[int, ...],
        dtype: str,
        offset: int = 0,
        guards: tuple[Guard, ...] = (),
    ) -> None:
        self.device = device
        self.buffer = buffer
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.offset = offset
        self.guards = guards
        self.flag: Flag | None = None
        self.pointer = buffer.pointer + offset  # the address of the first element
        self.size = prod(shape)  # how many elements there are
        self.nbytes = self.size * self.dtype.itemsize

    @property
    def kind(self) -> str:
        """The type of the elements as kernels call it, as ``f4``."""
        return self.dtype.str[1:]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    # -- on the host

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:  # noqa: FBT001 - NumPy's protocol
        if copy is False:
            raise ValueError("an array of a device cannot be had on the host without a copy")
        for guard in self.guards:
            guard.check()
        self.device.faults.look()
        array = self.device.read(self)
        return array if dtype is None else array.astype(dtype, copy=False)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = (), **options: Any
    ) -> Any:
        if method == "__call__" and not options and not out:
            computed_array = computed(ufunc, inputs)
            if computed_array is not None:
                return computed_array
        result = getattr(ufunc, method)(*map(home, inputs), **home(options))
        if not out:
            return result
        results = result if isinstance(result, tuple) else (result,)
        for target, array in zip(out, results, strict=True):
            if isinstance(target, DeviceArray):
                if not np.can_cast(array.dtype, target.dtype, "same_kind") or array.shape != target.shape:
                    return NotImplemented
                self.device.write(target, array.astype(target.dtype))
            elif target is not None:
                np.copyto(target, array, casting="same_kind")
        return out[0] if len(out) == 1 else out

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        return function(*home(arguments), **home(options))

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of NumPy's arrays, as ``sum`` or ``tolist``, of a copy on the host."""
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        array = np.asarray(self)
        array.flags.writeable = False  # what changes it would change the copy only
        return getattr(array, name)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __getitem__(self, key: object) -> Any:
        return np.asarray(self)[home(key)]

    def __reduce__(self) -> Any:
        return np.asarray(self).__reduce__()  # a pickled one is an array of the host

    def __copy__(self) -> DeviceArray:
        return scaled(self, 1.0)

    def __deepcopy__(self, memo: object) -> DeviceArray:
        return scaled(self, 1.0)

    # -- for other libraries on the device

    @property
    def native(self) -> Any:
        """The array as one of the device's library, over the same memory: CuPy's on a GPU."""
        self.device.flush()
        self.flag = None  # whoever has it may change it
        buffer = self.device.driver.array(self.buffer, (self.buffer.nbytes,), "uint8")
        return buffer[self.offset : self.offset + self.nbytes].view(self.dtype).reshape(self.shape)

    @property
    def __cuda_array_interface__(self) -> Any:
        self.device.synchronize()
        return self.native.__cuda_array_interface__

    def __dlpack__(self, **options: object) -> Any:
        self.device.synchronize()
        return self.native.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self.native.__dlpack_device__()
        return device

    # -- gradients, see `foldbatch.params.parameters.Remote`

    def spread(self, gradient: SparseRows) -> DeviceArray:
        """Return a sparse gradient, whose values this is, as an array of its table's shape."""
        device, places = self.device, places_of(self.device, gradient)
        table = device.zeros(gradient.shape, self.dtype.name)
        table.guards = self.guards
        width = self.size // max(1, len(gradient.rows))
        arguments = device.put(np.array([table.pointer, self.pointer, places.pointer, self.size, width]))
        elementwise(device, f"spread_{self.kind}", self.size, [arguments.pointer])
        return table

    def total(self, parts: Sequence[Any]) -> Any:
        """Return the sum of a parameter's gradients; it is sparse if all of them are."""
        if len(parts) == 1:
            return parts[0]
        if all(isinstance(part, SparseRows) for part in parts):
            return _sparse_total(self.device, parts)
        sums = on_device(self.device, dense(parts[0]))
        for part in parts[1:]:
            sums = added(sums, on_device(self.device, dense(part)))
        return sums

    def first_not_finite(self, arrays: Sequence[Any]) -> Callable[[], int | None]:
        """Look for the first array with a NaN or an infinity; return what waits for its number."""
        flags = [array.flag for array in arrays]
        if flags and all(flag is not None and flag.status is flags[0].status for flag in flags):
            status, places = flags[0].status, [flag.place for flag in flags]

            def first_place() -> int | None:
                words = status.words()
                return next((k for k, place in enumerate(places) if words[place]), None)

            return first_place
        # who asks later must not wait for later steps
        read = self.device.read_later(flags_of(self.device, arrays))

        def first() -> int | None:
            flagged = np.flatnonzero(read.wait())
            return int(flagged[0]) if len(flagged) else None

        return first

    def clipped(self, gradients: Mapping[str, object], max_norm: float) -> tuple[dict[str, Any], float]:
        """Return gradients scaled so that their joint norm is at most `max_norm`; and that norm, pending.

        All are copies. They are unscaled if the norm is within the limit, or is not finite.
        """
        device = self.device
        sparse = {name: gradient for name, gradient in gradients.items() if isinstance(gradient, SparseRows)}
        arrays = {
            name: on_device(device, sparse[name].values if name in sparse else gradient)
            for name, gradient in gradients.items()
        }
        sums = device.zeros((len(arrays), SUMS), "float64")
        answer = device.empty((2,), "float64")
        for k, array in enumerate(arrays.values()):
            blocks = min(SUMS, -(-array.size // THREADS))
            if blocks:
                arguments = [sums.pointer + k * SUMS * 8, array.pointer, array.size]
                device.launch(f"squares_{array.kind}", blocks, (THREADS, 1), arguments)
        arguments = [answer.pointer, sums.pointer, sums.size, bits(max_norm)]
        device.launch("clip_factor", 1, (THREADS, 1), arguments)
        clipped: dict[str, Any] = {}
        for name, array in arrays.items():
            copy = like(array)
            arguments = [copy.pointer, array.pointer, array.size, answer.pointer + 8]
            elementwise(device, f"scale_by_{array.kind}", array.size, arguments)
            clipped[name] = replace(sparse[name], values=copy) if name in sparse else copy  # type: ignore[arg-type]
        answer.guards = guards_of(list(arrays.values()))
        return clipped, pending(lambda: float(np.asarray(answer)[0]))


def _define(name: str) -> None:
    """Give arrays of a device a special method of NumPy's, of a copy on the host."""
    method = getattr(np.ndarray, name)
    setattr(DeviceArray, name, lambda self, *arguments: method(np.asarray(self), *arguments))


for _name in ("bool", "float", "format", "int", "iter", "repr", "str"):
    _define(f"__{_name}__")


def home(value: object) -> Any:
    """Return a value with all arrays of the device in it copied to the host."""
    if isinstance(value, DeviceArray):
        return np.asarray(value)
    if isinstance(value, tuple | list) and type(value) in {tuple, list}:
        return type(value)(map(home, value))
    if isinstance(value, dict):
        return {key: home(item) for key, item in value.items()}
    return value


# -- arithmetic on gradients


@dataclass(frozen=True, slots=True)
class DeviceRows(SparseRows):
    """The gradient of a table whose rows the device has, too."""

    places: Any = None  # the rows, on the device: ``[r] int64``


def blocks_for(size: int) -> int:
    return max(1, min(BLOCKS, -(-size // THREADS)))


def elementwise(device: Device, name: object, size: int, arguments: Sequence[int]) -> None:
    """Run a kernel, as `Device.launch` does, on so many elements, if there are any."""
    if size:
        device.launch(name, blocks_for(size), (THREADS, 1), arguments)


def like(array: DeviceArray, *operands: DeviceArray) -> DeviceArray:
    """Return an array with any content, like another one, with the guards of all."""
    result = array.device.empty(array.shape, array.dtype.name)
    result.guards = guards_of([array, *operands])
    return result


def guards_of(arrays: Sequence[DeviceArray]) -> tuple[Any, ...]:
    """Return the guards of arrays, each once."""
    return tuple({id(guard): guard for array in arrays for guard in array.guards}.values())


def on_device(device: Device, array: object) -> DeviceArray:
    """Return an array of the device: itself, or a copy of one of the host, or of another device."""
    if isinstance(array, Remote) and getattr(array, "device", None) is device:
        return array  # type: ignore[return-value]
    return device.put(np.asarray(array))


def scaled(array: DeviceArray, factor: float, kernel: str = "scale") -> DeviceArray:
    """Return an array times a number, or with the kernel ``divide``, divided by it."""
    result = like(array)
    arguments = result.pointer, array.pointer, array.size, bits(factor)
    elementwise(array.device, f"{kernel}_{array.kind}", array.size, arguments)
    return result


def added(first: DeviceArray, second: DeviceArray) -> DeviceArray:
    result = like(first, second)
    arguments = result.pointer, first.pointer, second.pointer, first.size
    elementwise(first.device, f"add_{first.kind}", first.size, arguments)
    return result


def computed(ufunc: np.ufunc, inputs: Sequence[Any]) -> DeviceArray | None:
    """Compute a function of NumPy on the device; None if the device cannot do it as NumPy would."""
    if len(inputs) != 2:
        return None
    arrays = [x for x in inputs if isinstance(x, Remote)]
    first: Any = arrays[0]
    if first.dtype.name not in KINDS:
        return None
    if len(arrays) == 2:
        second: Any = arrays[1]
        alike = (first.shape, first.dtype, first.device) == (second.shape, second.dtype, second.device)
        return added(first, second) if alike and ufunc is np.add else None
    (number,) = (x for x in inputs if not isinstance(x, Remote))
    plain = type(number) in {int, float} or getattr(number, "dtype", None) == first.dtype
    if not plain or np.ndim(number):
        return None  # NumPy's result may have another dtype
    if ufunc is np.multiply:
        return scaled(first, float(number))
    return scaled(first, float(number), "divide") if ufunc is np.true_divide and inputs[0] is first else None


def places_of(device: Device, gradient: SparseRows) -> DeviceArray:
    """Return the rows of a sparse gradient on the device."""
    places: DeviceArray | None = gradient.places if isinstance(gradient, DeviceRows) else None
    return device.put(gradient.rows.astype(np.int64)) if places is None else places


def _sparse_total(device: Device, parts: Sequence[SparseRows]) -> DeviceRows:
    """Return the sum of sparse gradients: rows of equal id are added on the device."""
    device.flush()
    rows = np.concatenate([part.rows for part in parts]).astype(np.int64)
    arrays = [on_device(device, part.values) for part in parts]
    values = device.empty((len(rows), *arrays[0].shape[1:]), arrays[0].dtype.name)
    values.guards = guards_of(arrays)
    start = values.pointer
    with device.lock:
        for array in arrays:
            if array.nbytes:
                device.driver.copy(start, array.pointer, array.nbytes, device.stream)
            start += array.nbytes
    plan = plan_of(rows)
    distinct = plan[1 : 1 + plan[0]].astype(np.int64)
    sums = device.empty((len(distinct), *values.shape[1:]), values.dtype.name)
    sums.guards = values.guards
    width, plan_on_device = prod(values.shape[1:]), device.put(plan)
    arguments = [values.pointer, plan_on_device.pointer, width, sums.pointer, 0]
    elementwise(device, f"add_rows_{values.kind}", sums.size, arguments)
    return DeviceRows(distinct, sums, parts[0].shape, device.put(distinct))  # type: ignore[arg-type]


def flags_of(device: Device, arrays: Sequence[DeviceArray], factor: float = 1.0) -> DeviceArray:
    """Return a flag for each array: 1 if it holds a NaN or an infinity times a factor; ``[n] int64``."""
    flags = device.zeros((len(arrays),), "int64")
    for k, array in enumerate(arrays):
        if array.dtype.name in KINDS:
            arguments = [flags.pointer + 8 * k, array.pointer, array.size, bits(factor)]
            elementwise(device, f"flag_{array.kind}", array.size, arguments)
    return flags
