"""Batches put into capacity classes, as loops over single integers; see `compiled`.

`measure` writes the sizes of a batch, `find` a class that has room for them, and `place` all integers of the
batch by the numbers of that class: new ranks and rows, index arrays, and the parts of the packed table that
differ from batch to batch. `foldbatch.planning.rooms` has the arrays that they read; `tests/planning` has a
specification in NumPy, to which results are equal to the last bit.
"""
# ruff: noqa: PLR1714, SIM109 - compiled text has no tuples and no generators

from __future__ import annotations

from foldbatch.loops.records import Header, Record
from foldbatch.planning.table_loops import (
    ALL_STAGES,
    STEP,
    Cell,
    Model,
    Operand,
    StepRecord,
    Tables,
    group,
    moved,
)
from foldbatch.scheduler.trace import Index, Ints

i4 = i8 = int  # compiled: conversions

CELL_FACTS, OPERAND_FACTS, SEQUENCE_FACTS = 3, 5, 3  # integers of the facts of a part, see `facts`


class Sizes(Header):
    """The header of the sizes of a batch, or of the rooms of a class; its tables stand behind it."""

    steps: int  # how many there are
    item: int  # integers of an item
    items_at: int  # records: `StepSize`, and behind each the elements of each sequence of its calls
    spans_at: int  # records: `SpanSize`, for each operand
    shared_at: int  # for each cell whether its calls share ranks, and to how many rows each output goes
    arenas_at: int  # for each arena, the rows that are in no slice
    slots_at: int  # of a batch, the slot of each step in its class


class StepSize(Record):
    """A step of a batch, or the room of a slot."""

    cell: int
    stage: int
    calls: int  # of a step that goes through all calls of its cell, none
    sequences: int  # of these calls


class SpanSize(Record):
    """The rows that an operand reads."""

    sliced: int  # whether they follow each other, and are read so by no operand that comes first
    first: int  # whether cotangents are stored there
    arena: int
    rows: int  # of slices, how many


class Classes(Header):
    """The header of classes; behind it the offset of the rooms of each, in the order of `find`."""

    count: int  # of classes


class Room(Header):
    """The header of a class, for `place`."""

    levels: int  # how many there are, of all axes
    levels_at: int  # records: `Level`
    # records: `Axis`, those of a cell side by side: of its calls, then of the elements of each sequence
    axes_at: int
    places: int  # the ends of all axes
    slot: int  # integers of a slot
    slots_at: int  # for each slot, the level of its calls, then those of their elements
    spans_at: int  # records: `RoomSpan`, for each operand
    outputs_at: int  # for each output, where its index array lies
    segments_at: int  # for each sequence, where its segments lie
    # for each cell, where it lies which calls share a rank, and where its axes lie; -1 where they do not
    shared_at: int
    ends_at: int  # for each arena, the first row behind all slices
    counts: int  # of two integers each
    counts_at: int  # where a size is written, and the number of its level, or of its axis behind all levels
    plans: int
    plans_at: int  # records: `Plan`
    sums: int
    sums_at: int  # records: `Sum`
    zeros: int
    zeros_at: int  # two integers each: the arena, and where the rows lie that are set to zero
    work: int  # how many terms a plan has at most


class Level(Record):
    """A slot's calls, or their elements of a sequence."""

    begin: int  # the first rank, or the first element
    room: int


class Axis(Record):
    """The calls of a cell, or their elements of a sequence."""

    first: int  # the first of its levels
    last: int  # the level behind its last
    start: int  # the first of its places
    stop: int  # the place behind its last


class RoomSpan(Record):
    """Where an operand's rows lie in a class."""

    start: int  # the first row of a slice, or -1
    first: int  # whether cotangents are stored there
    index: int  # where the index array lies, if it is no slice


class Plan(Record):
    """A sum of rows that are not consecutive, see `plan_of` in `foldbatch.engines.cuda.fixed_kernels`."""

    place: int  # where it is written
    index: int  # where its rows are told
    width: int  # rows side by side
    level: int  # the level whose rows these are; -1 for all of an axis
    axis: int


class Sum(Record):
    """A sum of rows of a table, by ids that examples give."""

    place: int  # where its plan is written
    axis: int  # the calls that have the ids
    width: int  # ids of a call


def is_level_stage(stage: int) -> bool:
    """Return whether a step of a stage is one level; others go through all calls of a cell."""
    return stage == STEP or stage == ALL_STAGES


def operand_at(model: Model, number: int) -> int:
    """Return the offset of the record of an operand."""
    return Model.size + model.cells * Cell.size + number * Operand.size


def axis_of(cell: Cell, number: int, operand: Operand) -> int:
    """Return the number of the axis along which a cell reads an operand: its calls, or their elements."""
    return i8(number + cell.first_sequence if operand.sequence < 0 else number + 1 + operand.sequence)


def cell_fact(tables: Tables, cell: Cell, number: int) -> int:
    """Return where the facts of a cell begin in a schedule."""
    parts = OPERAND_FACTS * cell.first_operand + cell.first_output + SEQUENCE_FACTS * cell.first_sequence
    return tables.facts_at + 1 + CELL_FACTS * number + parts


def operand_fact(tables: Tables, cell: Cell, number: int, place: int) -> int:
    """Return where the facts of an operand begin: its first row, and where its index array lies."""
    return cell_fact(tables, cell, number) + CELL_FACTS + OPERAND_FACTS * place


def output_fact(tables: Tables, cell: Cell, number: int, place: int) -> int:
    """Return where it stands where the rows of an output lie."""
    return cell_fact(tables, cell, number) + CELL_FACTS + OPERAND_FACTS * cell.operands + place


def sequence_fact(tables: Tables, cell: Cell, number: int, place: int) -> int:
    """Return where the facts of a sequence begin: where its segments lie, and its elements."""
    return output_fact(tables, cell, number, cell.outputs) + SEQUENCE_FACTS * place


def span_rows(tables: Tables, cell: Cell, number: int, operand: Operand) -> int:
    """Return how many rows an operand reads in a batch."""
    calls = tables.memory[cell_fact(tables, cell, number)]
    sequence = sequence_fact(tables, cell, number, operand.sequence - cell.first_sequence)
    return i8(calls * operand.columns if operand.sequence < 0 else tables.memory[sequence + 1])


def measure_steps(shape: Sizes, model: Model, tables: Tables) -> None:
    """Write the sizes of a batch's steps."""
    index = moved(tables.memory, tables.index)
    for number in range(tables.steps):
        step = StepRecord(tables.memory, tables.steps_at + StepRecord.size * number)
        cell = Cell(model.memory, Model.size + step.cell * Cell.size)
        item = StepSize(shape.memory, shape.items_at + number * shape.item)
        item.cell, item.stage, item.calls, item.sequences = step.cell, step.stage, 0, 0
        if is_level_stage(step.stage):
            item.calls, item.sequences = step.stop - step.start, cell.sequences
            for place in range(cell.sequences):
                segments = tables.memory[sequence_fact(tables, cell, step.cell, place)]
                elements = index[segments + step.stop] - index[segments + step.start]
                shape.memory[item.offset + StepSize.size + place] = elements


def overlaps(shape: Sizes, model: Model, tables: Tables, operand_number: int, start: int) -> bool:
    """Return whether an operand's rows, from `start` on, are rows of a slice that was measured before."""
    span = SpanSize(shape.memory, shape.spans_at + operand_number * SpanSize.size)
    for number in range(model.cells):
        cell = Cell(model.memory, Model.size + number * Cell.size)
        for place in range(cell.operands):
            at = cell.first_operand + place
            slice_ = SpanSize(shape.memory, shape.spans_at + at * SpanSize.size)
            if slice_.sliced != 0 and slice_.rows > 0 and slice_.arena == span.arena:
                first = tables.memory[operand_fact(tables, cell, number, place)]
                if start < first + slice_.rows and first < start + span.rows:
                    return True
    return False


def measure_spans(shape: Sizes, model: Model, tables: Tables) -> None:
    """Write which operands are slices, and the rows that are in none."""
    rows_beside = moved(shape.memory, shape.arenas_at)
    for arena in range(model.arenas):
        rows_beside[arena] = tables.memory[tables.zeros - model.arenas + arena]
    for i in range(shape.spans_at, shape.spans_at + model.operands * SpanSize.size):
        shape.memory[i] = 0
    for turn in range(model.cells):
        number = model.memory[model.priority_at + turn]
        cell = Cell(model.memory, Model.size + number * Cell.size)
        for place in range(cell.operands):
            operand_number = cell.first_operand + place
            operand = Operand(model.memory, operand_at(model, operand_number))
            span = SpanSize(shape.memory, shape.spans_at + operand_number * SpanSize.size)
            fact = operand_fact(tables, cell, number, place)
            start, stores = tables.memory[fact], tables.memory[fact + 3]
            span.arena, span.rows = operand.arena, span_rows(tables, cell, number, operand)
            taken = tables.memory[fact + 1] >= 0
            if not taken and span.rows > 0:
                taken = overlaps(shape, model, tables, operand_number, start)
            if taken:
                span.rows = 0
            else:
                span.sliced, span.first = 1, stores
                rows_beside[span.arena] -= span.rows


def measure(model_constants: Index, schedule: Index, memory: Index) -> None:
    """Write the sizes of a batch, by which it fits into a class or does not.

    Args:
        model_constants: the header `Model` and its tables.
        schedule: the schedule: the header `Tables`, its steps, facts and index arrays.
        memory: the header `Sizes`, which has the size of an item; the tables behind it are written.
    """
    model = Model(model_constants)
    tables = Tables(schedule)
    shape = Sizes(memory)
    shape.steps, shape.items_at = tables.steps, Sizes.size
    shape.spans_at = shape.items_at + shape.steps * shape.item
    shape.shared_at = shape.spans_at + model.operands * SpanSize.size
    shape.arenas_at = shape.shared_at + 2 * model.cells
    shape.slots_at = shape.arenas_at + model.arenas
    for i in range(shape.items_at, shape.spans_at):
        memory[i] = 0
    measure_steps(shape, model, tables)
    measure_spans(shape, model, tables)
    for number in range(model.cells):
        cell = Cell(model_constants, Model.size + number * Cell.size)
        fact, to = cell_fact(tables, cell, number), shape.shared_at + 2 * number
        copies = schedule[fact + 2]
        memory[to], memory[to + 1] = i8(copies >= 0), schedule[fact]
        if copies >= 0:
            memory[to + 1] = schedule[tables.index + copies + schedule[fact]]


def has_room(rooms: Index, slot: int, items: Index, step: int) -> bool:
    """Return whether a slot has room for a step; `slot` and `step` are the offsets of their records."""
    room = StepSize(rooms, slot)
    item = StepSize(items, step)
    # calls with elements need a free rank behind them
    extra = min(item.sequences, 1)
    if room.cell != item.cell or room.stage != item.stage or item.calls + extra > room.calls:
        return False
    for s in range(item.sequences):
        if items[step + StepSize.size + s] > rooms[slot + StepSize.size + s]:
            return False
    return True


def find_slots(rooms: Index, shapes: Index) -> bool:
    """Write the first slots of a class that take a batch's steps in their order; return whether there are."""
    room = Sizes(rooms)
    shape = Sizes(shapes)
    slot = i8(0)
    for step in range(shape.steps):
        at = shape.items_at + step * shape.item
        while slot < room.steps and not has_room(rooms, room.items_at + slot * room.item, shapes, at):
            slot += 1
        if slot == room.steps:
            return False
        shapes[shape.slots_at + step] = slot
        slot += 1
    return True


def takes_wholes(rooms: Index, shapes: Index) -> bool:
    """Return whether a batch takes all slots through all calls of its cells: all of them run."""
    room = Sizes(rooms)
    shape = Sizes(shapes)
    for slot in range(room.steps):
        unused = StepSize(rooms, room.items_at + slot * room.item)
        if not is_level_stage(unused.stage):
            cell_runs, taken = False, False
            for step in range(shape.steps):
                item = StepSize(shapes, shape.items_at + step * shape.item)
                cell_runs = cell_runs or item.cell == unused.cell
                taken = taken or shapes[shape.slots_at + step] == slot
            if cell_runs and not taken:
                return False
    return True


def holds(model: Model, rooms: Index, shapes: Index) -> bool:
    """Return whether a class has room for a batch, but for its steps: slices, shared calls, and rows."""
    room = Sizes(rooms)
    shape = Sizes(shapes)
    for number in range(model.cells):
        a, b = room.shared_at + 2 * number, shape.shared_at + 2 * number
        if rooms[a] < shapes[b] or rooms[a + 1] < shapes[b + 1]:
            return False
    for operand in range(model.operands):
        slice_ = SpanSize(rooms, room.spans_at + operand * SpanSize.size)
        span = SpanSize(shapes, shape.spans_at + operand * SpanSize.size)
        if slice_.sliced > span.sliced or slice_.first > span.first:
            return False
    for arena in range(model.arenas):
        rows = shapes[shape.arenas_at + arena]
        for operand in range(model.operands):
            slice_ = SpanSize(rooms, room.spans_at + operand * SpanSize.size)
            span = SpanSize(shapes, shape.spans_at + operand * SpanSize.size)
            if span.arena == arena and slice_.sliced == 0:
                rows += span.rows
        if rooms[room.arenas_at + arena] < rows:
            return False
    return True


def find(model_constants: Index, class_rooms: Index, memory: Index) -> int:
    """Return the first class that a batch fits into, or -1.

    Args:
        model_constants: the header `Model` and its tables.
        class_rooms: the header `Classes`, and the rooms of each.
        memory: the sizes of the batch, see `measure`; the slots of its steps are written.
    """
    model = Model(model_constants)
    classes = Classes(class_rooms)
    for number in range(classes.count):
        rooms = moved(class_rooms, class_rooms[Classes.size + number])
        if find_slots(rooms, memory) and takes_wholes(rooms, memory) and holds(model, rooms, memory):
            return number
    return -1


def count_levels(room: Room, model: Model, tables: Tables, shape: Sizes, counts: Index) -> None:
    """Write the calls and elements of each level, then of each axis."""
    for level in range(room.levels):
        counts[level] = 0
    for step in range(shape.steps):
        item = StepSize(shape.memory, shape.items_at + step * shape.item)
        slot = room.slots_at + shape.memory[shape.slots_at + step] * room.slot
        if is_level_stage(item.stage):
            counts[room.memory[slot]] = item.calls
            for s in range(item.sequences):
                elements = shape.memory[item.offset + StepSize.size + s]
                counts[room.memory[slot + 1 + s]] = elements
    to = room.levels
    for number in range(model.cells):
        cell = Cell(model.memory, Model.size + number * Cell.size)
        counts[to] = tables.memory[cell_fact(tables, cell, number)]
        for place in range(cell.sequences):
            counts[to + 1 + place] = tables.memory[sequence_fact(tables, cell, number, place) + 1]
        to += 1 + cell.sequences


def write_places(room: Room, axes: int, counts: Index, places: Index) -> None:
    """Write the places of each axis: first those that are taken, level by level, then those that are free."""
    to = 0
    for number in range(axes):
        axis = Axis(room.memory, room.axes_at + number * Axis.size)
        for level_number in range(axis.first, axis.last):
            level = Level(room.memory, room.levels_at + level_number * Level.size)
            for i in range(level.begin, level.begin + counts[level_number]):
                places[to] = i
                to += 1
        for level_number in range(axis.first, axis.last):
            level = Level(room.memory, room.levels_at + level_number * Level.size)
            for i in range(level.begin + counts[level_number], level.begin + level.room):
                places[to] = i
                to += 1


def write_rows(
    room: Room, model: Model, tables: Tables, places: Index, rows: Index, bases: Index, stored: Index
) -> None:
    """Write the new row of each row, and whether a slice stores its cotangents.

    Args:
        room: the class.
        model: the model.
        tables: the schedule.
        places: of all axes.
        rows: is written: for each arena the new row of each row.
        bases: is written: where the rows of each arena begin, and the end.
        stored: is written, for the rows of all arenas.
    """
    bases[0] = 0
    for arena in range(model.arenas):
        bases[arena + 1] = bases[arena] + tables.memory[tables.zeros - model.arenas + arena]
    for row in range(bases[model.arenas]):
        rows[row], stored[row] = -1, 0
    for number in range(model.cells):
        cell = Cell(model.memory, Model.size + number * Cell.size)
        for place in range(cell.operands):
            operand_number = cell.first_operand + place
            operand = Operand(model.memory, operand_at(model, operand_number))
            span = RoomSpan(room.memory, room.spans_at + operand_number * RoomSpan.size)
            if span.start >= 0:
                size = span_rows(tables, cell, number, operand)
                at = bases[operand.arena] + tables.memory[operand_fact(tables, cell, number, place)]
                axis = Axis(room.memory, room.axes_at + axis_of(cell, number, operand) * Axis.size)
                spots, width = moved(places, axis.start), max(operand.columns, 1)
                start, first, column, spot = span.start, span.first, i8(0), i8(0)
                for row in range(at, at + size):
                    rows[row], stored[row] = start + spots[spot] * width + column, first
                    column += 1
                    if column == width:
                        column, spot = i8(0), spot + 1
    for arena in range(model.arenas):
        end = room.memory[room.ends_at + arena]
        for row in range(bases[arena], bases[arena + 1]):
            if rows[row] < 0:
                rows[row] = end
                end += 1


def write_operand(
    room: Room,
    model: Model,
    tables: Tables,
    cell: Cell,
    number: int,
    place: int,
    places: Index,
    rows: Index,
    ints: Ints,
) -> None:
    """Write the index array of an operand that is no slice of the class; `rows` are those of its arena."""
    operand_number = cell.first_operand + place
    operand = Operand(model.memory, operand_at(model, operand_number))
    span = RoomSpan(room.memory, room.spans_at + operand_number * RoomSpan.size)
    fact, index = operand_fact(tables, cell, number, place), moved(tables.memory, tables.index)
    first, read = tables.memory[fact], tables.memory[fact + 1]
    axis = Axis(room.memory, room.axes_at + axis_of(cell, number, operand) * Axis.size)
    spots, width = moved(places, axis.start), max(operand.columns, 1)
    to, column, spot = span.index, i8(0), i8(0)
    for i in range(span_rows(tables, cell, number, operand)):
        row = index[read + i] if read >= 0 else first + i
        ints[to + spots[spot] * width + column] = i4(rows[row])
        column += 1
        if column == width:
            column, spot = i8(0), spot + 1


def write_bounds(
    room: Room, tables: Tables, cell: Cell, number: int, place: int, places: Index, counts: Index, ints: Ints
) -> None:
    """Write the segments of a sequence: where the elements of each call begin, and end.

    A level that stays empty begins at its place, too: its room is set to zero. So the beginning of a call is
    written last.
    """
    index = moved(tables.memory, tables.index + tables.memory[sequence_fact(tables, cell, number, place)])
    to = room.memory[room.segments_at + cell.first_sequence + place]
    calls = Axis(room.memory, room.axes_at + (number + cell.first_sequence) * Axis.size)
    elements = Axis(room.memory, calls.offset + (1 + place) * Axis.size)
    ranks = moved(places, calls.start)
    for turn in range(2):
        rank, before = i8(0), i8(0)
        for level_number in range(calls.last - calls.first):
            at = elements.first + level_number
            level = Level(room.memory, room.levels_at + at * Level.size)
            shift = level.begin - before
            for _ in range(counts[calls.first + level_number]):
                bound = rank + 1 - turn
                ints[to + ranks[rank] + 1 - turn] = i4(index[bound] + shift)
                rank += 1
            before += counts[at]


def write_cell(
    room: Room,
    model: Model,
    tables: Tables,
    cell: Cell,
    number: int,
    places: Index,
    rows: Index,
    bases: Index,
    counts: Index,
    ints: Ints,
) -> None:
    """Write the index arrays of a cell: rows of operands and results, shared calls, and segments."""
    index, fact = moved(tables.memory, tables.index), cell_fact(tables, cell, number)
    axis = Axis(room.memory, room.axes_at + (number + cell.first_sequence) * Axis.size)
    ranks, calls, copies = moved(places, axis.start), tables.memory[fact], tables.memory[fact + 2]
    for place in range(cell.operands):
        span = RoomSpan(room.memory, room.spans_at + (cell.first_operand + place) * RoomSpan.size)
        operand = Operand(model.memory, operand_at(model, cell.first_operand + place))
        if span.start < 0:
            of_arena = moved(rows, bases[operand.arena])
            write_operand(room, model, tables, cell, number, place, places, of_arena, ints)
    shared = room.memory[room.shared_at + 2 * number]
    if shared >= 0:
        for turn in range(2):  # the beginning of a call is written last
            for rank in range(calls):
                bound = rank + 1 - turn
                ints[shared + ranks[rank] + 1 - turn] = i4(index[copies + bound] if copies >= 0 else bound)
    running = calls if copies < 0 else index[copies + calls]
    for place in range(cell.outputs):
        arena = model.memory[model.outputs_at + cell.first_output + place]
        to = room.memory[room.outputs_at + cell.first_output + place]
        of_arena, written = moved(rows, bases[arena]), tables.memory[output_fact(tables, cell, number, place)]
        for i in range(running):
            spot = i if shared >= 0 else ranks[i]
            ints[to + spot] = i4(of_arena[index[written + i]])
    for place in range(cell.sequences):
        write_bounds(room, tables, cell, number, place, places, counts, ints)


def write_plan(ints: Ints, to: int, count: int, keys: Index, terms: Index) -> None:
    """Write the plan that adds terms to the rows that are their keys, see `Plan`; behind terms is scratch."""
    order = moved(terms, count)
    bounds = moved(order, count)
    groups, rising = count, True
    for i in range(1, count):
        rising = rising and keys[i] > keys[i - 1]
    if rising:  # as rows mostly are
        for i in range(count):
            order[i], bounds[i] = i, i
        bounds[count] = count
    else:
        groups = group(keys, count, order, bounds, moved(bounds, count + 1))
    ints[to] = i4(groups)
    for i in range(groups):
        ints[to + 1 + i] = i4(keys[order[bounds[i]]])
        ints[to + 1 + groups + i] = i4(bounds[i])
    ints[to + 1 + 2 * groups] = i4(count)
    for i in range(count):
        ints[to + 2 + 2 * groups + i] = i4(terms[order[i]])


def write_plans(room: Room, counts: Index, places: Index, ids: Index, ints: Ints, work: Index) -> None:
    """Write the plans of all sums of rows: of operands that are no slices, and of tables."""
    keys, terms = moved(work, 0), moved(work, room.work)
    for number in range(room.plans):
        plan = Plan(room.memory, room.plans_at + number * Plan.size)
        axis = Axis(room.memory, room.axes_at + plan.axis * Axis.size)
        total = plan.level < 0
        calls = counts[room.levels + plan.axis] if total else counts[plan.level]
        to = i8(0)
        for i in range(calls):
            spot = places[axis.start + i] if total else i
            for column in range(spot * plan.width, (spot + 1) * plan.width):
                keys[to], terms[to] = i8(ints[plan.index + column]), column
                to += 1
        write_plan(ints, plan.place, to, keys, terms)
    at = 0
    for number in range(room.sums):
        rows = Sum(room.memory, room.sums_at + number * Sum.size)
        axis = Axis(room.memory, room.axes_at + rows.axis * Axis.size)
        to = i8(0)
        for i in range(counts[room.levels + rows.axis]):
            spot = places[axis.start + i]
            for column in range(spot * rows.width, (spot + 1) * rows.width):
                keys[to], terms[to] = ids[at + to], column
                to += 1
        write_plan(ints, rows.place, to, keys, terms)
        at += to


def place(
    model_constants: Index,
    class_room: Index,
    schedule: Index,
    sizes: Index,
    ids: Index,
    numbers: Index,
    ints: Ints,
    placed: Index,
    work: Index,
) -> None:
    """Write the integers of a batch by the numbers of a class.

    Args:
        model_constants: the header `Model` and its tables.
        class_room: the header `Room` and its tables.
        schedule: the schedule, see `measure`.
        sizes: of the batch; with its slots, see `find`.
        ids: the ids of all sums of rows of tables.
        numbers: the packed table's numbers of 64 bits, those of a batch that takes all room; sizes of levels
            are written.
        ints: its numbers of 32 bits: index arrays, axes, plans, and rows that are set to zero are written.
        placed: is written: the places of all axes, then for each arena the new row of each row.
        work: scratch.
    """
    model = Model(model_constants)
    room = Room(class_room)
    tables = Tables(schedule)
    shape = Sizes(sizes)
    axes = model.cells + model.sequences
    counts, rows = moved(work, 0), moved(placed, room.places)
    bases = moved(counts, room.levels + axes)
    stored = moved(bases, model.arenas + 1)
    count_levels(room, model, tables, shape, counts)
    write_places(room, axes, counts, placed)
    write_rows(room, model, tables, placed, rows, bases, stored)
    for number in range(model.cells):
        cell = Cell(model_constants, Model.size + number * Cell.size)
        if schedule[cell_fact(tables, cell, number)] > 0:
            write_cell(room, model, tables, cell, number, placed, rows, bases, counts, ints)
        to = class_room[room.shared_at + 2 * number + 1]
        if to >= 0:
            first = Axis(class_room, room.axes_at + (number + cell.first_sequence) * Axis.size)
            last = Axis(class_room, first.offset + cell.sequences * Axis.size)
            for i in range(first.start, last.stop):
                ints[to + i - first.start] = i4(placed[i])
    for i in range(room.counts):
        pair = room.counts_at + 2 * i
        numbers[class_room[pair]] = counts[class_room[pair + 1]]
    write_plans(room, counts, placed, ids, ints, moved(stored, bases[model.arenas]))
    for i in range(room.zeros):
        arena, to = class_room[room.zeros_at + 2 * i], class_room[room.zeros_at + 2 * i + 1]
        listed = i8(0)
        for row in range(bases[arena], bases[arena + 1]):
            if stored[row] == 0:
                listed += 1
                ints[to + listed] = i4(rows[row])
        ints[to] = i4(listed)
