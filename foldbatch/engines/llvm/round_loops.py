"""A round in two calls of compiled code: from the lists to which cells append, to values in the store.

`plan` reads the lists and computes the launches; `compute` copies data and values of earlier rounds to
buffers, launches the kernels, and leaves the results in the store. A small batch of blocks is planned and
computed by the same two calls: it reads nothing of earlier rounds, and its values stay in the arenas. Both
functions take the runner's table, see `Runner`. Lists, integers and floats are read in the memory of
CPython's objects (`PyListObject`, `arrayobject`, `PyLongObject`, `PyFloatObject`), while the walk that
changes them waits. `number_for_model` mirrors `functions.rounds.Rounds._looked_at`.
Importing this needs llvmlite.
"""

from __future__ import annotations

from foldbatch.engines.llvm.coder import ErrorRecord
from foldbatch.engines.llvm.walker import walk
from foldbatch.loops.cpython import COUNT, DIGITS, ITEMS, REAL, TAG, TYPE, digits_in
from foldbatch.loops.records import Header, Memory, Record
from foldbatch.loops.vector_functions import moved
from foldbatch.loops.words import address, at, at_f4, at_f8, at_i4, copy, i8, u8
from foldbatch.model.rounds import CALL_NUMBER, LEFT_OUT, LENGTH, ValueClass
from foldbatch.planning.table_loops import Cell, Launches, Routines, Tables, write_launches, write_tables
from foldbatch.scheduler.trace import Index, Ints

f4 = f8 = float  # compiled: conversions
i4 = int


class Round(Header):
    """The header of a round; behind it stand the records of import cells, of arenas, and of cells."""

    first: int  # the first value number
    values: int  # how many there are
    outputs: int  # of all cells
    cells: int
    imports: int
    arenas: int
    noted: int  # integers
    sections: int  # of the packed trace


class ImportCell(Record):
    """An import cell: its values are those of earlier rounds."""

    section: int
    value_class: int  # the number of the class of its values
    buffer: int  # of its arena


class Arena(Record):
    """An arena whose values go to the store."""

    number: int
    value_class: int  # the number of the class of values that it has
    buffer: int


class CalledCell(Record):
    """A cell that walks call; behind it stand the records of its lists and of its feeds."""

    calls: int
    width: int  # integers of a row
    outputs: int  # of a call
    first_output: int
    section: int
    lists: int  # how many the model reads
    feeds: int  # how many the model reads
    row_array: int  # the address of Python's array of rows
    noted_width: int  # integers of a row as it was noted
    pattern: int  # the offset of its pattern


class CellList(Record):
    """A list that a cell reads."""

    column: int  # the offset of its length in a row
    members: int  # of an element
    section: int
    elements: int  # the address of Python's array of elements


class FeedRecord(Record):
    """A feed of a cell."""

    items: int  # the address of Python's list of data
    kind: int  # the type that the data get: `BROUGHT` and the following
    greatest: int  # the greatest integer that is allowed
    buffer: int
    converted: int  # the address of memory for the converted data


class Read(Record):
    """A value that a call reads."""

    place: int  # the offset of the value's number among the noted integers
    call: int  # the offset of its call
    slot: int


class Section(Record):
    """A section of a small batch; these records stand in the place of patterns."""

    items: int  # the address of its array
    width: int  # integers of a row
    numbered: int  # how many of these are value numbers


class Runner(Header):
    """The runner's table: addresses of what `plan` and `compute` read and write, and their settings."""

    # addresses of arrays
    flat: int
    header: int  # `Round`
    patterns: int
    wires: int
    kinds: int
    arenas: int
    example: int
    classes: int
    places: int
    stored: int  # records: `ValueClass`
    notes: int
    renumbered: int
    rows: int
    model: int  # `table_loops.Model`
    batch: int  # `table_loops.Batch`
    tables: int  # `table_loops.Tables`
    routines: int  # `table_loops.Routines`
    numbers: int  # `table_loops.Launches`
    launches: int
    codes: int  # of kernels
    starts: int  # their offsets
    addresses: int  # of buffers
    capacity: int  # rows of each buffer
    work: int  # memory for the walker
    work_room: int  # the size of that memory
    max_noted: int  # the limit of noted integers
    whole_type: int  # CPython's type of integers
    real_type: int  # and of floats
    # lists of CPython: the owner (example) of the values up to each end; of a small batch lists of
    # how many integers of each section there are after each example
    owners: int
    ends: int  # these ends; of a small batch the first value number of each example
    requested: int  # the values that are requested
    start: int  # the first value number of the batch
    requested_values: int  # the address of memory for the requested values
    team: int  # the words that are shared with a helper, see `team`, or 0
    large: int  # the number of instructions that were worth sharing
    small_batch: int  # whether it is a small batch


# types of data: an array that Python brings, four types of numbers, or integers that the packed trace has
BROUGHT, I8, I4, F8, F4, IN_TRACE = range(6)
HIGHEST = 3.4e38  # no smaller float64 is infinite as float32


def number_for_model(runner: Runner, header: Round, memory: Memory, read_count: int) -> int:
    """Renumber the noted integers as the model counts values, with imported values first.

    Args:
        runner: the runner's table.
        header: the header of the round.
        memory: as `flatten_notes` has written it; the imported values are written there.
        read_count: how many records of reads there are.

    Return the number of imported values; -1 if a value of another example is read, or a wire is new.
    """
    flat, wires, kinds, example = at(runner.flat), at(runner.wires), at(runner.kinds), at(runner.example)
    first, imports = header.first, header.imports
    renumbered, imported = at_i4(runner.renumbered), import_places(header, memory)
    makers, looked = moved(imported, runner.max_noted), moved(imported, 2 * runner.max_noted)
    count, start = i8(0), i8(0)
    for i in range(imports):
        memory[i] = 0
    for r in range(read_count):
        read = Read(looked, Read.size * r)
        slot = read.slot
        if slot >= 0:
            value, call = flat[read.place], flat[read.call]
            if value < 0 or value >= call or example[value] != example[call]:
                return -1
            if value < first:
                if kinds[slot] < 0:
                    return -1
                memory[kinds[slot]] += 1
                count += 1
            else:
                output = makers[value - first]
                if output < 0 or wires[slot * header.outputs + output] == 0:
                    return -1
    for i in range(header.noted):
        renumbered[i] = i4(flat[i] - first + count)
    for kind in range(max(imports, i8(1))):
        for r in range(read_count):
            read = Read(looked, Read.size * r)
            slot, here = read.slot, read.place
            if slot == LENGTH:
                renumbered[here] = i4(flat[here])
            elif kinds[slot] == kind and flat[here] < first:
                renumbered[here] = i4(start)
                imported[start] = here
                start += 1
    return count


def pack_sections(
    header: Round, counts: Index, sizes: Index, renumbered: Ints, rows: Ints, count: int
) -> None:
    """Write the packed trace of the integers of `number_for_model`, after `count` imported values."""
    for i in range(header.imports):
        imported = ImportCell(header.memory, Round.size + ImportCell.size * i)
        sizes[imported.section], rows[1 + imported.section] = counts[i], i4(counts[i])
    rows[0], end = i4(count + header.values), 1 + header.sections
    for s in range(header.sections):  # from sizes to offsets
        size = sizes[s]
        sizes[s] = end
        end += size
    sizes[header.sections], number = end, i8(0)
    for i in range(header.imports):
        imported = ImportCell(header.memory, Round.size + ImportCell.size * i)
        for to in range(sizes[imported.section], sizes[imported.section + 1]):
            rows[to] = i4(number)
            number += 1
    offset, row = cells_at(header), i8(0)
    for _ in range(header.cells):
        cell = CalledCell(header.memory, offset)
        section = cell.section
        offset += CalledCell.size
        for s in range(1 + cell.lists):
            if s > 0:
                cell_list = CellList(header.memory, offset)
                section = cell_list.section
                offset += CellList.size
            for to in range(sizes[section], sizes[section + 1]):
                rows[to] = renumbered[row]
                row += 1
        offset += FeedRecord.size * cell.feeds


def size_of(obj: int) -> int:
    """Return the number of items of a list or an array of CPython, given its address."""
    return i8(at(obj)[COUNT])


def items_of(obj: int) -> Memory:
    """Return the pointer to the items of a list or an array of CPython, given its address."""
    return at(at(obj)[ITEMS])


def whole_number(obj: Memory, runner: Runner) -> int:
    """Return an integer of CPython of at most two digits; -1 for a negative one, and for any other object."""
    if obj[TYPE] != runner.whole_type:  # another object may have fewer words
        return -1
    size = digits_in(obj[TAG])
    if size <= 0:
        return size
    digits = at_i4(address(moved(obj, DIGITS)))  # half words: one digit has no word of its own
    if size == 1:
        return i8(digits[0])
    return i8(digits[0]) + i8(digits[1]) * 2**30


def cells_at(header: Round) -> int:
    """Return the offset of the first cell's record."""
    return i8(Round.size + ImportCell.size * header.imports + Arena.size * header.arenas)


def import_places(header: Round, memory: Memory) -> Memory:
    """Return the part of the memory that has the offsets of imported values among the noted integers."""
    return moved(memory, header.imports + header.sections + 1)


def flatten_notes(runner: Runner, header: Round, memory: Memory, rows: Memory) -> int:  # noqa: PLR0915 - one pass
    """Copy the recorded calls of a round into flat arrays.

    Written are the noted integers, the owner example and the producing output of each value, a record for
    each value that is read, and the sizes of sections.

    Return the number of records of reads; -1 if there are no calls, too many, or a number that is not valid.
    """
    flat, patterns, example = at(runner.flat), at(runner.patterns), at(runner.example)
    sizes, imported = moved(memory, header.imports), import_places(header, memory)
    makers, looked = moved(imported, runner.max_noted), moved(imported, 2 * runner.max_noted)
    owners, ends, number = items_of(runner.owners), items_of(runner.ends), header.first
    for s in range(size_of(runner.ends)):
        owner, end = whole_number(at(owners[s]), runner), whole_number(at(ends[s]), runner) - runner.start
        if owner < 0 or end - header.first > runner.max_noted:
            return -1
        for n in range(number, end):
            example[n], makers[n - header.first] = owner, -1
        number = max(number, end)
    for s in range(header.sections):
        sizes[s], rows[1 + s] = 0, i4(0)
    header.values = number - header.first
    offset, to, read_count = cells_at(header), i8(0), i8(0)
    for _ in range(header.cells):
        cell = CalledCell(header.memory, offset)
        offset += CalledCell.size
        source, noted_width, pattern, begin = cell.row_array, cell.noted_width, cell.pattern, to
        items = items_of(source)
        count = i8(u8(size_of(source)) // u8(noted_width))
        if to + size_of(source) > runner.max_noted:
            return -1
        for i in range(count):
            call = to
            for c in range(noted_width):
                n, slot = items[i * noted_width + c], patterns[pattern + c]
                if n < 0:
                    return -1
                if slot != LEFT_OUT:
                    flat[to] = n if slot == LENGTH else n - runner.start
                    if slot != CALL_NUMBER:
                        read = Read(looked, Read.size * read_count)
                        read.place, read.call, read.slot = to, call, slot
                        read_count += 1
                    to += 1
            for j in range(cell.outputs):
                makers[flat[call] - header.first + j] = cell.first_output + j
        section = cell.section
        cell.calls, sizes[section], rows[1 + section] = count, to - begin, i4(count)
        pattern += noted_width
        for _ in range(cell.lists):
            cell_list = CellList(header.memory, offset)
            offset += CellList.size
            source, members, section = cell_list.elements, cell_list.members, cell_list.section
            items, size, start = items_of(source), size_of(source), to
            if to + size > runner.max_noted:
                return -1
            for i in range(count):
                call = begin + i * cell.width
                length = flat[call + cell_list.column] if members else i8(0)
                if to - start + length * members > size:
                    return -1
                rows[1 + section] += i4(length)
                for _ in range(length):
                    for m in range(members):
                        n = items[to - start]
                        if n < 0:
                            return -1
                        flat[to] = n - runner.start
                        read = Read(looked, Read.size * read_count)
                        read.place, read.call, read.slot = to, call, patterns[pattern + m]
                        read_count += 1
                        to += 1
            sizes[section] = to - start
            pattern += members
        offset += FeedRecord.size * cell.feeds
    header.noted = to
    return read_count if to > 0 else i8(-1)


def pack_small_batch(runner: Runner, header: Round, rows: Memory) -> bool:
    """Write the packed trace of a small batch from its lists; return False if these are too large to read."""
    sections, ends, offsets = at(runner.patterns), items_of(runner.owners), items_of(runner.ends)
    examples, max_noted = size_of(runner.owners), runner.max_noted
    to, calls = i8(1 + header.sections), i8(0)
    values = whole_number(at(offsets[examples]), runner)
    if values < 0 or values > max_noted:
        return False
    rows[0] = i4(values)
    for s in range(header.sections):
        section = Section(sections, Section.size * s)
        start, i = to, i8(0)
        items, width, numbered = items_of(section.items), section.width, section.numbered
        if to + size_of(section.items) > 2 * max_noted:
            return False
        for e in range(examples):
            first_value = whole_number(at(offsets[e]), runner)
            last = whole_number(at(items_of(ends[e])[s]), runner)
            while i < last:
                for j in range(width):
                    rows[to] = i4(items[i] + first_value if j < numbered else items[i])
                    to += 1
                    i += 1
        rows[1 + s] = i4(u8(to - start) // u8(width))
        calls += i8(rows[1 + s]) if s < header.cells else i8(0)
    to += calls
    record = cells_at(header)
    for k in range(header.cells):
        cell = CalledCell(header.memory, record)
        record += CalledCell.size
        for _ in range(cell.feeds):
            feed = FeedRecord(header.memory, record)
            record += FeedRecord.size
            if feed.kind == IN_TRACE:
                items = items_of(feed.items)
                if to + i8(rows[1 + k]) > 4 * max_noted:
                    return False
                for r in range(i8(rows[1 + k])):
                    n = whole_number(at(items[r]), runner)
                    if n < 0 or n > feed.greatest:
                        return False
                    rows[to] = i4(n)
                    to += 1
    return True


def pack_notes(runner: Runner, header: Round, memory: Memory, rows: Memory) -> int:
    """Write the packed trace of a round or a small batch.

    Return the number of imported values; -1 if the round must be planned as any batch.
    """
    if runner.small_batch == 0:
        read_count = flatten_notes(runner, header, memory, rows)
        count = i8(-1) if read_count < 0 else number_for_model(runner, header, memory, read_count)
        if count >= 0:
            pack_sections(
                header, memory, moved(memory, header.imports), at_i4(runner.renumbered), rows, count
            )
        return count
    if not pack_small_batch(runner, header, rows):
        return -1
    offset = cells_at(header)
    for k in range(header.cells):
        cell = CalledCell(header.memory, offset)
        cell.calls = i8(rows[1 + k])
        offset += CalledCell.size + FeedRecord.size * cell.feeds
    return 0


def plan(table: Index) -> int:
    """Plan a round; return -1 if it must be planned as any batch, 1 if memory is too small, else 0.

    The table (`Runner`) points to: `patterns`, the slot of each integer of a cell's row, and of its lists'
    elements; `wires`, a flag for each slot and output; `kinds`, for each slot the import cell of its values,
    or -1; `arenas`, the arena of each output, or -1; `example`, `classes` and `places`, for each value number
    its example, its class, and its place in the class; and `stored`, a record for each class. `notes` is
    written: the number of values of each import cell, the sizes of sections, and, each with room for
    `max_noted`, the offsets of imported values, the producing output of each value, and the records of reads.
    `renumbered` has the noted integers as the model counts values. The other entries are arguments of
    `table_loops.write_tables`, whose packed trace is written here, and of `write_launches`.
    """
    runner = Runner(table)
    header_memory = at(runner.header)
    header = Round(header_memory)
    tables_memory, launches_memory, routine_constants = (
        at(runner.tables),
        at(runner.numbers),
        at(runner.routines),
    )
    tables = Tables(tables_memory)
    launches = Launches(launches_memory)
    routines = Routines(routine_constants)
    flat, stored, memory, rows = at(runner.flat), at(runner.stored), at(runner.notes), at_i4(runner.rows)
    small = i8(0)
    classes, places, arenas = at(runner.classes), at(runner.places), at(runner.arenas)
    count = pack_notes(runner, header, memory, rows)
    if count < 0 or not write_tables(at(runner.model), at(runner.batch), rows, tables_memory):
        return -1
    imported, offset, start = import_places(header, memory), i8(Round.size), i8(0)
    for i in range(header.imports):
        import_cell = ImportCell(header.memory, offset)
        for j in range(start, start + memory[i]):
            if classes[flat[imported[j]]] != import_cell.value_class:
                return -1
        start += memory[i]
        offset += ImportCell.size
    write_launches(routine_constants, tables_memory, launches_memory, at(runner.launches))
    makers, row_of = moved(imported, runner.max_noted), moved(tables_memory, tables.row_of + count)
    heights, capacity = moved(launches_memory, launches.heights), at(runner.capacity)
    for _ in range(header.arenas):
        arena = Arena(header.memory, offset)
        value_class = ValueClass(stored, arena.value_class * ValueClass.size)
        for n in range(header.values):
            if makers[n] >= 0 and arenas[makers[n]] == arena.number:
                places[header.first + n] = value_class.used + row_of[n]
                classes[header.first + n] = arena.value_class
        small = max(small, i8(value_class.used + heights[arena.buffer] > value_class.room))
        offset += Arena.size
    for b in range(routines.buffers):
        small = max(small, i8(heights[b] > capacity[b]))
    return small


def bring_data(runner: Runner, feed: FeedRecord, ranks: Memory, count: int) -> bool:
    """Convert the data of a feed to numbers, and write them to `feed.converted`, in rank order.

    Return False at the first datum that is no plain Python number, or out of the range of the feed's type;
    numbers may have been written then, and the caller converts all data in Python.

    Args:
        runner: the record of the batch that runs.
        feed: the feed; its list `items` has the data, in the order of calls.
        ranks: for each rank, the index of its call.
        count: how many calls there are.
    """
    items, kind, memory = items_of(feed.items), feed.kind, feed.converted
    for r in range(count):
        item = at(items[ranks[r]])
        if item[TYPE] == runner.real_type:
            x = at_f8(address(item))[REAL]
            if kind == F4 and not abs(x) > HIGHEST:
                at_f4(memory)[r] = f4(x)
            elif kind == F8:
                at_f8(memory)[r] = x
            else:
                return False
        else:
            n = whole_number(item, runner)
            if n < 0 or n > feed.greatest:
                return False
            if kind == I8:
                at(memory)[r] = n
            elif kind == I4:
                at_i4(memory)[r] = i4(n)
            elif kind == F8:
                at_f8(memory)[r] = f8(n)
            else:
                at_f4(memory)[r] = f4(n)
    return True


def copy_requested(runner: Runner, stored: Memory) -> int:
    """Copy the requested values to memory if all are of one class; return the number of the class, or -1."""
    items, classes, places, kind = items_of(runner.requested), at(runner.classes), at(runner.places), i8(-1)
    count, size, end = size_of(runner.requested), i8(0), i8(0)
    if count > 0:  # a value made by hand may have any number
        last = at(items_of(runner.ends)[size_of(runner.ends) - 1])
        end = whole_number(last, runner) - runner.start
    for i in range(count):
        n = whole_number(at(items[i]), runner) - runner.start
        if n >= end:
            return -1
        if i == 0 and n >= 0:
            kind = classes[n]
            value_class = ValueClass(stored, kind * ValueClass.size)
            size = value_class.bytes
        if n < 0 or count > runner.max_noted or size > 8 or classes[n] != kind:
            return -1
        value_class = ValueClass(stored, kind * ValueClass.size)
        copy(runner.requested_values + i * size, value_class.values + places[n] * size, size)
    return kind


def compute(table: Index) -> int:
    """Compute a round that `plan` has planned.

    Return -1 if an id is out of range; the offset of a feed's record if Python must bring its data; else 0,
    or -2 minus the number of their class if all requested values are of one class.
    """
    runner = Runner(table)
    header_memory, tables_memory = at(runner.header), at(runner.tables)
    launches_memory, routine_constants = at(runner.numbers), at(runner.routines)
    header = Round(header_memory)
    tables = Tables(tables_memory)
    launches = Launches(launches_memory)
    routines = Routines(routine_constants)
    addresses, stored, memory = at(runner.addresses), at(runner.stored), at(runner.notes)
    offset, in_trace = cells_at(header), tables.feeds_at
    for _ in range(header.cells):
        cell = CalledCell(header.memory, offset)
        planned = Cell(tables.memory, tables.cells_at + cell.section * Cell.size)
        ranks = moved(tables_memory, tables.ranks + planned.first_rank)
        count = cell.calls
        offset += CalledCell.size + CellList.size * cell.lists
        for _ in range(cell.feeds):
            feed = FeedRecord(header.memory, offset)
            if feed.kind == IN_TRACE:
                if feed.buffer >= 0:
                    addresses[feed.buffer] = runner.rows + 4 * in_trace
                in_trace += count
            elif count > 0 and feed.kind != BROUGHT:
                if not bring_data(runner, feed, ranks, count):
                    return i8(feed.offset)
                addresses[feed.buffer] = feed.converted
            offset += FeedRecord.size
    former = moved(import_places(header, memory), 2 * runner.max_noted)
    offset = i8(Round.size + ImportCell.size * header.imports)
    for i in range(header.arenas):  # arenas are written right into the store
        arena = Arena(header.memory, offset)
        value_class = ValueClass(stored, arena.value_class * ValueClass.size)
        former[i] = addresses[arena.buffer]
        addresses[arena.buffer] = value_class.values + value_class.used * value_class.bytes
        offset += Arena.size
    imported, start, offset = import_places(header, memory), i8(0), i8(Round.size)
    row_of, flat, places = moved(tables_memory, tables.row_of), at(runner.flat), at(runner.places)
    for i in range(header.imports):
        import_cell = ImportCell(header.memory, offset)
        value_class = ValueClass(stored, import_cell.value_class * ValueClass.size)
        to, size = addresses[import_cell.buffer], value_class.bytes
        for n in range(start, start + memory[i]):
            copy(to + row_of[n] * size, value_class.values + places[flat[imported[n]]] * size, size)
        start += memory[i]
        offset += ImportCell.size
    work = runner.work
    at(work)[0], heights = i8(0), moved(launches_memory, launches.heights)
    runner.large = walk(
        runner.codes,
        at(runner.starts),
        at(runner.launches),
        launches.forward,
        routines.length,
        moved(launches_memory, launches.levels),
        moved(tables_memory, tables.index),
        addresses,
        work + 8 * ErrorRecord.size,
        runner.work_room,
        work,
        runner.team,
    )
    for i in range(header.arenas):
        arena = Arena(header.memory, offset)
        addresses[arena.buffer] = former[i]
        if at(work)[0] == 0:
            value_class = ValueClass(stored, arena.value_class * ValueClass.size)
            value_class.used += heights[arena.buffer]
        offset += Arena.size
    if at(work)[0] != 0:
        return -1
    kind = copy_requested(runner, stored)
    return i8(0) if kind < 0 else -2 - kind
