"""Control tables and launches of a batch, as loops over single integers; see `compiled`.

`write_tables` and `write_launches` plan every batch, of every engine; `tests/planning` has a specification in
NumPy, to which results are equal to the last bit. The loops read two arrays, one of the model and one of the
batch, and write a third one, `memory`. Each array begins with a header: counts, and offsets of the tables
behind it. A table is a row of records of equal size, and a record is a row of named integers. All of it runs
as plain Python, too.
"""
# ruff: noqa: PLR1714, SIM109 - compiled text has no tuples and no generators

from __future__ import annotations

from typing import TypeVar

from foldbatch.loops.records import Header, Record
from foldbatch.scheduler.trace import Index, Ints

Numbers = TypeVar("Numbers", Index, Ints)
i4 = i8 = u8 = int  # compiled: conversions


def moved(array: Numbers, count: int) -> Numbers:
    """Return an array without its first numbers; compiled, a pointer."""
    return array[count:]


class Model(Header):
    """The header of a model's constants; behind it stand the tables of its offsets, in this order."""

    cells: int  # how many there are
    operands: int
    sequences: int
    arenas: int
    facts: int
    by_consumer: int  # whether values are numbered by consumer
    phases: int
    columns_at: int  # the arguments that operands read, as offsets in a call's row
    outputs_at: int  # the arena of each output
    priority_at: int  # the cells in the order in which they choose rows
    phases_at: int  # records: `Phase`
    members_at: int  # the cells of phases
    # the sizes of the parts of the memory, three integers each: how many it has at least, and how many more
    # for each value and for each call
    sizes_at: int


class Batch(Header):
    """The header of a batch; behind it the fields from `Cell.groups` up to `Cell.calls` of each cell."""

    # the turns of cells that call each other, two integers each (cell, group)
    turns_at: int
    # for each cell that shares calls, as in `sharing.Sharing`: the calls rank by rank, the bounds
    # of ranks in them, the calls that are left out, and the calls that stand for these
    shares_at: int
    shared: int  # the size of shares


class Tables(Header):
    """The header of the memory that `write_tables` writes: two counts, and the offsets of its parts."""

    steps: int  # how many there are
    index_end: int  # the size of the index
    cells_at: int  # records: `Cell`
    operands_at: int  # records: `Operand`
    sequences_at: int  # records: `Sequence`
    row_of: int  # the row of each value
    ranks: int  # the calls of each cell in rank order
    bounds_at: int  # the bounds of groups
    steps_at: int  # records: `StepRecord`
    facts_at: int
    zeros: int  # the rows that start at zero
    ends: int  # the end of these for each arena
    bases: int  # the first row of each arena
    shares: int
    work: int  # scratch
    index: int  # index arrays; the last part
    feeds_at: int  # the offset of the feeds in the packed trace


class Cell(Record):
    """A cell of a model, and its calls in a batch."""

    # of the model
    arguments: int  # how many it has
    sequences: int
    first_sequence: int
    outputs: int
    first_output: int
    operands: int
    first_operand: int
    recursive: int
    feeds: int  # how many of its feeds the packed trace has
    # of the batch
    groups: int  # how many, or FIND
    share: int  # the offset of its shares, UNSHARED, or FIND
    distinct: int  # ranks
    running: int  # calls that have a rank
    dropped: int  # calls that are left out
    # computed
    calls: int
    first_rank: int
    rows: int  # the offset of its rows in the packed trace
    group_bounds: int  # the offset of the bounds of its groups
    fact: int  # the offset of its facts


class Operand(Record):
    """An operand of a cell, and the span of rows that it reads in a batch."""

    # of the model
    arena: int
    column: int  # the offset of its columns
    columns: int  # how many there are
    sequence: int  # the sequence whose elements it reads, or -1
    member: int  # of the elements
    differentiable: int
    # of the batch
    start: int  # the first row where rows are consecutive, else -1
    row_count: int
    place: int  # the offset of its index array, or -1
    repeats: int  # whether a row repeats
    stores: int  # whether it stores cotangents
    fact: int  # the offset of its facts


class Sequence(Record):
    """A sequence that a cell reads."""

    width: int  # integers of an element
    elements: int  # the offset of its elements in the packed trace
    segments: int  # the offset of its segments in the index
    widest: int  # the offset of the fact of its widest step


class Phase(Record):
    """A phase: the cells that call each other, or one cell."""

    first: int  # the first of its members
    last: int  # the member behind its last
    recursion: int  # whether it is one


class StepRecord(Record):
    """A step: some ranks of one cell, and one stage of it or all of them."""

    cell: int
    stage: int
    start: int  # the first rank
    stop: int  # the rank behind the last


HEAD = 3  # integers of a launch before its bindings
BATCH_FIELDS = Cell.calls - Cell.groups
UNSHARED = -1  # in place of shares: there are none
FIND = -2  # in place of groups or shares: `find_groups` computes them
BEFORE, STEP, AFTER, ALL_STAGES = range(4)  # the stages of a step
STAGES = 3
DIGITS = 256  # values of a digit of a sort


def layout_memory(tables: Tables, model: Model, batch: Batch, rows: Ints) -> int:
    """Write the memory's header, and the fields of records that follow from model, batch and counts.

    Return the offset in the packed trace at which the group of each call stands.
    """
    calls, at = 0, i8(Tables.size)
    for number in range(model.cells):
        calls += i8(rows[1 + number])
    for place in range(Tables.cells_at, Tables.feeds_at):
        tables.memory[place], size = at, model.sizes_at + 3 * (place - Tables.cells_at)
        at += model.memory[size] + model.memory[size + 1] * i8(rows[0]) + model.memory[size + 2] * calls
    for i in range(tables.row_of - Tables.size):
        tables.memory[Tables.size + i] = model.memory[Model.size + i]
    for i in range(i8(rows[0])):
        tables.memory[tables.row_of + i] = -1
    for i in range(model.arenas + 1):
        tables.memory[tables.bases + i] = 0
    for i in range(batch.shared):
        tables.memory[tables.shares + i] = batch.memory[batch.shares_at + i]
    cells, sequences = moved(tables.memory, tables.cells_at), moved(tables.memory, tables.sequences_at)
    first, row = 0, i8(1 + model.cells + model.sequences)
    for number in range(model.cells):
        cell = Cell(cells, number * Cell.size)
        for i in range(BATCH_FIELDS):
            cells[cell.offset + Cell.groups + i] = batch.memory[Batch.size + number * BATCH_FIELDS + i]
        cell.calls, cell.first_rank, cell.rows = i8(rows[1 + number]), first, row
        first += cell.calls
        row += cell.calls * (1 + cell.arguments + cell.sequences)
    for number in range(model.sequences):
        sequence = Sequence(sequences, number * Sequence.size)
        sequence.elements = row
        row += i8(rows[1 + model.cells + number]) * sequence.width
    tables.feeds_at = row + calls  # behind a group a call
    return row


def write_levels(tables: Tables, model: Model, rows: Ints, groups: Ints, phase_number: int) -> bool:
    """Write the level of each call of a phase, going by the numbers of values.

    Return False if the calls of a cell are not in the order of their values; then levels are incomplete.
    """
    members, level_of = moved(model.memory, model.members_at), moved(tables.memory, tables.work)
    phase = Phase(model.memory, model.phases_at + phase_number * Phase.size)
    calls = 0
    for value in range(i8(rows[0])):
        level_of[value] = -1
    # meanwhile: the number of the cell's next call, and the offset of its row
    for m in range(phase.first, phase.last):
        cell = Cell(tables.memory, tables.cells_at + members[m] * Cell.size)
        cell.group_bounds, cell.fact = 0, cell.rows
        calls += cell.calls
    for number in range(model.sequences):
        sequence = Sequence(tables.memory, tables.sequences_at + number * Sequence.size)
        sequence.segments = sequence.elements
    for _ in range(calls):
        cell = Cell(tables.memory, -1)  # of the next call, -1 while none is known
        call, level = i8(0), i8(-1)
        for m in range(phase.first, phase.last):
            candidate = Cell(tables.memory, tables.cells_at + members[m] * Cell.size)
            at = candidate.fact
            if candidate.group_bounds < candidate.calls and (cell.offset < 0 or rows[at] < rows[call]):
                cell = Cell(tables.memory, candidate.offset)
                call = at
        value, arguments = i8(rows[call]), cell.arguments
        width = 1 + arguments + cell.sequences
        if cell.group_bounds > 0 and i8(rows[call - width]) > value:
            return False
        for at in range(call + 1, call + 1 + arguments):
            level = max(level, level_of[rows[at]])
        for place in range(cell.sequences):
            sequence_number = cell.first_sequence + place
            sequence = Sequence(tables.memory, tables.sequences_at + sequence_number * Sequence.size)
            start = sequence.segments
            sequence.segments += i8(rows[call + 1 + arguments + place]) * sequence.width
            for at in range(start, sequence.segments):
                level = max(level, level_of[rows[at]])
        for output in range(value, value + cell.outputs):
            level_of[output] = level + 1
        groups[cell.first_rank + cell.group_bounds] = i4(level + 1)
        cell.group_bounds += 1
        cell.fact += width
    return True


def levels(model_constants: Index, batch_header: Index, rows: Ints, memory: Index) -> bool:
    """Write the levels of all phases; arguments and result are those of `write_tables`."""
    model = Model(model_constants)
    batch = Batch(batch_header)
    tables = Tables(memory)
    groups = moved(rows, layout_memory(tables, model, batch, rows))
    for phase_number in range(model.phases):
        if not write_levels(tables, model, rows, groups, phase_number):
            return False
    return True


def digit(key: int, shift: int) -> int:
    """Return eight bits of a key, from bit `shift` on: one digit of a radix sort."""
    return i8((u8(key) >> u8(shift)) % u8(DIGITS))


def sort_keys(keys: Numbers, count: int, order: Index, work: Index) -> None:
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


def group(keys: Numbers, count: int, order: Index, bounds: Index, work: Index) -> int:
    """Write the stable order of keys, the bounds of equal keys in it, and the end; return how many differ."""
    groups = 0
    sort_keys(keys, count, order, work)
    for i in range(count):
        if i == 0 or keys[order[i]] != keys[order[i - 1]]:
            bounds[groups] = i
            groups += 1
    bounds[groups] = count
    return groups


def share_calls(tables: Tables, cell: Cell, keys: Ints, order: Index) -> None:
    """Write the shares of a cell, whose calls of equal keys run once; UNSHARED if all keys differ."""
    count = cell.calls
    groups = group(keys, count, order, moved(order, count), moved(tables.memory, tables.work))
    if groups == count:
        cell.share = UNSHARED
    cell.distinct, cell.running = groups, count


def find_groups(tables: Tables, model: Model, rows: Ints, groups: Ints) -> bool:
    """Compute the groups and shares that the batch leaves to this code, and the offsets of group bounds.

    Return False if calls are not in the order of their values, so that levels cannot be computed here.
    """
    feeds, shared, bound = moved(rows, tables.feeds_at), 0, tables.bounds_at
    for phase_number in range(model.phases):
        phase = Phase(model.memory, model.phases_at + phase_number * Phase.size)
        for m in range(phase.first, phase.last):  # a single cell, if it is FIND
            member = model.memory[model.members_at + m]
            cell = Cell(tables.memory, tables.cells_at + member * Cell.size)
            cell_groups, group_count = moved(groups, cell.first_rank), 0
            if cell.groups == FIND:
                for i in range(cell.calls):
                    cell_groups[i] = i4(0)
                if cell.recursive != 0 and not write_levels(tables, model, rows, groups, phase_number):
                    return False
                for i in range(cell.calls):
                    group_count = max(group_count, i8(cell_groups[i]) + 1)
                cell.groups = group_count
    for number in range(model.cells):
        cell = Cell(tables.memory, tables.cells_at + number * Cell.size)
        if cell.share == FIND:
            cell.share = shared
            to = moved(tables.memory, tables.shares + shared)
            if cell.feeds > 0:
                share_calls(tables, cell, feeds, to)
            else:  # calls without arguments and feeds are equal, and so are their levels
                share_calls(tables, cell, moved(groups, cell.first_rank), to)
            shared += 2 * cell.calls + 1
        feeds = moved(feeds, cell.calls * cell.feeds)
        cell.group_bounds = bound
        bound += 1 + max(cell.groups, 1)
    return True


def rank_calls(tables: Tables, model: Model, shares: Index, groups: Ints) -> None:
    """Write the calls of each cell in rank order, group by group, and the bounds of groups.

    Of calls that are shared the first one has the rank.
    """
    work = moved(tables.memory, tables.work)
    for number in range(model.cells):
        cell = Cell(tables.memory, tables.cells_at + number * Cell.size)
        bounds, turns, shared = moved(tables.memory, cell.group_bounds), cell.groups, cell.share
        ranks, first = moved(tables.memory, tables.ranks + cell.first_rank), cell.first_rank
        if shared < 0:
            cell.distinct, cell.running = cell.calls, cell.calls
        distinct, copies = cell.distinct, shared + cell.running
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


def add_step(tables: Tables, cell_number: int, stage: int, start: int, stop: int) -> None:
    """Append a step to the schedule: the calls of a cell with ranks from `start` to `stop`, unless none.

    Args:
        tables: the header of the schedule's memory.
        cell_number: the cell.
        stage: the stage to run, or `ALL_STAGES`.
        start: the first rank.
        stop: the rank after the last one.
    """
    if stop > start:
        step = StepRecord(tables.memory, tables.steps_at + StepRecord.size * tables.steps)
        step.cell, step.stage = cell_number, stage
        step.start, step.stop = start, stop
        tables.steps += 1


def write_steps(tables: Tables, model: Model, turns: Index) -> None:
    """Write the steps in the order in which they run, phase by phase."""
    members = moved(model.memory, model.members_at)
    tables.steps = 0
    turn = 0
    for phase_number in range(model.phases):
        phase = Phase(model.memory, model.phases_at + phase_number * Phase.size)
        first, last, recurs = phase.first, phase.last, phase.recursion
        stage = i8(STEP) if recurs else i8(ALL_STAGES)
        for m in range(first, last if recurs else first):
            cell = Cell(tables.memory, tables.cells_at + members[m] * Cell.size)
            add_step(tables, members[m], BEFORE, 0, cell.distinct)
        if last - first == 1:  # its groups run in order
            cell = Cell(tables.memory, tables.cells_at + members[first] * Cell.size)
            for bound in range(cell.group_bounds, cell.group_bounds + max(cell.groups, 1)):
                add_step(tables, members[first], stage, tables.memory[bound], tables.memory[bound + 1])
        else:  # the batch says which group runs next
            for m in range(first, last):
                cell = Cell(tables.memory, tables.cells_at + members[m] * Cell.size)
                for _ in range(cell.groups):
                    running = Cell(tables.memory, tables.cells_at + turns[turn] * Cell.size)
                    bound = running.group_bounds + turns[turn + 1]
                    add_step(tables, turns[turn], stage, tables.memory[bound], tables.memory[bound + 1])
                    turn += 2
        for m in range(first, last if recurs else first):
            cell = Cell(tables.memory, tables.cells_at + members[m] * Cell.size)
            add_step(tables, members[m], AFTER, 0, cell.distinct)


def read_values(tables: Tables, model: Model, rows: Ints, cell: Cell, operand: Operand, values: Index) -> int:
    """Write the numbers of the values that an operand reads, in rank order; return how many."""
    columns, ranks = (
        moved(model.memory, model.columns_at),
        moved(tables.memory, tables.ranks + cell.first_rank),
    )
    width, base = 1 + cell.arguments + cell.sequences, cell.rows
    to = 0
    if operand.sequence < 0:
        first = operand.column
        last = first + operand.columns
        for i in range(cell.distinct):
            call = base + ranks[i] * width
            for c in range(first, last):
                values[to] = i8(rows[call + columns[c]])
                to += 1
        return to
    begins = moved(tables.memory, tables.zeros)
    sequence = Sequence(tables.memory, tables.sequences_at + operand.sequence * Sequence.size)
    column = base + 1 + cell.arguments + operand.sequence - cell.first_sequence
    size, at = sequence.width, sequence.elements + operand.member
    for i in range(cell.calls):
        begins[i] = at
        at += i8(rows[column + i * width]) * size
    for i in range(cell.distinct):
        call = ranks[i]
        for j in range(i8(rows[column + call * width])):
            values[to] = i8(rows[begins[call] + j * size])
            to += 1
    return to


def rank_by_rows(tables: Tables, rows: Ints, cell: Cell, column: int, size: int) -> int:
    """Order a cell's calls by the rows of one argument, all below `size`, so that a slice can read these.

    Return the first row if the rows are consecutive, else -1.
    """
    row_of, work = moved(tables.memory, tables.row_of), moved(tables.memory, tables.work)
    ranks, count = moved(tables.memory, tables.ranks + cell.first_rank), cell.calls
    width, base = 1 + cell.arguments + cell.sequences, cell.rows + column
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


def number_by_consumer(tables: Tables, model: Model, rows: Ints) -> None:
    """Give each value the row at which its first consumer reads it; see `layout`."""
    row_of, values = moved(tables.memory, tables.row_of), moved(tables.memory, tables.index)
    for turn in range(model.cells):
        number = model.memory[model.priority_at + turn]
        cell = Cell(tables.memory, tables.cells_at + number * Cell.size)
        for place in range(cell.operands):
            operand_number = cell.first_operand + place
            operand = Operand(tables.memory, tables.operands_at + operand_number * Operand.size)
            used = tables.bases + operand.arena
            before, size = tables.memory[used], read_values(tables, model, rows, cell, operand, values)
            taken = before
            for i in range(size):
                if row_of[values[i]] < 0:
                    row_of[values[i]] = taken
                    taken += 1
            tables.memory[used], operand.row_count = taken, size
            free = place == 0 and cell.share < 0 and cell.groups < 2
            if size > 0 and taken - before == size:
                operand.start = before
            elif size > 0 and free and operand.sequence < 0:
                column = model.memory[model.columns_at + operand.column]
                first = rank_by_rows(tables, rows, cell, column, taken)
                if operand.columns == 1:
                    operand.start = first


def running_call(tables: Tables, shares: Index, cell: Cell, i: int) -> int:
    """Return the number of call i among those of a cell that run, in rank order."""
    shared = cell.share
    return i8(tables.memory[tables.ranks + cell.first_rank + i] if shared < 0 else shares[shared + i])


def number_results(tables: Tables, model: Model, shares: Index, rows: Ints) -> None:
    """Give rows to the results that have none, in the order in which cells run, and write arenas' first rows.

    The results of a call that is left out get the rows of the call that runs for it.
    """
    row_of, bases = moved(tables.memory, tables.row_of), moved(tables.memory, tables.bases)
    for number in range(model.cells):
        cell = Cell(tables.memory, tables.cells_at + number * Cell.size)
        cell.fact = 0
    for number in range(tables.steps):
        step = StepRecord(tables.memory, tables.steps_at + StepRecord.size * number)
        cell = Cell(tables.memory, tables.cells_at + step.cell * Cell.size)
        width = 1 + cell.arguments + cell.sequences
        count = 0 if cell.fact else cell.running
        cell.fact = 1
        for output in range(cell.outputs):
            arena = model.memory[model.outputs_at + cell.first_output + output]
            for i in range(count):
                value = i8(rows[cell.rows + running_call(tables, shares, cell, i) * width]) + output
                if row_of[value] < 0:
                    row_of[value] = bases[arena]
                    bases[arena] += 1
    for number in range(model.cells):
        cell = Cell(tables.memory, tables.cells_at + number * Cell.size)
        width = 1 + cell.arguments + cell.sequences
        dropped = cell.share + cell.running + cell.distinct + 1
        for i in range(cell.dropped):
            value = i8(rows[cell.rows + shares[dropped + i] * width])
            instead = i8(rows[cell.rows + shares[dropped + cell.dropped + i] * width])
            for output in range(cell.outputs):
                row_of[value + output] = row_of[instead + output]
    first = 0
    for arena in range(model.arenas + 1):  # from the number of rows to the first row of each
        taken = bases[arena]
        bases[arena] = first
        first += taken


def locate_operand(
    tables: Tables, model: Model, rows: Ints, cell: Cell, operand_number: int, end: int
) -> int:
    """Write the rows that an operand reads: a slice if they are consecutive, else an index array.

    Return the end of the index.
    """
    operand = Operand(tables.memory, tables.operands_at + operand_number * Operand.size)
    row_of, index = moved(tables.memory, tables.row_of), moved(tables.memory, tables.index + end)
    seen = moved(tables.memory, tables.work)
    size = read_values(tables, model, rows, cell, operand, index)
    base, jumps = tables.memory[tables.bases + operand.arena], 0
    for i in range(size):
        row = row_of[index[i]]
        index[i] = row
        jumps += i8(i > 0 and row != index[i - 1] + 1)
    operand.row_count = size
    if jumps == 0:
        operand.start = index[0] if size > 0 else 0
        return end
    for i in range(size):
        row = base + index[i]
        operand.repeats = i8(operand.repeats != 0 or seen[row] == operand_number + 1)
        seen[row] = operand_number + 1
    operand.place = end
    return end + size


def write_facts(tables: Tables, model: Model, shares: Index, rows: Ints) -> None:
    """Write the index arrays of all operands, outputs and sequences, and the facts without the stores."""
    row_of, index = moved(tables.memory, tables.row_of), moved(tables.memory, tables.index)
    facts = moved(tables.memory, tables.facts_at)
    facts[0] = 1
    fact, end = 1, 0
    for number in range(model.cells):
        cell = Cell(tables.memory, tables.cells_at + number * Cell.size)
        width = 1 + cell.arguments + cell.sequences
        shared, distinct = cell.share, cell.distinct
        cell.fact = fact
        facts[fact], facts[fact + 1], facts[fact + 2] = distinct, 0, -1
        if shared >= 0:
            facts[fact + 2] = end
            for i in range(distinct + 1):
                index[end + i] = shares[shared + cell.running + i]
            end += distinct + 1
        fact += 3
        for operand_number in range(cell.first_operand, cell.first_operand + cell.operands):
            operand = Operand(tables.memory, tables.operands_at + operand_number * Operand.size)
            operand.fact = fact
            if operand.start < 0:
                end = locate_operand(tables, model, rows, cell, operand_number, end)
            facts[fact], facts[fact + 1] = operand.start, operand.place
            facts[fact + 2], facts[fact + 3], facts[fact + 4] = i8(operand.place >= 0), 0, 1
            fact += 5
        for output in range(cell.outputs):
            facts[fact] = end
            fact += 1
            for i in range(cell.running):
                value = i8(rows[cell.rows + running_call(tables, shares, cell, i) * width]) + output
                index[end + i] = row_of[value]
            end += cell.running
        for place in range(cell.sequences):
            sequence_number = cell.first_sequence + place
            sequence = Sequence(tables.memory, tables.sequences_at + sequence_number * Sequence.size)
            column = 1 + cell.arguments + place
            sequence.segments, sequence.widest = end, fact + 2
            index[end] = 0
            for i in range(distinct):
                call = cell.rows + tables.memory[tables.ranks + cell.first_rank + i] * width
                index[end + i + 1] = index[end + i] + i8(rows[call + column])
            facts[fact], facts[fact + 1], facts[fact + 2] = end, index[end + distinct], 0
            end += distinct + 1
            fact += 3
    for arena in range(model.arenas):
        facts[fact + arena] = tables.memory[tables.bases + arena + 1] - tables.memory[tables.bases + arena]
    tables.index_end = end


def write_widest(tables: Tables) -> None:
    """Write the facts of the widest steps: how many calls and elements of a sequence a step has at most."""
    index, facts = moved(tables.memory, tables.index), moved(tables.memory, tables.facts_at)
    for number in range(tables.steps):
        step = StepRecord(tables.memory, tables.steps_at + StepRecord.size * number)
        cell = Cell(tables.memory, tables.cells_at + step.cell * Cell.size)
        if step.stage == STEP or step.stage == ALL_STAGES:
            widest = cell.fact + 1
            facts[widest] = max(facts[widest], step.stop - step.start)
            for sequence_number in range(cell.first_sequence, cell.first_sequence + cell.sequences):
                sequence = Sequence(tables.memory, tables.sequences_at + sequence_number * Sequence.size)
                segments, widest = sequence.segments, sequence.widest
                elements = index[segments + step.stop] - index[segments + step.start]
                facts[widest] = max(facts[widest], elements)


def mark_stores(tables: Tables, model: Model) -> None:
    """Write which operands store cotangents, and the rows that start at zero; see `RowSpan.first`.

    An operand may store if its rows are consecutive, and are read once in its phase and the phases behind it.
    """
    times, index = moved(tables.memory, tables.work), moved(tables.memory, tables.index)
    bases, facts = moved(tables.memory, tables.bases), moved(tables.memory, tables.facts_at)
    members = moved(model.memory, model.members_at)
    for phase_number in range(model.phases - 1, -1, -1):
        phase = Phase(model.memory, model.phases_at + phase_number * Phase.size)
        for turn in range(2):
            for m in range(phase.first, phase.last):
                cell = Cell(tables.memory, tables.cells_at + members[m] * Cell.size)
                for operand_number in range(cell.first_operand, cell.first_operand + cell.operands):
                    operand = Operand(tables.memory, tables.operands_at + operand_number * Operand.size)
                    start, place = bases[operand.arena] + operand.start, operand.place
                    if operand.differentiable and turn == 0:
                        for i in range(operand.row_count):
                            times[start + i if place < 0 else start + 1 + index[place + i]] += 1
                    elif operand.differentiable and place < 0:
                        single = i8(1)
                        for row in range(start, start + operand.row_count):
                            single = i8(single != 0 and times[row] == 1)
                        operand.stores = single
                        facts[operand.fact + 3] = single
                        facts[operand.fact + 4] = 1 - single
    for operand_number in range(model.operands):
        operand = Operand(tables.memory, tables.operands_at + operand_number * Operand.size)
        start = bases[operand.arena] + operand.start
        for row in range(start, start + operand.row_count * operand.stores):
            times[row] = -1
    to = 0
    for arena in range(model.arenas):
        for row in range(bases[arena], bases[arena + 1]):
            if times[row] >= 0:
                tables.memory[tables.zeros + to] = row - bases[arena]
                to += 1
        tables.memory[tables.ends + arena] = to


def order_feeds(tables: Tables, model: Model, feeds: Ints) -> None:
    """Order the feeds of the packed trace, in place, as calls run: one integer for each call and feed."""
    work = moved(tables.memory, tables.work)
    for number in range(model.cells):
        cell = Cell(tables.memory, tables.cells_at + number * Cell.size)
        ranks, count = moved(tables.memory, tables.ranks + cell.first_rank), cell.calls
        for _ in range(cell.feeds):
            for i in range(count):
                work[i] = i8(feeds[i])
            for i in range(cell.distinct):
                feeds[i] = i4(work[ranks[i]])
            feeds = moved(feeds, count)


def write_tables(model_constants: Index, batch_header: Index, rows: Ints, memory: Index) -> bool:
    """Write a batch's control tables; return False if levels cannot be computed, as calls are out of order.

    Args:
        model_constants: the header `Model` and its tables.
        batch_header: the header `Batch` and its tables.
        rows: a packed trace, see `scheduler.trace.Form`, with groups in the place of levels. Groups that are
            computed are written there, and feeds are put in the order in which calls run.
        memory: is written: the header `Tables` and the tables behind it.
    """
    model = Model(model_constants)
    batch = Batch(batch_header)
    tables = Tables(memory)
    groups = moved(rows, layout_memory(tables, model, batch, rows))
    values, shares = i8(rows[0]), moved(memory, tables.shares)
    if not find_groups(tables, model, rows, groups):
        return False
    rank_calls(tables, model, shares, groups)
    write_steps(tables, model, moved(batch_header, batch.turns_at))
    if model.by_consumer:
        number_by_consumer(tables, model, rows)
    number_results(tables, model, shares, rows)
    for i in range(values):
        memory[tables.work + i] = 0
    write_facts(tables, model, shares, rows)
    write_widest(tables)
    for i in range(values):
        memory[tables.work + i] = 0
    mark_stores(tables, model)
    order_feeds(tables, model, moved(rows, tables.feeds_at))
    return True


class Routines(Header):
    """The header of a model's routines; behind it stand the tables of its offsets, in this order."""

    cells: int  # how many there are
    parameters: int
    uses: int
    buffers: int
    numbers: int  # constants
    length: int  # integers of a launch
    training: int  # whether there are backward routines
    kernels_at: int  # the kernel of each stage of each cell, forward and then backward, or -1
    yielding_at: int  # the bounds of each kernel's gradients, and the end
    gradients_at: int  # the parameters of these
    # four columns (buffer, two facts and a factor, whose product is the rows that the use needs)
    uses_at: int
    places_at: int  # for each kernel the place of each number of its launches among all numbers
    numbers_at: int


class Launches(Header):
    """The header of the memory that `write_launches` writes."""

    forward: int  # launches
    backward: int
    numbers_at: int  # facts, a flag for each parameter, constants
    yields: int  # the number of levels that yield the gradient of each parameter
    heights: int  # the rows that each buffer needs
    levels: int  # two integers each
    mirror: int  # the same in backward order


def write_launch_head(
    output: Launches, launches: Index, direction: int, length: int, kernel: int, first: int, last: int
) -> None:
    """Append the first three integers of a launch (kernel, first level, last level), unless kernel is -1."""
    if kernel >= 0:
        to = length * (output.forward + output.backward)
        launches[to], launches[to + 1], launches[to + 2] = kernel, first, last
        output.memory[direction] += 1


def is_same_stage(steps: Index, first: int, second: int) -> bool:
    """Return whether two steps, given by number, are of one stage of one cell."""
    a = StepRecord(steps, StepRecord.size * first)
    b = StepRecord(steps, StepRecord.size * second)
    return a.cell == b.cell and a.stage == b.stage


def write_backward(routines: Routines, steps: Index, count: int, output: Launches, launches: Index) -> None:
    """Append the launches of the backward direction, and count the levels that yield each gradient."""
    yields, last = moved(output.memory, output.yields), count
    yielding = moved(routines.memory, routines.yielding_at)
    gradients = moved(routines.memory, routines.gradients_at)
    while last > 0:
        step = StepRecord(steps, StepRecord.size * (last - 1))
        stage = step.stage
        first = last - 1
        while stage != ALL_STAGES and first > 0 and is_same_stage(steps, first - 1, last - 1):
            first -= 1
        mirrored = stage if stage == ALL_STAGES else 2 - stage
        for s in range(STAGES):
            kernel = routines.memory[routines.kernels_at + (routines.cells + step.cell) * STAGES + s]
            if kernel >= 0 and (mirrored == ALL_STAGES or mirrored == s):
                begin, end, length = count - last, count - first, routines.length
                write_launch_head(output, launches, Launches.backward, length, kernel, begin, end)
                for i in range(yielding[kernel], yielding[kernel + 1]):
                    yields[gradients[i]] += last - first
        last = first


def write_launches(routine_constants: Index, tables_memory: Index, memory: Index, launches: Index) -> None:
    """Write a batch's launch table, forward and backward, and how many rows each buffer needs.

    Args:
        routine_constants: the routines of the model: the header `Routines` and its tables.
        tables_memory: the batch's schedule, as `write_tables` has written it.
        memory: the output: the header `Launches`, and behind it the tables that it names; `heights` are the
            rows of the buffers.
        launches: the output: rows of `Routines.length` integers, the forward launches and then the backward
            ones. `Launches.forward` and `Launches.backward` are their counts; the caller has made room.
    """
    routines = Routines(routine_constants)
    tables = Tables(tables_memory)
    output = Launches(memory)
    count, length, fact_count = tables.steps, routines.length, tables.zeros - tables.facts_at
    steps, facts = moved(tables_memory, tables.steps_at), moved(tables_memory, tables.facts_at)
    mirrored = count if routines.training else i8(0)
    output.forward, output.backward, output.numbers_at = 0, 0, Launches.size
    output.yields = output.numbers_at + fact_count + routines.parameters + routines.numbers
    output.heights = output.yields + routines.parameters
    output.levels = output.heights + routines.buffers
    output.mirror = output.levels + 2 * count
    numbers, heights = moved(output.memory, output.numbers_at), moved(output.memory, output.heights)
    for i in range(fact_count):
        numbers[i] = facts[i]
    for i in range(routines.numbers):
        numbers[fact_count + routines.parameters + i] = routines.memory[routines.numbers_at + i]
    for i in range(routines.parameters):
        memory[output.yields + i] = 0
    for i in range(routines.buffers):
        heights[i] = 0
    for i in range(count):
        step = StepRecord(steps, StepRecord.size * i)
        to = output.levels + 2 * i
        memory[to], memory[to + 1] = step.start, step.stop
    for i in range(mirrored):
        step = StepRecord(steps, StepRecord.size * i)
        to = output.mirror + 2 * (mirrored - 1 - i)
        memory[to], memory[to + 1] = step.start, step.stop
    first = 0
    while first < count:
        step = StepRecord(steps, StepRecord.size * first)
        stage = step.stage
        last = first + 1
        while stage != ALL_STAGES and last < count and is_same_stage(steps, first, last):
            last += 1
        for s in range(STAGES):
            kernel = routines.memory[routines.kernels_at + step.cell * STAGES + s]
            if stage == ALL_STAGES or stage == s:
                write_launch_head(output, launches, Launches.forward, length, kernel, first, last)
        first = last
    write_backward(routines, steps, mirrored, output, launches)
    for i in range(routines.parameters):
        numbers[fact_count + i] = i8(memory[output.yields + i] == 1)
    for row in range(output.forward + output.backward):
        places = routines.places_at + launches[row * length] * length
        for i in range(HEAD, length):
            launches[row * length + i] = numbers[routines.memory[places + i]]
    for i in range(routines.uses_at, routines.uses_at + routines.uses):
        rows = numbers[routines.memory[i + routines.uses]]
        height = (
            rows * numbers[routines.memory[i + 2 * routines.uses]] * routines.memory[i + 3 * routines.uses]
        )
        heights[routines.memory[i]] = max(heights[routines.memory[i]], height)
