"""Arithmetic on gradients that stays on the device: products with numbers, sums, norms, NaN.

The results carry the guards of what they were computed from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from foldbatch.engines.cuda.common import KINDS, bits
from foldbatch.engines.cuda.row_kernels import plan_of
from foldbatch.engines.pending import pending
from foldbatch.params.parameters import Remote, SparseRows

if TYPE_CHECKING:
    from foldbatch.engines.cuda.arrays import DeviceArray
    from foldbatch.engines.cuda.device import Device

THREADS, BLOCKS = 256, 1024
SUMS = 128  # blocks that add up squares


@dataclass(frozen=True, slots=True)
class DeviceRows(SparseRows):
    """The gradient of a table whose rows the device has, too.

    Attributes:
        places: the rows, on the device: ``[r] int64``.
    """

    places: Any = None


def blocks_for(size: int) -> int:
    """Return how many blocks compute so many elements."""
    return max(1, min(BLOCKS, -(-size // THREADS)))


def elementwise(device: Device, name: Any, size: int, arguments: Sequence[int]) -> None:
    """Run a kernel, as `Device.launch` does, on so many elements, if there are any."""
    if size:
        device.launch(name, blocks_for(size), (THREADS, 1), arguments)


def like(array: DeviceArray, *others: DeviceArray) -> DeviceArray:
    """Return an array with any content, like another one, with the guards of all."""
    made = array.device.empty(array.shape, array.dtype.name)
    made.guards = guards_of([array, *others])
    return made


def guards_of(arrays: Sequence[DeviceArray]) -> tuple[Any, ...]:
    """Return the guards of arrays, each once."""
    return tuple({id(guard): guard for array in arrays for guard in array.guards}.values())


def on_device(device: Device, array: Any) -> DeviceArray:
    """Return an array of the device: itself, or a copy of one of the host, or of another device."""
    if isinstance(array, Remote) and getattr(array, "device", None) is device:
        return array  # type: ignore[return-value]
    return device.put(np.asarray(array))


def scaled(array: DeviceArray, factor: float, kernel: str = "scale") -> DeviceArray:
    """Return an array times a number, or with the kernel ``divide``, divided by it."""
    made = like(array)
    arguments = made.pointer, array.pointer, array.size, bits(factor)
    name = f"{kernel}_{array.kind}"
    elementwise(array.device, name, array.size, arguments)
    return made


def added(left: DeviceArray, right: DeviceArray) -> DeviceArray:
    """Return the sum of two arrays of one shape and dtype."""
    made = like(left, right)
    arguments = made.pointer, left.pointer, right.pointer, left.size
    name = f"add_{left.kind}"
    elementwise(left.device, name, left.size, arguments)
    return made


def computed(ufunc: np.ufunc, inputs: Sequence[Any]) -> DeviceArray | None:
    """Return what a function of NumPy makes of its operands, if the device can compute it as NumPy would."""
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


def spread(device: Device, gradient: SparseRows) -> DeviceArray:
    """Return a sparse gradient as an array of its table's shape."""
    values, places = on_device(device, gradient.values), places_of(device, gradient)
    made = device.zeros(gradient.shape, values.dtype.name)
    made.guards = values.guards
    width = values.size // max(1, len(gradient.rows))
    told = device.put(np.array([made.pointer, values.pointer, places.pointer, values.size, width]))
    elementwise(device, f"spread_{values.kind}", values.size, [told.pointer])
    return made


def total(device: Device, parts: Sequence[Any]) -> Any:
    """Return the sum of a parameter's gradients; it is sparse if all of them are."""
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, SparseRows) for part in parts):
        return _sparse_total(device, parts)
    arrays = [part.dense() if isinstance(part, SparseRows) else part for part in parts]
    sums = on_device(device, arrays[0])
    for array in arrays[1:]:
        sums = added(sums, on_device(device, array))
    return sums


def _sparse_total(device: Device, parts: Sequence[SparseRows]) -> DeviceRows:
    device.flush()
    rows = np.concatenate([part.rows for part in parts]).astype(np.int64)
    arrays = [on_device(device, part.values) for part in parts]
    values = device.empty((len(rows), *arrays[0].shape[1:]), arrays[0].dtype.name)
    values.guards = guards_of(arrays)
    start = values.pointer
    for array in arrays:
        if array.nbytes:
            device.driver.copy(start, array.pointer, array.nbytes, device.stream)
        start += array.nbytes
    plan = plan_of(rows)
    distinct = plan[1 : 1 + plan[0]].astype(np.int64)
    sums = device.empty((len(distinct), *values.shape[1:]), values.dtype.name)
    sums.guards = values.guards
    width, held = prod(values.shape[1:]), device.put(plan)
    arguments = [values.pointer, held.pointer, width, sums.pointer, 0]
    elementwise(device, f"add_rows_{values.kind}", sums.size, arguments)
    return DeviceRows(distinct, sums, parts[0].shape, device.put(distinct))  # type: ignore[arg-type]


def flags_of(device: Device, arrays: Sequence[DeviceArray], factor: float = 1.0) -> DeviceArray:
    """Return which arrays, times a factor, hold a NaN or an infinity: 1 for each that does, ``[n] int64``."""
    flags = device.zeros((len(arrays),), "int64")
    for k, array in enumerate(arrays):
        if array.dtype.name in KINDS:
            arguments = [flags.pointer + 8 * k, array.pointer, array.size, bits(factor)]
            elementwise(device, f"flag_{array.kind}", array.size, arguments)
    return flags


def first_not_finite(device: Device, arrays: Sequence[DeviceArray]) -> Callable[[], int | None]:
    """Look for the first array with a NaN or an infinity; return what waits for its number."""
    due = device.due  # another thread may launch it meanwhile: it looks by itself all the same
    if due is not None and all(id(array) in due.flags for array in arrays):
        return partial(due.first_not_finite, arrays)
    read = device.read_later(flags_of(device, arrays))  # who asks later must not wait for later steps

    def first() -> int | None:
        flagged = np.flatnonzero(read())
        return int(flagged[0]) if len(flagged) else None

    return first


def clipped(device: Device, given: Mapping[str, Any], max_norm: float) -> tuple[dict[str, Any], float]:
    """Return gradients scaled so that their joint norm is at most `max_norm`; and that norm, pending.

    All are copies. They are unscaled if the norm is within the limit, or is not finite.
    """
    sparse = {name: gradient for name, gradient in given.items() if isinstance(gradient, SparseRows)}
    arrays = {
        name: on_device(device, sparse[name].values if name in sparse else gradient)
        for name, gradient in given.items()
    }
    sums = device.zeros((len(arrays), SUMS), "float64")
    answer = device.empty((2,), "float64")
    for k, array in enumerate(arrays.values()):
        blocks = min(SUMS, -(-array.size // THREADS))
        arguments = [sums.pointer + k * SUMS * 8, array.pointer, array.size]
        if blocks:
            name = f"squares_{array.kind}"
            device.launch(name, blocks, (THREADS, 1), arguments)
    arguments = [answer.pointer, sums.pointer, sums.size, bits(max_norm)]
    device.launch("clip_factor", 1, (THREADS, 1), arguments)
    made: dict[str, Any] = {}
    for name, array in arrays.items():
        copy = like(array)
        arguments = [copy.pointer, array.pointer, array.size, answer.pointer + 8]
        kernel = f"scale_by_{array.kind}"
        elementwise(device, kernel, array.size, arguments)
        made[name] = replace(sparse[name], values=copy) if name in sparse else copy  # type: ignore[arg-type]
    answer.guards = guards_of(list(arrays.values()))
    return made, pending(lambda: float(np.asarray(answer)[0]))
