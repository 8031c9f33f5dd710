"""Parameters on a device, and optimizers' steps: one kernel a rule and dtype, made of the rule's lines."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from foldbatch.communicators.communicator import DeviceCommunicator
from foldbatch.engines.cuda.device import (
    THREADS,
    Device,
    DeviceArray,
    blocks_for,
    elementwise,
    flags_of,
    guards_of,
    on_device,
    places_of,
)
from foldbatch.engines.cuda.driver import Function
from foldbatch.engines.cuda.exchange import summed
from foldbatch.engines.cuda.fixed_kernels import KINDS, bits
from foldbatch.engines.launch import Ints
from foldbatch.params.parameters import (
    Array,
    Change,
    Parameter,
    RemoteUpdates,
    Rule,
    SparseRows,
    numbers_of,
    refuse_elsewhere,
)


@dataclass(frozen=True, slots=True)
class OnDevice:
    """A parameter's newest numbers in a device's memory; see `foldbatch.params.parameters.DeviceCopy`."""

    array: DeviceArray
    stays = False

    @property
    def device(self) -> Device:
        """The device that has them."""
        return self.array.device

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Held while the device is used."""
        return self.array.device.lock

    def read_into(self, array: Array) -> None:
        """Copy the numbers into an array of the host.

        Raises:
            ParameterError: when an update was refused, see `foldbatch.engines.cuda.device`.
        """
        self.array.device.faults.look()
        array[...] = self.array.device.read(self.array)

    def write(self, array: Array) -> None:
        """Copy an array of the host over the numbers."""
        self.array.device.write(self.array, array)


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
        if away is None or not away.stays:  # else it is a copy for this batch
            parameter.take_away(OnDevice(array))
        return array


# The product with the factor is rounded, as it is when a gradient comes scaled: no sum may be merged with it.
ROUNDED = """\
#ifdef FB_CUDA
#define rounded_f4(a, b) __fmul_rn(a, b)
#define rounded_f8(a, b) __dmul_rn(a, b)
#else
#define rounded_f4(a, b) ((a) * (b))
#define rounded_f8(a, b) ((a) * (b))
#endif
"""

STEP = """\
KERNEL step(i8 told_) {{
  const i8* list_ = (const i8*)told_ + 1;
  for (i8 left_ = *(const i8*)told_; left_ > 0; left_--, list_ += {size}) {{
    const i8 {parameters};
    if (*(const i8*)word_) return;
    {numbers}
    const i8 n = n_;
    for (i8 i = BLOCK * LANES_X + LANE_X; i < n; i += BLOCKS * LANES_X) {{
      const i8 at_ = rows_ ? ((const i8*)rows_)[i / width_] * width_ + i % width_ : i;
      {f} g = rounded_{f}(((const {f}*)g_)[i], ({f})as_f8(factor_));
      {reads}
      {lines}
      {writes}
    }}
  }}
}}
"""


def kernel_text(rule: Rule, kind: str) -> str:
    """Return the text of a rule's kernel for ``f4`` or ``f8``.

    It finds in memory how many parameters it is to change, and of each the addresses of the parameter, the
    gradient, each moment and the rows (0 for all); how many numbers the gradient has, and a row; the address
    of a word that must be 0; the bits of the gradient's factor and of each number.
    """
    tables = ("p", *rule.moments)
    names = ["p", "g", *rule.moments, "rows", "n", "width", "word", "factor", *rule.numbers]
    root = "sqrtf(" if kind == "f4" else "sqrt("
    lines = [re.sub(r"\bsqrt\(", root, line) + ";" for line in rule.lines]
    new = [name for name in rule.locals if name != "g"]
    return STEP.format(
        f=kind,
        size=len(names),
        parameters=_wrapped([f"{name}_ = list_[{k}]" for k, name in enumerate(names)]),
        numbers="\n    ".join(f"{kind} {name} = ({kind})as_f8({name}_);" for name in rule.numbers),
        reads=f"{kind} " + ", ".join([*(f"{name} = (({kind}*){name}_)[at_]" for name in tables), *new]) + ";",
        lines="\n      ".join(lines),
        writes=" ".join(f"(({kind}*){name}_)[at_] = {name};" for name in tables),
    )


def _wrapped(names: Sequence[str], names_a_line: int = 5) -> str:
    lines = [", ".join(names[k : k + names_a_line]) for k in range(0, len(names), names_a_line)]
    return ",\n      ".join(lines)


class UpdateLaunch(NamedTuple):
    """An update, ready to be launched: what its kernels are told lies in memory."""

    # kernels, by name or not; their blocks; and where their numbers begin
    launches: Sequence[tuple[str | Function, int, int]]
    numbers: Ints  # ``[*] int64``
    key: Hashable  # equal where kernels, blocks and places are


class _KernelCall(NamedTuple):
    """A kernel, how many numbers it computes at most, and what it is told: whole numbers, and then others."""

    kernel: str | Function
    size: int
    numbers: Sequence[int]
    floats: Sequence[float] = ()


def _together(kernels: Sequence[_KernelCall]) -> UpdateLaunch:
    """Return the launches of an update with all numbers of their arguments in one array.

    Steps of one rule are one launch, behind all that makes their gradients.
    """
    alone = [[call] for call in kernels if isinstance(call.kernel, str)]
    by_rule: dict[int, list[_KernelCall]] = {}
    for call in kernels:
        if not isinstance(call.kernel, str):
            by_rule.setdefault(id(call.kernel), []).append(call)
    launches: list[tuple[str | Function, int, int]] = []
    key: list[tuple[str | int, int, int]] = []
    form: list[str] = []
    numbers: list[float] = []
    for calls in (*alone, *by_rule.values()):
        kernel, begin = calls[0].kernel, len(numbers)
        blocks = blocks_for(sum([call.size for call in calls]))
        launches.append((kernel, blocks, begin))
        key.append((kernel if isinstance(kernel, str) else id(kernel), blocks, begin))
        if not isinstance(kernel, str):
            form.append("q")
            numbers.append(len(calls))
        for _, _, integers, floats in calls:
            form.append(f"{len(integers)}q{len(floats)}d")
            numbers += integers
            numbers += floats
    return UpdateLaunch(launches, np.frombuffer(struct.pack("".join(form), *numbers), np.int64), tuple(key))


class DeviceUpdates(RemoteUpdates):
    """Optimizers' steps on a device; see `foldbatch.params.parameters.RemoteUpdates`."""

    device: Device

    def __init__(self, device: Device) -> None:
        self.device = device
        self._kernels: dict[tuple[Rule, np.dtype[Any]], Function] = {}

    def full(self, parameter: Parameter, number: float) -> DeviceArray:
        array = self.device.empty(parameter.type.shape, parameter.type.dtype)
        kernel = f"fill_{KINDS[parameter.type.dtype]}"
        elementwise(self.device, kernel, array.size, [array.pointer, array.size, bits(number)])
        return array

    def apply(self, changes: Sequence[Change], undo: Callable[[], None]) -> None:
        """Change parameters and moments, all or none, without waiting.

        Where the gradients are those of the step that is due, the update is launched with it.
        """
        with self.device.lock:
            self.device.follow()
            try:  # whatever may fail comes before anything is changed or expected
                self.device.faults.tidy()  # before it is asked whether a step is due
                there = [change for change in changes if isinstance(numbers_of(change.gradient), DeviceArray)]
                arrays = [on_device(self.device, numbers_of(change.gradient)) for change in there]
                alive: list[DeviceArray] = []  # what is told of by addresses alone, until it is enqueued
                steps = [arguments for change in changes for arguments in self._steps(change, alive)]
                due, looked = self.device.due, [array.flag for array in arrays if array.flag is not None]
                # a factor above 1 may make a gradient infinite, which the batch's own look does not see
                if len(looked) < len(arrays) or any(abs(change.factor) > 1 for change in changes):
                    due = None
                    flag_array = flags_of(self.device, arrays, there[0].factor if there else 1.0)
                    flags = [flag_array.pointer + 8 * k for k in range(len(arrays))]
                else:
                    flags = [flag.pointer for flag in looked]
                if due is not None and (
                    not arrays
                    or len(there) < len(changes)
                    or any(flag.status is not due.status for flag in looked)
                ):
                    due = None
            except BaseException:
                undo()
                raise
            faults, words = self.device.faults, [guard.word.pointer for guard in guards_of(arrays)]
            code = faults.promised([change.name for change in there], undo)
            fault = [faults.word.pointer, code, len(flags), len(words), *flags, *words]
            update = _together([_KernelCall("fault", 1, fault), *steps])
            if due is not None:
                self.device.due = None
                due.fire(update)
                return
            arguments = self.device.put(update.numbers)
            for kernel, blocks, at in update.launches:
                self.device.launch(kernel, blocks, (THREADS, 1), (arguments.pointer + 8 * at,))

    def look(self) -> None:
        """Wait, and raise the error of the first bad update."""
        self.device.faults.look()

    def is_reached(self, communicator: DeviceCommunicator) -> bool:
        return communicator.reaches(self.device.empty((1,), "float32").native)

    def summed(
        self, gradients: Sequence[object], communicator: DeviceCommunicator
    ) -> tuple[Sequence[DeviceArray], int]:
        return summed(self.device, gradients, communicator)

    def _steps(self, change: Change, alive: list[DeviceArray]) -> Iterator[_KernelCall]:
        """Yield the launches that change a parameter, with their arguments ready."""
        device, gradient, moments = self.device, change.gradient, change.moments
        refuse_elsewhere(change.name, change.parameter, device)
        moments[:] = [on_device(device, moment) for moment in moments]
        parameter = device_value(device, change.parameter)
        g, rows, width = on_device(device, numbers_of(gradient)), 0, 1
        # a gradient of a step that is due has room for so many numbers
        flag = g.flag if device.due is not None else None
        size = flag.room if flag is not None and flag.status is device.due.status else g.size
        if isinstance(gradient, SparseRows):
            width = parameter.size // max(1, gradient.shape[0])
            places = places_of(device, gradient)
            rows = places.pointer
            alive += [places, g]
            if not change.by_rows:  # it becomes a whole gradient, with zeros elsewhere
                target = device.empty(gradient.shape, g.dtype.name)
                arguments = [target.pointer, g.pointer, rows, g.size, width]
                yield _KernelCall("zeros", target.nbytes // 4, [target.pointer, target.nbytes // 4])
                yield _KernelCall(f"spread_{g.kind}", size, arguments)
                g, rows, width, size = target, 0, 1, target.size
        alive.append(g)
        numbers = [parameter.pointer, g.pointer]
        numbers += [moment.pointer for moment in moments]
        numbers += [rows, g.size, width, device.faults.word.pointer]
        yield _KernelCall(
            self._kernel(change.rule, parameter), size, numbers, (change.factor, *change.numbers)
        )

    def _kernel(self, rule: Rule, parameter: DeviceArray) -> Function:
        """Return the kernel of a rule for parameters of a dtype."""
        kernel = self._kernels.get((rule, parameter.dtype))
        if kernel is None:
            text = ROUNDED + kernel_text(rule, parameter.kind)
            kernel = self._kernels[rule, parameter.dtype] = self.device.kernel(text, "step")
        return kernel
