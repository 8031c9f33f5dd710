"""Noting: what walks have noted, checked and made a model's columns of in one compiled call.

Everything is told as integers: which outputs may be read where, and what a model has left of each cell.
`foldbatch.engines.llvm.integer_loops.noted` reads the tables.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from foldbatch.scheduler.trace import Index, Ints

# what is told of a run: how many examples, its first number, and how many values are in results; then come
# the first number of each example, and the end; of each cell its calls, and how many numbers are in each of
# its lists; the values in results; and of each cell the rows of its calls, and its lists
EXAMPLES, START, SEEN, ENDS = range(4)
# the head of what is known; then come the cells that walks call, those of the model, and what they tell of
CALLED, PARTS, OUTPUTS, IN_RESULTS, KEPT, KEPT_LISTS, CELLS = range(7)
# of a cell: how much it reads and yields; the number of its first part and of its first output; where wires
# are told, for each operand and each output of all; where lists are, two numbers each: members, and where
# their wires are; how many numbers a call takes in the model; where the places of outputs are
OPERANDS, LISTS, YIELDS, PART, OUTPUT, WIRES, LIST, WIDTH, PLACES, CELL = range(10)
# of a cell of the model: its number, arguments that are left, how many are operands, and where they are told
NUMBER, ARGUMENTS, NUMBERED, ARGUMENT, LEFT = range(5)


@dataclass(frozen=True, slots=True)
class Integers:
    """What was noted as a record for a model, but for its data; see `Trace` and `Together`."""

    calls: tuple[Ints, ...]
    elements: tuple[tuple[Ints, ...], ...]
    counts: Index
    lengths: Index
    offsets: Index
    # the new number of each value, and of what comes after the last one; None where none moves
    new: NDArray[np.integer] | None


@dataclass(frozen=True, slots=True)
class CalledCell:
    """A cell that walks call, as integers."""

    # for each operand, which outputs may be read there, counted through those of all cells
    operands: Sequence[Sequence[int]]
    lists: Sequence[Sequence[Sequence[int]]]  # the same for each list and member of its elements
    # of each output its place among those that the model has, -1 of one that is left out
    places: Sequence[int]
    # which arguments the model has, operands and then lists; None where it has not the cell
    arguments: Sequence[int] | None


class Noting:
    """What is known of a walk that calls these cells, and a model's own in order, by number.

    Results are the outputs that may be part of a result.
    """

    def __init__(self, called: Sequence[CalledCell], kept: Sequence[int], results: Sequence[int]) -> None:
        table, rest = list[int](), list[int]()
        head = CELLS + CELL * len(called) + LEFT * len(kept)

        def told(numbers: Iterable[int]) -> int:
            """Add numbers to the rest; return where they are."""
            place = head + len(rest)
            rest.extend(numbers)
            return place

        outputs = sum(len(cell.places) for cell in called)

        def wired(slots: Sequence[Sequence[int]]) -> int:
            """Tell which outputs may be read in some places; return where that is."""
            begin = told(())
            for sources in slots:
                row = [0] * outputs
                for source in sources:
                    row[source] = 1
                rest.extend(row)
            return begin

        part = output = 0
        firsts = list[int]()
        self.widths = list[int]()  # of the rows of each cell that is called
        self.members = dict[int, int]()  # of each part that is a list
        for cell in called:
            wires = wired(cell.operands)
            lists = [(len(members), wired(members)) for members in cell.lists]
            sizes = len(cell.operands), len(lists), len(cell.places)
            width = 0 if cell.arguments is None else max(1, sum(place >= 0 for place in cell.places))
            table += [*sizes, part, output, wires, told(chain.from_iterable(lists)), width, told(cell.places)]
            firsts.append(part)
            self.members |= {part + 1 + i: count for i, (count, _) in enumerate(lists)}
            self.widths.append(1 + len(cell.operands) + len(lists))
            part, output = part + 1 + len(lists), output + len(cell.places)
        self.kept = list[tuple[int, int, list[int]]]()  # of each: its first part, width, parts of lists
        for number in kept:
            cell = called[number]
            arguments = cell.arguments or ()
            left = [i - len(cell.operands) for i in arguments if i >= len(cell.operands)]
            numbered = len(arguments) - len(left)
            table += [number, len(arguments), numbered, told(arguments)]
            first = firsts[number]
            self.kept.append((first, 1 + len(arguments), [first + 1 + i for i in left]))
        self.lists = sum(len(parts) for _, _, parts in self.kept)
        given = len(called), part, output, wired([results]), len(kept), self.lists
        self.table = np.array([*given, *table, *rest], np.int64)

    def columns(
        self,
        check: Callable[..., bool],  # the compiled function
        start: int,  # the first number of the run
        ends: Sequence[int],  # after each example, the next number
        seen: Iterable[int],  # the values in results
        # of each cell that the walk calls, the rows of its calls, and its lists, flat
        noted: Sequence[Sequence[array[int] | Index]],
    ) -> Integers | None:
        """Return what was noted as columns; None where a wire is new, or a value is not the example's own."""
        examples, cells = len(ends), len(self.kept)
        sizes, in_results = list[int](), [*seen]
        arrays: list[array[int] | Index] = []
        for held, width in zip(noted, self.widths, strict=True):
            sizes += [len(held[0]) // width, *map(len, held[1:])]
            arrays += held
        head = [examples, start, len(in_results), start, *ends, *sizes]
        total, told = ends[-1] - start, len(head)
        given = np.concatenate([np.array(head + in_results, np.int64), *arrays])
        work, packed = np.empty(2 * total + 1 + len(sizes), np.int32), np.empty(len(given) - told, np.int32)
        counts = np.empty(examples * (cells + self.lists + 1) + 1, np.int64)
        if not check(given, self.table, work, packed, counts):
            return None
        calls, at = list[Ints](), 0
        for part, width, _ in self.kept:
            begin, at = at, at + sizes[part] * width
            calls.append(packed[begin:at].reshape(-1, width))
        elements = list[tuple[Ints, ...]]()
        for _, _, parts in self.kept:
            inner = list[Ints]()
            for part in parts:
                begin, at = at, at + sizes[part]
                inner.append(packed[begin:at].reshape(-1, self.members[part]))
            elements.append(tuple(inner))
        middle = examples * cells
        end = middle + examples * self.lists
        shapes = counts[:middle].reshape(examples, cells), counts[middle:end].reshape(examples, self.lists)
        return Integers(tuple(calls), tuple(elements), *shapes, counts[end:], work[total : 2 * total + 1])
