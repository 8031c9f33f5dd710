"""The form of a batch: the arrays that it makes, their places in memory, the gradients that are looked at.

Batches of a capacity class have one form. A batch in no class has its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from math import prod
from typing import Any, NamedTuple

import numpy as np

from foldbatch.engines.bindings import Bound, Directions
from foldbatch.engines.cuda.memory import GRAIN
from foldbatch.engines.cuda.steps import SUMMED, PackedBatch
from foldbatch.engines.launch import Ints
from foldbatch.params.parameters import Parameter
from foldbatch.scheduler.rooms import Rooms
from foldbatch.scheduler.schedule import Schedule

STATUS_WORDS = 3  # of a batch's status before the losses


class Brought(NamedTuple):
    """An array that a batch makes, beside others in one piece of memory."""

    kind: str  # "gradient", "metric", "input"; "values" or "places" of a gradient that has some rows
    key: Any  # the parameter, or the cell and the number there
    number: int  # of its buffer; -1 of a gradient that has some rows
    shape: tuple[int, ...]  # of a gradient that has some rows, with room for all that it may have
    dtype: str
    offset: int  # bytes


class BroughtArrays(NamedTuple):
    """The arrays that a batch makes: first the gradients of parameters, by dtype."""

    arrays: Sequence[Brought]
    nbytes: int  # of all
    slopes: tuple[str, int] | None  # the gradients' dtype, and their bytes with gaps; None where they differ


class Flagged(NamedTuple):
    """A gradient that a batch makes, and that is looked at: of which parameter, and in which buffer.

    It has `width` numbers, or with a plan so many for each of its targets; at most `room`.
    """

    parameter: Parameter
    buffer: int
    width: int
    plan: int
    room: int


class BatchForm:
    """The arrays, ranks and flags of batches of a class; of a batch in no class, those of its schedule.

    Args:
        bound: the routines.
        tables: the launch tables.
        packed: the packed table; of a class, that of a batch that takes all room.
        ranks: per cell, for how many ranks there is room.
        rows: by sum of rows, how many targets it has at most.
    """

    def __init__(
        self,
        bound: Bound,
        tables: Directions,
        packed: PackedBatch,
        ranks: Sequence[int],
        rows: Mapping[tuple[int, int], int],
    ) -> None:
        self.ranks = ranks
        self.rows = rows
        self._bound, self._tables, self._packed = bound, tables, packed

    @cached_property
    def brought(self) -> BroughtArrays:
        """The arrays that the batch makes, in one piece of memory."""
        bound, sums = self._bound, self._packed.sums
        model, arrays, end = bound.model, list[Brought](), 0
        slopes: tuple[str, int] | None = None

        def add(kind: str, key: object, number: int, shape: tuple[int, ...], dtype: str) -> None:
            nonlocal end
            arrays.append(Brought(kind, key, number, shape, dtype, end))
            end += -(-prod(shape) * np.dtype(dtype).itemsize // GRAIN) * GRAIN

        if self._packed.backward is not None:
            for parameter, number in bound.brought["gradient"]:
                if self._tables.yields[parameter]:
                    add("gradient", parameter, number, parameter.type.shape, parameter.type.dtype)
            types = {(k, i): model.cells[k].sums[i].parameter.type for k, i in sums}
            for key in sums:
                add("values", key, -1, (self.rows[key], *types[key].shape[1:]), types[key].dtype)
            dtypes = {array.dtype for array in arrays}
            slopes = (dtypes.pop(), end) if len(dtypes) == 1 else None
            for key in sums:
                add("places", key, -1, (self.rows[key],), "int64")
            for (k, i), number in bound.brought["input"]:
                type_ = model.feeds[k][i].type
                add("input", (k, i), number, (self.ranks[k], *type_.shape), type_.dtype)
        for (k, i), number in bound.brought["metric"]:
            type_ = model.cells[k].graph.metrics[i].type
            add("metric", (k, i), number, (self.ranks[k], *type_.shape), type_.dtype)
        return BroughtArrays(arrays, end, slopes)

    @cached_property
    def cleared(self) -> list[tuple[int, int]]:
        """The buffers that begin as zeros, and their bytes."""
        if self._tables.backward is None:
            return []
        brought, yields, model = self._bound.brought, self._tables.yields, self._bound.model
        inputs = [(n, model.feeds[k][i].type.nbytes * self.ranks[k]) for (k, i), n in brought["input"]]
        return [(n, p.type.nbytes) for p, n in brought["gradient"] if yields[p] > 1] + inputs

    @cached_property
    def flagged(self) -> list[Flagged]:
        """The gradients that are looked at; those of tables last, which only have some rows."""
        bound, flags = self._bound, list[Flagged]()
        for parameter, number in bound.brought["gradient"]:
            if self._tables.yields[parameter]:
                flags.append(Flagged(parameter, number, parameter.type.size, 0, parameter.type.size))
        for at, ((k, i), (plan, _)) in enumerate(self._packed.sums.items()):
            parameter, buffer = bound.model.cells[k].sums[i].parameter, len(bound.types) + SUMMED * at
            width = row_size(parameter)
            flags.append(Flagged(parameter, buffer, width, plan, self.rows[k, i] * width))
        return flags

    @cached_property
    def flag_room(self) -> int:
        """How many numbers the gradients that are looked at have at most."""
        return sum(flag.room for flag in self.flagged)

    @cached_property
    def flag_table(self) -> Ints:
        """The numbers by which ``flagged`` is told of all gradients, see `fixed_kernels`: ``[*] int64``."""
        flags, place = self.flagged, STATUS_WORDS + len(self._bound.brought["loss"])
        rows = [
            (flag.buffer, flag.width, flag.plan, place + k, np.dtype(flag.parameter.type.dtype).itemsize)
            for k, flag in enumerate(flags)
        ]
        return np.array([len(flags), *chain.from_iterable(rows)], np.int64)


def form_of_class(bound: Bound, tables: Directions, packed: PackedBatch, rooms: Rooms) -> BatchForm:
    """Return the form of the batches of a class."""
    model, rows = bound.model, {}
    for k, i in packed.sums:
        table, ids = model.cells[k].sums[i].parameter.type.shape[0], model.cells[k].sums[i].ids
        rows[k, i] = min(rooms.sizes[k] * model.feeds[k][int(ids.key)].type.size, table)
    return BatchForm(bound, tables, packed, rooms.sizes, rows)


def form_of_schedule(bound: Bound, tables: Directions, packed: PackedBatch, schedule: Schedule) -> BatchForm:
    """Return the form of a batch in no class."""
    rows = {key: len(targets) for key, (_, targets) in packed.sums.items()}
    return BatchForm(bound, tables, packed, [len(table.order) for table in schedule.cells], rows)


def row_size(parameter: Parameter) -> int:
    """Return how many numbers a row of a table has."""
    return parameter.type.size // max(1, parameter.type.shape[0])
