"""Capacity classes: sequences of slots that the calls of a data set's batches fit into.

A captured graph has the same launches every time. So its launches are slots, learned from batches: each is
for one op and has a capacity. A batch's calls are put into slots in their order; the other slots stay empty.
Forward, slots are counted from the first call on, and backward from the last one: so the level of the leaves
has the same slots in a deep batch and in a flat one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, inf, log
from typing import NamedTuple

import numpy as np

from foldbatch.engines.cuda.memory import capacity

CLASSES = 4  # at most
SHORTER = 0.8  # calls of the next class, as a part of this one's
GROWTH = 1.5  # slots of a class, as a multiple of the calls of its longest batch, at most
DEVIATIONS = 4  # above the mean, for which there is room
TURNS = 2  # a launch of fewer blocks does the rest in a second turn; more would be too slow


class Item(NamedTuple):
    """A call as far as slots are concerned: its op, and its size: blocks that can work on it side by side."""

    op: int
    size: int


class Slot(NamedTuple):
    """A place for calls of one op, with the size that it has room for."""

    op: int
    capacity: int


class Signature(NamedTuple):
    """The calls of a batch, of both directions."""

    forward: tuple[Item, ...]
    backward: tuple[Item, ...]

    @property
    def calls(self) -> int:
        """How many calls there are."""
        return len(self.forward) + len(self.backward)


@dataclass(frozen=True, slots=True, eq=False)  # graphs are found by it: it has hundreds of slots
class Capacities:
    """A class: its slots, of both directions."""

    forward: tuple[Slot, ...]
    backward: tuple[Slot, ...]

    @property
    def slots(self) -> tuple[Slot, ...]:
        """All slots, in the order in which they run."""
        return self.forward + self.backward


class Placement(NamedTuple):
    """A class that a batch fits into, and the slot of each call: whole numbers that rise."""

    chosen: Capacities
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Miss:
    """Why a batch fits into no class."""

    reason: str


def fit(classes: Sequence[Capacities], signature: Signature) -> Placement | Miss:
    """Return the smallest class that a batch fits into, with the places of its calls; else why none is.

    >>> one = Capacities((Slot(0, 8), Slot(1, 8)), (Slot(2, 8),))
    >>> fit([one], Signature((Item(1, 5),), (Item(2, 5),))).places
    (1, 2)
    >>> fit([one], Signature((Item(1, 5), Item(0, 5)), ())).reason
    'its calls come in an order that no class has'
    """
    if not classes:
        return Miss("no class is learned yet")
    ordered = sorted(classes, key=lambda chosen: len(chosen.slots))
    for chosen in ordered:
        forward = _placed(chosen.forward, signature.forward)
        backward = _placed(chosen.backward[::-1], signature.backward[::-1])
        if forward is not None and backward is not None:
            last = len(chosen.slots) - 1
            return Placement(chosen, (*forward, *(last - place for place in reversed(backward))))
    if signature.calls > len(ordered[-1].slots):
        return Miss("it has more calls than any class")
    if any(_in_order(chosen, signature) for chosen in ordered):
        return Miss("it has more rows than a class has room for")
    return Miss("its calls come in an order that no class has")


def _in_order(chosen: Capacities, signature: Signature) -> bool:
    """Whether calls fit, but for their sizes."""
    both = (chosen.forward, signature.forward), (chosen.backward, signature.backward)
    return all(_found([slot.op for slot in slots], [item.op for item in items]) for slots, items in both)


def _placed(slots: Sequence[Slot], items: Sequence[Item]) -> list[int] | None:
    """Return the first slots that items fit into, in order; None if there are none."""
    places, free = [], 0
    for op, size in items:
        while free < len(slots) and (slots[free].op != op or size > TURNS * slots[free].capacity):
            free += 1
        if free == len(slots):
            return None
        places.append(free)
        free += 1
    return places


def _found(ops: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether ops stand in a sequence in their order."""
    rest = iter(ops)
    return all(op in rest for op in wanted)


def learn(signatures: Sequence[Signature]) -> list[Capacities]:
    """Return classes that batches fit into: at most `CLASSES`, none for an empty list.

    The longest batch and those with at least `SHORTER` of its calls have a class together. The next class is
    made in the same way of those that are left, and the last one of all the others. A batch whose order would
    make a class too long is left out of it.
    """
    longest = max((signature.calls for signature in signatures), default=0)
    groups: dict[int, list[Signature]] = {}
    for signature in sorted(set(signatures), key=lambda each: (-each.calls, each)):
        if signature.calls:
            group = min(CLASSES - 1, int(log(signature.calls / longest) / log(SHORTER)))
            groups.setdefault(group, []).append(signature)
    return [_class_of(group) for group in groups.values()]


def _class_of(signatures: Sequence[Signature]) -> Capacities:
    forward = _slots([signature.forward for signature in signatures])
    backward = _slots([signature.backward[::-1] for signature in signatures])
    return Capacities(forward, backward[::-1])


def _slots(sequences: Sequence[tuple[Item, ...]]) -> tuple[Slot, ...]:
    """Return slots for sequences, the longest of which comes first or nearly so."""
    ops: list[int] = []
    most = GROWTH * max(map(len, sequences))
    for items in sequences:
        own = [item.op for item in items]
        together = ops if _found(ops, own) else list(merged(ops, own))
        if len(together) <= most:
            ops = together
    sizes: list[list[int]] = [[] for _ in ops]
    open_slots = [Slot(op, 1 << 60) for op in ops]
    for items in sequences:
        for place, item in zip(_placed(open_slots, items) or (), items, strict=False):
            sizes[place].append(item.size)
    return tuple(Slot(op, room_for(seen)) for op, seen in zip(ops, sizes, strict=True))


def room_for(sizes: Sequence[int]) -> int:
    """Return a capacity: the mean and `DEVIATIONS` above it, no less than the largest, rounded up.

    >>> room_for([10, 12, 14]), room_for([1])
    (20, 1)
    """
    seen = np.array(sizes or [1], np.float64)
    return capacity(max(ceil(seen.mean() + DEVIATIONS * seen.std()), int(seen.max())))


def merged(left: Sequence[int], right: Sequence[int]) -> Iterator[int]:
    """Yield a sequence that has both in it: in their order, and what follows each other in both once.

    Where they differ, it goes on with the one that comes sooner to what the other has there.

    >>> list(merged([1, 2, 3], [1, 3, 4]))
    [1, 2, 3, 4]
    """
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] == right[j]:
            yield left[i]
            i, j = i + 1, j + 1
            continue
        in_right, in_left = _ahead(right, left[i], j), _ahead(left, right[j], i)
        if in_right < in_left:
            yield right[j]
            j += 1
        else:
            yield left[i]
            i += 1
    yield from left[i:]
    yield from right[j:]


def _ahead(sequence: Sequence[int], op: int, start: int) -> float:
    """Return how far from a place on an op comes; infinity if it does not."""
    try:
        return sequence.index(op, start) - start
    except ValueError:
        return inf
