"""Arrays in a device's memory, as far as programs hand them to their users.

To NumPy such an array is an array: whatever NumPy does with it is done with a copy on the host. What training
does with gradients (sums, and products with a number) is done on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from foldbatch.engines.cuda import gradients
from foldbatch.engines.cuda.drivers.driver import DeviceBuffer
from foldbatch.params.parameters import Array, Remote, SparseRows

if TYPE_CHECKING:
    from foldbatch.engines.cuda.device import Device


class Guard(Protocol):
    """What tells whether a batch is bad.

    Attributes:
        word: ``[1] int64`` or more, on the device; the first is not 0 where an id was out of range.
    """

    word: DeviceArray

    def check(self) -> None:
        """Wait for the batch, and raise its error if it is bad."""
        ...


class DeviceArray(Remote, NDArrayOperatorsMixin):
    """An array in memory of a device, without gaps.

    Args:
        device: whose memory it is.
        buffer: the memory.
        shape: of the array.
        dtype: of its elements.
        offset: the byte of the buffer where it begins.
        guards: of the batches that it was computed from; reading it raises the error of a bad one.

    Attributes:
        pointer: the address of the first element.
        size: the number of elements.
        nbytes: the bytes of all elements.
    """

    __slots__ = ("buffer", "device", "dtype", "guards", "nbytes", "offset", "pointer", "shape", "size")

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
        self.pointer = buffer.pointer + offset
        self.size = prod(shape)
        self.nbytes = self.size * self.dtype.itemsize

    @property
    def kind(self) -> str:
        """The type of the elements as kernels call it, as ``f4``."""
        return self.dtype.str[1:]

    @property
    def ndim(self) -> int:
        """The number of axes."""
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
            made = gradients.computed(ufunc, inputs)
            if made is not None:
                return made
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
        """Return what NumPy's arrays have: ``sum``, ``tolist``, ``T`` and the like, of a copy on the host."""
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        array = np.asarray(self)
        array.flags.writeable = False  # what changes it would change the copy only
        return getattr(array, name)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(np.asarray(self))

    def __getitem__(self, key: Any) -> Any:
        return np.asarray(self)[home(key)]

    def __bool__(self) -> bool:
        return bool(np.asarray(self))

    def __int__(self) -> int:
        return int(np.asarray(self))

    def __float__(self) -> float:
        return float(np.asarray(self))

    def __format__(self, spec: str) -> str:
        return format(np.asarray(self), spec)

    def __repr__(self) -> str:
        return repr(np.asarray(self))

    def __str__(self) -> str:
        return str(np.asarray(self))

    def __reduce__(self) -> Any:
        return np.asarray(self).__reduce__()  # a pickled one is an array of the host

    def __copy__(self) -> DeviceArray:
        return gradients.scaled(self, 1.0)

    def __deepcopy__(self, memo: Any) -> DeviceArray:
        return gradients.scaled(self, 1.0)

    # -- for other libraries on the device

    @property
    def native(self) -> Any:
        """The array as one of the device's library, over the same memory: CuPy's on a GPU."""
        self.device.flush()
        whole = self.device.driver.array(self.buffer, (self.buffer.nbytes,), "uint8")
        return whole[self.offset : self.offset + self.nbytes].view(self.dtype).reshape(self.shape)

    @property
    def __cuda_array_interface__(self) -> Any:
        self.device.synchronize()
        return self.native.__cuda_array_interface__

    def __dlpack__(self, **options: Any) -> Any:
        self.device.synchronize()
        return self.native.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self.native.__dlpack_device__()
        return device

    # -- gradients, see `foldbatch.params.parameters.Remote`

    def spread(self, gradient: SparseRows) -> DeviceArray:
        """Return a sparse gradient, whose values this is, as an array of its table's shape."""
        return gradients.spread(self.device, gradient)

    def total(self, parts: Sequence[Any]) -> Any:
        """Return the sum of a parameter's gradients."""
        return gradients.total(self.device, parts)

    def first_not_finite(self, arrays: Sequence[Any]) -> Callable[[], int | None]:
        """Look for the first array with a NaN or an infinity; return what waits for its number."""
        return gradients.first_not_finite(self.device, arrays)

    def clipped(self, given: Mapping[str, Any], max_norm: float) -> tuple[dict[str, Any], float]:
        """Return gradients scaled so that their joint norm is at most `max_norm`; and that norm, pending."""
        return gradients.clipped(self.device, given, max_norm)


def home(value: Any) -> Any:
    """Return a value with copies on the host in the place of arrays of devices."""
    if isinstance(value, DeviceArray):
        return np.asarray(value)
    if isinstance(value, tuple | list) and type(value) in {tuple, list}:
        return type(value)(map(home, value))
    if isinstance(value, dict):
        return {key: home(item) for key, item in value.items()}
    return value
