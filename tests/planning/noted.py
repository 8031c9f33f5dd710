"""Random calls of walks, and what loops make of these, in NumPy: an oracle."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from foldbatch.planning.noting import CalledCell, Calls, Integers
from foldbatch.scheduler.trace import Index

Wire = tuple[int, int, int, int]  # as of `NewWires`


@dataclass
class Cell:
    """A cell that walks call, and its calls."""

    operands: int
    lists: list[int]  # the members of an element, list by list
    outputs: int
    arguments: list[int] | None  # of the model's cell; None where it has none
    places: list[int]  # of each output its place among the model's, or -1
    rows: list[list[int]] = field(default_factory=list)
    elements: list[list[list[int]]] = field(default_factory=list)  # per list, of all calls


@dataclass
class Walked:
    """What walks have noted, with numbers from 0, and the wires that are known."""

    cells: list[Cell]
    ends: list[int]
    visits: list[int]  # the numbers of visits that the model has
    known: set[Wire]
    in_results: list[int]  # outputs

    @property
    def kept(self) -> list[int]:
        """The model's cells, the last one that walks call first."""
        return [k for k, cell in enumerate(self.cells) if cell.arguments is not None][::-1]

    @property
    def called(self) -> list[CalledCell]:
        described = []
        for k, cell in enumerate(self.cells):
            read = [[[] for _ in range(n)] for n in (cell.operands, *cell.lists)]
            for owner, slot, sequence, output in sorted(self.known):
                if owner == k:
                    read[sequence + 1][slot].append(output)
            described.append(CalledCell(read[0], read[1:], cell.places, cell.arguments))
        return described

    def calls(self, start: int) -> Calls:
        """Return the notes, with numbers from `start`."""
        parts = []
        for cell in self.cells:
            numbered = 1 + cell.operands
            rows = [n + (start if i < numbered else 0) for row in cell.rows for i, n in enumerate(row)]
            lists = [[n + start for element in elements for n in element] for elements in cell.elements]
            parts.append([array("q", rows), *(array("q", flat) for flat in lists)])
        return Calls(start, [end + start for end in self.ends], parts)


def random_walks(rng: np.random.Generator) -> Walked:
    """Return random calls: each reads values made before in its example, by wires of which some are known."""
    cells = []
    for _ in range(rng.integers(1, 5)):
        operands, outputs = int(rng.integers(0, 3)), int(rng.integers(0, 4))
        lists = rng.integers(1, 3, size=rng.integers(0, 3)).tolist()
        count = operands + len(lists)
        arguments = None if rng.random() < 0.2 else [i for i in range(count) if rng.random() < 0.8]
        kept = [arguments is not None and rng.random() < 0.8 for _ in range(outputs)]
        places = [sum(kept[:j]) if keep else -1 for j, keep in enumerate(kept)]
        cells.append(Cell(operands, lists, outputs, arguments, places, [], [[] for _ in lists]))
    firsts = np.cumsum([0, *(cell.outputs for cell in cells)]).tolist()
    ends, visits, wires, number = [], [], set[Wire](), 0
    for _ in range(rng.integers(1, 5)):
        made: list[tuple[int, int]] = []  # numbers and outputs of the example
        for _ in range(rng.integers(0, 8)):
            if rng.random() < 0.2:
                visits += [number] if rng.random() < 0.7 else []
                number += 1
            k = int(rng.integers(len(cells)))
            cell = cells[k]

            def read(slot: int, sequence: int) -> int:
                value, output = made[rng.integers(len(made))]
                wires.add((k, slot, sequence, output))
                return value

            if cell.operands and not made:
                continue
            row = [number, *(read(i, -1) for i in range(cell.operands))]
            for s, members in enumerate(cell.lists):
                length = int(rng.integers(0, 3)) if made else 0
                cell.elements[s] += [[read(m, s) for m in range(members)] for _ in range(length)]
                row.append(length)
            cell.rows.append(row)
            made += [(number + j, firsts[k] + j) for j in range(cell.outputs)]
            number += max(1, cell.outputs)
        ends.append(number)
    known = {wire for wire in sorted(wires) if rng.random() < 0.9}
    return Walked(cells, ends, visits, known, [o for o in range(firsts[-1]) if rng.random() < 0.9])


# -- the oracle


def owners(walked: Walked) -> Index:
    """Return the output that each number stands for, -1 for none."""
    of, first = np.full(walked.ends[-1], -1), 0
    for cell in walked.cells:
        for j in range(cell.outputs):
            of[[row[0] + j for row in cell.rows]] = first + j
        first += cell.outputs
    return of


def misread(walked: Walked) -> tuple[int, int] | None:
    """Return the first call that reads a value of another example, or a later one, as `NewWires.refused`."""
    of, example = owners(walked), np.repeat(np.arange(len(walked.ends)), np.diff([0, *walked.ends]))
    for k, cell in enumerate(walked.cells):
        reads = [(row[0], n) for row in cell.rows for n in row[1 : 1 + cell.operands]]
        for s, elements in enumerate(cell.elements):
            by = np.repeat([row[0] for row in cell.rows], [row[1 + cell.operands + s] for row in cell.rows])
            reads += [(int(base), n) for base, element in zip(by, elements, strict=True) for n in element]
        for base, n in reads:
            if not 0 <= n < base or example[n] != example[base] or of[n] < 0:
                return k, base
    return None


def wires_of(walked: Walked) -> set[Wire]:
    """Return the wires by which calls have read values."""
    of, wires = owners(walked), set[Wire]()
    for k, cell in enumerate(walked.cells):
        wires |= {(k, i, -1, int(of[row[1 + i]])) for row in cell.rows for i in range(cell.operands)}
        for s, elements in enumerate(cell.elements):
            wires |= {(k, m, s, int(of[n])) for element in elements for m, n in enumerate(element)}
    return wires


def columns(walked: Walked) -> Integers:
    """Return the calls as columns of integers, as far as the model reads them."""
    ends = np.array([0, *walked.ends])
    new = renumbered(walked)
    calls, elements, counts, lengths = [], [], [], []
    for k in walked.kept:
        cell = walked.cells[k]
        rows = np.array(cell.rows, np.int64).reshape(-1, 1 + cell.operands + len(cell.lists))
        cuts = np.searchsorted(rows[:, 0], ends)
        arguments = cell.arguments or []
        rows = rows[:, [0, *(1 + i for i in arguments)]]
        numbered = 1 + sum(i < cell.operands for i in arguments)
        calls.append(np.concatenate([new[rows[:, :numbered]], rows[:, numbered:]], axis=1))
        lists = [i - cell.operands for i in arguments[numbered - 1 :]]
        elements.append([new[np.array(cell.elements[s], np.int64).reshape(-1, cell.lists[s])] for s in lists])
        counts.append(np.diff(cuts))
        lengths += [np.diff(np.append(0, np.cumsum(column))[cuts]) for column in rows[:, numbered:].T]
    sizes = [np.array(x, np.int64).reshape(len(x), len(walked.ends)).T for x in (counts, lengths)]
    return Integers(tuple(calls), tuple(map(tuple, elements)), *sizes, new[ends], new)


def renumbered(walked: Walked) -> Index:
    """Return the new number of each value, and that after the last: what the model has not takes none."""
    widths = np.zeros(walked.ends[-1] + 1, np.int64)
    for cell in walked.cells:
        if cell.arguments is not None:
            widths[[row[0] for row in cell.rows]] = max(1, sum(place >= 0 for place in cell.places))
    widths[walked.visits] = 1
    numbers = np.cumsum(widths) - widths
    for cell in walked.cells:
        base = np.array([row[0] for row in cell.rows], np.int64)
        for j, place in enumerate(cell.places):
            if place >= 0:
                numbers[base + j] = numbers[base] + place
    return numbers


def spoilt(walked: Walked, rng: np.random.Generator) -> bool:
    """Let a call read any number, and its example need not have made that; return whether one could."""
    reads: list[tuple[Sequence[int], int]] = []
    for cell in walked.cells:
        reads += [(row, 1 + i) for row in cell.rows for i in range(cell.operands)]
        reads += [
            (element, m) for elements in cell.elements for element in elements for m in range(len(element))
        ]
    if reads:
        numbers, place = reads[rng.integers(len(reads))]
        numbers[place] = int(rng.integers(-1, walked.ends[-1] + 1))
    return bool(reads)
