"""What a walk has noted, as arrays: which values each call reads, and which output each value is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import WalkError
from foldbatch.functions.cells import Signature
from foldbatch.functions.learnt import Learnt, Output, Slot
from foldbatch.functions.notes import Lists
from foldbatch.types import TensorType

Index = NDArray[np.int64]
_NONE: Index = np.zeros(0, np.int64)
_NO_WIRES: frozenset[Output] = frozenset()


@dataclass(eq=False, slots=True)
class Noted:
    """Calls of a cell; numbers of values count from the beginning of the run.

    Attributes:
        signature: the cell.
        rows: ``[n, arguments]``: a call's number, those of its operands, lengths of its lists.
        elements: per list ``[m, members]``, those of all calls one after the other.
        feeds, labels: data and labels, in the order of calls.
    """

    signature: Signature
    rows: Index
    elements: list[Index]
    feeds: list[list[Any]]
    labels: list[list[Any]]

    @property
    def bases(self) -> Index:
        """The numbers of calls ``[n]``."""
        return self.rows[:, 0]

    def lengths(self, number: int) -> Index:
        """Return the lengths ``[n]`` of a list."""
        return self.rows[:, 1 + len(self.signature.operands) + number]


@dataclass(eq=False, slots=True)
class Reads:
    """Every value that calls read, operands and members of lists.

    Attributes:
        slots: where values are read, and of what type.
        slot: ``[reads]``: the place in `slots`.
        numbers: ``[reads]``: the numbers that are read.
        by: ``[reads]``: the calls that read them.
    """

    slots: list[tuple[Slot, TensorType]]
    slot: Index
    numbers: Index
    by: Index


def reads_of(noted: Iterable[Noted]) -> Reads:
    """Return what calls read."""
    slots = list[tuple[Slot, TensorType]]()
    found: list[tuple[Index, Index, Index]] = [(_NONE, _NONE, _NONE)]

    def add(own: list[tuple[Slot, TensorType]], numbers: Index, by: Index) -> None:
        if width := len(own):
            at = np.arange(len(slots), len(slots) + width)
            found.append((np.full((len(by), width), at).ravel(), numbers.ravel(), np.repeat(by, width)))
            slots.extend(own)

    for calls in noted:
        cell = calls.signature
        operands = [((cell, i, -1), node.type) for i, (_, node) in enumerate(cell.operands)]
        add(operands, calls.rows[:, 1 : 1 + len(operands)], calls.bases)
        for s, (_, _, members) in enumerate(cell.sequences):
            inner = [((cell, m, s), node.type) for m, (_, node) in enumerate(members)]
            add(inner, calls.elements[s], np.repeat(calls.bases, calls.lengths(s)))
    return Reads(slots, *map(np.concatenate, zip(*found, strict=True)))


def numbers_of(lists: Iterable[Lists], start: int) -> Index:
    """Return all numbers that calls of cells have appended to lists, cell by cell: rows, then elements.

    They count from the first number of the run; lengths among them do, too, which `noted_in` undoes.
    """
    numbers = list[int]()
    for own in lists:
        numbers += own.rows
        for flat in own.elements:
            numbers += flat
    found = np.fromiter(numbers, np.int64, len(numbers))
    found -= start
    return found


def noted_in(numbers: Index, lists: Mapping[Signature, Lists], start: int) -> dict[Signature, Noted]:
    """Return what lists hold, given their numbers; see `noted_of`."""
    found, end = {}, 0
    for signature, own in lists.items():
        begin, end = end, end + len(own.rows)
        rows = numbers[begin:end].reshape(-1, signature.arguments)
        elements = []
        if signature.sequences:
            rows[:, 1 + len(signature.operands) :] += start  # lengths
            for flat, (_, _, members) in zip(own.elements, signature.sequences, strict=True):
                begin, end = end, end + len(flat)
                elements.append(numbers[begin:end].reshape(-1, max(len(members), 1)))
        feeds = [*own.feeds]
        for _, i in signature.draft.marks:
            feeds[i] = [number - start for number in feeds[i]]
        found[signature] = Noted(signature, rows, elements, feeds, own.labels)
    return found


def noted_of(lists: Mapping[Signature, Lists], start: int) -> dict[Signature, Noted]:
    """Return what lists hold.

    Args:
        lists: what calls of cells have appended to; data and labels stay in these very lists.
        start: the first number of the run.
    """
    return noted_in(numbers_of(lists.values(), start), lists, start)


class Owners:
    """Which output of which cell each number stands for.

    Args:
        total: how many numbers there are.

    Attributes:
        of: ``[total]``: the place in `outputs`, -1 of a number that stands for none.
        outputs: the outputs.
    """

    def __init__(self, total: int) -> None:
        self.of = np.full(total, -1, np.int64)
        self.outputs: list[Output] = []

    def add(self, signature: Signature, bases: Index) -> None:
        """Take in calls, by their numbers ``[n]``."""
        for j in range(len(signature.outputs)):
            self.of[bases + j] = len(self.outputs)
            self.outputs.append((signature, j))

    def among(self, numbers: Index) -> set[Output]:
        """Return the outputs that numbers stand for."""
        return {self.outputs[o] for o in np.flatnonzero(np.bincount(self.of[numbers])).tolist()}

    def learn(self, learnt: Learnt, reads: Reads) -> bool:
        """Take over the wires to slots, given what is read there; return whether one is new."""
        width = len(self.outputs)
        present = np.zeros(len(reads.slots) * width, bool)
        present[reads.slot * width + self.of.take(reads.numbers)] = True
        grown = False
        for place in np.flatnonzero(present).tolist():
            (slot, type_), output = reads.slots[place // width], self.outputs[place % width]
            known = learnt.wires.get(slot, _NO_WIRES)
            if output not in known:
                refuse_other_type(slot[0], type_, output[0].outputs[output[1]].type)
                learnt.wires[slot] = {*known, output}  # a new set: the old one may come back
                grown = True
        return grown


def refuse_other_type(signature: Signature, type_: TensorType, given: TensorType) -> None:
    """Refuse a value of another type than a slot of a cell reads."""
    if given != type_:
        fix = "elements of a list have one shape and dtype"
        raise WalkError(signature.name, f"elements of {type_}", f"one of {given}", fix)


def leak(what: str, example: int) -> WalkError:
    """Return the error for a value of another example or run, which something reads at an example."""
    fix = "compute it in the walk of each example that uses it"
    found = "one kept from another example or run"
    return WalkError(f"{what} at example {example}", "values of the same example", found, fix)


def refuse_leaks(reads: Reads, example: Index, numbers: Sequence[int]) -> None:
    """Refuse a call that reads a value of another example or run.

    Args:
        reads: what calls read.
        example: ``[values]``: whose each number is, by place in the batch.
        numbers: the examples' numbers in the batch.
    """
    read, by = reads.numbers, reads.by
    wrong = (read < 0) | (read >= by)
    whose = example.take(by)
    wrong |= example.take(read, mode="clip") != whose
    if wrong.any():
        first = int(wrong.argmax())
        raise leak(reads.slots[int(reads.slot[first])][0][0].name, numbers[int(whose[first])])
