"""A store: the values of all rounds of a batch so far; its memory serves one batch after the other."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.functions.values import Value
from foldbatch.scheduler.trace import Index


class Store:
    """Values by number, those of a class in one array; numbers count from the beginning of the run."""

    def __init__(self) -> None:
        # ``[numbers] int64``: whose each is, by place in the batch
        self.example: Index = np.zeros(1024, np.int64)
        # ``[numbers] int64``: the number of its class, as told with its value
        self.kind: Index = np.zeros(1024, np.int64)
        self.place: Index = np.zeros(1024, np.int64)  # ``[numbers] int64``: its row in the array of its type
        self.known = 0  # how many numbers have been told of
        self._arrays: dict[type[Value], NDArray[Any]] = {}
        self.used: defaultdict[type[Value], int] = defaultdict(int)  # how many values of each class there are

    def clear(self) -> None:
        """Forget the values of the batch before."""
        self.known = 0
        self.used.clear()

    def number(self, examples: Index, sizes: Index) -> None:
        """Tell whose the next numbers are: so many ``[n]`` of each example ``[n]``, one after the other."""
        owners = examples.repeat(sizes)
        last = self.known + len(owners)
        if last > len(self.place):
            more = np.zeros(max(last, 2 * len(self.place)) - len(self.place), np.int64)
            for name in ("example", "kind", "place"):
                setattr(self, name, np.append(getattr(self, name), more))
        self.example[self.known : last] = owners
        self.known = last

    def add(self, kind: type[Value], class_: int, values: NDArray[Any], numbers: Index | None) -> None:
        """Keep values ``[n, *shape]`` of a class, which has a number, of these numbers ``[n]``.

        None: `kind` and `place` tell of them already.
        """
        used = self.used[kind]
        end = used + len(values)
        held = self._arrays.get(kind)
        if held is None or end > len(held):
            room = np.empty((max(2 * end, 256), *kind.type.shape), values.dtype)
            if held is not None:
                room[:used] = held[:used]
            held = self._arrays[kind] = room
        held[used:end] = values
        self.used[kind] = end
        if numbers is not None:
            self.place[numbers] = np.arange(used, end)
            self.kind[numbers] = class_

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return sum(used * kind.type.nbytes for kind, used in self.used.items())

    def take(self, kind: type[Value], places: Index) -> NDArray[Any]:
        """Return values by their places ``[n]``: ``[n, *shape]``."""
        return self._arrays[kind].take(places, axis=0)

    def row(self, kind: type[Value], number: int) -> Any:
        """Return one value, which must not be changed."""
        return self._arrays[kind][self.place[number]]
