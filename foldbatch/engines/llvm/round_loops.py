"""A round in two calls of compiled code: from the lists to which cells append, to values in the store.

`plan` reads the lists and computes the launches; `compute` copies data and values of earlier rounds to
buffers, launches the kernels, and leaves the results in the store. A small batch of blocks is planned and
computed by the same two calls: it reads nothing of earlier rounds, its values stay in the arenas, and its
calls may be packed already. Both functions take the runner's table, see `RUNNER`. Lists, integers and floats
are read in the memory of CPython's objects (`PyListObject`, `arrayobject`, `PyLongObject`, `PyFloatObject`),
while the walk that changes them waits. `number_for_model` mirrors `functions.rounds.Rounds._looked_at`.
Importing this needs llvmlite.
"""

from __future__ import annotations

from typing import Any

from foldbatch.engines.llvm import objects
from foldbatch.engines.llvm.coder import ERROR_WORDS
from foldbatch.engines.llvm.table_loops import (
    BUFFERS,
    CELLS_AT,
    FEEDS_AT,
    FORWARD,
    HEIGHTS,
    INDEX,
    LEVELS,
    RANKS,
    ROW_OF,
    write_launches,
    write_tables,
)
from foldbatch.engines.llvm.table_loops import CELL as OF_CELL
from foldbatch.engines.llvm.table_loops import FIRST as FIRST_RANK
from foldbatch.engines.llvm.table_loops import LENGTH as OF_LAUNCH
from foldbatch.engines.llvm.vector_functions import moved
from foldbatch.engines.llvm.walker import walk
from foldbatch.engines.llvm.words import address, at, at_f4, at_f8, at_i4, copy, i8, u8
from foldbatch.model.rounds import BYTES, CALL_NUMBER, CLASS, LEFT_OUT, LENGTH, ROOM, USED, VALUES
from foldbatch.scheduler.trace import Index, Ints

f4 = f8 = float  # compiled: conversions
i4 = int

# The header of a round: its first value number, and the number of values, outputs of all cells, cells, import
# cells, arenas, noted integers, and sections of the packed trace. Behind it come the records of import cells,
# of arenas, and of cells.
FIRST, NUMBERS, OUTPUTS, CELLS, IMPORTS, ARENAS, NOTED, SECTIONS, HEADER = range(9)
# The record of an import cell: its section, the number of its class of values, and the buffer of its arena.
OF_CLASS, OF_ARENA, IMPORT = 1, 2, 3
# The record of an arena: its number, the number of the class of values that it has, and its buffer.
KIND, BUFFER, ARENA = 1, 2, 3
# The record of a cell: the number of calls, the integers of a row, the number of outputs of a call, the
# number of the first output, the section, the number of lists and of feeds that the model reads; Python's
# array of rows, the integers of a row as it was noted, and the offset of its pattern. Behind it: a record for
# each list, and one for each feed.
CALLS, WIDTH, RESULTS, OUTPUT, SECTION, LISTS, FEEDS, ROW_ARRAY, RAW, PATTERN, CELL = range(11)
# The record of a list: the offset of its length in a row, the members of an element, the section, and
# Python's array of elements.
COLUMN, MEMBERS, SECTION_OF_LIST, ELEMENTS, LIST = range(5)
# The record of a feed: Python's list of data, the type that these get, the greatest integer that is allowed,
# the buffer, and the address of memory for the converted data.
ITEMS_OF, KIND_OF_FEED, GREATEST, BUFFER_OF_FEED, MEMORY_OF_FEED, FEED = range(6)
READ = 3  # The record of a read: the offset of the value's number, the offset of its call, and the slot.
# The record of a section of a small batch, which stands in the place of patterns: its list, the integers of a
# row, how many of these are value numbers, and whether the list has the rows integer by integer.
OF_LIST, LONG, VALUED, SPREAD, OF_SECTION = range(5)
# The runner's table: the addresses of the arrays that `plan` reads and writes; of the kernels' codes and
# their offsets; of the addresses of buffers, and of how many rows each has; and of memory for the walker.
# Then the size of that memory, and the limit of noted integers. Of CPython: the types of integers and floats,
# by how many bits an integer's number of digits is shifted, and the mask of its sign. Lists: the owner
# (example) of the values up to each end, these ends, and the values that are requested. The first value
# number of the batch, and memory for the requested values. The words that are shared with a helper, see
# `team`, or 0, and the number of instructions that were worth sharing. Of a small batch: CPython's type of
# tuples, which is 0 in rounds, and whether its trace is packed already; its owners are lists of the rows of
# each section, by example, and its ends are the first value number of each example.
FLAT, HEADER_AT, PATTERNS, WIRES, KINDS, ARENAS_OF, EXAMPLE, CLASSES, PLACES, STORED = range(10)
MEMORY, RENUMBERED, ROWS, FIXED, BATCH, TABLES, BOUND, NUMBERS_AT, LAUNCHES = range(10, 19)
CODES, STARTS, ADDRESSES, CAPACITY, WORK, WORK_ROOM, MAX_NOTED, WHOLE_TYPE, REAL_TYPE = range(19, 28)
SHIFT, SIGNS, OWNERS, ENDS, ASKED, START, READ_AT, TEAM, LARGE = range(28, 37)
TUPLE_TYPE, PACKED, RUNNER = range(37, 40)
# types of data: an array that Python brings, four types of numbers, or integers that the packed trace has
BROUGHT, I8, I4, F8, F4, IN_TRACE = range(6)
HIGHEST = 3.4e38  # no smaller float64 is infinite as float32
# Offsets in an object of CPython, in words: its type; a list's size, and the address of its items; an
# integer's number of digits, and its first two digits of 30 bits; and a float's number.
TYPE = objects.TYPE // 8
SIZE = TAG = REAL = objects.DATA // 8
ITEMS = DIGITS = SIZE + 1
FIRST_ITEM = tuple.__basicsize__ // 8  # of a tuple; from 3.14 on a hash comes before


def number_for_model(runner: Any, header: Any, memory: Any, read_count: int) -> int:
    """Renumber the noted integers as the model counts values, with imported values first.

    Args:
        runner: the runner's table.
        header: the header of the round.
        memory: as `flatten_notes` has written it; the imported values are written there.
        read_count: how many records of reads there are.

    Return the number of imported values; -1 if a value of another example is read, or a wire is new.
    """
    flat, wires, kinds, example = at(runner[FLAT]), at(runner[WIRES]), at(runner[KINDS]), at(runner[EXAMPLE])
    first, imports, renumbered, imported = (
        header[FIRST],
        header[IMPORTS],
        at_i4(runner[RENUMBERED]),
        import_places(header, memory),
    )
    makers, looked = moved(imported, runner[MAX_NOTED]), moved(imported, 2 * runner[MAX_NOTED])
    count, start = i8(0), i8(0)
    for i in range(imports):
        memory[i] = 0
    for r in range(read_count):
        to = READ * r
        slot = looked[to + 2]
        if slot >= 0:
            read, call = flat[looked[to]], flat[looked[to + 1]]
            if read < 0 or read >= call or example[read] != example[call]:
                return -1
            if read < first:
                if kinds[slot] < 0:
                    return -1
                memory[kinds[slot]] += 1
                count += 1
            else:
                output = makers[read - first]
                if output < 0 or wires[slot * header[OUTPUTS] + output] == 0:
                    return -1
    for i in range(header[NOTED]):
        renumbered[i] = i4(flat[i] - first + count)
    for kind in range(max(imports, i8(1))):
        for r in range(read_count):
            slot, here = looked[READ * r + 2], looked[READ * r]
            if slot == LENGTH:
                renumbered[here] = i4(flat[here])
            elif kinds[slot] == kind and flat[here] < first:
                renumbered[here] = i4(start)
                imported[start] = here
                start += 1
    return count


def pack_sections(
    header: Index, counts: Index, sizes: Index, renumbered: Ints, rows: Ints, count: int
) -> None:
    """Write the packed trace of the integers of `number_for_model`, after `count` imported values."""
    for i in range(header[IMPORTS]):
        section = header[HEADER + IMPORT * i]
        sizes[section], rows[1 + section] = counts[i], i4(counts[i])
    rows[0], end = i4(count + header[NUMBERS]), 1 + header[SECTIONS]
    for s in range(header[SECTIONS]):  # from sizes to offsets
        size = sizes[s]
        sizes[s] = end
        end += size
    sizes[header[SECTIONS]], number = end, i8(0)
    for i in range(header[IMPORTS]):
        for to in range(sizes[header[HEADER + IMPORT * i]], sizes[header[HEADER + IMPORT * i] + 1]):
            rows[to] = i4(number)
            number += 1
    cell, row = cells_at(header), i8(0)
    for _ in range(header[CELLS]):
        section, lists, feeds = header[cell + SECTION], header[cell + LISTS], header[cell + FEEDS]
        cell += CELL
        for s in range(1 + lists):
            if s > 0:
                section = header[cell + SECTION_OF_LIST]
                cell += LIST
            for to in range(sizes[section], sizes[section + 1]):
                rows[to] = renumbered[row]
                row += 1
        cell += FEED * feeds


def size_of(obj: int) -> int:
    """Return the number of items of a list or an array of CPython, given its address."""
    return i8(at(obj)[SIZE])


def items_of(obj: int) -> Any:
    """Return the pointer to the items of a list or an array of CPython, given its address."""
    return at(at(obj)[ITEMS])


def whole_number(obj: Any, runner: Any) -> int:
    """Return an integer of CPython of at most two digits; -1 for a negative one, and for any other object."""
    if obj[TYPE] != runner[WHOLE_TYPE]:  # another object may have fewer words
        return -1
    size = digits_of(obj[TAG], runner)
    if size <= 0:
        return size
    digits = at_i4(address(moved(obj, DIGITS)))  # half words: one digit has no word of its own
    if size == 1:
        return i8(digits[0])
    return i8(digits[0]) + i8(digits[1]) * 2**30


def digits_of(tag: int, runner: Any) -> int:
    """Return the number of digits of an integer, given its tag; -1 of a negative or larger one."""
    size = u8(tag) >> u8(runner[SHIFT])
    if size > u8(2) or tag & runner[SIGNS] == 2:
        return -1
    return i8(size)


def cells_at(header: Any) -> int:
    """Return the offset of the first cell's record."""
    return i8(HEADER + IMPORT * header[IMPORTS] + ARENA * header[ARENAS])


def import_places(header: Any, memory: Any) -> Any:
    """Return the part of the memory that has the offsets of imported values among the noted integers."""
    return moved(memory, header[IMPORTS] + header[SECTIONS] + 1)


def flatten_notes(runner: Any, header: Any, memory: Any, rows: Any) -> int:
    """Copy the recorded calls of a round into flat arrays.

    Written are the noted integers, the owner example and the producing output of each value, a record for
    each value that is read, and the sizes of sections.

    Return the number of records of reads; -1 if there are no calls, too many, or a number that is not valid.
    """
    flat, patterns, example = at(runner[FLAT]), at(runner[PATTERNS]), at(runner[EXAMPLE])
    sizes, imported = moved(memory, header[IMPORTS]), import_places(header, memory)
    makers, looked = moved(imported, runner[MAX_NOTED]), moved(imported, 2 * runner[MAX_NOTED])
    owners, ends, number = items_of(runner[OWNERS]), items_of(runner[ENDS]), header[FIRST]
    for s in range(size_of(runner[ENDS])):
        owner, end = whole_number(at(owners[s]), runner), whole_number(at(ends[s]), runner) - runner[START]
        if owner < 0 or end - header[FIRST] > runner[MAX_NOTED]:
            return -1
        for n in range(number, end):
            example[n], makers[n - header[FIRST]] = owner, -1
        number = max(number, end)
    for s in range(header[SECTIONS]):
        sizes[s], rows[1 + s] = 0, i4(0)
    header[NUMBERS], cell, to, read_count = number - header[FIRST], cells_at(header), i8(0), i8(0)
    for _ in range(header[CELLS]):
        source, raw, pattern, begin = (
            header[cell + ROW_ARRAY],
            header[cell + RAW],
            header[cell + PATTERN],
            to,
        )
        items, lists, feeds = items_of(source), header[cell + LISTS], header[cell + FEEDS]
        count, width = i8(u8(size_of(source)) // u8(raw)), header[cell + WIDTH]
        if to + size_of(source) > runner[MAX_NOTED]:
            return -1
        for i in range(count):
            call = to
            for c in range(raw):
                n, slot = items[i * raw + c], patterns[pattern + c]
                if n < 0:
                    return -1
                if slot != LEFT_OUT:
                    flat[to] = n if slot == LENGTH else n - runner[START]
                    if slot != CALL_NUMBER:
                        record = moved(looked, READ * read_count)
                        record[0], record[1], record[2] = to, call, slot
                        read_count += 1
                    to += 1
            for j in range(header[cell + RESULTS]):
                makers[flat[call] - header[FIRST] + j] = header[cell + OUTPUT] + j
        section = header[cell + SECTION]
        header[cell + CALLS], sizes[section], rows[1 + section] = count, to - begin, i4(count)
        pattern += raw
        cell += CELL
        for _ in range(lists):
            source, members, section = (
                header[cell + ELEMENTS],
                header[cell + MEMBERS],
                header[cell + SECTION_OF_LIST],
            )
            items, size, start = items_of(source), size_of(source), to
            if to + size > runner[MAX_NOTED]:
                return -1
            for i in range(count):
                call = begin + i * width
                length = flat[call + header[cell + COLUMN]] if members else i8(0)
                if to - start + length * members > size:
                    return -1
                rows[1 + section] += i4(length)
                for _ in range(length):
                    for m in range(members):
                        n = items[to - start]
                        if n < 0:
                            return -1
                        flat[to], record = n - runner[START], moved(looked, READ * read_count)
                        record[0], record[1], record[2] = to, call, patterns[pattern + m]
                        read_count += 1
                        to += 1
            sizes[section] = to - start
            pattern += members
            cell += LIST
        cell += FEED * feeds
    header[NOTED] = to
    return read_count if to > 0 else i8(-1)


def pack_small_batch(runner: Any, header: Any, rows: Any) -> bool:
    """Write the packed trace of a small batch from its lists; return False if these are too large to read."""
    sections, ends, offsets = at(runner[PATTERNS]), items_of(runner[OWNERS]), items_of(runner[ENDS])
    examples, max_noted, to, calls = (
        size_of(runner[OWNERS]),
        runner[MAX_NOTED],
        i8(1 + header[SECTIONS]),
        i8(0),
    )
    values = whole_number(at(offsets[examples]), runner)
    if values < 0 or values > max_noted:
        return False
    rows[0] = i4(values)
    for s in range(header[SECTIONS]):
        section, start, i = moved(sections, OF_SECTION * s), to, i8(0)
        items, width, numbered = items_of(section[OF_LIST]), section[LONG], section[VALUED]
        step = width if section[SPREAD] else i8(1)
        for e in range(examples):
            offset, last = (
                whole_number(at(offsets[e]), runner),
                step * whole_number(at(items_of(ends[e])[s]), runner),
            )
            while i < last:
                item = at(items[i])
                inside = item[TYPE] == runner[TUPLE_TYPE]
                length = item[SIZE] if inside else i8(1)
                if to + length > 2 * max_noted:
                    return False
                for j in range(length):
                    n = whole_number(at(item[FIRST_ITEM + j]) if inside else item, runner)
                    if n < 0:
                        return False
                    rows[to] = i4(n + offset if i8(u8(to - start) % u8(width)) < numbered else n)
                    to += 1
                i += 1
        rows[1 + s] = i4(u8(to - start) // u8(width))
        calls += i8(rows[1 + s]) if s < header[CELLS] else i8(0)
    to, cell = to + calls, cells_at(header)
    for k in range(header[CELLS]):
        feeds = header[cell + FEEDS]
        cell += CELL
        for _ in range(feeds):
            if header[cell + KIND_OF_FEED] == IN_TRACE:
                items = items_of(header[cell + ITEMS_OF])
                if to + i8(rows[1 + k]) > 4 * max_noted:
                    return False
                for r in range(i8(rows[1 + k])):
                    n = whole_number(at(items[r]), runner)
                    if n < 0 or n > header[cell + GREATEST]:
                        return False
                    rows[to] = i4(n)
                    to += 1
            cell += FEED
    return True


def pack_notes(runner: Any, header: Any, memory: Any, rows: Any) -> int:
    """Write the packed trace of a round or a small batch.

    Return the number of imported values; -1 if the round must be planned as any batch.
    """
    if runner[TUPLE_TYPE] == 0:
        read_count = flatten_notes(runner, header, memory, rows)
        count = i8(-1) if read_count < 0 else number_for_model(runner, header, memory, read_count)
        if count >= 0:
            pack_sections(
                header, memory, moved(memory, header[IMPORTS]), at_i4(runner[RENUMBERED]), rows, count
            )
        return count
    if runner[PACKED] == 0 and not pack_small_batch(runner, header, rows):
        return -1
    cell = cells_at(header)
    for k in range(header[CELLS]):
        header[cell + CALLS] = i8(rows[1 + k])
        cell += CELL + FEED * header[cell + FEEDS]
    return 0


def plan(table: Index) -> int:
    """Plan a round; return -1 if it must be planned as any batch, 1 if memory is too small, else 0.

    The table points to: `PATTERNS`, the slot of each integer of a cell's row, and of its lists' elements;
    `WIRES`, a flag for each slot and output; `KINDS`, for each slot the import cell of its values, or -1;
    `ARENAS_OF`, the arena of each output, or -1; `EXAMPLE`, `CLASSES` and `PLACES`, for each value number its
    example, its class, and its place in the class; and `STORED`, a record for each class, see `USED`.
    `MEMORY` is written: the number of values of each import cell, the sizes of sections, and, each with room
    for `MAX_NOTED`, the offsets of imported values, the producing output of each value, and the records of
    reads. `RENUMBERED` has the noted integers as the model counts values. The other entries are arguments of
    `table_loops.write_tables`, whose packed trace is written here, and of `write_launches`.
    """
    runner, small = moved(table, 0), i8(0)
    header, flat, stored, memory = (
        at(runner[HEADER_AT]),
        at(runner[FLAT]),
        at(runner[STORED]),
        at(runner[MEMORY]),
    )
    tables, numbers, bound, rows = (
        at(runner[TABLES]),
        at(runner[NUMBERS_AT]),
        at(runner[BOUND]),
        at_i4(runner[ROWS]),
    )
    classes, places, arenas = at(runner[CLASSES]), at(runner[PLACES]), at(runner[ARENAS_OF])
    count = pack_notes(runner, header, memory, rows)
    if count < 0 or not write_tables(at(runner[FIXED]), at(runner[BATCH]), rows, tables):
        return -1
    imported, entry, start = import_places(header, memory), i8(HEADER), i8(0)
    for i in range(header[IMPORTS]):
        for j in range(start, start + memory[i]):
            if classes[flat[imported[j]]] != header[entry + OF_CLASS]:
                return -1
        start += memory[i]
        entry += IMPORT
    write_launches(bound, tables, numbers, at(runner[LAUNCHES]))
    makers, row_of = moved(imported, runner[MAX_NOTED]), moved(tables, tables[ROW_OF] + count)
    heights, capacity = moved(numbers, numbers[HEIGHTS]), at(runner[CAPACITY])
    for _ in range(header[ARENAS]):
        value_class = moved(stored, header[entry + KIND] * CLASS)
        for n in range(header[NUMBERS]):
            if makers[n] >= 0 and arenas[makers[n]] == header[entry]:
                places[header[FIRST] + n] = value_class[USED] + row_of[n]
                classes[header[FIRST] + n] = header[entry + KIND]
        small = max(small, i8(value_class[USED] + heights[header[entry + BUFFER]] > value_class[ROOM]))
        entry += ARENA
    for b in range(bound[BUFFERS]):
        small = max(small, i8(heights[b] > capacity[b]))
    return small


def bring_data(runner: Any, feed: Any, ranks: Any, count: int) -> bool:
    """Convert the data of a feed, in rank order; return False if one of them is no plain number that fits."""
    items, kind, memory = items_of(feed[ITEMS_OF]), feed[KIND_OF_FEED], feed[MEMORY_OF_FEED]
    for r in range(count):
        item = at(items[ranks[r]])
        if item[TYPE] == runner[REAL_TYPE]:
            x = at_f8(address(item))[REAL]
            if kind == F4 and not abs(x) > HIGHEST:
                at_f4(memory)[r] = f4(x)
            elif kind == F8:
                at_f8(memory)[r] = x
            else:
                return False
        else:
            n = whole_number(item, runner)
            if n < 0 or n > feed[GREATEST]:
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


def copy_requested(runner: Any, stored: Any) -> int:
    """Copy the requested values to memory if all are of one class; return the number of the class, or -1."""
    items, classes, places, kind = items_of(runner[ASKED]), at(runner[CLASSES]), at(runner[PLACES]), i8(-1)
    count, size, end = size_of(runner[ASKED]), i8(0), i8(0)
    if count > 0:  # a value made by hand may have any number
        last = at(items_of(runner[ENDS])[size_of(runner[ENDS]) - 1])
        end = whole_number(last, runner) - runner[START]
    for i in range(count):
        n = whole_number(at(items[i]), runner) - runner[START]
        if n >= end:
            return -1
        if i == 0 and n >= 0:
            kind, size = classes[n], stored[classes[n] * CLASS + BYTES]
        if n < 0 or count > runner[MAX_NOTED] or size > 8 or classes[n] != kind:
            return -1
        copy(runner[READ_AT] + i * size, stored[kind * CLASS + VALUES] + places[n] * size, size)
    return kind


def compute(table: Index) -> int:
    """Compute a round that `plan` has planned.

    Return -1 if an id is out of range; the offset of a feed's record if Python must bring its data; else 0,
    or -2 minus the number of their class if all requested values are of one class.
    """
    runner = moved(table, 0)
    header, tables, addresses = at(runner[HEADER_AT]), at(runner[TABLES]), at(runner[ADDRESSES])
    stored, memory, cell, in_trace = (
        at(runner[STORED]),
        at(runner[MEMORY]),
        cells_at(header),
        tables[FEEDS_AT],
    )
    for _ in range(header[CELLS]):
        of_cell = tables[CELLS_AT] + header[cell + SECTION] * OF_CELL
        ranks = moved(tables, tables[RANKS] + tables[of_cell + FIRST_RANK])
        count, feeds = header[cell + CALLS], header[cell + FEEDS]
        cell += CELL + LIST * header[cell + LISTS]
        for _ in range(feeds):
            if header[cell + KIND_OF_FEED] == IN_TRACE:
                if header[cell + BUFFER_OF_FEED] >= 0:
                    addresses[header[cell + BUFFER_OF_FEED]] = runner[ROWS] + 4 * in_trace
                in_trace += count
            elif count > 0 and header[cell + KIND_OF_FEED] != BROUGHT:
                if not bring_data(runner, moved(header, cell), ranks, count):
                    return i8(cell)
                addresses[header[cell + BUFFER_OF_FEED]] = header[cell + MEMORY_OF_FEED]
            cell += FEED
    former, entry = (
        moved(import_places(header, memory), 2 * runner[MAX_NOTED]),
        i8(HEADER + IMPORT * header[IMPORTS]),
    )
    for i in range(header[ARENAS]):  # arenas are written right into the store
        value_class, buffer = moved(stored, header[entry + KIND] * CLASS), header[entry + BUFFER]
        former[i], addresses[buffer] = (
            addresses[buffer],
            value_class[VALUES] + value_class[USED] * value_class[BYTES],
        )
        entry += ARENA
    imported, start, entry = import_places(header, memory), i8(0), i8(HEADER)
    row_of, flat, places = moved(tables, tables[ROW_OF]), at(runner[FLAT]), at(runner[PLACES])
    for i in range(header[IMPORTS]):
        value_class, to = moved(stored, header[entry + OF_CLASS] * CLASS), addresses[header[entry + OF_ARENA]]
        for n in range(start, start + memory[i]):
            copy(
                to + row_of[n] * value_class[BYTES],
                value_class[VALUES] + places[flat[imported[n]]] * value_class[BYTES],
                value_class[BYTES],
            )
        start += memory[i]
        entry += IMPORT
    numbers, bound, work = at(runner[NUMBERS_AT]), at(runner[BOUND]), runner[WORK]
    at(work)[0], heights = i8(0), moved(numbers, numbers[HEIGHTS])
    runner[LARGE] = walk(
        runner[CODES],
        at(runner[STARTS]),
        at(runner[LAUNCHES]),
        numbers[FORWARD],
        bound[OF_LAUNCH],
        moved(numbers, numbers[LEVELS]),
        moved(tables, tables[INDEX]),
        addresses,
        work + 8 * ERROR_WORDS,
        runner[WORK_ROOM],
        work,
        runner[TEAM],
    )
    for i in range(header[ARENAS]):
        addresses[header[entry + BUFFER]] = former[i]
        if at(work)[0] == 0:
            moved(stored, header[entry + KIND] * CLASS)[USED] += heights[header[entry + BUFFER]]
        entry += ARENA
    if at(work)[0] != 0:
        return -1
    kind = copy_requested(runner, stored)
    return i8(0) if kind < 0 else -2 - kind
