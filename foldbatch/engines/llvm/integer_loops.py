"""Index arithmetic once more, as loops over single integers, which `integers` compiles.

Results are the same to the last bit. Here every pass is one over memory. Nothing is allocated: what is
returned there is written to arguments here. They are plain Python, and can be run so; as texts of
`translation` they convert numbers of other kinds where they meet.
"""

from __future__ import annotations

from foldbatch.scheduler.noting import (
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
    LEFT,
    LIST,
    LISTS,
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
    """Write `packed`, whose head is zeros, and `heads`; return whether traces of the form fill the blocks.

    A head tells where the next one begins. `cursors`, one a trace, move from section to section.
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
                more = shift if number else 0
                for i in range(rows * width):
                    packed[to + i] = blocks[at + i] + more
            to += rows * width
            cursors[e] = at + rows * width
            shift += heads[e, 0]
    return True


def noted(given: Index, known: Index, work: Ints, packed: Ints, sizes: Index) -> bool:
    """Write what walks have noted as a model's columns; return whether all is known, and nothing leaks.

    `packed` are the calls of the model's cells, and then the elements of their lists. `sizes` are the calls
    of each cell in each example, elements of each list, and the first value of each example, and the end.
    `work` has the output that each number stands for, the new number of each, and where parts begin.
    `foldbatch.scheduler.noting` says what is given and known.
    """
    total = given[ENDS + given[EXAMPLES]] - given[START]
    number(given, known, work, total)
    if not fits(given, known, work, total):
        return False
    renumber(given, known, work, total)
    gather(given, known, work, packed, sizes, total)
    return True


def number(given: Index, known: Index, work: Ints, total: int) -> None:
    """Write what each number stands for, how many numbers it takes in the model, and where parts begin."""
    parts, places, start = ENDS + given[EXAMPLES] + 1, 2 * total + 1, given[START]
    at = parts + known[PARTS] + given[SEEN]
    for i in range(total):
        work[i] = -1
    for i in range(total, places):
        work[i] = 0
    for s in range(known[CALLED]):
        cell = CELLS + s * CELL
        part = known[cell + PART]
        work[places + part] = i4(at)
        for _ in range(given[parts + part]):
            base = given[at] - start
            for j in range(known[cell + YIELDS]):
                work[base + j] = i4(known[cell + OUTPUT] + j)
            work[total + base] = i4(known[cell + WIDTH])
            at += 1 + known[cell + OPERANDS] + known[cell + LISTS]
        for i in range(known[cell + LISTS]):
            work[places + part + 1 + i] = i4(at)
            at += given[parts + part + 1 + i]


def fits(given: Index, known: Index, work: Ints, total: int) -> bool:
    """Return whether calls and results have values of their example alone, and from where there are wires."""
    parts, places, start = ENDS + given[EXAMPLES] + 1, 2 * total + 1, given[START]
    for s in range(known[CALLED]):
        cell = CELLS + s * CELL
        part, operands, lists = known[cell + PART], known[cell + OPERANDS], known[cell + LISTS]
        for i in range(-1, lists):  # single values, and then list by list
            wires, members, item, end = known[cell + WIRES], operands, 0, 0
            if i >= 0:
                members, wires = known[known[cell + LIST] + 2 * i], known[known[cell + LIST] + 2 * i + 1]
                item = i8(work[places + part + 1 + i])
                end = item + given[parts + part + 1 + i]
            at, example = i8(work[places + part]), 0
            for _ in range(given[parts + part]):
                while given[at] >= given[ENDS + example + 1]:
                    example += 1
                count = operands
                if i < 0:
                    item, end = at + 1, at + 1 + operands
                else:
                    count = given[at + 1 + operands + i] * members
                if count > end - item:
                    return False
                for j in range(count):
                    value = given[item + j]
                    if value < given[ENDS + example] or value >= given[at] or work[value - start] < 0:
                        return False
                    row = wires + i8(u8(j) % u8(members)) * known[OUTPUTS]
                    if known[row + i8(work[value - start])] == 0:
                        return False
                item += count
                at += 1 + operands + lists
            if i >= 0 and item != end:
                return False
    for i in range(parts + known[PARTS], parts + known[PARTS] + given[SEEN]):
        output = i8(work[given[i] - start])
        if output < 0 or known[known[IN_RESULTS] + output] == 0:
            return False
    return True


def renumber(given: Index, known: Index, work: Ints, total: int) -> None:
    """Write the new number of each value in place of how many numbers it takes."""
    parts, places, next_one = ENDS + given[EXAMPLES] + 1, 2 * total + 1, i4(0)
    for i in range(total, places):
        taken = work[i]
        work[i] = next_one
        next_one += taken
    for s in range(known[CALLED]):
        cell = CELLS + s * CELL
        part = known[cell + PART]
        at = i8(work[places + part])
        for _ in range(given[parts + part]):
            base = total + given[at] - given[START]
            for j in range(known[cell + YIELDS]):
                if known[known[cell + PLACES] + j] >= 0:
                    work[base + j] = work[base] + i4(known[known[cell + PLACES] + j])
            at += 1 + known[cell + OPERANDS] + known[cell + LISTS]


def gather(given: Index, known: Index, work: Ints, packed: Ints, sizes: Index, total: int) -> None:
    """Write what the model has of calls and lists, and how many there are of each in each example."""
    examples, parts, places = given[EXAMPLES], ENDS + given[EXAMPLES] + 1, 2 * total + 1
    cells, lists, moved = known[KEPT], known[KEPT_LISTS], total - given[START]
    for i in range(examples * (cells + lists)):
        sizes[i] = 0
    for i in range(examples + 1):
        sizes[examples * (cells + lists) + i] = i8(work[moved + given[ENDS + i]])
    to, list_, kept = 0, 0, CELLS + known[CALLED] * CELL
    for k in range(cells):
        cell = CELLS + known[kept + NUMBER] * CELL
        part, operands = known[cell + PART], known[cell + OPERANDS]
        numbered, argument = known[kept + NUMBERED], known[kept + ARGUMENT]
        at, example = i8(work[places + part]), 0
        for _ in range(given[parts + part]):
            while given[at] >= given[ENDS + example + 1]:
                example += 1
            sizes[example * cells + k] += 1
            packed[to] = work[moved + given[at]]
            for j in range(numbered):
                packed[to + 1 + j] = work[moved + given[at + 1 + known[argument + j]]]
            for j in range(numbered, known[kept + ARGUMENTS]):
                length = given[at + 1 + known[argument + j]]
                packed[to + 1 + j] = i4(length)
                sizes[examples * cells + example * lists + list_ + j - numbered] += length
            to += 1 + known[kept + ARGUMENTS]
            at += 1 + operands + known[cell + LISTS]
        list_ += known[kept + ARGUMENTS] - numbered
        kept += LEFT
    kept = CELLS + known[CALLED] * CELL
    for _ in range(cells):
        cell = CELLS + known[kept + NUMBER] * CELL
        for j in range(known[kept + NUMBERED], known[kept + ARGUMENTS]):
            part = known[cell + PART] + 1 + known[known[kept + ARGUMENT] + j] - known[cell + OPERANDS]
            item = i8(work[places + part])
            for i in range(item, item + given[parts + part]):
                packed[to] = work[moved + given[i]]
                to += 1
        kept += LEFT
