"""Control tables and launches of a batch, as loops over single integers; `tables` compiles them.

`write_tables` does what `scheduler.tables.placed` and `engines.bindings.facts_of` do, and `write_launches`
what `engines.bindings.launch_tables` does: these are the specifications, and results are equal to the last
bit. The loops read two arrays, one of the model and one of the batch, and write a third one, `memory`. Each
array begins with a header: counts, and offsets of the tables behind it. A table is a row of records of equal
size, and a record is a row of named integers. All of it runs as plain Python, too.
"""
# ruff: noqa: PLR1714, SIM109, SIM110 - compiled text has no tuples and no generators

from __future__ import annotations

from typing import TypeVar

from foldbatch.engines.launch import HEAD
from foldbatch.scheduler.trace import Index, Ints

Numbers = TypeVar("Numbers", Index, Ints)
i4 = i8 = u8 = int  # compiled: conversions


def moved(array: Numbers, count: int) -> Numbers:
    """Return an array without its first numbers; compiled, a pointer."""
    return array[count:]


# The header of the model: the number of cells, operands, sequences, arenas and facts, a flag (rows are
# numbered by consumer), and the number of phases; then the offsets of columns, outputs, priority, phases,
# members and sizes. Behind it: the records of cells, operands and sequences, which are copied to the memory;
# columns, the arguments that operands read as offsets in a call's row; the arena of each output; the cells in
# the order in which they choose rows; the records of phases; the members of phases; and the sizes of the
# parts of the memory, three integers each: how many it has at least, and how many more for each value and for
# each call.
KINDS, SPANS, LISTS, ARENAS, FACTS, BY_CONSUMER, PHASES = range(7)
COLUMNS_AT, OUTPUTS_AT, PRIORITY_AT, PHASES_AT, MEMBERS_AT, SIZES_AT, MODEL_HEADER = range(7, 14)
# The header of the batch: the offsets of turns and of shares, and the size of shares. Behind it: a record for
# each cell, which is the fields from `GROUPS` up to `CALLS` of its record in the memory; the turns of cells
# that call each other, two integers each (cell, group); and for each cell that shares calls, as in
# `scheduler.sharing.Sharing`: the calls rank by rank, the bounds of ranks in them, the calls that are left
# out, and the calls that stand for these.
TURNS_AT, SHARES_AT, SHARED, BATCH_HEADER = range(4)
# The header of the memory: the number of steps, the size of the index, and offsets of its parts: the records
# of cells, operands and sequences; the row of each value; the calls of each cell in rank order; the bounds of
# groups; the steps, four integers each (cell, stage, first rank, last rank); facts; the rows that start at
# zero; the end of these for each arena; the first row of each arena; shares; scratch; and the index, which is
# the last part. FEEDS_AT is the offset of the feeds in the packed trace.
STEPS, INDEX_END, CELLS_AT, SPANS_AT, LISTS_AT, ROW_OF, RANKS, BOUNDS_AT, STEPS_AT, FACTS_AT = range(10)
ZEROS, ENDS, BASES, SHARES, WORK, INDEX, FEEDS_AT, MEMORY_HEADER = range(10, 18)
# The record of a cell. Fields of the model: the number of arguments and of sequences, its first sequence; the
# number of outputs, its first output; the number of operands, its first operand; whether it is recursive; and
# the number of feeds that the packed trace has. Fields of the batch (`BATCH_FIELDS` of them): the number of
# groups; the offset of its shares, or UNSHARED; the number of ranks, of calls that have one of these, and of
# calls that are left out. Fields that are computed: the number of calls, the first of its ranks, the offset
# of its rows in the packed trace, and the offsets of its group bounds and of its facts.
ARGUMENTS, SEQUENCES, SEQUENCE, OUTPUTS, OUTPUT, OPERANDS, OPERAND, RECURSIVE, FEEDS = range(9)
GROUPS, SHARE, DISTINCT, RUNNING, DROPPED, CALLS = range(9, 15)
FIRST, ROWS, GROUP_BOUNDS, FACT, CELL = range(15, 20)
BATCH_FIELDS = CALLS - GROUPS
UNSHARED, FIND = (
    -1,
    -2,
)  # in place of shares: there are none; of groups or shares: `find_groups` computes them
# The record of an operand. Fields of the model: its arena, the offset of its columns, the number of columns,
# its sequence or -1, its member of the sequence's elements, and whether it is differentiable. Fields of the
# span of rows that it reads: the first row, or -1; the number of rows; the offset of its index array, or -1;
# whether a row repeats; whether it stores cotangents; and the offset of its facts.
ARENA, COLUMN, COLUMNS, RAGGED, MEMBER, DIFFERENTIABLE = range(6)
START, SIZE, PLACE, REPEATS, STORES, SPAN_FACT, SPAN = range(6, 13)
# The record of a sequence: the integers of an element, the offset of its elements in the packed trace, the
# offset of its segments in the index, and that of the fact of its widest step.
WIDTH, ELEMENTS, SEGMENTS, WIDEST, LIST = range(5)
# The record of a phase: its first member, the one after its last, and whether it is a recursion.
MEMBER_FIRST, MEMBER_LAST, RECURS, PHASE = range(4)
BEFORE, STEP, AFTER, ALL_STAGES = range(4)  # the stages of a step
STAGES = 3
DIGITS = 256  # values of a digit of a sort


def layout_memory(memory: Index, fixed: Index, batch: Index, rows: Ints) -> int:
    """Write the memory's header, and the fields of records that follow from model, batch and counts.

    Return the offset in the packed trace at which the group of each call stands.
    """
    calls, at = 0, i8(MEMORY_HEADER)
    for cell in range(fixed[KINDS]):
        calls += i8(rows[1 + cell])
    for place in range(CELLS_AT, FEEDS_AT):
        memory[place], size = at, fixed[SIZES_AT] + 3 * (place - CELLS_AT)
        at += fixed[size] + fixed[size + 1] * i8(rows[0]) + fixed[size + 2] * calls
    for i in range(memory[ROW_OF] - MEMORY_HEADER):
        memory[MEMORY_HEADER + i] = fixed[MODEL_HEADER + i]
    for i in range(i8(rows[0])):
        memory[memory[ROW_OF] + i] = -1
    for i in range(fixed[ARENAS] + 1):
        memory[memory[BASES] + i] = 0
    for i in range(batch[SHARED]):
        memory[memory[SHARES] + i] = batch[batch[SHARES_AT] + i]
    cells, sequences = moved(memory, memory[CELLS_AT]), moved(memory, memory[LISTS_AT])
    first, row = 0, i8(1 + fixed[KINDS] + fixed[LISTS])
    for cell in range(fixed[KINDS]):
        k = cell * CELL
        for i in range(BATCH_FIELDS):
            cells[k + GROUPS + i] = batch[BATCH_HEADER + cell * BATCH_FIELDS + i]
        cells[k + CALLS], cells[k + FIRST], cells[k + ROWS] = i8(rows[1 + cell]), first, row
        first += cells[k + CALLS]
        row += cells[k + CALLS] * (1 + cells[k + ARGUMENTS] + cells[k + SEQUENCES])
    for s in range(fixed[LISTS]):
        sequences[s * LIST + ELEMENTS] = row
        row += i8(rows[1 + fixed[KINDS] + s]) * sequences[s * LIST + WIDTH]
    memory[FEEDS_AT] = row + calls  # behind a group a call
    return row


def write_levels(memory: Index, fixed: Index, rows: Ints, groups: Ints, phase: int) -> bool:
    """Write the level of each call of a phase, going by the numbers of values.

    Return False if the calls of a cell are not in the order of their values; then levels are incomplete.
    """
    members, last = moved(fixed, fixed[MEMBERS_AT]), fixed[fixed[PHASES_AT] + phase * PHASE + MEMBER_LAST]
    first, level_of = fixed[fixed[PHASES_AT] + phase * PHASE + MEMBER_FIRST], moved(memory, memory[WORK])
    calls = 0
    for value in range(i8(rows[0])):
        level_of[value] = -1
    for m in range(first, last):  # meanwhile: the number of the cell's next call, and the offset of its row
        k = memory[CELLS_AT] + members[m] * CELL
        memory[k + GROUP_BOUNDS], memory[k + FACT] = 0, memory[k + ROWS]
        calls += memory[k + CALLS]
    for s in range(fixed[LISTS]):
        sequence = memory[LISTS_AT] + s * LIST
        memory[sequence + SEGMENTS] = memory[sequence + ELEMENTS]
    for _ in range(calls):
        k, call, level = -1, i8(0), i8(-1)
        for m in range(first, last):
            candidate = memory[CELLS_AT] + members[m] * CELL
            at = memory[candidate + FACT]
            if memory[candidate + GROUP_BOUNDS] < memory[candidate + CALLS] and (
                k < 0 or rows[at] < rows[call]
            ):
                k, call = candidate, at
        value, arguments = i8(rows[call]), memory[k + ARGUMENTS]
        width = 1 + arguments + memory[k + SEQUENCES]
        if memory[k + GROUP_BOUNDS] > 0 and i8(rows[call - width]) > value:
            return False
        for at in range(call + 1, call + 1 + arguments):
            level = max(level, level_of[rows[at]])
        for s in range(memory[k + SEQUENCES]):
            sequence = memory[LISTS_AT] + (memory[k + SEQUENCE] + s) * LIST
            start = memory[sequence + SEGMENTS]
            memory[sequence + SEGMENTS] += i8(rows[call + 1 + arguments + s]) * memory[sequence + WIDTH]
            for at in range(start, memory[sequence + SEGMENTS]):
                level = max(level, level_of[rows[at]])
        for output in range(value, value + memory[k + OUTPUTS]):
            level_of[output] = level + 1
        groups[memory[k + FIRST] + memory[k + GROUP_BOUNDS]] = i4(level + 1)
        memory[k + GROUP_BOUNDS] += 1
        memory[k + FACT] += width
    return True


def levels(fixed: Index, batch: Index, rows: Ints, memory: Index) -> bool:
    """Write the levels of all phases; arguments and result are those of `write_tables`."""
    groups = moved(rows, layout_memory(memory, fixed, batch, rows))
    for phase in range(fixed[PHASES]):
        if not write_levels(memory, fixed, rows, groups, phase):
            return False
    return True


def digit(key: int, shift: int) -> int:
    """Return eight bits of a key, from bit `shift` on: one digit of a radix sort."""
    return i8((u8(key) >> u8(shift)) % u8(DIGITS))


def sort_keys(keys: Ints, count: int, order: Index, work: Index) -> None:
    """Write the stable order of keys, by a radix sort; `work` has room for the keys and the digits."""
    smallest, largest, shift = i8(0), i8(-1), 0
    for i in range(count):
        order[i] = i
        smallest = min(smallest, i8(keys[i])) if i > 0 else i8(keys[i])
        largest = max(largest, i8(keys[i])) if i > 0 else i8(keys[i])
    ends = moved(work, count)
    while largest > smallest and u8(largest - smallest) >> u8(shift) > u8(0):
        for i in range(DIGITS):
            ends[i] = 0
        for i in range(count):
            ends[digit(i8(keys[i]) - smallest, shift)] += 1
        for i in range(1, DIGITS):
            ends[i] += ends[i - 1]
        for i in range(count - 1, -1, -1):
            place = digit(i8(keys[order[i]]) - smallest, shift)
            ends[place] -= 1
            work[ends[place]] = order[i]
        for i in range(count):
            order[i] = work[i]
        shift += 8


def group(keys: Ints, count: int, order: Index, bounds: Index, work: Index) -> int:
    """Write the stable order of keys, the bounds of equal keys in it, and the end; return how many differ."""
    groups = 0
    sort_keys(keys, count, order, work)
    for i in range(count):
        if i == 0 or keys[order[i]] != keys[order[i - 1]]:
            bounds[groups] = i
            groups += 1
    bounds[groups] = count
    return groups


def share_calls(memory: Index, k: int, keys: Ints, order: Index) -> None:
    """Write the shares of a cell, whose calls of equal keys run once; UNSHARED if all keys differ."""
    count = memory[k + CALLS]
    groups = group(keys, count, order, moved(order, count), moved(memory, memory[WORK]))
    if groups == count:
        memory[k + SHARE] = UNSHARED
    memory[k + DISTINCT], memory[k + RUNNING] = groups, count


def find_groups(memory: Index, fixed: Index, rows: Ints, groups: Ints) -> bool:
    """Compute the groups and shares that the batch leaves to this code, and the offsets of group bounds.

    Return False if calls are not in the order of their values, so that levels cannot be computed here.
    """
    feeds, shared, bound = moved(rows, memory[FEEDS_AT]), 0, memory[BOUNDS_AT]
    for phase in range(fixed[PHASES]):
        p = fixed[PHASES_AT] + phase * PHASE
        for m in range(fixed[p + MEMBER_FIRST], fixed[p + MEMBER_LAST]):  # a single cell, if it is FIND
            k = memory[CELLS_AT] + fixed[fixed[MEMBERS_AT] + m] * CELL
            cell_groups, group_count = moved(groups, memory[k + FIRST]), 0
            if memory[k + GROUPS] == FIND:
                for i in range(memory[k + CALLS]):
                    cell_groups[i] = i4(0)
                if memory[k + RECURSIVE] != 0 and not write_levels(memory, fixed, rows, groups, phase):
                    return False
                for i in range(memory[k + CALLS]):
                    group_count = max(group_count, i8(cell_groups[i]) + 1)
                memory[k + GROUPS] = group_count
    for cell in range(fixed[KINDS]):
        k = memory[CELLS_AT] + cell * CELL
        if memory[k + SHARE] == FIND:
            memory[k + SHARE] = shared
            to = moved(memory, memory[SHARES] + shared)
            if memory[k + FEEDS] > 0:
                share_calls(memory, k, feeds, to)
            else:  # calls without arguments and feeds are equal, and so are their levels
                share_calls(memory, k, moved(groups, memory[k + FIRST]), to)
            shared += 2 * memory[k + CALLS] + 1
        feeds = moved(feeds, memory[k + CALLS] * memory[k + FEEDS])
        memory[k + GROUP_BOUNDS] = bound
        bound += 1 + max(memory[k + GROUPS], 1)
    return True


def rank_calls(memory: Index, fixed: Index, shares: Index, groups: Ints) -> None:
    """Write the calls of each cell in rank order, group by group, and the bounds of groups.

    Of calls that are shared the first one has the rank.
    """
    work = moved(memory, memory[WORK])
    for cell in range(fixed[KINDS]):
        k = memory[CELLS_AT] + cell * CELL
        bounds, turns, shared = moved(memory, memory[k + GROUP_BOUNDS]), memory[k + GROUPS], memory[k + SHARE]
        ranks, first = moved(memory, memory[RANKS] + memory[k + FIRST]), memory[k + FIRST]
        if shared < 0:
            memory[k + DISTINCT], memory[k + RUNNING] = memory[k + CALLS], memory[k + CALLS]
        distinct, copies = memory[k + DISTINCT], shared + memory[k + RUNNING]
        for i in range(distinct):
            ranks[i] = i if shared < 0 else shares[shared + shares[copies + i]]
        for g in range(turns + 1):
            bounds[g] = 0
        if turns < 2:
            bounds[0], bounds[1] = 0, distinct
        else:
            for i in range(distinct):
                bounds[1 + i8(groups[first + ranks[i]])] += 1
            for g in range(turns):
                bounds[g + 1] += bounds[g]
                work[g] = bounds[g]
            if shared < 0:  # shared calls are in the order of their groups already
                for i in range(distinct):
                    g = i8(groups[first + i])
                    ranks[work[g]] = i
                    work[g] += 1


def add_step(memory: Index, cell: int, stage: int, start: int, stop: int) -> None:
    """Append a step of a cell's stage, from rank `start` to `stop`, unless it is empty."""
    if stop > start:
        at = memory[STEPS_AT] + 4 * memory[STEPS]
        memory[at], memory[at + 1], memory[at + 2], memory[at + 3] = cell, stage, start, stop
        memory[STEPS] += 1


def write_steps(memory: Index, fixed: Index, turns: Index) -> None:
    """Write the steps in the order in which they run, phase by phase."""
    phases, members = moved(fixed, fixed[PHASES_AT]), moved(fixed, fixed[MEMBERS_AT])
    memory[STEPS] = 0
    turn = 0
    for phase in range(fixed[PHASES]):
        p = phase * PHASE
        first, last, recurs = phases[p + MEMBER_FIRST], phases[p + MEMBER_LAST], phases[p + RECURS]
        stage = i8(STEP) if recurs else i8(ALL_STAGES)
        for m in range(first, last if recurs else first):
            k = memory[CELLS_AT] + members[m] * CELL
            add_step(memory, members[m], BEFORE, 0, memory[k + DISTINCT])
        if last - first == 1:  # its groups run in order
            k = memory[CELLS_AT] + members[first] * CELL
            for bound in range(
                memory[k + GROUP_BOUNDS], memory[k + GROUP_BOUNDS] + max(memory[k + GROUPS], 1)
            ):
                add_step(memory, members[first], stage, memory[bound], memory[bound + 1])
        else:  # the batch says which group runs next
            for m in range(first, last):
                for _ in range(memory[memory[CELLS_AT] + members[m] * CELL + GROUPS]):
                    bound = memory[memory[CELLS_AT] + turns[turn] * CELL + GROUP_BOUNDS] + turns[turn + 1]
                    add_step(memory, turns[turn], stage, memory[bound], memory[bound + 1])
                    turn += 2
        for m in range(first, last if recurs else first):
            k = memory[CELLS_AT] + members[m] * CELL
            add_step(memory, members[m], AFTER, 0, memory[k + DISTINCT])


def read_values(memory: Index, fixed: Index, rows: Ints, k: int, o: int, values: Index) -> int:
    """Write the numbers of the values that an operand reads, in rank order; return how many."""
    columns, ranks = moved(fixed, fixed[COLUMNS_AT]), moved(memory, memory[RANKS] + memory[k + FIRST])
    width, base = 1 + memory[k + ARGUMENTS] + memory[k + SEQUENCES], memory[k + ROWS]
    ragged, to = memory[o + RAGGED], 0
    if ragged < 0:
        first = memory[o + COLUMN]
        last = first + memory[o + COLUMNS]
        for i in range(memory[k + DISTINCT]):
            call = base + ranks[i] * width
            for c in range(first, last):
                values[to] = i8(rows[call + columns[c]])
                to += 1
        return to
    begins, sequence = moved(memory, memory[ZEROS]), memory[LISTS_AT] + ragged * LIST
    column = base + 1 + memory[k + ARGUMENTS] + ragged - memory[k + SEQUENCE]
    size, at = memory[sequence + WIDTH], memory[sequence + ELEMENTS] + memory[o + MEMBER]
    for i in range(memory[k + CALLS]):
        begins[i] = at
        at += i8(rows[column + i * width]) * size
    for i in range(memory[k + DISTINCT]):
        call = ranks[i]
        for j in range(i8(rows[column + call * width])):
            values[to] = i8(rows[begins[call] + j * size])
            to += 1
    return to


def rank_by_rows(memory: Index, rows: Ints, k: int, column: int, size: int) -> int:
    """Order a cell's calls by the rows of one argument, all below `size`, so that a slice can read these.

    Return the first row if the rows are consecutive, else -1.
    """
    row_of, work = moved(memory, memory[ROW_OF]), moved(memory, memory[WORK])
    ranks, count = moved(memory, memory[RANKS] + memory[k + FIRST]), memory[k + CALLS]
    width, base = 1 + memory[k + ARGUMENTS] + memory[k + SEQUENCES], memory[k + ROWS] + column
    for row in range(size + 1):
        work[row] = 0
    for i in range(count):
        work[row_of[rows[base + i * width]] + 1] += 1
    first, last, largest = -1, -1, 0
    for row in range(size):
        largest = max(largest, work[row + 1])
        if work[row + 1] > 0:
            first = row if first < 0 else first
            last = row
        work[row + 1] += work[row]
    for i in range(count):
        row = row_of[rows[base + i * width]]
        ranks[work[row]] = i
        work[row] += 1
    return first if largest == 1 and last - first == count - 1 else -1


def number_by_consumer(memory: Index, fixed: Index, rows: Ints) -> None:
    """Give each value the row at which its first consumer reads it; see `scheduler.layout.by_consumer`."""
    row_of, values = moved(memory, memory[ROW_OF]), moved(memory, memory[INDEX])
    for turn in range(fixed[KINDS]):
        k = memory[CELLS_AT] + fixed[fixed[PRIORITY_AT] + turn] * CELL
        for operand in range(memory[k + OPERANDS]):
            o = memory[SPANS_AT] + (memory[k + OPERAND] + operand) * SPAN
            used = memory[BASES] + memory[o + ARENA]
            before, size = memory[used], read_values(memory, fixed, rows, k, o, values)
            taken = before
            for i in range(size):
                if row_of[values[i]] < 0:
                    row_of[values[i]] = taken
                    taken += 1
            memory[used], memory[o + SIZE] = taken, size
            free = operand == 0 and memory[k + SHARE] < 0 and memory[k + GROUPS] < 2
            if size > 0 and taken - before == size:
                memory[o + START] = before
            elif size > 0 and free and memory[o + RAGGED] < 0:
                first = rank_by_rows(memory, rows, k, fixed[fixed[COLUMNS_AT] + memory[o + COLUMN]], taken)
                if memory[o + COLUMNS] == 1:
                    memory[o + START] = first


def running_call(memory: Index, shares: Index, k: int, i: int) -> int:
    """Return the number of call i among those of a cell that run, in rank order."""
    shared = memory[k + SHARE]
    return i8(memory[memory[RANKS] + memory[k + FIRST] + i] if shared < 0 else shares[shared + i])


def number_results(memory: Index, fixed: Index, shares: Index, rows: Ints) -> None:
    """Give rows to the results that have none, in the order in which cells run, and write arenas' first rows.

    The results of a call that is left out get the rows of the call that runs for it.
    """
    row_of, bases = moved(memory, memory[ROW_OF]), moved(memory, memory[BASES])
    for cell in range(fixed[KINDS]):
        memory[memory[CELLS_AT] + cell * CELL + FACT] = 0
    for t in range(memory[STEPS]):
        k = memory[CELLS_AT] + memory[memory[STEPS_AT] + 4 * t] * CELL
        width = 1 + memory[k + ARGUMENTS] + memory[k + SEQUENCES]
        count = 0 if memory[k + FACT] else memory[k + RUNNING]
        memory[k + FACT] = 1
        for output in range(memory[k + OUTPUTS]):
            arena = fixed[fixed[OUTPUTS_AT] + memory[k + OUTPUT] + output]
            for i in range(count):
                value = i8(rows[memory[k + ROWS] + running_call(memory, shares, k, i) * width]) + output
                if row_of[value] < 0:
                    row_of[value] = bases[arena]
                    bases[arena] += 1
    for cell in range(fixed[KINDS]):
        k = memory[CELLS_AT] + cell * CELL
        width = 1 + memory[k + ARGUMENTS] + memory[k + SEQUENCES]
        dropped = memory[k + SHARE] + memory[k + RUNNING] + memory[k + DISTINCT] + 1
        for i in range(memory[k + DROPPED]):
            value = i8(rows[memory[k + ROWS] + shares[dropped + i] * width])
            instead = i8(rows[memory[k + ROWS] + shares[dropped + memory[k + DROPPED] + i] * width])
            for output in range(memory[k + OUTPUTS]):
                row_of[value + output] = row_of[instead + output]
    first = 0
    for arena in range(fixed[ARENAS] + 1):  # from the number of rows to the first row of each
        taken = bases[arena]
        bases[arena] = first
        first += taken


def locate_operand(memory: Index, fixed: Index, rows: Ints, k: int, operand: int, end: int) -> int:
    """Write the rows that an operand reads: a slice if they are consecutive, else an index array.

    Return the end of the index.
    """
    o = memory[SPANS_AT] + operand * SPAN
    row_of, index = moved(memory, memory[ROW_OF]), moved(memory, memory[INDEX] + end)
    seen = moved(memory, memory[WORK])
    size, base, jumps = (
        read_values(memory, fixed, rows, k, o, index),
        memory[memory[BASES] + memory[o + ARENA]],
        0,
    )
    for i in range(size):
        row = row_of[index[i]]
        index[i] = row
        jumps += i8(i > 0 and row != index[i - 1] + 1)
    memory[o + SIZE] = size
    if jumps == 0:
        memory[o + START] = index[0] if size > 0 else 0
        return end
    for i in range(size):
        row = base + index[i]
        memory[o + REPEATS] = i8(memory[o + REPEATS] != 0 or seen[row] == operand + 1)
        seen[row] = operand + 1
    memory[o + PLACE] = end
    return end + size


def write_facts(memory: Index, fixed: Index, shares: Index, rows: Ints) -> None:
    """Write the index arrays of all operands, outputs and sequences, and the facts without the stores."""
    row_of, index = moved(memory, memory[ROW_OF]), moved(memory, memory[INDEX])
    facts = moved(memory, memory[FACTS_AT])
    facts[0] = 1
    fact, end = 1, 0
    for cell in range(fixed[KINDS]):
        k = memory[CELLS_AT] + cell * CELL
        width = 1 + memory[k + ARGUMENTS] + memory[k + SEQUENCES]
        shared, distinct = memory[k + SHARE], memory[k + DISTINCT]
        memory[k + FACT] = fact
        facts[fact], facts[fact + 1], facts[fact + 2] = distinct, 0, -1
        if shared >= 0:
            facts[fact + 2] = end
            for i in range(distinct + 1):
                index[end + i] = shares[shared + memory[k + RUNNING] + i]
            end += distinct + 1
        fact += 3
        for operand in range(memory[k + OPERAND], memory[k + OPERAND] + memory[k + OPERANDS]):
            o = memory[SPANS_AT] + operand * SPAN
            memory[o + SPAN_FACT] = fact
            if memory[o + START] < 0:
                end = locate_operand(memory, fixed, rows, k, operand, end)
            facts[fact], facts[fact + 1] = memory[o + START], memory[o + PLACE]
            facts[fact + 2], facts[fact + 3], facts[fact + 4] = i8(memory[o + PLACE] >= 0), 0, 1
            fact += 5
        for output in range(memory[k + OUTPUTS]):
            facts[fact] = end
            fact += 1
            for i in range(memory[k + RUNNING]):
                value = i8(rows[memory[k + ROWS] + running_call(memory, shares, k, i) * width]) + output
                index[end + i] = row_of[value]
            end += memory[k + RUNNING]
        for s in range(memory[k + SEQUENCES]):
            sequence, column = (
                memory[LISTS_AT] + (memory[k + SEQUENCE] + s) * LIST,
                1 + memory[k + ARGUMENTS] + s,
            )
            memory[sequence + SEGMENTS], memory[sequence + WIDEST] = end, fact + 2
            index[end] = 0
            for i in range(distinct):
                call = memory[k + ROWS] + memory[memory[RANKS] + memory[k + FIRST] + i] * width
                index[end + i + 1] = index[end + i] + i8(rows[call + column])
            facts[fact], facts[fact + 1], facts[fact + 2] = end, index[end + distinct], 0
            end += distinct + 1
            fact += 3
    for arena in range(fixed[ARENAS]):
        facts[fact + arena] = memory[memory[BASES] + arena + 1] - memory[memory[BASES] + arena]
    memory[INDEX_END] = end


def write_widest(memory: Index) -> None:
    """Write the facts of the widest steps: how many calls and elements of a sequence a step has at most."""
    index, facts = moved(memory, memory[INDEX]), moved(memory, memory[FACTS_AT])
    for t in range(memory[STEPS]):
        step = memory[STEPS_AT] + 4 * t
        k, stage = memory[CELLS_AT] + memory[step] * CELL, memory[step + 1]
        start, stop = memory[step + 2], memory[step + 3]
        if stage == STEP or stage == ALL_STAGES:
            widest = memory[k + FACT] + 1
            facts[widest] = max(facts[widest], stop - start)
            for s in range(memory[k + SEQUENCE], memory[k + SEQUENCE] + memory[k + SEQUENCES]):
                sequence = memory[LISTS_AT] + s * LIST
                segments, widest = memory[sequence + SEGMENTS], memory[sequence + WIDEST]
                facts[widest] = max(facts[widest], index[segments + stop] - index[segments + start])


def mark_stores(memory: Index, fixed: Index) -> None:
    """Write which operands store cotangents, and the rows that start at zero; see `scheduler.tables`.

    An operand may store if its rows are consecutive, and are read once in its phase and the phases behind it.
    """
    times, index = moved(memory, memory[WORK]), moved(memory, memory[INDEX])
    bases, facts = moved(memory, memory[BASES]), moved(memory, memory[FACTS_AT])
    phases, members = moved(fixed, fixed[PHASES_AT]), moved(fixed, fixed[MEMBERS_AT])
    for phase in range(fixed[PHASES] - 1, -1, -1):
        p = phase * PHASE
        for turn in range(2):
            for m in range(phases[p + MEMBER_FIRST], phases[p + MEMBER_LAST]):
                k = memory[CELLS_AT] + members[m] * CELL
                for operand in range(memory[k + OPERAND], memory[k + OPERAND] + memory[k + OPERANDS]):
                    o = memory[SPANS_AT] + operand * SPAN
                    start, place = bases[memory[o + ARENA]] + memory[o + START], memory[o + PLACE]
                    if memory[o + DIFFERENTIABLE] and turn == 0:
                        for i in range(memory[o + SIZE]):
                            times[start + i if place < 0 else start + 1 + index[place + i]] += 1
                    elif memory[o + DIFFERENTIABLE] and place < 0:
                        single = i8(1)
                        for row in range(start, start + memory[o + SIZE]):
                            single = i8(single != 0 and times[row] == 1)
                        memory[o + STORES] = single
                        facts[memory[o + SPAN_FACT] + 3], facts[memory[o + SPAN_FACT] + 4] = (
                            single,
                            1 - single,
                        )
    for operand in range(fixed[SPANS]):
        o = memory[SPANS_AT] + operand * SPAN
        start = bases[memory[o + ARENA]] + memory[o + START]
        for row in range(start, start + memory[o + SIZE] * memory[o + STORES]):
            times[row] = -1
    to = 0
    for arena in range(fixed[ARENAS]):
        for row in range(bases[arena], bases[arena + 1]):
            if times[row] >= 0:
                memory[memory[ZEROS] + to] = row - bases[arena]
                to += 1
        memory[memory[ENDS] + arena] = to


def order_feeds(memory: Index, fixed: Index, feeds: Ints) -> None:
    """Order the feeds of the packed trace, in place, as calls run: one integer for each call and feed."""
    work = moved(memory, memory[WORK])
    for cell in range(fixed[KINDS]):
        k = memory[CELLS_AT] + cell * CELL
        ranks, count = moved(memory, memory[RANKS] + memory[k + FIRST]), memory[k + CALLS]
        for _ in range(memory[k + FEEDS]):
            for i in range(count):
                work[i] = i8(feeds[i])
            for i in range(memory[k + DISTINCT]):
                feeds[i] = i4(work[ranks[i]])
            feeds = moved(feeds, count)


def write_tables(fixed: Index, batch: Index, rows: Ints, memory: Index) -> bool:
    """Write a batch's control tables; return False if levels cannot be computed, as calls are out of order.

    Args:
        fixed: the model's header and records, see above.
        batch: the batch's header and records, see above.
        rows: a packed trace, see `scheduler.trace.Form`, with groups in the place of levels. Groups that are
            computed are written there, and feeds are put in the order in which calls run.
        memory: is written, see above.
    """
    groups = moved(rows, layout_memory(memory, fixed, batch, rows))
    values, shares = i8(rows[0]), moved(memory, memory[SHARES])
    if not find_groups(memory, fixed, rows, groups):
        return False
    rank_calls(memory, fixed, shares, groups)
    write_steps(memory, fixed, moved(batch, batch[TURNS_AT]))
    if fixed[BY_CONSUMER]:
        number_by_consumer(memory, fixed, rows)
    number_results(memory, fixed, shares, rows)
    for i in range(values):
        memory[memory[WORK] + i] = 0
    write_facts(memory, fixed, shares, rows)
    write_widest(memory)
    for i in range(values):
        memory[memory[WORK] + i] = 0
    mark_stores(memory, fixed)
    order_feeds(memory, fixed, moved(rows, memory[FEEDS_AT]))
    return True


# The header of a model's routines: the number of cells, parameters, uses of buffers, buffers and constants,
# the integers of a launch, a flag (training), and the offsets of the tables behind it: the kernel of each
# stage of each cell, forward and then backward, or -1; the bounds of each kernel's gradients, and the end;
# the parameters of these; the uses, four columns (buffer, two facts and a factor, whose product is the rows
# it needs); for each kernel the place of each number of its launches among all numbers; and the constants.
CELLS, PARAMETERS, USES, BUFFERS, NUMBERS, LENGTH, TRAINING = range(7)
KERNELS_AT, YIELDING_AT, GRADIENTS_AT, USES_AT, PLACES_AT, NUMBERS_AT, ROUTINE_HEADER = range(7, 14)
# The header of the memory for launches: the number of launches forward and backward, and the offsets of: the
# numbers (facts, a flag for each parameter, constants); the number of levels that yield the gradient of each
# parameter; the rows that each buffer needs; the levels, two integers each, and the same in backward order.
FORWARD, BACKWARD, ALL_FACTS, YIELDS, HEIGHTS, LEVELS, MIRROR, LAUNCH_HEADER = range(8)


def write_launch_head(
    memory: Index, launches: Index, direction: int, length: int, kernel: int, first: int, last: int
) -> None:
    """Append the first three integers of a launch (kernel, first level, last level), unless kernel is -1."""
    if kernel >= 0:
        to = length * (memory[FORWARD] + memory[BACKWARD])
        launches[to], launches[to + 1], launches[to + 2] = kernel, first, last
        memory[direction] += 1


def write_backward(fixed: Index, steps: Index, count: int, memory: Index, launches: Index) -> None:
    """Append the launches of the backward direction, and count the levels that yield each gradient."""
    yields, last = moved(memory, memory[YIELDS]), count
    yielding, gradients = moved(fixed, fixed[YIELDING_AT]), moved(fixed, fixed[GRADIENTS_AT])
    while last > 0:
        k, stage = steps[4 * last - 4], steps[4 * last - 3]
        first = last - 1
        while (
            stage != ALL_STAGES and first > 0 and steps[4 * first - 4] == k and steps[4 * first - 3] == stage
        ):
            first -= 1
        mirrored = stage if stage == ALL_STAGES else 2 - stage
        for s in range(STAGES):
            kernel = fixed[fixed[KERNELS_AT] + (fixed[CELLS] + k) * STAGES + s]
            if kernel >= 0 and (mirrored == ALL_STAGES or mirrored == s):
                write_launch_head(
                    memory, launches, BACKWARD, fixed[LENGTH], kernel, count - last, count - first
                )
                for i in range(yielding[kernel], yielding[kernel + 1]):
                    yields[gradients[i]] += last - first
        last = first


def write_launches(fixed: Index, tables: Index, memory: Index, launches: Index) -> None:
    """Write a batch's launches, forward and backward, and the rows that its buffers need.

    Args:
        fixed: the header and tables of the model's routines, see above.
        tables: the memory as `write_tables` writes it.
        memory: is written, see above.
        launches: is written: a row for each launch, those forward and then those backward.
    """
    count, length, fact_count = tables[STEPS], fixed[LENGTH], tables[ZEROS] - tables[FACTS_AT]
    steps, facts = moved(tables, tables[STEPS_AT]), moved(tables, tables[FACTS_AT])
    mirrored = count if fixed[TRAINING] else i8(0)
    memory[FORWARD], memory[BACKWARD], memory[ALL_FACTS] = 0, 0, LAUNCH_HEADER
    memory[YIELDS] = memory[ALL_FACTS] + fact_count + fixed[PARAMETERS] + fixed[NUMBERS]
    memory[HEIGHTS] = memory[YIELDS] + fixed[PARAMETERS]
    memory[LEVELS] = memory[HEIGHTS] + fixed[BUFFERS]
    memory[MIRROR] = memory[LEVELS] + 2 * count
    numbers, heights = moved(memory, memory[ALL_FACTS]), moved(memory, memory[HEIGHTS])
    for i in range(fact_count):
        numbers[i] = facts[i]
    for i in range(fixed[NUMBERS]):
        numbers[fact_count + fixed[PARAMETERS] + i] = fixed[fixed[NUMBERS_AT] + i]
    for i in range(fixed[PARAMETERS]):
        memory[memory[YIELDS] + i] = 0
    for i in range(fixed[BUFFERS]):
        heights[i] = 0
    for i in range(count):
        to = memory[LEVELS] + 2 * i
        memory[to], memory[to + 1] = steps[4 * i + 2], steps[4 * i + 3]
    for i in range(mirrored):
        to = memory[MIRROR] + 2 * (mirrored - 1 - i)
        memory[to], memory[to + 1] = steps[4 * i + 2], steps[4 * i + 3]
    first = 0
    while first < count:
        k, stage = steps[4 * first], steps[4 * first + 1]
        last = first + 1
        while stage != ALL_STAGES and last < count and steps[4 * last] == k and steps[4 * last + 1] == stage:
            last += 1
        for s in range(STAGES):
            kernel = fixed[fixed[KERNELS_AT] + k * STAGES + s]
            if stage == ALL_STAGES or stage == s:
                write_launch_head(memory, launches, FORWARD, length, kernel, first, last)
        first = last
    write_backward(fixed, steps, mirrored, memory, launches)
    for i in range(fixed[PARAMETERS]):
        numbers[fact_count + i] = i8(memory[memory[YIELDS] + i] == 1)
    for row in range(memory[FORWARD] + memory[BACKWARD]):
        places = fixed[PLACES_AT] + launches[row * length] * length
        for i in range(HEAD, length):
            launches[row * length + i] = numbers[fixed[places + i]]
    for i in range(fixed[USES_AT], fixed[USES_AT] + fixed[USES]):
        needed = (
            numbers[fixed[i + fixed[USES]]] * numbers[fixed[i + 2 * fixed[USES]]] * fixed[i + 3 * fixed[USES]]
        )
        heights[fixed[i]] = max(heights[fixed[i]], needed)
