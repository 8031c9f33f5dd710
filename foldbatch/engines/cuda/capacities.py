"""Capacity classes: rooms that the batches of a data set fit into, learned from batches.

A class is a sequence of slots, one a step, each with room for some calls. A batch's steps are put into slots
in their order; the other slots stay empty. Backward the same slots are gone through in reverse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from math import ceil, inf, log
from typing import NamedTuple, TypeVar

import numpy as np

from foldbatch.scheduler.rooms import Item, Rooms, Shape, is_level
from foldbatch.scheduler.trace import CellSignature

K = TypeVar("K", bound=Hashable)
CLASSES = 4  # at most
SHORTER = 0.8  # steps of the next class, as a part of this one's
GROWTH = 1.5  # slots of a class, as a multiple of the steps of its longest batch, at most
DEVIATIONS = 4  # above the mean, for which there is room
GRAIN = 16  # rooms are multiples of it


class Fit(NamedTuple):
    """A class that a batch fits into, and the slot of each step: whole numbers that rise."""

    rooms: Rooms
    slots: tuple[int, ...]


def fit(classes: Sequence[Rooms], shape: Shape) -> Fit | str:
    """Return the smallest class that a batch fits into, with the slots of its steps; else why none is."""
    if not classes:
        return "no class is learned yet"
    ordered = sorted(classes, key=lambda rooms: len(rooms.shape.items))
    for rooms in ordered:
        slots = _slots(rooms.shape.items, shape.items)
        if slots is not None and _takes_wholes(rooms.shape, shape, slots) and _holds(rooms.shape, shape):
            return Fit(rooms, tuple(slots))
    if len(shape.items) > len(ordered[-1].shape.items):
        return "it has more steps than any class"
    if any(
        _found([_kind(slot) for slot in rooms.shape.items], list(map(_kind, shape.items)))
        for rooms in ordered
    ):
        return "it has more rows than a class has room for, or rows that lie otherwise"
    return "its steps come in an order that no class has"


def _holds(room: Shape, shape: Shape) -> bool:
    """Whether what is not of one step has room, too."""
    return (
        room.slices <= shape.slices
        and room.first <= shape.first
        and room.copies >= shape.copies
        and all(a >= b for a, b in zip(room.listed, shape.listed, strict=True))
        and all(a >= b for a, b in zip(room.rest, shape.rest_beside(room.slices), strict=True))
    )


def _kind(item: Item) -> tuple[int, tuple[str, ...]]:
    return item.cell, item.stages


def _slots(slots: Sequence[Item], items: Sequence[Item]) -> list[int] | None:
    """Return the first slots that items fit into, in order; None if there are none."""
    places, free = [], 0
    for item in items:
        while free < len(slots) and not _fits(slots[free], item):
            free += 1
        if free == len(slots):
            return None
        places.append(free)
        free += 1
    return places


def _takes_wholes(room: Shape, shape: Shape, slots: Sequence[int]) -> bool:
    """Whether a batch takes all slots through all calls of its cells: one that it left would run, too."""
    cells, taken = {item.cell for item in shape.items}, set(slots)
    return all(
        is_level(slot.stages) or slot.cell not in cells or number in taken
        for number, slot in enumerate(room.items)
    )


def _once(kinds: Sequence[tuple[int, tuple[str, ...]]]) -> bool:
    """Whether stages that go through all calls of a cell stand in one slot each."""
    counts = Counter((cell, stage) for cell, stages in kinds for stage in stages)
    return all(
        is_level(stages) or all(counts[cell, stage] == 1 for stage in stages) for cell, stages in kinds
    )


def _fits(slot: Item, item: Item) -> bool:
    return (
        _kind(slot) == _kind(item)
        and item.calls + bool(item.elements) <= slot.calls
        and all(few <= room for few, room in zip(item.elements, slot.elements, strict=True))
    )


def _found(kinds: Sequence[Hashable], wanted: Sequence[Hashable]) -> bool:
    """Whether kinds stand in a sequence in their order."""
    rest = iter(kinds)
    return all(kind in rest for kind in wanted)


def learn(shapes: Sequence[Shape], cells: Sequence[CellSignature]) -> list[Rooms]:
    """Return classes that batches fit into: at most `CLASSES`, none for an empty list.

    The longest batch and those with at least `SHORTER` of its steps have a class together. The next class is
    made in the same way of those that are left, and the last one of all the others. A batch whose order would
    make a class too long is left out of it, and so is one whose cells are cut otherwise into levels and steps
    through all of their calls; those have another class, if there may be one more.
    """
    longest = max((len(shape.items) for shape in shapes), default=0)
    groups: dict[int, list[Shape]] = {}
    for shape in sorted(shapes, key=lambda each: (-len(each.items), each.items)):
        if shape.items and _once(list(map(_kind, shape.items))):
            group = min(CLASSES - 1, int(log(len(shape.items) / longest) / log(SHORTER)))
            groups.setdefault(group, []).append(shape)
    rooms: list[Rooms] = []
    waiting = list(groups.values())
    while waiting and len(rooms) < CLASSES:
        room, left = _together(waiting.pop(0))
        rooms.append(Rooms(room, cells))
        waiting += [left] if left else []
    return rooms


def _together(shapes: Sequence[Shape]) -> tuple[Shape, list[Shape]]:
    """Return the room that batches need, the longest of which comes first, and those that are left out."""
    kinds: list[tuple[int, tuple[str, ...]]] = []
    most = GROWTH * max(len(shape.items) for shape in shapes)
    for shape in shapes:
        own = [_kind(item) for item in shape.items]
        longer = kinds if _found(kinds, own) else list(merged(kinds, own))
        if len(longer) <= most and _once(longer):
            kinds = longer
    seen: list[list[Item]] = [[] for _ in kinds]
    both: tuple[list[Shape], list[Shape]] = [], []
    for shape in shapes:
        both[_found(kinds, [_kind(item) for item in shape.items])].append(shape)
    left, shapes = both
    for shape in shapes:
        rest = iter(range(len(kinds)))
        for item in shape.items:
            seen[next(place for place in rest if kinds[place] == _kind(item))].append(item)
    slices = frozenset.intersection(*(shape.slices for shape in shapes))
    every = list(zip(*((shape.listed, shape.rest_beside(slices)) for shape in shapes), strict=True))
    listed, rests = (tuple(room_for(numbers) for numbers in zip(*part, strict=True)) for part in every)
    room = Shape(
        tuple(_room(items) for items in seen if items),
        slices,
        frozenset.intersection(*(shape.first for shape in shapes)),
        frozenset[int]().union(*(shape.copies for shape in shapes)),
        listed,
        rests,
    )
    return room, left


def _room(items: Sequence[Item]) -> Item:
    """Return a slot for items of one kind. Calls with elements have a free rank behind them."""
    cell, stages, _, elements = items[0]
    calls = [item.calls for item in items]
    rooms = tuple(room_for([item.elements[s] for item in items]) for s in range(len(elements)))
    return Item(cell, stages, room_for(calls, int(bool(elements))) if any(calls) else 0, rooms)


def room_for(sizes: Sequence[int], more: int = 0) -> int:
    """Return a room: the mean and `DEVIATIONS` above it, no less than the largest, and `more`, rounded up.

    >>> room_for([10, 12, 14]), room_for([1]), room_for([16], 1), room_for([0, 0])
    (32, 16, 32, 0)
    """
    seen = np.array(sizes, np.float64)
    most = max(ceil(seen.mean() + DEVIATIONS * seen.std()), int(seen.max())) + more
    return int(-(-most // GRAIN)) * GRAIN


def merged(left: Sequence[K], right: Sequence[K]) -> Iterator[K]:
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


def _ahead(sequence: Sequence[Hashable], kind: Hashable, start: int) -> float:
    """Return how far from a place on a kind comes; infinity if it does not."""
    try:
        return sequence.index(kind, start) - start
    except ValueError:
        return inf
