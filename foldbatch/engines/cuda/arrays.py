"""Arrays in a device's memory, as far as programs hand them to their users."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from foldbatch.engines.cuda.driver import Buffer
from foldbatch.params import Array

if TYPE_CHECKING:
    from foldbatch.engines.cuda.device import Device


class DeviceArray:
    """An array in memory of a device, without gaps.

    Args:
        device: whose memory it is.
        buffer: the memory.
        shape: of the array.
        dtype: of its elements.
        offset: the byte of the buffer where it begins.
    """

    __slots__ = ("buffer", "device", "dtype", "offset", "shape")

    def __init__(
        self, device: Device, buffer: Buffer, shape: tuple[int, ...], dtype: str, offset: int = 0
    ) -> None:
        self.device = device
        self.buffer = buffer
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.offset = offset

    @property
    def pointer(self) -> int:
        """The address of the first element."""
        return self.buffer.pointer + self.offset

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return self.size * self.dtype.itemsize

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:  # noqa: FBT001 - NumPy's protocol
        array = self.device.read(self)
        return array if dtype is None else array.astype(dtype, copy=False)

    def __repr__(self) -> str:
        return f"DeviceArray({np.asarray(self)!r})"
