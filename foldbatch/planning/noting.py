"""Wire tables: integers by which one compiled call checks the calls that walks noted, and packs them.

The tables say which outputs each operand may read (the wires that are known), and which arguments of each
cell the model has kept. `integer_loops.noted` reads them, and `integer_loops.learn` marks new wires in them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from foldbatch.loops.records import Header, Record
from foldbatch.scheduler.trace import Index, Ints

# of a check of wires: one is new, or the lists of a call are not whole; and the mark of a new wire
UNKNOWN, BROKEN, NEW = -1, -2, 2


class Run(Header):
    """The header of the calls that walks have noted.

    Behind it: the first value number of each example, and the end; per cell the number of its calls, and of
    the numbers in each of its lists; the values in results; the numbers that visits of metrics have taken, as
    far as the model has these; per cell the rows of its calls, and its lists.
    """

    examples: int  # how many there are
    start: int  # the first value number
    seen: int  # the number of values in results
    visits: int  # of numbers of visits


class WireTable(Header):
    """The header of the wire tables.

    Behind it: a record for each cell that walks call, one for each cell of the model, and the arrays that
    these point to.
    """

    called: int  # cells that walks call
    parts: int  # of all of them: rows, and lists
    outputs: int  # of all of them
    in_results: int  # the offset of a flag for each output: whether it may be part of a result
    kept: int  # cells of the model
    kept_lists: int  # lists of these
    learns: int  # whether new wires are marked


class Called(Record):
    """A cell that walks call."""

    operands: int  # how many it reads
    lists: int
    outputs: int  # how many it yields
    first_part: int
    first_output: int
    wires_at: int  # the offset of a flag for each operand and output of all cells
    lists_at: int  # the offset of two numbers for each list: members, and the offset of their wires
    width: int  # value numbers of a call in the model
    places_at: int  # the offset of the place of each output in the model, -1 of one that it has not


class Kept(Record):
    """A cell of the model."""

    number: int  # of the cell among those that walks call
    arguments: int  # how many the model has
    numbered: int  # how many of these are operands; the others are lists
    arguments_at: int  # the offset of their numbers


@dataclass(frozen=True, slots=True)
class Integers:
    """The integers of a batch's calls as a model's columns: all of a record but its data; see `Trace`."""

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


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls that walks noted, as arrays."""

    start: int  # the first number of the run
    ends: Sequence[int]  # after each example, the next number
    # of each cell that walks call, the rows of its calls, and its lists, flat
    parts: Sequence[Sequence[array[int] | Index]]


@dataclass(frozen=True, slots=True)
class NewWires:
    """The values that noted calls read, beyond the known wires."""

    # the cell and number of the first call that reads a value of another example, or one that comes later
    refused: tuple[int, int] | None
    # of each wire: the cell; the number of an operand and -1, or of a member of a list and that of the list;
    # the output
    wires: Sequence[tuple[int, int, int, int]]
    outputs: Ints  # ``[numbers]``: the output that each number of the run stands for, -1 for none


class Noting:
    """Integer tables for the compiled check of a walk's calls: known wires, and the columns a model keeps.

    Args:
        called: the cells that the walk calls.
        kept: the numbers of those that the model has, in its order.
        results: the outputs that may be part of a result.
    """

    def __init__(
        self, called: Sequence[CalledCell], kept: Sequence[int] = (), results: Sequence[int] = ()
    ) -> None:
        table, tail = list[int](), list[int]()
        head = WireTable.size + Called.size * len(called) + Kept.size * len(kept)

        def append(numbers: Iterable[int]) -> int:
            """Append numbers behind the records; return their offset."""
            place = head + len(tail)
            tail.extend(numbers)
            return place

        self.outputs = outputs = sum(len(cell.places) for cell in called)

        def wired(slots: Sequence[Sequence[int]]) -> int:
            """Append a row of flags for each slot: the outputs that it may read; return their offset."""
            begin = append(())
            for sources in slots:
                row = [0] * outputs
                for source in sources:
                    row[source] = 1
                tail.extend(row)
            return begin

        part = output = 0
        firsts = list[int]()
        self.widths = list[int]()  # of the rows of each cell that is called
        self.members = dict[int, int]()  # of each part that is a list
        # of each cell's operands, and of the members of each list: the cell, the list or -1, the offset of
        # their flags, and how many they are
        self.slots = list[tuple[int, int, int, int]]()
        for number, cell in enumerate(called):
            wires = wired(cell.operands)
            lists = [(len(members), wired(members)) for members in cell.lists]
            self.slots.append((number, -1, wires, len(cell.operands)))
            self.slots += [(number, s, flags, members) for s, (members, flags) in enumerate(lists)]
            sizes = len(cell.operands), len(lists), len(cell.places)
            width = 0 if cell.arguments is None else max(1, sum(place >= 0 for place in cell.places))
            lists_at = append(chain.from_iterable(lists))
            table += [*sizes, part, output, wires, lists_at, width, append(cell.places)]
            firsts.append(part)
            self.members |= {part + 1 + i: count for i, (count, _) in enumerate(lists)}
            self.widths.append(1 + len(cell.operands) + len(lists))
            part, output = part + 1 + len(lists), output + len(cell.places)
        self.kept = list[tuple[int, int, list[int]]]()  # of each: its first part, width, parts of lists
        for number in kept:
            cell = called[number]
            arguments = cell.arguments or ()
            sequences = [i - len(cell.operands) for i in arguments if i >= len(cell.operands)]
            numbered = len(arguments) - len(sequences)
            table += [number, len(arguments), numbered, append(arguments)]
            first = firsts[number]
            self.kept.append((first, 1 + len(arguments), [first + 1 + i for i in sequences]))
        self.lists = sum(len(parts) for _, _, parts in self.kept)
        header = len(called), part, output, wired([results]), len(kept), self.lists, 0
        self.table = np.array([*header, *table, *tail], np.int64)

    def columns(
        self,
        check: Callable[..., int],  # `integer_loops.noted`
        noted: Calls,
        seen: Iterable[int],  # the values in results
        visits: Iterable[int],  # the numbers of visits of metrics that the model has
    ) -> Integers | None:
        """Return the noted calls as columns; None if a wire is new, or a value belongs to another example."""
        examples, cells = len(noted.ends), len(self.kept)
        run, sizes, work, total = self._run(noted, [*seen], [*visits])
        packed = np.empty(len(run), np.int32)
        counts = np.empty(examples * (cells + self.lists + 1) + 1, np.int64)
        if not check(run, self.table, work, packed, counts):
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

    def new_wires(self, check: Callable[..., int], noted: Calls) -> NewWires:
        """Return the wires of noted calls that the tables do not have; `check` is `integer_loops.learn`."""
        run, sizes, work, total = self._run(noted, [], [])
        table = self.table.copy()
        WireTable(table).learns = 1
        place = check(run, table, work)
        assert place != BROKEN, "the lists of calls are whole"
        if place > 0:
            at, part = len(run) - sum(len(x) for cell_parts in noted.parts for x in cell_parts), 0
            for cell, (cell_parts, width) in enumerate(zip(noted.parts, self.widths, strict=True)):
                if at <= place < at + sizes[part] * width:
                    return NewWires((cell, int(run[place]) - noted.start), (), work[:total])
                at, part = at + sum(map(len, cell_parts)), part + len(cell_parts)
        wires = list[tuple[int, int, int, int]]()
        for cell, sequence, flags, count in self.slots if place else ():
            marked = table[flags : flags + count * self.outputs].reshape(count, self.outputs) == NEW
            wires += [(cell, slot, sequence, output) for slot, output in np.argwhere(marked).tolist()]
        return NewWires(None, wires, work[:total])

    def _run(self, noted: Calls, seen: list[int], visits: list[int]) -> tuple[Index, list[int], Ints, int]:
        """Return the table `Run` of noted calls, the sizes of their parts, scratch, and how many numbers."""
        sizes = list[int]()
        arrays: list[array[int] | Index] = []
        for cell_parts, width in zip(noted.parts, self.widths, strict=True):
            sizes += [len(cell_parts[0]) // width, *map(len, cell_parts[1:])]
            arrays += cell_parts
        start, ends = noted.start, noted.ends
        head = [len(ends), start, len(seen), len(visits), start, *ends, *sizes, *seen, *visits]
        total = ends[-1] - start
        run = np.concatenate([np.array(head, np.int64), *arrays])
        return run, sizes, np.empty(2 * total + 1 + len(sizes), np.int32), total
