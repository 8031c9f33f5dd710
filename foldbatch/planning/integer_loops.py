"""Loops over integers that join traces, and that check and pack the calls of walks; see `compiled`.

Each loop is one pass over memory, and allocates nothing: results are written to arguments. The loops are
plain Python, too; for `translation`, they convert numbers of different kinds where these meet.
"""

from __future__ import annotations

from foldbatch.planning.noting import (
    ARGUMENT,
    ARGUMENTS,
    CALLED,
    CELL,
    CELLS,
    ENDS,
    EXAMPLES,
    IN_RESULTS,
    KEPT,
    KEPT_LISTS,
    LIST,
    LISTS,
    MODEL_CELL,
    NUMBER,
    NUMBERED,
    OPERANDS,
    OUTPUT,
    OUTPUTS,
    PART,
    PARTS,
    PLACES,
    SEEN,
    START,
    WIDTH,
    WIRES,
    YIELDS,
)
from foldbatch.scheduler.trace import Index, Ints

i4 = i8 = u8 = int  # compiled: conversions


def join(
    blocks: Ints, counters: Index, widths: Index, numbers: Index, cursors: Index, packed: Ints, heads: Ints
) -> bool:
    """Join packed traces: write `packed`, whose header is zeros before, and the header of each trace.

    A trace's header decides where the next trace begins. `cursors`, one for each trace, move from section to
    section. Return False if the blocks are not packed traces of this form, one after the other.
    """
    examples, head = heads.shape[0], heads.shape[1]
    end = 0
    for e in range(examples):
        if len(blocks) - end < head:
            return False
        for j in range(head):
            heads[e, j] = blocks[end + j]
            packed[j] += heads[e, j]
            if heads[e, j] < 0:
                return False
        end += head
        cursors[e] = end
        for s in range(len(counters)):
            end += i8(heads[e, counters[s]]) * widths[s]
    if end != len(blocks):
        return False
    to = head
    for s in range(len(counters)):
        width, number = widths[s], numbers[s]
        shift = i4(0)
        for e in range(examples):
            at, rows = cursors[e], i8(heads[e, counters[s]])
            if number > 0 and number < width:
                for i in range(rows * width):
                    packed[to + i] = blocks[at + i] + (shift if u8(i) % u8(width) < u8(number) else 0)
            else:
                addend = shift if number else 0
                for i in range(rows * width):
                    packed[to + i] = blocks[at + i] + addend
            to += rows * width
            cursors[e] = at + rows * width
            shift += heads[e, 0]
    return True


def noted(run: Index, tables: Index, work: Ints, packed: Ints, sizes: Index) -> bool:
    """Write the calls that walks have noted as the columns of a model.

    Return False if a wire is new, or a call reads a value of another example.

    Args:
        run: the noted calls, see `foldbatch.planning.noting`.
        tables: the wire tables, see there.
        work: scratch: the output that each number stands for, the new number of each, and offsets of parts.
        packed: is written: the calls of the model's cells, and then the elements of their lists.
        sizes: is written: the number of calls of each cell in each example, of elements of each list, and the
            first value of each example, and the end.
    """
    total = run[ENDS + run[EXAMPLES]] - run[START]
    number_outputs(run, tables, work, total)
    if not wires_fit(run, tables, work, total):
        return False
    renumber(run, tables, work, total)
    gather_columns(run, tables, work, packed, sizes, total)
    return True


def number_outputs(run: Index, tables: Index, work: Ints, total: int) -> None:
    """Write to `work`, for each value number, the output that it stands for, -1 for none.

    Behind these stand how many numbers each call takes in the model, at the call's first number; and the
    offsets of each cell's rows and lists in `run`.

    Args:
        run: the noted calls, see `foldbatch.planning.noting`.
        tables: the wire tables, see there.
        work: the output, scratch of `noted`.
        total: how many value numbers there are.
    """
    parts, places, start = ENDS + run[EXAMPLES] + 1, 2 * total + 1, run[START]
    at = parts + tables[PARTS] + run[SEEN]
    for i in range(total):
        work[i] = -1
    for i in range(total, places):
        work[i] = 0
    for s in range(tables[CALLED]):
        cell = CELLS + s * CELL
        part = tables[cell + PART]
        work[places + part] = i4(at)
        for _ in range(run[parts + part]):
            base = run[at] - start
            for j in range(tables[cell + YIELDS]):
                work[base + j] = i4(tables[cell + OUTPUT] + j)
            work[total + base] = i4(tables[cell + WIDTH])
            at += 1 + tables[cell + OPERANDS] + tables[cell + LISTS]
        for i in range(tables[cell + LISTS]):
            work[places + part + 1 + i] = i4(at)
            at += run[parts + part + 1 + i]


def wires_fit(run: Index, tables: Index, work: Ints, total: int) -> bool:
    """Return whether calls and results read values of their own example only, through known wires."""
    parts, places, start = ENDS + run[EXAMPLES] + 1, 2 * total + 1, run[START]
    for s in range(tables[CALLED]):
        cell = CELLS + s * CELL
        part, operands, lists = tables[cell + PART], tables[cell + OPERANDS], tables[cell + LISTS]
        for i in range(-1, lists):  # single values, and then list by list
            wires, members, item, end = tables[cell + WIRES], operands, 0, 0
            if i >= 0:
                members, wires = tables[tables[cell + LIST] + 2 * i], tables[tables[cell + LIST] + 2 * i + 1]
                item = i8(work[places + part + 1 + i])
                end = item + run[parts + part + 1 + i]
            at, example = i8(work[places + part]), 0
            for _ in range(run[parts + part]):
                while run[at] >= run[ENDS + example + 1]:
                    example += 1
                count = operands
                if i < 0:
                    item, end = at + 1, at + 1 + operands
                else:
                    count = run[at + 1 + operands + i] * members
                if count > end - item:
                    return False
                for j in range(count):
                    value = run[item + j]
                    if value < run[ENDS + example] or value >= run[at] or work[value - start] < 0:
                        return False
                    row = wires + i8(u8(j) % u8(members)) * tables[OUTPUTS]
                    if tables[row + i8(work[value - start])] == 0:
                        return False
                item += count
                at += 1 + operands + lists
            if i >= 0 and item != end:
                return False
    for i in range(parts + tables[PARTS], parts + tables[PARTS] + run[SEEN]):
        output = i8(work[run[i] - start])
        if output < 0 or tables[tables[IN_RESULTS] + output] == 0:
            return False
    return True


def renumber(run: Index, tables: Index, work: Ints, total: int) -> None:
    """Write the new number of each value in place of how many numbers it takes."""
    parts, places, following = ENDS + run[EXAMPLES] + 1, 2 * total + 1, i4(0)
    for i in range(total, places):
        taken = work[i]
        work[i] = following
        following += taken
    for s in range(tables[CALLED]):
        cell = CELLS + s * CELL
        part = tables[cell + PART]
        at = i8(work[places + part])
        for _ in range(run[parts + part]):
            base = total + run[at] - run[START]
            for j in range(tables[cell + YIELDS]):
                if tables[tables[cell + PLACES] + j] >= 0:
                    work[base + j] = work[base] + i4(tables[tables[cell + PLACES] + j])
            at += 1 + tables[cell + OPERANDS] + tables[cell + LISTS]


def gather_columns(run: Index, tables: Index, work: Ints, packed: Ints, sizes: Index, total: int) -> None:
    """Write the rows and elements that the model keeps, and their number in each example."""
    examples, parts, places = run[EXAMPLES], ENDS + run[EXAMPLES] + 1, 2 * total + 1
    cells, lists, moved = tables[KEPT], tables[KEPT_LISTS], total - run[START]
    for i in range(examples * (cells + lists)):
        sizes[i] = 0
    for i in range(examples + 1):
        sizes[examples * (cells + lists) + i] = i8(work[moved + run[ENDS + i]])
    to, list_, kept = 0, 0, CELLS + tables[CALLED] * CELL
    for k in range(cells):
        cell = CELLS + tables[kept + NUMBER] * CELL
        part, operands = tables[cell + PART], tables[cell + OPERANDS]
        numbered, argument = tables[kept + NUMBERED], tables[kept + ARGUMENT]
        at, example = i8(work[places + part]), 0
        for _ in range(run[parts + part]):
            while run[at] >= run[ENDS + example + 1]:
                example += 1
            sizes[example * cells + k] += 1
            packed[to] = work[moved + run[at]]
            for j in range(numbered):
                packed[to + 1 + j] = work[moved + run[at + 1 + tables[argument + j]]]
            for j in range(numbered, tables[kept + ARGUMENTS]):
                length = run[at + 1 + tables[argument + j]]
                packed[to + 1 + j] = i4(length)
                sizes[examples * cells + example * lists + list_ + j - numbered] += length
            to += 1 + tables[kept + ARGUMENTS]
            at += 1 + operands + tables[cell + LISTS]
        list_ += tables[kept + ARGUMENTS] - numbered
        kept += MODEL_CELL
    kept = CELLS + tables[CALLED] * CELL
    for _ in range(cells):
        cell = CELLS + tables[kept + NUMBER] * CELL
        for j in range(tables[kept + NUMBERED], tables[kept + ARGUMENTS]):
            part = tables[cell + PART] + 1 + tables[tables[kept + ARGUMENT] + j] - tables[cell + OPERANDS]
            item = i8(work[places + part])
            for i in range(item, item + run[parts + part]):
                packed[to] = work[moved + run[i]]
                to += 1
        kept += MODEL_CELL
