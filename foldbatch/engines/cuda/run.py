"""A batch under way on a device: what is brought, launched, and read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from foldbatch.engines.batch import arenas_of
from foldbatch.engines.cuda.arrays import DeviceArray
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.drivers.driver import Span
from foldbatch.engines.cuda.gradients import THREADS, DeviceRows, elementwise
from foldbatch.engines.cuda.memory import DeviceMemory
from foldbatch.engines.cuda.parameters import device_value
from foldbatch.engines.cuda.plans import plan_of
from foldbatch.engines.cuda.staging import GRAIN, Block, Staging
from foldbatch.engines.cuda.status import WORDS, Status
from foldbatch.engines.cuda.texts.expressions import KINDS
from foldbatch.engines.engine import Cotangents
from foldbatch.engines.launch import Ints
from foldbatch.engines.pending import pending
from foldbatch.engines.sums import total
from foldbatch.model.model import Model
from foldbatch.params import Array, Gradient, Parameter

if TYPE_CHECKING:
    from foldbatch.engines.cuda.engine import Ready


class CudaRun:
    """A batch under way; see `foldbatch.engines.engine.Run`."""

    def __init__(
        self, device: Device, model: Model, ready: Ready, memory: DeviceMemory, staging: Staging
    ) -> None:
        self.device = device
        self.model = model
        self.ready = ready
        self.memory = memory
        self.staging = staging
        self.launches = 0
        self._block: Block | None = None
        self._table, self._end = Span(0, 0), 0
        self._made: dict[str, dict[Any, DeviceArray]] = {"metric": {}, "gradient": {}, "input": {}}
        self._loss_keys = [key for key, _ in ready.phase.bound.brought["loss"]]
        self._status = self._new_status()

    def _new_status(self) -> Status:
        return Status(self.device, len(self._loss_keys))

    @property
    def within(self) -> Callable[[], AbstractContextManager[None]]:
        """What losses and gradients are read within."""
        return self._status.within

    @within.setter
    def within(self, within: Callable[[], AbstractContextManager[None]]) -> None:
        self._status.within = within

    # -- running

    def forward(self, feeds: Sequence[Sequence[Array]]) -> None:
        """Bring what the batch reads and yields, and launch."""
        if not len(self.ready.tables.forward.launches):
            self._status.send()
            return
        self._go_forward(feeds, self._bring_all())

    def _bring_all(self) -> list[DeviceArray]:
        """Bring parameters, and make memory for what the batch yields; return what must begin as zeros."""
        bound, cells = self.ready.phase.bound, self.ready.batch.schedule.cells
        for parameter, number in bound.brought["parameter"]:
            self.memory.bring(number, device_value(self.device, parameter))
        for (k, i), number in bound.brought["metric"]:
            type_ = self.model.cells[k].graph.metrics[i].type
            self._bring("metric", (k, i), number, (len(cells[k].order), *type_.shape), type_.dtype)
        return [] if self.ready.tables.backward is None else self._make_gradients()

    def _go_forward(self, feeds: Sequence[Sequence[Array]], zeros: Sequence[DeviceArray]) -> None:
        """Launch all values and losses, kernel by kernel."""
        device, cells = self.device, self.ready.batch.schedule.cells
        for array in zeros:
            device.driver.fill(array.pointer, 0, array.nbytes, device.stream)
        self._block = self._send(feeds)
        self._run(self.ready.packed.forward)
        for place, ((k, i), number) in enumerate(zip(self._loss_keys, self._loss_buffers(), strict=True)):
            count = len(cells[k].order)
            if count:
                kind = KINDS[self.model.cells[k].graph.losses[i].dtype]
                target = self._status.word.pointer + 8 * (WORDS + place)
                terms = self.memory.span(number)
                device.launch(
                    f"total_{kind}",
                    1,
                    (THREADS, 1),
                    [terms.pointer, count, target],
                    reads=[terms],
                    writes=[Span(target, 8)],
                )
        self._status.send()
        self.staging.done(self._block)

    def _loss_buffers(self) -> list[int]:
        return [number for _, number in self.ready.phase.bound.brought["loss"]]

    def _bring(self, kind: str, key: Any, number: int, shape: tuple[int, ...], dtype: str) -> DeviceArray:
        made = self._made[kind][key] = self.device.empty(shape, dtype)
        made.guards = (self._status,)
        self.memory.bring(number, made)
        return made

    def _make_gradients(self) -> list[DeviceArray]:
        """Make memory for what backward yields; return what several are added to."""
        bound = self.ready.phase.bound
        made = []
        for parameter, number in bound.brought["gradient"]:
            count = self.ready.tables.yields[parameter]
            if count:
                type_ = parameter.type
                array = self._bring("gradient", parameter, number, type_.shape, type_.dtype)
                made += [array] if count > 1 else []
        for (k, i), number in bound.brought["input"]:
            type_, rows = self.model.feeds[k][i].type, len(self.ready.batch.schedule.cells[k].order)
            made.append(self._bring("input", (k, i), number, (rows, *type_.shape), type_.dtype))
        return made

    def _send(self, feeds: Sequence[Sequence[Array]]) -> Block:
        """Pack the table and the examples' data, and copy them; return the block that they went by."""
        packed = self.ready.packed
        block, table = self._brought(packed.numbers.nbytes, feeds)
        packed.filled(table, self.memory.addresses, self._status.word.pointer)
        self.staging.send(block, self._end)
        return block

    def _brought(self, nbytes: int, feeds: Sequence[Sequence[Array]]) -> tuple[Block, Ints]:
        """Return a block with the examples' data in it, behind room for a table, and this room."""
        end = -(-nbytes // GRAIN) * GRAIN
        places = []
        for (k, i), number in self.ready.phase.bound.brought["feed"]:
            data = feeds[k][i]
            places.append((number, data, end))
            end += -(-data.nbytes // GRAIN) * GRAIN
        block = self.staging.next(end)
        for number, data, start in places:
            self.memory.bring(number, block.device, start, data.nbytes)
            target = block.host[start : start + data.nbytes].view(data.dtype).reshape(data.shape)
            target[...] = data
        self._table, self._end = Span(block.device.pointer, nbytes), end
        return block, block.host[:nbytes].view(np.int64)

    def _run(self, direction: Any) -> None:
        rows = direction.table.launches
        self.launches += int((rows[:, 2] - rows[:, 1]).sum())
        status = Span(self._status.word.pointer, self._status.word.nbytes)
        self.ready.phase.walker.run(direction.steps, self._table, self.memory, status)

    def backward(self, cotangents: Cotangents = ()) -> dict[Parameter, Gradient]:
        """Return the gradients of parameters that the batch reaches; see `Run.backward`."""
        packed, device = self.ready.packed, self.device
        assert packed.backward is not None, "forward must have run for training"
        if self._block is None:  # nothing was launched
            return {}
        with device.lock:
            for arena, (place, count) in packed.zeros.items():
                kind, words = _words(self.model.arenas[arena].nbytes)
                rows, reads = self._arena("cotangents", arena), [self._table]
                arguments = [rows.pointer, self._table.pointer + 8 * place, count, words]
                elementwise(device, f"zero_{kind}", count * words, arguments, reads=reads, writes=[rows])
            self._seed(cotangents)
            self._run(packed.backward)
            parts: dict[Parameter, list[Gradient]] = {
                parameter: [array]  # type: ignore[list-item] # to its users it is an array
                for parameter, array in self._made["gradient"].items()
            }
            self._sum_rows(parts)
            self.staging.done(self._block)
            return {parameter: total(terms) for parameter, terms in parts.items()}

    def _seed(self, cotangents: Cotangents) -> None:
        """Add the cotangents that the caller gives, value by value: a value may have several."""
        if not cotangents:
            return
        numbers = np.array([number for number, _ in cotangents], np.int64)
        rows = self.ready.batch.schedule.row_of.take(numbers)
        arenas = arenas_of(self.ready.batch, self.model.signatures).take(numbers)
        for arena in np.unique(arenas).tolist():
            own = np.flatnonzero(arenas == arena).tolist()
            type_ = self.model.arenas[arena]
            terms = self.device.put(np.stack([np.asarray(cotangents[i][1], type_.dtype) for i in own]))
            plan = self.device.put(plan_of(rows[own]))
            sums = self._arena("cotangents", arena)
            self._add_rows(terms, (plan, 0), type_.size, len(own), sums, type_.dtype, add=True)

    def _add_rows(
        self,
        terms: Span | DeviceArray,
        plan: tuple[Span | DeviceArray, int],
        width: int,
        rows: int,
        target: Span | DeviceArray,
        dtype: str,
        *,
        add: bool,
    ) -> None:
        """Add terms to rows as a plan tells, which begins at some byte of memory."""
        held, begin = plan
        arguments = [terms.pointer, held.pointer + begin, width, target.pointer, int(add)]
        name, reads = f"add_rows_{KINDS[dtype]}", [terms, held]
        elementwise(self.device, name, rows * width, arguments, reads=reads, writes=[target])

    def _sum_rows(self, parts: dict[Parameter, list[Gradient]]) -> None:
        """Add the gradients of tables, whose rows and ids the kernels have left."""
        for k, cell in enumerate(self.model.cells):
            if not len(self.ready.batch.schedule.cells[k].order):
                continue
            for i, sums in enumerate(cell.sums):
                type_ = sums.parameter.type
                number = self.ready.phase.bound.buffers[sums.values.kind, k, sums.values.key]
                values = self.memory.span(number)
                plan: tuple[Span | DeviceArray, int]
                if (k, i) in self.ready.packed.sums:
                    place, rows = self.ready.packed.sums[k, i]
                    plan = (self._table, 8 * place)
                else:  # a cell computed the ids: the host must look at them
                    self._status.look()  # first at whether they are in range
                    made = plan_of(self._left(k, sums.ids).reshape(-1).astype(np.int64))
                    held = self.device.put(made)
                    rows, plan = made[1 : 1 + made[0]], (held, 0)
                width = type_.size // max(1, type_.shape[0])
                target = self.device.empty((len(rows), *type_.shape[1:]), type_.dtype)
                self._add_rows(values, plan, width, len(rows), target, type_.dtype, add=False)
                target.guards = (self._status,)
                places = self.device.empty((len(rows),), "int64")
                if len(rows):
                    start = plan[0].pointer + plan[1] + 8
                    self.device.driver.copy(places.pointer, start, places.nbytes, self.device.stream)
                sparse = DeviceRows(rows.copy(), target, type_.shape, places)  # type: ignore[arg-type]
                parts.setdefault(sums.parameter, []).append(sparse)

    def _left(self, k: int, binding: Any) -> Array:
        """Return what a cell's kernels left in a kept buffer: ``[rows, *shape]``."""
        bound, table = self.ready.phase.bound, self.ready.batch.schedule.cells[k]
        axis = self.model.cells[k].training.kept[binding.key].axis
        rows = len(table.order)
        if axis.rank == 0:
            rows = 1
        elif axis.rank == 2:
            rows = int(table.segments[self.model.cells[k].graph.axes.index(axis)][-1])
        number = bound.buffers[binding.kind, k, binding.key]
        type_ = bound.types[number]
        assert type_ is not None, "a kept buffer is memory of the engine"
        return self._read(int(self.memory.addresses[number]), (rows, *type_.shape), type_.dtype)

    def _read(self, pointer: int, shape: tuple[int, ...], dtype: str) -> Array:
        host = self.device.driver.pinned(int(np.prod(shape)) * np.dtype(dtype).itemsize)
        if host.nbytes:
            self.device.driver.copy_out(host, pointer, self.device.stream)
            self.device.synchronize()
        return host.view(dtype).reshape(shape)

    # -- reading

    def loss_sums(self) -> dict[tuple[int, int], float]:
        """Return the summed losses, by cell and number, to be read when they are computed."""
        return {key: pending(partial(self._status.loss, i)) for i, key in enumerate(self._loss_keys)}

    @property
    def metrics(self) -> Mapping[tuple[int, int], Array]:
        """The metrics, by cell and number, ``[n, *shape]``, by rank, copied to the host."""
        return {key: np.asarray(array) for key, array in self._made["metric"].items()}

    @property
    def inputs(self) -> Mapping[tuple[int, int], Array]:
        """The gradients of data, by cell and feed, ``[n, *shape]``, by rank, copied to the host."""
        return {key: np.asarray(array) for key, array in self._made["input"].items()}

    def fetch(self, numbers: Sequence[int]) -> list[Array]:
        """Return copies of values, by their numbers in the batch."""
        self._status.look()
        values = np.array(numbers, np.int64)
        arrays: list[Array] = [np.zeros(0)] * len(values)
        arenas = arenas_of(self.ready.batch, self.model.signatures).take(values)
        rows = self.ready.batch.schedule.row_of.take(values)
        for arena in np.unique(arenas).tolist():
            places = np.flatnonzero(arenas == arena)
            type_ = self.model.arenas[arena]
            index = self.device.put(rows[places].astype(np.int64))
            taken = self.device.empty((len(places), *type_.shape), type_.dtype)
            kind, words = _words(type_.nbytes)
            held = self._arena("values", arena)
            arguments = [held.pointer, index.pointer, len(places), words, taken.pointer]
            size, reads = len(places) * words, [held, index]
            elementwise(self.device, f"take_{kind}", size, arguments, reads=reads, writes=[taken])
            copied = np.asarray(taken)
            for i, place in enumerate(places.tolist()):
                arrays[place] = copied[i, ...]
        return arrays

    def _arena(self, kind: str, arena: int) -> Span:
        """Return the memory of the values or cotangents of an arena."""
        return self.memory.span(self.ready.phase.bound.buffers[kind, arena])


def _words(nbytes: int) -> tuple[str, int]:
    """Return in which type bytes are moved, and how many numbers they are."""
    return ("i4", nbytes // 4) if nbytes % 4 == 0 else ("b1", nbytes)
