"""A round as loops over single integers: from what its calls read to its launches, in one call.

`reads` is the mirror of `functions.rounds.Rounds._looked_at`. All run as plain Python, too.
"""

from __future__ import annotations

from foldbatch.engines.llvm.table_loops import CELL as OF_CELL
from foldbatch.engines.llvm.table_loops import CELLS_AT, RANKS, ROW_OF, launch, moved, place
from foldbatch.engines.llvm.table_loops import FIRST as FIRST_RANK
from foldbatch.scheduler.trace import Index, Ints

i4 = i8 = int  # compiled: conversions

# the head of what is told of a round: its first number, and how many there are of: numbers, outputs of cells,
# cells, import cells, arenas, numbers noted, and sections of a packed trace. Then come import cells: each its
# section, and the number of its class; arenas: the number, that of the class whose values lie there, and how
# many of them are kept already; and cells: how many calls, how long a row is, how many outputs a call has,
# the number of the first one, where the pattern of a row begins, the section, and how many lists are read;
# then, of each list, where its length stands in a row, how many members an element has, and the section
FIRST, NUMBERS, OUTPUTS, CELLS, IMPORTS, ARENAS, NOTED, SECTIONS, TOLD = range(9)
OF_CLASS, IMPORT = 1, 2
KIND, USED, ARENA = 1, 2, 3
CALLS, WIDTH, RESULTS, OUTPUT, PATTERN, SECTION, LISTS, CELL = range(8)
COLUMN, MEMBERS, SECTION_OF_LIST, LIST = range(4)
READ = 3  # numbers of what is read: its place, that of the call, and the slot
NOTHING, LENGTH = -1, -2  # what stands in a pattern, beside slots


def listed(flat: Index, told: Index, patterns: Index, memory: Index, sizes: Index, rows: Ints) -> int:
    """Write which output makes each number, what is read, how large sections are; return how much is read."""
    cell, row, several = TOLD + IMPORT * told[IMPORTS] + ARENA * told[ARENAS], i8(0), i8(0)
    found = moved(memory, told[NUMBERS])
    for number in range(told[NUMBERS]):
        memory[number] = NOTHING
    for s in range(told[SECTIONS]):
        sizes[s], rows[1 + s] = 0, i4(0)
    for _ in range(told[CELLS]):
        count, width, pattern = told[cell + CALLS], told[cell + WIDTH], told[cell + PATTERN]
        end, lists, output = row + count * width, told[cell + LISTS], told[cell + OUTPUT]
        sizes[told[cell + SECTION]], rows[1 + told[cell + SECTION]] = count * width, i4(count)
        for i in range(count):
            call = row + i * width
            number = flat[call] - told[FIRST]
            for j in range(told[cell + RESULTS]):
                memory[number + j] = output + j
            for c in range(width):
                if patterns[pattern + c] != NOTHING:
                    at = READ * several
                    found[at], found[at + 1], found[at + 2] = call + c, call, patterns[pattern + c]
                    several += 1
        pattern += width
        cell += CELL
        for _ in range(lists):
            begin, section = end, told[cell + SECTION_OF_LIST]
            for i in range(count):
                call = row + i * width
                for _ in range(flat[call + told[cell + COLUMN]] if told[cell + MEMBERS] else i8(0)):
                    rows[1 + section] += i4(1)
                    for m in range(told[cell + MEMBERS]):
                        at = READ * several
                        found[at], found[at + 1], found[at + 2] = end, call, patterns[pattern + m]
                        several += 1
                        end += 1
            sizes[section] = end - begin
            pattern += told[cell + MEMBERS]
            cell += LIST
        row = end
    return several


def reads(
    flat: Index,
    told: Index,
    patterns: Index,
    wires: Index,
    kinds: Index,
    example: Index,
    memory: Index,
    made: Ints,
    rows: Ints,
) -> int:
    """Write how a model counts numbers, and which ones are imported; arguments are those of `planned`.

    Return how many these are; -1 where something is read that must not be, or that is not known.
    """
    first, imports, found = told[FIRST], told[IMPORTS], moved(memory, told[IMPORTS] + told[SECTIONS] + 1)
    makers = moved(found, told[NOTED])
    read_at = moved(makers, told[NUMBERS])
    several = listed(flat, told, patterns, makers, moved(memory, imports), rows)
    count, start = i8(0), i8(0)
    for i in range(imports):
        memory[i] = 0
    for r in range(several):
        at = READ * r
        slot = read_at[at + 2]
        if slot >= 0:
            read, call = flat[read_at[at]], flat[read_at[at + 1]]
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
            slot, here = read_at[READ * r + 2], read_at[READ * r]
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
    cell, row = TOLD + IMPORT * told[IMPORTS] + ARENA * told[ARENAS], i8(0)
    for _ in range(told[CELLS]):
        section, lists = told[cell + SECTION], told[cell + LISTS]
        cell += CELL
        for s in range(1 + lists):
            if s > 0:
                section = told[cell + SECTION_OF_LIST]
                cell += LIST
            for to in range(sizes[section], sizes[section + 1]):
                rows[to] = made[row]
                row += 1


def planned(
    flat: Index,
    told: Index,
    patterns: Index,
    wires: Index,
    kinds: Index,
    arenas: Index,
    example: Index,
    classes: Index,
    places: Index,
    memory: Index,
    made: Ints,
    rows: Ints,
    fixed: Index,
    batch: Index,
    tables: Index,
    bound: Index,
    numbers: Index,
    launches: Index,
) -> int:
    """Write all that it takes to run a round.

    Return how many numbers are imported; -1 where something is read that must not be, or that is not known.

    Known are: the slots of a row of each cell, and of elements of its lists (`patterns`); of each slot, which
    outputs are read there (`wires`), and the import cell whose values are, or -1 (`kinds`); of each output
    its arena, or -1; of each number its example, the class of its value, and where that is among them.
    `memory` is told how many numbers each import cell brings, how large sections are, where those numbers
    stand, in as much room as was noted, which output makes each number, where the values of the former lie,
    by rank, how many values of each arena are kept, and their rows; `made` is what was noted, as the model
    counts. Others are arguments of `table_loops.place`, of which rows are written here, and of `launch`.
    """
    count = reads(flat, told, patterns, wires, kinds, example, memory, made, rows)
    if count < 0:
        return -1
    pack(told, memory, moved(memory, told[IMPORTS]), made, rows, count)
    if not place(fixed, batch, rows, tables):
        return -1
    found, at = moved(memory, told[IMPORTS] + told[SECTIONS] + 1), i8(TOLD)
    makers, start = moved(found, told[NOTED]), i8(0)
    lie, kept = moved(makers, told[NUMBERS]), moved(makers, told[NUMBERS] + count)
    for i in range(told[IMPORTS]):
        cell = tables[CELLS_AT] + told[at] * OF_CELL
        ranks = moved(tables, tables[RANKS] + tables[cell + FIRST_RANK])
        for j in range(memory[i]):
            number = flat[found[start + ranks[j]]]
            lie[start + j] = places[number]
            if classes[number] != told[at + OF_CLASS]:
                return -1
        start += memory[i]
        at += IMPORT
    end, row_of = told[ARENAS], moved(tables, tables[ROW_OF] + count)
    for i in range(told[ARENAS]):
        begin, used = end, told[at + USED] - end
        for n in range(told[NUMBERS]):
            if makers[n] >= 0 and arenas[makers[n]] == told[at]:
                kept[end], places[told[FIRST] + n] = row_of[n], used + end
                classes[told[FIRST] + n] = told[at + KIND]
                end += 1
        kept[i] = end - begin
        at += ARENA
    launch(bound, tables, numbers, launches)
    return count
