"""Loops over integers that join traces, and that check and pack the calls of walks; see `compiled`.

Each loop is one pass over memory, and allocates nothing: results are written to arguments. The loops are
plain Python, too; for `translation`, they convert numbers of different kinds where these meet.
"""

from __future__ import annotations

from foldbatch.planning.noting import BROKEN, NEW, UNKNOWN, Called, Kept, Run, WireTable
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


def noted(noted_calls: Index, wire_tables: Index, work: Ints, packed: Ints, sizes: Index) -> bool:
    """Write the calls that walks have noted as the columns of a model.

    Return False if a wire is new, or a call reads a value of another example.

    Args:
        noted_calls: the header `Run`, and the calls behind it.
        wire_tables: the header `WireTable`, and the tables behind it.
        work: scratch: the output that each number stands for, the new number of each, and offsets of parts.
        packed: is written: the calls of the model's cells, and then the elements of their lists.
        sizes: is written: the number of calls of each cell in each example, of elements of each list, and the
            first value of each example, and the end.
    """
    run = Run(noted_calls)
    tables = WireTable(wire_tables)
    total = run.memory[Run.size + run.examples] - run.start
    number_outputs(run, tables, work, total)
    if check_wires(run, tables, work, total) != 0:
        return False
    renumber(run, tables, work, total)
    gather_columns(run, tables, work, packed, sizes, total)
    return True


def learn(noted_calls: Index, wire_tables: Index, work: Ints) -> int:
    """Mark the new wires of noted calls in the wire tables, whose header says so; return as `check_wires`.

    Arguments are those of `noted`; the first part of `work` is written: the output of each number.
    """
    run = Run(noted_calls)
    tables = WireTable(wire_tables)
    total = run.memory[Run.size + run.examples] - run.start
    number_outputs(run, tables, work, total)
    return check_wires(run, tables, work, total)


def number_outputs(run: Run, tables: WireTable, work: Ints, total: int) -> None:
    """Write to `work`, for each value number, the output that it stands for, -1 for none.

    Behind these stand how many numbers each call takes in the model, at the call's first number; and the
    offsets of each cell's rows and lists in `run`.

    Args:
        run: the noted calls.
        tables: the wire tables.
        work: the output, scratch of `noted`.
        total: how many value numbers there are.
    """
    parts, places, start = Run.size + run.examples + 1, 2 * total + 1, run.start
    at = parts + tables.parts + run.seen + run.visits
    for i in range(total):
        work[i] = -1
    for i in range(total, places):
        work[i] = 0
    for s in range(tables.called):
        cell = Called(tables.memory, WireTable.size + s * Called.size)
        part = cell.first_part
        work[places + part] = i4(at)
        for _ in range(run.memory[parts + part]):
            base = run.memory[at] - start
            for j in range(cell.outputs):
                work[base + j] = i4(cell.first_output + j)
            work[total + base] = i4(cell.width)
            at += 1 + cell.operands + cell.lists
        for i in range(cell.lists):
            work[places + part + 1 + i] = i4(at)
            at += run.memory[parts + part + 1 + i]
    for i in range(parts + tables.parts + run.seen, parts + tables.parts + run.seen + run.visits):
        work[total + run.memory[i] - start] = 1


def check_wires(run: Run, tables: WireTable, work: Ints, total: int) -> int:
    """Check that calls and results read values of their own example only, through known wires.

    Where the tables learn, each new wire is marked by `NEW`; else the first one ends the check.

    Returns:
        0 if all is known; `UNKNOWN` if a wire is new; or the place in `run` of the first call that reads a
        value of another example, or one that comes later.
    """
    result = i8(0)
    parts, places, start = Run.size + run.examples + 1, 2 * total + 1, run.start
    for s in range(tables.called):
        cell = Called(tables.memory, WireTable.size + s * Called.size)
        part, operands, lists = cell.first_part, cell.operands, cell.lists
        for i in range(-1, lists):  # single values, and then list by list
            wires, members, item, end = cell.wires_at, operands, 0, 0
            if i >= 0:
                members, wires = (
                    tables.memory[cell.lists_at + 2 * i],
                    tables.memory[cell.lists_at + 2 * i + 1],
                )
                item = i8(work[places + part + 1 + i])
                end = item + run.memory[parts + part + 1 + i]
            at, example = i8(work[places + part]), 0
            for _ in range(run.memory[parts + part]):
                while run.memory[at] >= run.memory[Run.size + example + 1]:
                    example += 1
                count = operands
                if i < 0:
                    item, end = at + 1, at + 1 + operands
                else:
                    count = run.memory[at + 1 + operands + i] * members
                if count > end - item:
                    return BROKEN
                for j in range(count):
                    value = run.memory[item + j]
                    if (
                        value < run.memory[Run.size + example]
                        or value >= run.memory[at]
                        or work[value - start] < 0
                    ):
                        return at
                    row = wires + i8(u8(j) % u8(members)) * tables.outputs
                    if tables.memory[row + i8(work[value - start])] == 0:
                        result = UNKNOWN
                        if tables.learns == 0:
                            return result
                        tables.memory[row + i8(work[value - start])] = NEW
                item += count
                at += 1 + operands + lists
            if i >= 0 and item != end:
                return BROKEN
    for i in range(parts + tables.parts, parts + tables.parts + run.seen):
        output = i8(work[run.memory[i] - start])
        if output < 0 or tables.memory[tables.in_results + output] == 0:
            return UNKNOWN
    return result


def renumber(run: Run, tables: WireTable, work: Ints, total: int) -> None:
    """Write the new number of each value in place of how many numbers it takes."""
    parts, places, following = Run.size + run.examples + 1, 2 * total + 1, i4(0)
    for i in range(total, places):
        taken = work[i]
        work[i] = following
        following += taken
    for s in range(tables.called):
        cell = Called(tables.memory, WireTable.size + s * Called.size)
        part = cell.first_part
        at = i8(work[places + part])
        for _ in range(run.memory[parts + part]):
            base = total + run.memory[at] - run.start
            for j in range(cell.outputs):
                if tables.memory[cell.places_at + j] >= 0:
                    work[base + j] = work[base] + i4(tables.memory[cell.places_at + j])
            at += 1 + cell.operands + cell.lists


def gather_columns(run: Run, tables: WireTable, work: Ints, packed: Ints, sizes: Index, total: int) -> None:
    """Write the rows and elements that the model keeps, and their number in each example."""
    examples, parts, places = run.examples, Run.size + run.examples + 1, 2 * total + 1
    cells, lists, moved = tables.kept, tables.kept_lists, total - run.start
    for i in range(examples * (cells + lists)):
        sizes[i] = 0
    for i in range(examples + 1):
        sizes[examples * (cells + lists) + i] = i8(work[moved + run.memory[Run.size + i]])
    to, list_ = 0, 0
    kept = Kept(tables.memory, WireTable.size + tables.called * Called.size)
    for k in range(cells):
        cell = Called(tables.memory, WireTable.size + kept.number * Called.size)
        part, operands = cell.first_part, cell.operands
        numbered, argument = kept.numbered, kept.arguments_at
        at, example = i8(work[places + part]), 0
        for _ in range(run.memory[parts + part]):
            while run.memory[at] >= run.memory[Run.size + example + 1]:
                example += 1
            sizes[example * cells + k] += 1
            packed[to] = work[moved + run.memory[at]]
            for j in range(numbered):
                packed[to + 1 + j] = work[moved + run.memory[at + 1 + tables.memory[argument + j]]]
            for j in range(numbered, kept.arguments):
                length = run.memory[at + 1 + tables.memory[argument + j]]
                packed[to + 1 + j] = i4(length)
                sizes[examples * cells + example * lists + list_ + j - numbered] += length
            to += 1 + kept.arguments
            at += 1 + operands + cell.lists
        list_ += kept.arguments - numbered
        kept = Kept(tables.memory, kept.offset + Kept.size)
    kept = Kept(tables.memory, WireTable.size + tables.called * Called.size)
    for _ in range(cells):
        cell = Called(tables.memory, WireTable.size + kept.number * Called.size)
        for j in range(kept.numbered, kept.arguments):
            part = cell.first_part + 1 + tables.memory[kept.arguments_at + j] - cell.operands
            item = i8(work[places + part])
            for i in range(item, item + run.memory[parts + part]):
                packed[to] = work[moved + run.memory[i]]
                to += 1
        kept = Kept(tables.memory, kept.offset + Kept.size)
