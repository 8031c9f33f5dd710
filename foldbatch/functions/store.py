"""A store: the values of all rounds of a batch so far; its memory serves one batch after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foldbatch.functions.values import Numbers, Value, by_hand
from foldbatch.loops.cpython import address_of
from foldbatch.model.rounds import ValueClass
from foldbatch.model.small_batches import StoreArrays
from foldbatch.params.parameters import Array
from foldbatch.scheduler.trace import Index
from foldbatch.system.lines import aligned


class Store:
    """Values by number, those of a class in one array; numbers count from the beginning of the run."""

    def __init__(self) -> None:
        # ``[numbers] int64``: the example that has taken each, by place in the batch
        self.example: Index = np.zeros(1024, np.int64)
        self.kind: Index = np.zeros(1024, np.int64)  # ``[numbers] int64``: the number of its class
        self.place: Index = np.zeros(1024, np.int64)  # ``[numbers] int64``: its row in the array of its class
        self.total = 0  # how many numbers have owners
        self.classes: dict[type[Value], int] = {}  # the number of each class of values
        self.table: Index = np.zeros((0, ValueClass.size), np.int64)  # a `ValueClass` each
        self._arrays: list[Array] = []

    def clear(self) -> None:
        """Remove all values before another batch; their memory stays."""
        self.total = 0
        self.table[:, ValueClass.used] = 0

    def number(self, kind: type[Value]) -> int:
        """Return the number of a class of values in this store, 0 for the class that was met first.

        For a new class, an empty array of values and a row of `table` are added.
        """
        if kind not in self.classes:
            table = np.append(self.table, [[0, 0, kind.type.nbytes, 0]], axis=0)
            arrays = [*self._arrays, np.empty((0, *kind.type.shape), kind.type.dtype)]
            # in one line, which nothing interrupts
            self.table, self._arrays, self.classes[kind] = table, arrays, len(self._arrays)
        return self.classes[kind]

    def reach(self, last: int) -> bool:
        """Make room for numbers below the last one; return whether arrays are new."""
        if last <= len(self.place):
            return False
        extra = np.zeros(max(last, 2 * len(self.place)) - len(self.place), np.int64)
        for name in ("example", "kind", "place"):
            setattr(self, name, np.append(getattr(self, name), extra))
        return True

    def set_owners(self, first: int, places: Sequence[int], ends: Sequence[int], start: int) -> Index:
        """Set the examples that have taken stretches of numbers; return the stretches' sizes.

        Args:
            first: the first number of all, from the beginning of the run.
            places: per stretch, the example's place in the batch.
            ends: per stretch, the number after its last one, which counts as `start` does.
            start: the first number of the run.
        """
        sizes = np.diff(np.array(ends, np.int64) - start, prepend=first)
        owners = np.repeat(np.array(places, np.int64), sizes)
        self.total = first + len(owners)
        self.reach(self.total)
        self.example[first : self.total] = owners
        return sizes

    def counted(self, first: int) -> Index:
        """Return for each number from the first one on the count of those of its example that come before."""
        owners, before = self.example[first : self.total], np.bincount(self.example[:first])
        counts = np.bincount(owners, minlength=len(before))
        narrow = owners.astype(np.min_scalar_type(len(counts)))  # by radix, if there are few
        order = np.argsort(narrow, kind="stable")
        ranks = np.empty_like(owners)
        ranks[order] = np.arange(len(owners)) - (np.cumsum(counts) - counts).repeat(counts)
        return ranks + np.pad(before, (0, len(counts) - len(before))).take(owners)

    def reserve(self, class_: int, count: int) -> None:
        """Make room for so many further values of a class, at least doubling its array if it is full."""
        used, room, _, _ = self.table[class_].tolist()
        if used + count > room:
            values = self._arrays[class_]
            larger = aligned((max(2 * (used + count), 256), *values.shape[1:]), values.dtype)
            larger[:used] = values[:used]
            entry = len(larger), address_of(larger)
            # in one line, too
            self._arrays[class_], self.table[class_, [ValueClass.room, ValueClass.values]] = larger, entry

    def add(self, class_: int, values: Array, numbers: Index) -> None:
        """Keep values ``[n, *shape]`` of a class, of these numbers ``[n]``."""
        self.reserve(class_, len(values))
        used = int(self.table[class_, ValueClass.used])
        end = used + len(values)
        self._arrays[class_][used:end] = values
        self.table[class_, ValueClass.used] = end
        self.place[numbers] = np.arange(used, end)
        self.kind[numbers] = class_

    @property
    def arrays(self) -> StoreArrays:
        """The arrays as they are now; `reach` and `number` bring others."""
        return StoreArrays(self.example, self.kind, self.place, self.table)

    @property
    def nbytes(self) -> int:
        return int((self.table[:, ValueClass.used] * self.table[:, ValueClass.bytes]).sum())

    def take(self, class_: int, places: Index) -> Array:
        """Return values of a class by their places ``[n]``: ``[n, *shape]``."""
        return self._arrays[class_].take(places, axis=0)

    def read(self, numbers: Sequence[int], start: int) -> list[Numbers]:
        """Return values by their numbers, counted from a start; those without axes as numbers of Python."""
        if max(numbers, default=0) >= start + self.total:
            raise by_hand("walk")
        indices = np.fromiter(numbers, np.int64, len(numbers)) - start
        classes = {*self.kind.take(indices).tolist()}
        if len(classes) == 1:
            values = self.take(classes.pop(), self.place.take(indices))
            return values.tolist() if values.ndim == 1 else [*values]
        return [self.row(number - start) for number in numbers]

    def row(self, number: int) -> Numbers:
        """Return one value, which must not be changed."""
        values, place = self._arrays[self.kind.item(number)], self.place.item(number)
        return values[place] if values.ndim > 1 else values.item(place)
