"""What the calls of a round read, as loops over single integers: the mirror of `functions.rounds.looked_at`.

They run as plain Python, too.
"""

from __future__ import annotations

from foldbatch.scheduler.trace import Index, Ints

i4 = i8 = int  # compiled: conversions

# the head of what is told of a round: its first number, and how many numbers, outputs of cells, cells and
# import cells there are. Then come cells: how many calls, how long a row is, how many outputs a call has, the
# number of the first one, where the pattern of a row begins, and how many lists are read; then, of each list,
# where its length stands in a row, and how many members an element has
FIRST, NUMBERS, OUTPUTS, CELLS, IMPORTS, TOLD = range(6)
CALLS, WIDTH, RESULTS, OUTPUT, PATTERN, LISTS, CELL = range(7)
COLUMN, MEMBERS, LIST = range(3)
READ = 3  # numbers of what is read: its place, that of the call, and the slot
NOTHING, LENGTH = -1, -2  # what stands in a pattern, beside slots


def listed(flat: Index, told: Index, patterns: Index, memory: Index, maker: int, begin: int) -> int:
    """Write which output makes each number, and what is read; return how much that is."""
    cell, row, several = i8(TOLD), i8(0), i8(0)
    for number in range(told[NUMBERS]):
        memory[maker + number] = NOTHING
    for _ in range(told[CELLS]):
        count, width, pattern = told[cell + CALLS], told[cell + WIDTH], told[cell + PATTERN]
        end, lists, output = row + count * width, told[cell + LISTS], told[cell + OUTPUT]
        for i in range(count):
            call = row + i * width
            number = maker + flat[call] - told[FIRST]
            for j in range(told[cell + RESULTS]):
                memory[number + j] = output + j
            for c in range(width):
                if patterns[pattern + c] != NOTHING:
                    at = begin + READ * several
                    memory[at], memory[at + 1], memory[at + 2] = call + c, call, patterns[pattern + c]
                    several += 1
        pattern += width
        cell += CELL
        for _ in range(lists):
            for i in range(count):
                call = row + i * width
                for _ in range(flat[call + told[cell + COLUMN]]):
                    for m in range(told[cell + MEMBERS]):
                        at = begin + READ * several
                        memory[at], memory[at + 1], memory[at + 2] = end, call, patterns[pattern + m]
                        several += 1
                        end += 1
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
) -> int:
    """Write how a model counts numbers, and which ones are imported.

    Args:
        flat: all that was noted.
        told: see above.
        patterns: the slots of a row of each cell, and of the elements of its lists.
        wires: of each slot, for each output whether it is known to be read there.
        kinds: of each slot, the import cell whose values are known to be read there, or -1.
        example: whose each number is.
        memory: begins with a zero for each import cell, where it is told how many numbers that brings. Then
            it is told where these stand, and where the calls that read them do, each in as much room as
            `flat` has.
        made: all that was noted, as the model counts.

    Returns:
        How many numbers are imported; -1 where something is read that must not be, or that is not known.
    """
    first, imports, length = told[FIRST], told[IMPORTS], i8(len(flat))
    maker = imports + 2 * length
    begin = maker + told[NUMBERS]
    several = listed(flat, told, patterns, memory, maker, begin)
    count, start = i8(0), i8(0)
    for r in range(several):
        at = begin + READ * r
        slot = memory[at + 2]
        if slot >= 0:
            read, call = flat[memory[at]], flat[memory[at + 1]]
            if read < 0 or read >= call or example[read] != example[call]:
                return -1
            if read < first:
                if kinds[slot] < 0:
                    return -1
                memory[kinds[slot]] += 1
                count += 1
            else:
                output = memory[maker + read - first]
                if output < 0 or wires[slot * told[OUTPUTS] + output] == 0:
                    return -1
    for i in range(length):
        made[i] = i4(flat[i] - first + count)
    for kind in range(max(imports, i8(1))):
        for r in range(several):
            at = begin + READ * r
            slot, place = memory[at + 2], memory[at]
            if slot == LENGTH:
                made[place] = i4(flat[place])
            elif kinds[slot] == kind and flat[place] < first:
                made[place] = i4(start)
                memory[imports + start], memory[imports + length + start] = place, memory[at + 1]
                start += 1
    return count
