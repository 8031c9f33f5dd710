"""A round in two calls of compiled code: from what cells append to, to values that are kept.

`plan` reads that and finds the launches; `compute` brings data and values of earlier rounds, launches,
and copies values to the store. A few examples of blocks are planned and computed by the same calls: they read
nothing of earlier rounds, their values stay where launches write them, and what they noted may be packed
already. Both are given one array of addresses, see `HELD`. Lists, whole numbers and floats are read where
CPython has them (`PyListObject`, `arrayobject`, `PyLongObject`, `PyFloatObject`), while the walk that changes
them waits. `reads` is the mirror of `functions.rounds.Rounds._looked_at`. Importing this needs llvmlite.
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

# the head of what is told of a round: its first number, and how many there are of: numbers, outputs of cells,
# cells, import cells, arenas, numbers noted, and sections of a packed trace. Then come import cells: each its
# section, the number of its class, and the buffer of its arena; arenas: the number, that of the class whose
# values lie there, and its buffer; and cells: how many calls, how long a row is, how many outputs a call has,
# the number of the first one, the section, how many lists and data are read; the array of Python that has the
# rows, how long one is as noted, and where the pattern of that begins; then, of each list, where its length
# stands in a row, how many members an element has, the section, and the array of Python; and, of each feed,
# the list of Python, what its numbers become, the greatest one, the buffer, and the address of memory for
# them
FIRST, NUMBERS, OUTPUTS, CELLS, IMPORTS, ARENAS, NOTED, SECTIONS, HEADER = range(9)
OF_CLASS, OF_ARENA, IMPORT = 1, 2, 3
KIND, BUFFER, ARENA = 1, 2, 3
CALLS, WIDTH, RESULTS, OUTPUT, SECTION, LISTS, FEEDS, ROW_ARRAY, RAW, PATTERN, CELL = range(11)
COLUMN, MEMBERS, SECTION_OF_LIST, ELEMENTS, LIST = range(5)
ITEMS_OF, KIND_OF_FEED, GREATEST, BUFFER_OF_FEED, MEMORY_OF_FEED, FEED = range(6)
READ = 3  # numbers of what is read: its place, that of the call, and the slot
# of a section of what few examples noted, in the place of patterns: its list, how long a row is, how many
# numbers of a row are values', and whether rows lie in the list number by number
OF_LIST, LONG, VALUED, SPREAD, OF_SECTION = range(5)
# what is held: the addresses of what `plan` is told and writes, of the codes of kernels and where each
# begins, of the addresses of buffers, how many rows each has, and of memory for the walker; how much that is,
# how much may be noted; of Python what whole numbers and floats are, by how many bits the number of digits
# is moved, and what signs are among these bits; lists: whose numbers are up to each end, these ends, and the
# numbers that are asked for; the first number of the batch, and memory for what is asked for; what is shared
# with a helper, see `team`, 0 where there is none, and how many instructions were worth sharing; and of few
# examples, 0 in rounds, what tuples are of Python, and whether what was noted is packed. Of these whose
# numbers are and the ends are, by example, lists of how many rows sections have, and the first numbers
FLAT, HEADER_AT, PATTERNS, WIRES, KINDS, ARENAS_OF, EXAMPLE, CLASSES, PLACES, STORED = range(10)
MEMORY, RENUMBERED, ROWS, FIXED, BATCH, TABLES, BOUND, NUMBERS_AT, LAUNCHES = range(10, 19)
CODES, STARTS, ADDRESSES, CAPACITY, WORK, WORK_ROOM, MAX_NOTED, WHOLE_TYPE, REAL_TYPE = range(19, 28)
SHIFT, SIGNS, OWNERS, ENDS, ASKED, START, READ_AT, TEAM, LARGE = range(28, 37)
TUPLE_TYPE, PACKED, RUNNER = range(37, 40)
# what the numbers of data become; those that are given are brought already, and others stand in the trace
BROUGHT, I8, I4, F8, F4, IN_TRACE = range(6)
HIGHEST = 3.4e38  # no smaller float64 is infinite as float32
# words of an object of Python: its type; of a list how many items it has, and the address of theirs; of a
# whole number how many digits, and the first two, 30 bits each; and of a float the number
TYPE = objects.TYPE // 8
SIZE = TAG = REAL = objects.DATA // 8
ITEMS = DIGITS = SIZE + 1
FIRST_ITEM = tuple.__basicsize__ // 8  # of a tuple, which has a hash before it from 3.14 on


def number_for_model(runner: Any, header: Any, memory: Any, read_count: int) -> int:
    """Write how a model counts numbers, and which ones are imported, given how much is read, see `read`.

    Return how many these are; -1 where something is read that must not be, or that is not known.
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
    """Write the packed trace of what `reads` has written, of which `count` numbers are imported."""
    for i in range(header[IMPORTS]):
        section = header[HEADER + IMPORT * i]
        sizes[section], rows[1 + section] = counts[i], i4(counts[i])
    rows[0], end = i4(count + header[NUMBERS]), 1 + header[SECTIONS]
    for s in range(header[SECTIONS]):  # from how large they are to where they begin
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
    return i8(at(obj)[SIZE])


def items_of(obj: int) -> Any:
    return at(at(obj)[ITEMS])


def whole_number(obj: Any, runner: Any) -> int:
    """Return a whole number of at most two digits; -1 of a negative one, and of what is none."""
    if obj[TYPE] != runner[WHOLE_TYPE]:  # which may have fewer words
        return -1
    size, digits = u8(obj[TAG]) >> u8(runner[SHIFT]), u8(obj[DIGITS])
    low, high = i8(digits % u8(2**32)), i8(digits >> u8(32))
    unreadable = size > u8(2) or obj[TAG] & runner[SIGNS] == 2
    value = i8(0) if size == u8(0) else low if size == u8(1) else low + high * 2**30
    return i8(-1) if unreadable else value


def cells_at(header: Any) -> int:
    """Return where the first cell is told of."""
    return i8(HEADER + IMPORT * header[IMPORTS] + ARENA * header[ARENAS])


def import_places(header: Any, memory: Any) -> Any:
    """Return where `plan` tells where imported numbers stand."""
    return moved(memory, header[IMPORTS] + header[SECTIONS] + 1)


def flatten_notes(runner: Any, header: Any, memory: Any, rows: Any) -> int:
    """Write what was noted, whose each number is, which output makes it, what is read, and sizes of sections.

    Return how much is read; -1 where that cannot be told, or nothing was noted.
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
    """Write the packed trace of what few examples noted; return whether that can be read, and is not much."""
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
    """Write the packed trace of a round, and return how many numbers are imported; -1 where it has none."""
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
    """Plan a round; return -1 where that cannot be done at once, 1 where memory is too small, else 0.

    Known are: the slots of a row of each cell, and of elements of its lists (`PATTERNS`); of each slot,
    which outputs are read there (`WIRES`), and the import cell whose values are, or -1 (`KINDS`); of each
    output its arena, or -1; of each number its example, the class of its value, and where that is among
    them; and the values of classes that are stored, see `USED`. `MEMORY` is told how many numbers each
    import cell brings, how large sections are, and, each in as much room as may be noted, where those
    numbers stand, which output makes each number, and what is read. `MADE` is what was noted, as the model
    counts. Others are arguments of `table_loops.place`, of which rows are written here, and of `launch`.
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
    """Bring the data of a cell in the order of its calls; return whether they are plain numbers that fit."""
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
    """Copy what is asked for to memory, where it is of one class; return the number of that, or -1."""
    items, classes, places, kind = items_of(runner[ASKED]), at(runner[CLASSES]), at(runner[PLACES]), i8(-1)
    count, size = size_of(runner[ASKED]), i8(0)
    for i in range(count):
        n = whole_number(at(items[i]), runner) - runner[START]
        if i == 0 and n >= 0:
            kind, size = classes[n], stored[classes[n] * CLASS + BYTES]
        if n < 0 or count > runner[MAX_NOTED] or size > 8 or classes[n] != kind:
            return -1
        copy(runner[READ_AT] + i * size, stored[kind * CLASS + VALUES] + places[n] * size, size)
    return kind


def compute(table: Index) -> int:
    """Compute a round that was planned.

    Return -1 where an id is out of range; where data are that must be given, what tells of them; else 0, or,
    where all that is asked for is of one class, -2 less its number.
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
    for i in range(header[ARENAS]):  # arenas lie where values are kept
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
