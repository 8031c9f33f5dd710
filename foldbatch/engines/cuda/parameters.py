"""Parameters on a device: where their numbers are while programs compute with them there."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from foldbatch.engines.cuda.device import Device, DeviceArray
from foldbatch.params.parameters import Array, Parameter


@dataclass(frozen=True, slots=True)
class OnDevice:
    """A parameter's newest numbers in the memory of a device; see `foldbatch.params.parameters.Away`."""

    array: DeviceArray

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held while the device is used."""
        return self.array.device.lock

    def read_into(self, array: Array) -> None:
        """Copy the numbers into an array of the host.

        Raises:
            ParameterError: when an update was refused, see `foldbatch.engines.cuda.faults`.
        """
        self.array.device.faults.look()
        array[...] = self.array.device.read(self.array)


def device_value(device: Device, parameter: Parameter) -> DeviceArray:
    """Return a parameter's array on a device, which from now on has its newest numbers.

    It is the same array for all programs of the device, and at each call, so kernels may keep its address as
    long as the parameter lives. The numbers are copied if they are elsewhere: on the host, or on another
    device. Shape: the parameter's.
    """
    with device.lock:
        away = parameter.away
        if isinstance(away, OnDevice) and away.array.device is device:
            return away.array
        value = parameter.value
        array = device.values.get(parameter)
        if array is None:
            array = device.values[parameter] = device.empty(value.shape, value.dtype.name)
        device.write(array, value)
        parameter.take_away(OnDevice(array))
        return array
