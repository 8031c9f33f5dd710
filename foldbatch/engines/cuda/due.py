"""A step that is due: all is made ready, and nothing is launched until somebody looks or updates.

A captured step is one launch only if the update of the parameters is part of it, and that is asked for after
the gradients were returned. So a batch that trains returns gradients whose memory is there and whose numbers
are not. An update by exactly these gradients goes into the same launch. Whatever else is asked of the device
launches the step first, see `Device.flush`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from foldbatch.engines.cuda.arrays import DeviceArray
from foldbatch.engines.cuda.control import flagged
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.drivers.driver import Span, Touched
from foldbatch.engines.cuda.gradients import DeviceRows
from foldbatch.engines.cuda.launching import Calls, Launched, Launcher
from foldbatch.engines.cuda.memory import DeviceMemory
from foldbatch.engines.cuda.run import CudaRun
from foldbatch.engines.cuda.staging import Staging
from foldbatch.engines.cuda.status import WORDS, Status
from foldbatch.engines.cuda.steps import Step
from foldbatch.engines.cuda.texts.kernel_text import HEADER, STATUS_AT
from foldbatch.engines.cuda.texts.records import NOTE
from foldbatch.engines.cuda.update_records import Update
from foldbatch.engines.engine import Cotangents
from foldbatch.engines.launch import Ints
from foldbatch.engines.sums import total
from foldbatch.model.model import Model
from foldbatch.params import Array, Gradient, Parameter

if TYPE_CHECKING:
    from foldbatch.engines.cuda.engine import Ready


class DueRun(CudaRun):
    """A batch whose calls are launched together; see `foldbatch.engines.engine.Run`.

    Attributes:
        flags: where in the status it is told whether a gradient is finite, by the identity of its array.
    """

    def __init__(
        self,
        device: Device,
        model: Model,
        ready: Ready,
        memory: DeviceMemory,
        staging: Staging,
        calls: Calls,
        launcher: Launcher,
    ) -> None:
        self._calls = calls
        self._launcher = launcher
        super().__init__(device, model, ready, memory, staging)
        self.flags: dict[int, int] = {}
        self._feeds: Sequence[Sequence[Array]] = ()
        self._zeros: list[DeviceArray] = []
        self._sums: list[DeviceArray] = []  # values and places of the gradients of tables
        # whether the backward pass was asked for, or there is none
        self._derived = self.ready.packed.backward is None

    def _new_status(self) -> Status:
        return Status(self.device, len(self._loss_keys), self._calls.flags, zeroed=False)

    @property
    def launches(self) -> int:
        """Kernels launched so far; a step that is due is launched to be counted."""
        if self.device.due is self:
            self.device.flush()
        return self._launches

    @launches.setter
    def launches(self, count: int) -> None:
        self._launches = count

    def forward(self, feeds: Sequence[Sequence[Array]]) -> None:
        """Make a batch ready; without a backward pass, launch it."""
        self._feeds, self._zeros = feeds, self._bring_all()
        self.device.due = self
        if self._derived:
            self.device.flush()

    def backward(self, cotangents: Cotangents = ()) -> dict[Parameter, Gradient]:
        """Return gradients that are computed when somebody looks; see `Run.backward`."""
        with self.device.lock:
            if cotangents:  # nobody returns to these, so they go kernel by kernel
                self.device.flush()
            if self.device.due is not self:
                return super().backward(cotangents)
            parts, self._derived = self._gradients(), True
            if any(len(terms) > 1 for terms in parts.values()):
                self.device.flush()
            return {parameter: total(terms) for parameter, terms in parts.items()}

    def _gradients(self) -> dict[Parameter, list[Gradient]]:
        """Return memory for the gradients, by parameter, and number their flags."""
        ready = self.ready
        parts: dict[Parameter, list[Gradient]] = {}
        rows = iter(ready.packed.sums.values())
        found = flagged(ready.phase.bound, ready.tables, ready.packed)
        for place, (parameter, _, count) in enumerate(found, WORDS + len(self._loss_keys)):
            type_, array = parameter.type, self._made["gradient"].get(parameter)
            gradient: Any = array
            if count >= 0:
                array = self.device.empty((count, *type_.shape[1:]), type_.dtype)
                array.guards = (self._status,)
                places = self.device.empty((count,), "int64")
                self._sums += [array, places]
                gradient = DeviceRows(next(rows)[1].copy(), array, type_.shape, places)  # type: ignore[arg-type]
            assert array is not None
            self.flags[id(array)] = place
            parts.setdefault(parameter, []).append(gradient)
        return parts

    def first_not_finite(self, arrays: Sequence[DeviceArray]) -> int | None:
        """Return the number of the first of some of its gradients with a NaN or an infinity; waits."""
        flags = self._status.words()
        return next((k for k, array in enumerate(arrays) if flags[self.flags[id(array)]]), None)

    def fire(self, update: Update | None = None) -> None:
        """Launch the step, and an update of parameters by its gradients."""
        if not self._derived:
            self._straight()
            return
        calls, device, memory = self._calls, self.device, self.memory
        added = np.zeros(0, np.int64) if update is None else update.numbers(len(calls.numbers))
        block, table = self._brought(calls.numbers.nbytes + added.nbytes, self._feeds)
        table[: len(calls.numbers)], table[len(calls.numbers) :] = calls.numbers, added
        addresses = [*memory.addresses.tolist(), *(array.pointer for array in self._sums)]
        table[HEADER : HEADER + len(addresses)] = addresses
        pointer = self._table.pointer
        table[STATUS_AT] = pointer + 8 * calls.status_at
        word = self._status.word
        table[calls.status_at - NOTE : calls.status_at] = device.faults.word.pointer, word.pointer, word.size
        self._change(table)
        self.staging.send(block, self._end)
        self._block = block
        self._begin()
        words = pointer + 8 * calls.words_at
        launched = Launched(self._table, words, update, self._step, partial(self._touched, update))
        self._launches += self._launcher.launch(calls.arranged, launched)
        self._status.send(noted=True)
        self.staging.done(block)
        self._feeds, self._zeros = (), []

    def _change(self, table: Ints) -> None:
        """Change the table before it is sent."""

    def _begin(self) -> None:
        """Enqueue what comes before the step."""

    def _step(self, step: Step) -> None:
        status = Span(self._status.word.pointer, self._status.word.nbytes)
        self.ready.phase.walker.run([step], self._table, self.memory, status)

    def _touched(self, update: Update | None) -> Touched:
        """Return all memory that the step has."""
        memory = self.memory
        both = zip(memory.addresses.tolist(), memory.sizes.tolist(), strict=True)
        everything = [Span(*span) for span in both if span[1]]
        arrays = [*self._sums, self._status.word, self.device.faults.word, *(update.arrays if update else ())]
        everything += [Span(array.pointer, array.nbytes) for array in arrays if array.nbytes]
        return Touched([self._table, *everything], [self._table, *everything])

    def _straight(self) -> None:
        """Run forward kernel by kernel: somebody looks between both passes."""
        word = self._status.word
        self.device.driver.fill(word.pointer, 0, word.nbytes, self.device.stream)
        self._go_forward(self._feeds, self._zeros)
        self._feeds, self._zeros = (), []
