"""A batch under way on a device: what is brought, launched, and read.

Nothing of a training batch is launched before somebody looks or updates: a captured step is one launch only
if the update of the parameters is part of it, and that is asked for after the gradients were returned. So a
batch returns gradients whose memory is there and whose numbers are not. An update by exactly these gradients
goes with the step. Whatever else is asked of the device launches the step first, see `Device.flush`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldbatch.engines.batch import ScheduledBatch, arenas_of, by_arena, fetched, kept_rows
from foldbatch.engines.bindings import Bound
from foldbatch.engines.cuda.captured import Arranged, Captured, Key
from foldbatch.engines.cuda.device import (
    THREADS,
    CopyOut,
    Device,
    DeviceArray,
    DeviceRows,
    Flag,
    blocks_for,
    elementwise,
)
from foldbatch.engines.cuda.fixed_kernels import FAULTS, plan_of
from foldbatch.engines.cuda.forms import STATUS_WORDS, row_size
from foldbatch.engines.cuda.kernel_text import KINDS
from foldbatch.engines.cuda.kernels import Kernel
from foldbatch.engines.cuda.memory import GRAIN, DeviceMemory, StagedBlock, Staging, capacity
from foldbatch.engines.cuda.mixed import RoundedType
from foldbatch.engines.cuda.row_texts import found_by
from foldbatch.engines.cuda.steps import StepWalker
from foldbatch.engines.cuda.updates import UpdateLaunch, device_value
from foldbatch.engines.engine import Cotangents
from foldbatch.engines.launch import Ints
from foldbatch.engines.pending import pending
from foldbatch.engines.sums import total
from foldbatch.model.model import Model
from foldbatch.params.parameters import Array, Gradient, Parameter

_NO_NUMBERS = np.zeros(0, np.int64)
OF_BATCH = ("gradient", "input", "metric", "feed")  # what a batch brings, at addresses that no launch is told


@dataclass(frozen=True)
class PhaseKernels:
    """The kernels of one phase of a model."""

    bound: Bound  # their routines
    kernels: Sequence[Kernel]  # the kernels, by number
    walker: StepWalker  # runs them
    constants: dict[int, Any]  # arrays of the model, on the device, by buffer

    @cached_property
    def fixed(self) -> NDArray[np.bool_]:
        """Whether each buffer is not brought anew by each batch: ``[buffers]``."""
        is_fixed = np.ones(len(self.bound.types), bool)
        is_fixed[[n for kind in OF_BATCH for _, n in self.bound.brought[kind]]] = False
        return is_fixed


@dataclass
class Ready:
    """A schedule made ready, for training or for inference; made anew where classes were learned since."""

    phase: PhaseKernels
    batch: ScheduledBatch  # the schedule, with data
    arranged: Arranged  # what it launches
    looks: bool  # whether the host must look at ids that a cell computes
    waits: bool  # whether it runs straight until there is a class that it fits into
    learned: int  # how often classes had been learned
    ran: bool = False  # whether it has run since it was made ready

    @property
    def ranks(self) -> Sequence[Ints] | None:
        """Per cell, where the calls of each rank are; None where they are at their ranks."""
        return None if self.arranged.placed is None else self.arranged.placed.ranks


class PartlyThere(NamedTuple):
    """The data of a feed of which the device has some rows already."""

    host: Array  # by rank, with zeros in these rows: ``[n, *shape]``
    ranks: Ints  # of these rows: ``[m]``
    values: DeviceArray  # the rows: ``[m, *shape]``

    @property
    def is_whole(self) -> bool:
        """Whether the device has all rows."""
        return len(self.ranks) == len(self.host)


class StackedCotangents(NamedTuple):
    """Cotangents of values of one arena, which the device has."""

    arena: int
    numbers: Ints  # of the values, in the batch: ``[m]``
    terms: DeviceArray  # ``[m, *shape]``


class Wanted(NamedTuple):
    """Values of one arena that a batch writes behind its status, so that one copy brings both to the host."""

    arena: int
    places: Ints  # of the values, among all that are wanted: ``[m]``
    rows: Ints  # of the arena, where they lie: ``[m]``
    room: int  # for how many of them there is room
    begin: int  # the word of the status at which they begin


class WantedValues(NamedTuple):
    """The values that are wanted of a batch."""

    numbers: Sequence[int]  # in the batch
    parts: Sequence[Wanted]  # by arena
    words: int  # that they take in the status
    table: Ints  # per part how many there are, then their rows: ``[*] int64``; each has its room

    @property
    def key(self) -> Hashable:
        """Equal where blocks and places are."""
        return tuple([(part.arena, part.room) for part in self.parts])


NONE_WANTED = WantedValues((), (), 0, _NO_NUMBERS)
TOTALS = ("float64", "float32")  # the forms of the sum of all losses


class Status:
    """The status of a batch that has run: ids out of range, and the sums of losses.

    `word` is ``[size] int64`` on the device, which the batch writes whole: whether an id was out of range,
    and where; its call's rank and the id (see `row_texts.found_by`); the word of the device's faults. Sums of
    losses follow, as bits of doubles; then 1 for each gradient that is not finite; then the sum of all
    losses, NaN if an id was out of range, as a float64 and in another word as a float32. Behind these may
    stand values of the batch, see `widen`.
    """

    def __init__(
        self, device: Device, losses: int, flags: int = 0, ranks: Sequence[Array] | None = None
    ) -> None:
        self.size = STATUS_WORDS + losses + flags + len(TOTALS)
        self.word = device.empty((self.size,), "int64")
        self.within: Callable[[], AbstractContextManager[None]] = nullcontext  # which may change errors
        self._ranks = ranks  # per cell, where the calls of each rank are; None where they are at their ranks
        self.copy: CopyOut | None = None  # of the words to the host, until they are there
        self._numbers: Array | None = None

    def widen(self, words: int) -> None:
        """Make room for values behind the status, of a batch that was not launched yet."""
        self.word = self.word.device.empty((self.size + words,), "int64")

    def send(self) -> None:
        self.copy = self.word.device.read_later(self.word)

    def look(self) -> Array:
        """Wait for the batch, refuse ids out of range, and return the sums of losses: ``[losses] float64``.

        Raises:
            OutOfRangeError: with cell and rank.
            ParameterError: when an update before the batch was refused, see `foldbatch.engines.cuda.device`.
        """
        numbers = self.words()
        if numbers[0]:
            self.word.device.faults.forget()  # updates by gradients of this batch were refused
            error = found_by(numbers[:2].tolist())
            if self._ranks is not None:
                error.rank = int(np.searchsorted(self._ranks[error.cell], error.rank))
            raise error
        self.word.device.faults.look(int(numbers[FAULTS]))
        return numbers[STATUS_WORDS:].view(np.float64)

    def words(self) -> Array:
        """Wait for the batch, and return all words: ``[size + those of values] int64``."""
        if self._numbers is None:
            if self.copy is None:
                self.word.device.flush()
            copy = self.copy
            assert copy is not None, "the batch has run"
            self._numbers, self.copy = copy.wait(), None
        return self._numbers

    def check(self) -> None:
        """Wait for the batch, and raise its error if it is bad."""
        with self.within():
            self.look()

    def loss(self, number: int) -> float:
        with self.within():
            return float(self.look()[number])


class CudaRun:
    """A batch under way; see `foldbatch.engines.engine.Run`."""

    def __init__(
        self,
        device: Device,
        model: Model,
        ready: Ready,
        memory: DeviceMemory,
        staging: Staging,
        captured: Captured | None = None,
    ) -> None:
        self.device = device
        self.model = model
        self.ready, self.arranged = ready, ready.arranged
        self.memory = memory
        self.staging = staging
        self._captured = captured if self.arranged.rooms is not None else None
        self._launches = 0
        self._block: StagedBlock | None = None
        self._table = self._after = self._end = 0  # addresses of the table and of what follows it; bytes
        self._feeds: Sequence[Sequence[Array | PartlyThere]] = ()
        # by cell and feed, in which rows of the feed's buffer the device puts what it has: ``[m] int64``
        self.placed_rows: dict[tuple[int, int], DeviceArray] = {}
        kinds = "gradient", "values", "places", "input", "metric"
        self._brought_arrays: dict[str, dict[Any, DeviceArray]] = {kind: {} for kind in kinds}
        self._wanted = NONE_WANTED
        self._looked = True
        self._loss_keys = [key for key, _ in ready.phase.bound.brought["loss"]]
        self._status = Status(device, len(self._loss_keys), len(ready.arranged.form.flagged), ready.ranks)
        # whether the backward pass was asked for, or there is none
        self._derived = ready.arranged.packed.backward is None

    @property
    def within(self) -> Callable[[], AbstractContextManager[None]]:
        """The context manager in which losses and gradients are read."""
        return self._status.within

    @within.setter
    def within(self, within: Callable[[], AbstractContextManager[None]]) -> None:
        self._status.within = within

    @property
    def launches(self) -> int:
        """Levels of kernels that have run, 1 for a graph; a step that is due is launched to be counted."""
        if self.device.due is self:
            self.device.flush()
        return self._launches

    # -- running

    @property
    def status(self) -> Status:
        """Its status, which tells whether it is bad."""
        return self._status

    def forward(self, feeds: Sequence[Sequence[Array | PartlyThere]]) -> None:
        """Bring data, parameters and results into place; the launches wait until something is read."""
        if not len(self.arranged.tables.forward.launches):
            word = self._status.word
            self.device.driver.fill(word.pointer, 0, word.nbytes, self.device.stream)
            self._status.send()
            return
        self._feeds = feeds
        self._bring()
        self.device.due = self

    def backward(
        self, cotangents: Cotangents = (), stacked: Sequence[StackedCotangents] = (), *, looked: bool = True
    ) -> dict[Parameter, Gradient]:
        """Enqueue the backward pass; return the gradients by parameter, as arrays on the device.

        They have no numbers yet: the device writes them later. Where nothing reads a number before the
        update, forward, backward and update are launched together by `fire`.

        Args:
            cotangents: numbers of values, each with the cotangent to begin with; by default only losses are
                derived.
            stacked: more of them, which the device has.
            looked: whether the batch looks at whether its gradients are finite, as our optimizers ask.
        """
        assert self.arranged.packed.backward is not None, "forward must have run for training"
        if not len(self.arranged.tables.forward.launches):
            return {}
        device = self.device
        with device.lock:
            device.follow()
            if device.due is self and (cotangents or stacked or self.ready.looks):
                device.flush()
            self._derived, self._looked = True, looked
            if device.due is not self:  # it has run forward
                self._zero_and_seed(cotangents, stacked)
                if self._captured is None:
                    self._derive()
                else:
                    launched = self._launches
                    if self._captured.run(self._key("backward"), self._derive):
                        self._launches = launched + 1
                assert self._block is not None
                self.staging.release(self._block)
            parts = self._gradients()
            if any(len(terms) > 1 for terms in parts.values()):
                device.flush()
            return {parameter: total(terms) for parameter, terms in parts.items()}

    def fire(self, update: UpdateLaunch | None = None) -> None:
        """Launch the passes that `forward` and `backward` have noted, then an update by their gradients."""
        packed, memory = self.arranged.packed, self.memory
        update_numbers = _NO_NUMBERS if update is None else update.numbers
        wanted, flags = (
            self._wanted,
            self.arranged.form.flag_table if self._looks_at_gradients else _NO_NUMBERS,
        )
        starts = [0, *accumulate(map(len, (packed.numbers, flags, update_numbers, wanted.table)))]
        block, table = self._brought(8 * starts[-1])
        values, places = self._brought_arrays["values"], self._brought_arrays["places"]
        sums = [array[key].pointer for key in packed.sums for array in (values, places)]
        packed.filled(table[: starts[1]], memory.addresses, sums, self._status.word.pointer)
        for start, numbers in zip(starts[1:], (flags, update_numbers, wanted.table), strict=False):
            table[start : start + len(numbers)] = numbers
        self.staging.send(block, self._end)
        self._place_rows()
        self._block, self._table = block, block.device.pointer
        self._after = self._table + 8 * starts[2]
        enqueue = partial(self._enqueue, update, starts[1], starts[3])
        if self._captured is None:
            enqueue()
        else:
            part = "whole" if self._looks_at_gradients else "both" if self._derived else "forward"
            key = self._key(part, update)
            if self._captured.run(key, enqueue):
                self._launches = 1
        self._status.send()
        self.staging.release(block)
        self._feeds = ()

    def _key(self, part: str, update: UpdateLaunch | None = None) -> Key:
        """Return the key of the graph of a part of the batch, which is in a class."""
        rooms = self.arranged.rooms
        assert rooms is not None, "it is captured"
        fixed = self.memory.addresses[self.ready.phase.fixed].tobytes()
        return Key(rooms, self._table, fixed, (update and update.key, self._wanted.key), part)

    @property
    def _looks_at_gradients(self) -> bool:
        """Whether `fire` tells which gradients are finite."""
        return self._is_whole and self._looked and bool(self.arranged.form.flagged)

    @property
    def _is_whole(self) -> bool:
        """Whether the backward pass, too, is launched by `fire`."""
        return self._derived and self.arranged.packed.backward is not None

    def _enqueue(self, update: UpdateLaunch | None, flags_at: int, wanted_at: int) -> None:
        """Enqueue the batch: what is told of it here is the same for all batches of a class.

        Args:
            update: by its gradients.
            flags_at: where in the table it is told which gradients are looked at.
            wanted_at: where in the table the rows of values that are wanted lie.
        """
        self._around("begin", self._status.size, self._status.size)
        for number, nbytes in self.arranged.form.cleared:
            self._around("clear", -(-nbytes // 4), number, nbytes)
        self._run(0)
        for place, ((k, i), number) in enumerate(self.ready.phase.bound.brought["loss"], STATUS_WORDS):
            if not self.arranged.form.ranks[k]:  # its sum stays zero
                continue
            kind = KINDS[self.model.cells[k].graph.losses[i].dtype]
            arguments = self._table, number, self.arranged.packed.wholes[k], place
            self.device.launch(f"total_{kind}", 1, (4 * THREADS, 1), arguments)
        for part in self._wanted.parts:
            kind, words = self._value_words(part.arena)
            buffer = self.ready.phase.bound.buffers["values", part.arena]
            self._around(f"results_{kind}", part.room * words, buffer, wanted_at, words, part.begin)
            wanted_at += 1 + part.room
        if self._is_whole:
            self._zero_and_seed((), ())
            self._derive()
        if self._looks_at_gradients:
            self._around("flagged", self.arranged.form.flag_room, flags_at)
        place, losses = self._status.size - len(TOTALS), len(self._loss_keys)
        sums = self._table, self.device.faults.word.pointer, STATUS_WORDS, losses, place
        self.device.launch("end", 1, (1, 1), sums)
        for kernel, blocks, at in () if update is None else update.launches:
            self.device.launch(kernel, blocks, (THREADS, 1), (self._after + 8 * at,))

    def _around(self, name: str, size: int, *numbers: int) -> None:
        """Run a kernel of `fixed_kernels` on so many elements."""
        self.device.launch(name, blocks_for(size), (THREADS, 1), (self._table, *numbers))

    def _run(self, direction: int) -> None:
        table = (self.arranged.tables.forward, self.arranged.tables.backward)[direction]
        assert table is not None, "what is run was made ready"
        self._launches += int((table.launches[:, 2] - table.launches[:, 1]).sum())
        addresses = self.memory.addresses.tolist()
        self.ready.phase.walker.run(self.arranged.steps[direction], self._table, addresses)

    def _zero_and_seed(self, cotangents: Cotangents, stacked: Sequence[StackedCotangents]) -> None:
        """Enqueue what makes the cotangents ready that a backward pass begins with."""
        ready, bound = self.ready, self.ready.phase.bound
        for arena, (place, room) in ready.arranged.packed.zeros.items():
            kind, words = _words(self.model.arenas[arena].nbytes)
            self._around(f"zero_{kind}", room * words, bound.buffers["cotangents", arena], place, words)
        self._seed(cotangents, stacked)

    def _derive(self) -> None:
        """Enqueue the backward pass and the sums of rows of tables."""
        ready, bound = self.ready, self.ready.phase.bound
        self._run(1)
        for at, (k, i) in enumerate(ready.arranged.packed.sums):
            sums, (plan, _) = self.model.cells[k].sums[i], ready.arranged.packed.sums[k, i]
            width, room = row_size(sums.parameter), self.arranged.form.rows[k, i]
            values, target = bound.buffers[sums.values.kind, k, sums.values.key], len(bound.types) + 2 * at
            name = f"summed_{KINDS[sums.parameter.type.dtype]}"
            self._around(name, room * width, values, plan, width, target)
            self._around("targets", room, plan, target + 1)

    def _bring(self) -> None:
        """Bring parameters, and make memory for what the batch yields."""
        for parameter, number in self.ready.phase.bound.brought["parameter"]:
            self.memory.bring(number, device_value(self.device, parameter))
        brought, guards = self.arranged.form.brought, (self._status,)
        if not brought.arrays:
            return
        buffer = self.device.allocate(brought.nbytes)
        sums = self.arranged.packed.sums
        for kind, key, number, room, dtype, offset in brought.arrays:
            # a sparse gradient has room for more rows than this batch has
            shape = (len(sums[key][1]), *room[1:]) if kind in ("values", "places") else room
            self._brought_arrays[kind][key] = DeviceArray(self.device, buffer, shape, dtype, offset, guards)
            if number >= 0:
                self.memory.bring(number, buffer, offset)

    def _brought(self, nbytes: int) -> tuple[StagedBlock, Ints]:
        """Pack the examples' data behind a table of so many bytes; return the block and the table."""
        ready = self.ready
        end = -(-nbytes // GRAIN) * GRAIN
        places = []
        for (k, i), number in ready.phase.bound.brought["feed"]:
            column = self._feeds[k][i]
            data = column.host if isinstance(column, PartlyThere) else column
            shape = (ready.arranged.form.ranks[k], *data.shape[1:])
            if isinstance(column, PartlyThere) and column.is_whole:
                self.memory.bring(number, self.device.empty(shape, data.dtype.name))
                continue
            size = prod(shape) * data.itemsize
            places.append((k, number, data, shape, end, size))
            end += -(-size // GRAIN) * GRAIN
        block = self.staging.next(end)
        for k, number, data, shape, start, size in places:
            self.memory.bring(number, block.device, start)
            target = block.host[start : start + size].view(data.dtype).reshape(shape)
            target[... if ready.ranks is None else ready.ranks[k]] = data
        self._end = end
        return block, block.host[:nbytes].view(np.int64)

    def _place_rows(self) -> None:
        """Put the rows of data that the device has into the buffers of their feeds."""
        for (k, i), number in self.ready.phase.bound.brought["feed"]:
            column = self._feeds[k][i]
            if isinstance(column, PartlyThere) and column.values.size:
                values = column.values
                at = self.placed_rows[k, i] = self.device.put(self.rows_of(k, column.ranks))
                width = values.size // values.shape[0]
                address = int(self.memory.addresses[number])
                numbers = [address, values.pointer, at.pointer, values.size, width]
                arguments = self.device.put(np.array(numbers, np.int64))
                elementwise(self.device, f"spread_{values.kind}", values.size, [arguments.pointer])

    def rows_of(self, cell: int, ranks: Ints) -> Ints:
        """Return in which rows of its feeds' buffers the data of a cell's calls lie: ``[n] int64``."""
        rows = ranks if self.ready.ranks is None else np.asarray(self.ready.ranks[cell]).take(ranks)
        return rows.astype(np.int64)

    def _gradients(self) -> dict[Parameter, list[Gradient]]:
        """Return the gradients, by parameter, and note their flags."""
        parts: dict[Parameter, list[Gradient]] = {}
        values, places = self._brought_arrays["values"], self._brought_arrays["places"]
        sums = iter(self.arranged.packed.sums.items())
        for place, flag in enumerate(self.arranged.form.flagged, STATUS_WORDS + len(self._loss_keys)):
            parameter = flag.parameter
            array: Any = self._brought_arrays["gradient"].get(parameter)
            gradient = array
            if flag.plan:
                key, (_, targets) = next(sums)
                array = values[key]
                gradient = DeviceRows(targets.copy(), array, parameter.type.shape, places[key])
            if self._looked and self.device.due is self:  # else its status is written already
                array.flag = Flag(self._status, place, flag.room)
            parts.setdefault(parameter, []).append(gradient)
        if self.ready.looks:
            self._sum_looked(parts)
        return parts

    def _seed(self, cotangents: Cotangents, stacked: Sequence[StackedCotangents]) -> None:
        """Add the cotangents that the caller gives, value by value: a value may have several."""
        seeds = list(stacked)
        if cotangents:
            arenas = arenas_of(self.ready.batch.merged.trace, self.model.signatures)
            for arena, numbers, values in by_arena(cotangents, arenas):
                terms = self.device.put(values.astype(self.model.arenas[arena].dtype))
                seeds.append(StackedCotangents(arena, numbers, terms))
        for arena, numbers, terms in seeds:
            type_ = self.model.arenas[arena]
            plan = self.device.put(plan_of(self._lie(arena, numbers)))
            target = self._arena("cotangents", arena)
            arguments = [terms.pointer, plan.pointer, type_.size, target, 1]
            elementwise(self.device, f"add_rows_{KINDS[type_.dtype]}", terms.size, arguments)

    def _sum_looked(self, parts: dict[Parameter, list[Gradient]]) -> None:
        """Add the gradients of tables whose ids a cell computed: the host must look at them."""
        for k, cell in enumerate(self.model.cells):
            for i, sums in enumerate(cell.sums):
                if (k, i) in self.arranged.packed.sums or not len(self.ready.batch.schedule.cells[k].order):
                    continue
                self._status.look()  # first at whether they are in range
                plan = plan_of(self._written_rows(k, sums.ids).reshape(-1).astype(np.int64))
                type_, plan_on_device = sums.parameter.type, self.device.put(plan)
                rows = plan[1 : 1 + plan[0]].astype(np.int64)
                target = self.device.empty((len(rows), *type_.shape[1:]), type_.dtype)
                target.guards = (self._status,)
                number = self.ready.phase.bound.buffers[sums.values.kind, k, sums.values.key]
                values, width = int(self.memory.addresses[number]), row_size(sums.parameter)
                arguments = [values, plan_on_device.pointer, width, target.pointer, 0]
                name = f"add_rows_{KINDS[type_.dtype]}"
                elementwise(self.device, name, len(rows) * width, arguments)
                places = self.device.put(rows)
                sparse = DeviceRows(rows, target, type_.shape, places)  # type: ignore[arg-type]
                parts.setdefault(sums.parameter, []).append(sparse)

    def _written_rows(self, k: int, binding: Any) -> Array:
        """Return the rows that a cell's kernels wrote to a kept buffer: ``[rows, *shape]``."""
        bound, axis = self.ready.phase.bound, self.model.cells[k].training.kept[binding.key].axis
        rows = kept_rows(self.ready.batch.schedule, self.model, k, axis)
        number = bound.buffers[binding.kind, k, binding.key]
        type_ = bound.types[number]
        assert type_ is not None, "a kept buffer is memory of the engine"
        buffer = self.memory.sources[number]
        return self.device.read(DeviceArray(self.device, buffer, (rows, *type_.shape), type_.dtype))

    # -- reading

    def loss_sums(self) -> dict[tuple[int, int], float]:
        return {key: pending(partial(self._status.loss, i)) for i, key in enumerate(self._loss_keys)}

    @property
    def metrics(self) -> Mapping[tuple[int, int], Array]:
        return {key: self._by_rank(key, array) for key, array in self._brought_arrays["metric"].items()}

    @property
    def inputs(self) -> Mapping[tuple[int, int], Array]:
        return {key: self._by_rank(key, array) for key, array in self._brought_arrays["input"].items()}

    def _by_rank(self, key: tuple[int, int], array: DeviceArray) -> Array:
        values = np.asarray(array)
        return values if self.ready.ranks is None else values[self.ready.ranks[key[0]]]

    def expect(self, numbers: Sequence[int]) -> None:
        """Let values, by their numbers in the batch, come to the host with its status, if it is still due."""
        with self.device.lock:
            if self.device.due is not self or self._wanted is not NONE_WANTED:
                return
            parts, end, table = list[Wanted](), self._status.size, list[Ints]()
            every = np.array(numbers, np.int64)
            arenas = self._arenas_of(every)
            for arena in np.unique(arenas).tolist():
                places = np.flatnonzero(arenas == arena)
                rows, room = self._lie(arena, every[places]), capacity(len(places))
                parts.append(Wanted(arena, places, rows, room, end))
                end += -(-room * self.model.arenas[arena].nbytes // 8)
                table += [np.array([len(rows)]), rows, np.zeros(room - len(rows), np.int64)]
            if parts:
                words = end - self._status.size
                self._wanted = WantedValues(numbers, parts, words, np.concatenate(table))
                self._status.widen(words)

    def _arenas_of(self, numbers: Ints) -> Ints:
        """Return the arena of each value of a result, by its number in the batch: ``[n]``."""
        if len(self.model.results) == 1:
            return np.full(len(numbers), next(iter(self.model.results)), np.int64)
        return arenas_of(self.ready.batch.merged.trace, self.model.signatures).take(numbers)

    def fetch(self, numbers: Sequence[int]) -> list[Array]:
        """Wait for the batch, and return values by their numbers; see `Run.fetch`.

        Those that were expected, or are asked for before the launch, have come with the status.
        """
        self.expect(numbers)
        self._status.look()  # also where none is asked for
        wanted = self._wanted
        if wanted.numbers == numbers and wanted.parts:
            words = self._status.words()
            values: list[Array] = [words] * len(numbers)
            for part in wanted.parts:
                type_ = self.model.arenas[part.arena]
                memory = words[part.begin :].view(np.uint8)[: len(part.rows) * type_.nbytes]
                rows = memory.view(type_.dtype).reshape(-1, *type_.shape)
                for row, place in enumerate(part.places.tolist()):
                    values[place] = rows[row, ...]
            return values
        arenas = partial(arenas_of, self.ready.batch.merged.trace, self.model.signatures)
        return fetched(numbers, self.model.results, arenas, self.take)

    def take(self, arena: int, numbers: Ints) -> Array:
        """Return copies of values of an arena, by their numbers."""
        self._status.look()
        return np.asarray(self.gathered(arena, numbers))

    def gathered(self, arena: int, numbers: Ints) -> DeviceArray:
        """Return copies of values of an arena, by their numbers, on the device; nobody waits.

        Of a batch that is bad, numbers of 4 bytes or more have all bits set, so floats are NaN.
        """
        rows = self._lie(arena, numbers)
        type_ = self.model.arenas[arena]
        index = self.device.put(rows.astype(np.int64))
        taken = self.device.empty((len(rows), *type_.shape), type_.dtype)
        taken.guards = (self._status,)
        kind, words = self._value_words(arena)
        arguments = [self._arena("values", arena), index.pointer, len(rows), words, taken.pointer]
        name = f"take_{kind}"
        if kind != "b1":
            name = "gathered" if kind == "i4" else f"gathered_{kind}"
            arguments = [*arguments, self._status.word.pointer]
        elementwise(self.device, name, len(rows) * words, arguments)
        return taken

    def loss(self, dtype: str) -> DeviceArray:
        """Return the sum of all losses on the device, of one of `TOTALS`; NaN of a batch that is bad."""
        self.device.flush()
        word = self._status.word
        place = self._status.size - len(TOTALS) + TOTALS.index(dtype)
        return DeviceArray(self.device, word.buffer, (), dtype, 8 * place, (self._status,))

    def slopes(self) -> DeviceArray | None:
        """Return the memory of all gradients that the batch yields, with gaps; None where dtypes differ."""
        slopes = self.arranged.form.brought.slopes
        if slopes is None:
            return None
        dtype, nbytes = slopes
        array = next(array for arrays in self._brought_arrays.values() for array in arrays.values())
        return DeviceArray(self.device, array.buffer, (nbytes // np.dtype(dtype).itemsize,), dtype)

    def input_rows(self, key: tuple[int, int]) -> DeviceArray | None:
        """Return the gradients of a feed's data, as they lie in its buffer; None where there are none."""
        return self._brought_arrays["input"].get(key)

    def _value_words(self, arena: int) -> tuple[str, int]:
        """Return in which type values of an arena are moved to a reader, and how many numbers they are."""
        bound = self.ready.phase.bound
        stored = bound.types[bound.buffers["values", arena]]
        if isinstance(stored, RoundedType):
            return "b2", stored.size
        return _words(self.model.arenas[arena].nbytes)

    def _lie(self, arena: int, numbers: Ints) -> Ints:
        """Return the rows of values that lie in an arena, by their numbers in the batch."""
        rows = self.ready.batch.schedule.row_of.take(numbers)
        placed = self.arranged.placed
        return rows if placed is None else placed.rows[arena].take(rows).astype(np.int64)

    def _arena(self, kind: str, arena: int) -> int:
        """Return the address of the values or cotangents of an arena."""
        return int(self.memory.addresses[self.ready.phase.bound.buffers[kind, arena]])


def _words(nbytes: int) -> tuple[str, int]:
    """Return in which type bytes are moved, and how many numbers they are."""
    return ("i4", nbytes // 4) if nbytes % 4 == 0 else ("b1", nbytes)
