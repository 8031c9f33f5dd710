"""Sums of gradients over ranks that each have a device, without a copy on the host.

Gradients are copied side by side into a vector of the device, which the ranks cut into slices of one length.
Each rank is sent one slice by all others, adds them in the order of ranks, and sends the sum back. These are
the sums, to the bit, that `foldbatch.train.parallel` computes on the host.
"""

from __future__ import annotations

from collections.abc import Sequence

from foldbatch.communicators.communicator import DeviceCommunicator
from foldbatch.engines.cuda.device import Device, DeviceArray, elementwise, guards_of, on_device


def summed(
    device: Device, gradients: Sequence[object], communicator: DeviceCommunicator
) -> tuple[Sequence[DeviceArray], int]:
    """Return the sums of gradients over all ranks, and how many bytes this rank sends.

    The host does not wait for a GPU. It holds the device's lock till all ranks have come, so ranks that are
    threads must have a device each.

    Args:
        device: that of this rank.
        gradients: one array or more, all of one dtype, of the device or the host. Their shapes are those of
            all ranks.
        communicator: of the ranks.
    """
    with device.lock:
        device.follow()
        arrays = [on_device(device, gradient) for gradient in gradients]
        size, first = communicator.size, arrays[0]
        count = -(-sum(array.size for array in arrays) // size)  # of a slice; the last ones may have a gap
        vector = device.empty((size, count), first.dtype.name)
        received = device.empty((size, count), first.dtype.name)
        sums = _side_by_side(vector, arrays)
        nbytes = vector.nbytes // size
        if count:
            _add_slices(vector, received, communicator)
    return sums, 2 * nbytes * (size - 1)


def _side_by_side(vector: DeviceArray, arrays: Sequence[DeviceArray]) -> list[DeviceArray]:
    """Copy arrays into a vector, and zeros behind them; return an array over the place of each."""
    device, end, copies = vector.device, 0, []
    guards = guards_of(arrays)
    device.flush()
    for array in arrays:
        if array.nbytes:
            device.driver.copy(vector.pointer + end, array.pointer, array.nbytes, device.stream)
        copies.append(DeviceArray(device, vector.buffer, array.shape, array.dtype.name, end, guards))
        end += array.nbytes
    if end < vector.nbytes:
        device.driver.fill(vector.pointer + end, 0, vector.nbytes - end, device.stream)
    return copies


def _add_slices(vector: DeviceArray, received: DeviceArray, communicator: DeviceCommunicator) -> None:
    """Put the sum of the ranks' vectors in place of this rank's: ``[size, n]``, one slice of n a rank."""
    device, (size, count) = vector.device, vector.shape
    stream: int | None = getattr(device.stream, "ptr", None)
    parts, numbers = (array.native.reshape(-1) for array in (received, vector))
    if stream is None:  # what stands for a device has no stream that others could wait for
        device.wait()
    communicator.all_to_all_there(parts, numbers, stream)
    start, nbytes = received.pointer, received.nbytes // size
    for rank in range(1, size):
        arguments = [start, start, start + rank * nbytes, count]
        elementwise(device, f"add_{received.kind}", count, arguments)
    if stream is None:
        device.wait()
    communicator.all_gather_there(numbers, parts[:count], stream)
