"""What a walk has noted, as arrays: which values each call reads, and which output each value is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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

    def reads(self) -> Iterator[tuple[Slot, TensorType, Index, Index]]:
        """Yield operands and members of lists: slot, type, the numbers that are read, and by which calls."""
        for i, (_, node) in enumerate(self.signature.operands):
            yield (self.signature, i, -1), node.type, self.rows[:, 1 + i], self.bases
        for s, (_, _, members) in enumerate(self.signature.sequences):
            readers = np.repeat(self.bases, self.lengths(s))
            for m, (_, node) in enumerate(members):
                yield (self.signature, m, s), node.type, self.elements[s][:, m], readers


def noted_of(signature: Signature, lists: Lists, start: int) -> Noted:
    """Return what lists hold.

    Args:
        signature: the cell.
        lists: what its calls have appended to; data and labels stay in these very lists.
        start: the first number of the run.
    """
    rows = _integers(lists.rows).reshape(-1, signature.arguments)
    rows[:, : 1 + len(signature.operands)] -= start
    widths = [max(len(members), 1) for _, _, members in signature.sequences]
    parts = zip(lists.elements, widths, strict=True)
    elements = [_integers(flat).reshape(-1, width) - start for flat, width in parts]
    feeds = [*lists.feeds]
    for _, i in signature.draft.marks:
        feeds[i] = [number - start for number in feeds[i]]
    return Noted(signature, rows, elements, feeds, lists.labels)


def _integers(numbers: list[int]) -> Index:
    return np.fromiter(numbers, np.int64, len(numbers))


class Owners:
    """Which output of which cell each number stands for.

    Args:
        total: how many numbers there are.

    Attributes:
        of: ``[total] int32``: the place in `outputs`, -1 of a number that stands for none.
        outputs: the outputs.
    """

    def __init__(self, total: int) -> None:
        self.of = np.full(total, -1, np.int32)
        self.outputs: list[Output] = []

    def add(self, signature: Signature, bases: Index) -> None:
        """Take in calls, by their numbers ``[n]``."""
        for j in range(len(signature.outputs)):
            self.of[bases + j] = len(self.outputs)
            self.outputs.append((signature, j))

    def among(self, numbers: Index) -> set[Output]:
        """Return the outputs that numbers stand for."""
        return {self.outputs[o] for o in np.flatnonzero(np.bincount(self.of[numbers])).tolist()}

    def learn(self, learnt: Learnt, slot: Slot, numbers: Index, type_: TensorType) -> bool:
        """Take over the wires to a slot, given the numbers that are read there; return whether one is new."""
        known = learnt.wires.get(slot, set())
        found = self.among(numbers) - known
        for signature, j in found:
            if signature.outputs[j].type != type_:
                expected, given = f"elements of {type_}", f"one of {signature.outputs[j].type}"
                raise WalkError(slot[0].name, expected, given, "elements of a list have one shape and dtype")
        if found:
            learnt.wires[slot] = known | found  # a new set: the old one may come back
        return bool(found)


def leak(what: str, example: int) -> WalkError:
    """Return the error for a value of another example or run, which something reads at an example."""
    fix = "compute it in the walk of each example that uses it"
    found = "one kept from another example or run"
    return WalkError(f"{what} at example {example}", "values of the same example", found, fix)


def refuse_leaks(noted: Iterable[Noted], example: Index, numbers: Sequence[int]) -> None:
    """Refuse a call that reads a value of another example or run.

    Args:
        noted: the calls.
        example: ``[values]``: whose each number is, by place in the batch.
        numbers: the examples' numbers in the batch.
    """
    for calls in noted:
        for _, _, read, by in calls.reads():
            wrong = (read < 0) | (read >= by)
            wrong |= example.take(np.where(wrong, by, read)) != example.take(by)
            if wrong.any():
                raise leak(calls.signature.name, numbers[int(example[by[wrong][0]])])
