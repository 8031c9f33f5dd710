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
from foldbatch.engines.llvm.coder import FOUND
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
    launch,
    place,
)
from foldbatch.engines.llvm.table_loops import CELL as OF_CELL
from foldbatch.engines.llvm.table_loops import FIRST as FIRST_RANK
from foldbatch.engines.llvm.table_loops import LENGTH as OF_LAUNCH
from foldbatch.engines.llvm.vector_functions import moved
from foldbatch.engines.llvm.walker import walk
from foldbatch.engines.llvm.words import address, at, at_f4, at_f8, at_i4, copy, i8, u8
from foldbatch.model.rounds import BYTES, CLASS, LEFT_OUT, LENGTH, NUMBER, ROOM, USED, VALUES
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
FIRST, NUMBERS, OUTPUTS, CELLS, IMPORTS, ARENAS, NOTED, SECTIONS, TOLD = range(9)
OF_CLASS, OF_ARENA, IMPORT = 1, 2, 3
KIND, BUFFER, ARENA = 1, 2, 3
CALLS, WIDTH, RESULTS, OUTPUT, SECTION, LISTS, FEEDS, OWN, RAW, PATTERN, CELL = range(11)
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
FLAT, TOLD_AT, PATTERNS, WIRES, KINDS, ARENAS_OF, EXAMPLE, CLASSES, PLACES, STORED = range(10)
MEMORY, MADE, ROWS, FIXED, BATCH, TABLES, BOUND, NUMBERS_AT, LAUNCHES = range(10, 19)
CODES, STARTS, ADDRESSES, CAPACITY, WORK, WORK_ROOM, MOST, WHOLE_TYPE, REAL_TYPE = range(19, 28)
SHIFT, SIGNS, WHOSE, ENDS, ASKED, START, READ_AT, TEAM, LARGE = range(28, 37)
TUPLE_TYPE, PACKED, HELD = range(37, 40)
# what the numbers of data become; those that are given are brought already, and others stand in the trace
GIVEN, I8, I4, F8, F4, IN_TRACE = range(6)
HIGHEST = 3.4e38  # no smaller float64 is infinite as float32
# words of an object of Python: its type; of a list how many items it has, and the address of theirs; of a
# whole number how many digits, and the first two, 30 bits each; and of a float the number
TYPE = objects.TYPE // 8
SIZE = TAG = REAL = objects.DATA // 8
ITEMS = DIGITS = SIZE + 1
FIRST_ITEM = tuple.__basicsize__ // 8  # of a tuple, which has a hash before it from 3.14 on


def reads(held: Any, told: Any, memory: Any, several: int) -> int:
    """Write how a model counts numbers, and which ones are imported, given how much is read, see `read`.

    Return how many these are; -1 where something is read that must not be, or that is not known.
    """
    flat, wires, kinds, example = at(held[FLAT]), at(held[WIRES]), at(held[KINDS]), at(held[EXAMPLE])
    first, imports, made, found = told[FIRST], told[IMPORTS], at_i4(held[MADE]), found_in(told, memory)
    makers, looked = moved(found, held[MOST]), moved(found, 2 * held[MOST])
    count, start = i8(0), i8(0)
    for i in range(imports):
        memory[i] = 0
    for r in range(several):
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
                if output < 0 or wires[slot * told[OUTPUTS] + output] == 0:
                    return -1
    for i in range(told[NOTED]):
        made[i] = i4(flat[i] - first + count)
    for kind in range(max(imports, i8(1))):
        for r in range(several):
            slot, here = looked[READ * r + 2], looked[READ * r]
            if slot == LENGTH:
                made[here] = i4(flat[here])
            elif kinds[slot] == kind and flat[here] < first:
                made[here] = i4(start)
                found[start] = here
                start += 1
    return count


def pack(told: Index, counts: Index, sizes: Index, made: Ints, rows: Ints, count: int) -> None:
    """Write the packed trace of what `reads` has written, of which `count` numbers are imported."""
    for i in range(told[IMPORTS]):
        section = told[TOLD + IMPORT * i]
        sizes[section], rows[1 + section] = counts[i], i4(counts[i])
    rows[0], end = i4(count + told[NUMBERS]), 1 + told[SECTIONS]
    for s in range(told[SECTIONS]):  # from how large they are to where they begin
        size = sizes[s]
        sizes[s] = end
        end += size
    sizes[told[SECTIONS]], number = end, i8(0)
    for i in range(told[IMPORTS]):
        for to in range(sizes[told[TOLD + IMPORT * i]], sizes[told[TOLD + IMPORT * i] + 1]):
            rows[to] = i4(number)
            number += 1
    cell, row = cells_at(told), i8(0)
    for _ in range(told[CELLS]):
        section, lists, feeds = told[cell + SECTION], told[cell + LISTS], told[cell + FEEDS]
        cell += CELL
        for s in range(1 + lists):
            if s > 0:
                section = told[cell + SECTION_OF_LIST]
                cell += LIST
            for to in range(sizes[section], sizes[section + 1]):
                rows[to] = made[row]
                row += 1
        cell += FEED * feeds


def size_of(own: int) -> int:
    return i8(at(own)[SIZE])


def items_of(own: int) -> Any:
    return at(at(own)[ITEMS])


def whole(thing: Any, held: Any) -> int:
    """Return a whole number of at most two digits; -1 of a negative one, and of what is none."""
    if thing[TYPE] != held[WHOLE_TYPE]:  # which may have fewer words
        return -1
    size = digits_of(thing[TAG], held)
    if size <= 0:
        return size
    digits = at_i4(address(moved(thing, DIGITS)))  # half words: one digit has no word of its own
    if size == 1:
        return i8(digits[0])
    return i8(digits[0]) + i8(digits[1]) * 2**30


def digits_of(tag: int, held: Any) -> int:
    """Return how many digits a whole number has, given its tag; -1 of more than two, and below zero."""
    size = u8(tag) >> u8(held[SHIFT])
    if size > u8(2) or tag & held[SIGNS] == 2:
        return -1
    return i8(size)


def cells_at(told: Any) -> int:
    """Return where the first cell is told of."""
    return i8(TOLD + IMPORT * told[IMPORTS] + ARENA * told[ARENAS])


def found_in(told: Any, memory: Any) -> Any:
    """Return where `plan` tells where imported numbers stand."""
    return moved(memory, told[IMPORTS] + told[SECTIONS] + 1)


def read(held: Any, told: Any, memory: Any, rows: Any) -> int:
    """Write what was noted, whose each number is, which output makes it, what is read, and sizes of sections.

    Return how much is read; -1 where that cannot be told, or nothing was noted.
    """
    flat, patterns, example = at(held[FLAT]), at(held[PATTERNS]), at(held[EXAMPLE])
    sizes, found = moved(memory, told[IMPORTS]), found_in(told, memory)
    makers, looked = moved(found, held[MOST]), moved(found, 2 * held[MOST])
    owners, ends, number = items_of(held[WHOSE]), items_of(held[ENDS]), told[FIRST]
    for s in range(size_of(held[ENDS])):
        whose, end = whole(at(owners[s]), held), whole(at(ends[s]), held) - held[START]
        if whose < 0 or end - told[FIRST] > held[MOST]:
            return -1
        for n in range(number, end):
            example[n], makers[n - told[FIRST]] = whose, -1
        number = max(number, end)
    for s in range(told[SECTIONS]):
        sizes[s], rows[1 + s] = 0, i4(0)
    told[NUMBERS], cell, to, several = number - told[FIRST], cells_at(told), i8(0), i8(0)
    for _ in range(told[CELLS]):
        own, raw, pattern, begin = told[cell + OWN], told[cell + RAW], told[cell + PATTERN], to
        items, lists, feeds = items_of(own), told[cell + LISTS], told[cell + FEEDS]
        count, width = i8(u8(size_of(own)) // u8(raw)), told[cell + WIDTH]
        if to + size_of(own) > held[MOST]:
            return -1
        for i in range(count):
            call = to
            for c in range(raw):
                n, slot = items[i * raw + c], patterns[pattern + c]
                if n < 0:
                    return -1
                if slot != LEFT_OUT:
                    flat[to] = n if slot == LENGTH else n - held[START]
                    if slot != NUMBER:
                        look = moved(looked, READ * several)
                        look[0], look[1], look[2] = to, call, slot
                        several += 1
                    to += 1
            for j in range(told[cell + RESULTS]):
                makers[flat[call] - told[FIRST] + j] = told[cell + OUTPUT] + j
        section = told[cell + SECTION]
        told[cell + CALLS], sizes[section], rows[1 + section] = count, to - begin, i4(count)
        pattern += raw
        cell += CELL
        for _ in range(lists):
            own, members, section = told[cell + ELEMENTS], told[cell + MEMBERS], told[cell + SECTION_OF_LIST]
            items, size, start = items_of(own), size_of(own), to
            if to + size > held[MOST]:
                return -1
            for i in range(count):
                call = begin + i * width
                length = flat[call + told[cell + COLUMN]] if members else i8(0)
                if to - start + length * members > size:
                    return -1
                rows[1 + section] += i4(length)
                for _ in range(length):
                    for m in range(members):
                        n = items[to - start]
                        if n < 0:
                            return -1
                        flat[to], look = n - held[START], moved(looked, READ * several)
                        look[0], look[1], look[2] = to, call, patterns[pattern + m]
                        several += 1
                        to += 1
            sizes[section] = to - start
            pattern += members
            cell += LIST
        cell += FEED * feeds
    told[NOTED] = to
    return several if to > 0 else i8(-1)


def few(held: Any, told: Any, rows: Any) -> bool:
    """Write the packed trace of what few examples noted; return whether that can be read, and is not much."""
    sections, ends, offsets = at(held[PATTERNS]), items_of(held[WHOSE]), items_of(held[ENDS])
    examples, most, to, calls = size_of(held[WHOSE]), held[MOST], i8(1 + told[SECTIONS]), i8(0)
    values = whole(at(offsets[examples]), held)
    if values < 0 or values > most:
        return False
    rows[0] = i4(values)
    for s in range(told[SECTIONS]):
        own, start, i = moved(sections, OF_SECTION * s), to, i8(0)
        items, width, numbered = items_of(own[OF_LIST]), own[LONG], own[VALUED]
        step = width if own[SPREAD] else i8(1)
        for e in range(examples):
            offset, last = whole(at(offsets[e]), held), step * whole(at(items_of(ends[e])[s]), held)
            while i < last:
                thing = at(items[i])
                inside = thing[TYPE] == held[TUPLE_TYPE]
                several = thing[SIZE] if inside else i8(1)
                if to + several > 2 * most:
                    return False
                for j in range(several):
                    n = whole(at(thing[FIRST_ITEM + j]) if inside else thing, held)
                    if n < 0:
                        return False
                    rows[to] = i4(n + offset if i8(u8(to - start) % u8(width)) < numbered else n)
                    to += 1
                i += 1
        rows[1 + s] = i4(u8(to - start) // u8(width))
        calls += i8(rows[1 + s]) if s < told[CELLS] else i8(0)
    to, cell = to + calls, cells_at(told)
    for k in range(told[CELLS]):
        feeds = told[cell + FEEDS]
        cell += CELL
        for _ in range(feeds):
            if told[cell + KIND_OF_FEED] == IN_TRACE:
                items = items_of(told[cell + ITEMS_OF])
                if to + i8(rows[1 + k]) > 4 * most:
                    return False
                for r in range(i8(rows[1 + k])):
                    n = whole(at(items[r]), held)
                    if n < 0 or n > told[cell + GREATEST]:
                        return False
                    rows[to] = i4(n)
                    to += 1
            cell += FEED
    return True


def noted(held: Any, told: Any, memory: Any, rows: Any) -> int:
    """Write the packed trace of a round, and return how many numbers are imported; -1 where it has none."""
    if held[TUPLE_TYPE] == 0:
        several = read(held, told, memory, rows)
        count = i8(-1) if several < 0 else reads(held, told, memory, several)
        if count >= 0:
            pack(told, memory, moved(memory, told[IMPORTS]), at_i4(held[MADE]), rows, count)
        return count
    if held[PACKED] == 0 and not few(held, told, rows):
        return -1
    cell = cells_at(told)
    for k in range(told[CELLS]):
        told[cell + CALLS] = i8(rows[1 + k])
        cell += CELL + FEED * told[cell + FEEDS]
    return 0


def plan(given: Index) -> int:
    """Plan a round; return -1 where that cannot be done at once, 1 where memory is too small, else 0.

    Known are: the slots of a row of each cell, and of elements of its lists (`PATTERNS`); of each slot,
    which outputs are read there (`WIRES`), and the import cell whose values are, or -1 (`KINDS`); of each
    output its arena, or -1; of each number its example, the class of its value, and where that is among
    them; and the values of classes that are stored, see `USED`. `MEMORY` is told how many numbers each
    import cell brings, how large sections are, and, each in as much room as may be noted, where those
    numbers stand, which output makes each number, and what is read. `MADE` is what was noted, as the model
    counts. Others are arguments of `table_loops.place`, of which rows are written here, and of `launch`.
    """
    held, small = moved(given, 0), i8(0)
    told, flat, stored, memory = at(held[TOLD_AT]), at(held[FLAT]), at(held[STORED]), at(held[MEMORY])
    tables, numbers, bound, rows = at(held[TABLES]), at(held[NUMBERS_AT]), at(held[BOUND]), at_i4(held[ROWS])
    classes, places, arenas = at(held[CLASSES]), at(held[PLACES]), at(held[ARENAS_OF])
    count = noted(held, told, memory, rows)
    if count < 0 or not place(at(held[FIXED]), at(held[BATCH]), rows, tables):
        return -1
    found, entry, start = found_in(told, memory), i8(TOLD), i8(0)
    for i in range(told[IMPORTS]):
        for j in range(start, start + memory[i]):
            if classes[flat[found[j]]] != told[entry + OF_CLASS]:
                return -1
        start += memory[i]
        entry += IMPORT
    launch(bound, tables, numbers, at(held[LAUNCHES]))
    makers, row_of = moved(found, held[MOST]), moved(tables, tables[ROW_OF] + count)
    heights, capacity = moved(numbers, numbers[HEIGHTS]), at(held[CAPACITY])
    for _ in range(told[ARENAS]):
        own = moved(stored, told[entry + KIND] * CLASS)
        for n in range(told[NUMBERS]):
            if makers[n] >= 0 and arenas[makers[n]] == told[entry]:
                places[told[FIRST] + n] = own[USED] + row_of[n]
                classes[told[FIRST] + n] = told[entry + KIND]
        small = max(small, i8(own[USED] + heights[told[entry + BUFFER]] > own[ROOM]))
        entry += ARENA
    for b in range(bound[BUFFERS]):
        small = max(small, i8(heights[b] > capacity[b]))
    return small


def bring(held: Any, feed: Any, ranks: Any, count: int) -> bool:
    """Bring the data of a cell in the order of its calls; return whether they are plain numbers that fit."""
    items, kind, memory = items_of(feed[ITEMS_OF]), feed[KIND_OF_FEED], feed[MEMORY_OF_FEED]
    for r in range(count):
        thing = at(items[ranks[r]])
        if thing[TYPE] == held[REAL_TYPE]:
            x = at_f8(address(thing))[REAL]
            if kind == F4 and not abs(x) > HIGHEST:
                at_f4(memory)[r] = f4(x)
            elif kind == F8:
                at_f8(memory)[r] = x
            else:
                return False
        else:
            n = whole(thing, held)
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


def asked_of(held: Any, stored: Any) -> int:
    """Copy what is asked for to memory, where it is of one class; return the number of that, or -1."""
    items, classes, places, kind = items_of(held[ASKED]), at(held[CLASSES]), at(held[PLACES]), i8(-1)
    count, size, end = size_of(held[ASKED]), i8(0), i8(0)
    if count > 0:  # a value made by hand may have any number
        end = whole(at(items_of(held[ENDS])[size_of(held[ENDS]) - 1]), held) - held[START]
    for i in range(count):
        n = whole(at(items[i]), held) - held[START]
        if n >= end:
            return -1
        if i == 0 and n >= 0:
            kind, size = classes[n], stored[classes[n] * CLASS + BYTES]
        if n < 0 or count > held[MOST] or size > 8 or classes[n] != kind:
            return -1
        copy(held[READ_AT] + i * size, stored[kind * CLASS + VALUES] + places[n] * size, size)
    return kind


def compute(given: Index) -> int:
    """Compute a round that was planned.

    Return -1 where an id is out of range; where data are that must be given, what tells of them; else 0, or,
    where all that is asked for is of one class, -2 less its number.
    """
    held = moved(given, 0)
    told, tables, addresses = at(held[TOLD_AT]), at(held[TABLES]), at(held[ADDRESSES])
    stored, memory, cell, in_trace = at(held[STORED]), at(held[MEMORY]), cells_at(told), tables[FEEDS_AT]
    for _ in range(told[CELLS]):
        of_cell = tables[CELLS_AT] + told[cell + SECTION] * OF_CELL
        ranks = moved(tables, tables[RANKS] + tables[of_cell + FIRST_RANK])
        count, feeds = told[cell + CALLS], told[cell + FEEDS]
        cell += CELL + LIST * told[cell + LISTS]
        for _ in range(feeds):
            if told[cell + KIND_OF_FEED] == IN_TRACE:
                if told[cell + BUFFER_OF_FEED] >= 0:
                    addresses[told[cell + BUFFER_OF_FEED]] = held[ROWS] + 4 * in_trace
                in_trace += count
            elif count > 0 and told[cell + KIND_OF_FEED] != GIVEN:
                if not bring(held, moved(told, cell), ranks, count):
                    return i8(cell)
                addresses[told[cell + BUFFER_OF_FEED]] = told[cell + MEMORY_OF_FEED]
            cell += FEED
    former, entry = moved(found_in(told, memory), 2 * held[MOST]), i8(TOLD + IMPORT * told[IMPORTS])
    for i in range(told[ARENAS]):  # arenas lie where values are kept
        own, buffer = moved(stored, told[entry + KIND] * CLASS), told[entry + BUFFER]
        former[i], addresses[buffer] = addresses[buffer], own[VALUES] + own[USED] * own[BYTES]
        entry += ARENA
    found, start, entry = found_in(told, memory), i8(0), i8(TOLD)
    row_of, flat, places = moved(tables, tables[ROW_OF]), at(held[FLAT]), at(held[PLACES])
    for i in range(told[IMPORTS]):
        own, to = moved(stored, told[entry + OF_CLASS] * CLASS), addresses[told[entry + OF_ARENA]]
        for n in range(start, start + memory[i]):
            copy(to + row_of[n] * own[BYTES], own[VALUES] + places[flat[found[n]]] * own[BYTES], own[BYTES])
        start += memory[i]
        entry += IMPORT
    numbers, bound, work = at(held[NUMBERS_AT]), at(held[BOUND]), held[WORK]
    at(work)[0], heights = i8(0), moved(numbers, numbers[HEIGHTS])
    held[LARGE] = walk(
        held[CODES],
        at(held[STARTS]),
        at(held[LAUNCHES]),
        numbers[FORWARD],
        bound[OF_LAUNCH],
        moved(numbers, numbers[LEVELS]),
        moved(tables, tables[INDEX]),
        addresses,
        work + 8 * FOUND,
        held[WORK_ROOM],
        work,
        held[TEAM],
    )
    for i in range(told[ARENAS]):
        addresses[told[entry + BUFFER]] = former[i]
        if at(work)[0] == 0:
            moved(stored, told[entry + KIND] * CLASS)[USED] += heights[told[entry + BUFFER]]
        entry += ARENA
    if at(work)[0] != 0:
        return -1
    kind = asked_of(held, stored)
    return i8(0) if kind < 0 else -2 - kind
