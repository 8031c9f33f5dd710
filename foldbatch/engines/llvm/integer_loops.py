"""Index arithmetic once more, as loops over single integers: what `compiled` compiles.

Each function is the mirror of the one of the same name in `arithmetic`, which says what it does; results
are the same to the last bit. Here every pass is one over memory, and sorting is counting. Nothing is
allocated: what is returned there is written to arguments here. They are plain Python, and can be run so; as
texts of `translation` they convert numbers of other kinds where they meet.
"""

from __future__ import annotations

from foldbatch.scheduler.trace import Index, Ints

i4 = i8 = u8 = int  # compiled: conversions


def join(
    blocks: Ints,
    counters: Index,
    widths: Index,
    numbers: Index,
    cursors: Index,
    packed: Ints,
    heads: Ints,
) -> bool:
    """Write `packed`, whose head is zeros, and `heads`; return whether traces of the form fill the blocks.

    A head tells where the next one begins. `cursors`, one a trace, move from section to section.
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
                more = shift if number else 0
                for i in range(rows * width):
                    packed[to + i] = blocks[at + i] + more
            to += rows * width
            cursors[e] = at + rows * width
            shift += heads[e, 0]
    return True


def sort(keys: Ints, order: Index, bounds: Index) -> None:
    """Write `order` and `bounds`, which are zeros."""
    for i in range(len(keys)):
        bounds[i8(keys[i]) + 1] += 1
    for i in range(1, len(bounds)):
        bounds[i] += bounds[i - 1]
    for i in range(len(keys)):  # bounds are where the next one goes, and end up one place ahead
        key = keys[i]
        order[bounds[key]] = i
        bounds[key] += 1
    for i in range(len(bounds) - 1, 0, -1):
        bounds[i] = bounds[i - 1]
    bounds[0] = 0


def group(keys: Ints, counts: Ints, order: Index, bounds: Index) -> int:
    """Write `order` and `bounds`; return how many numbers occur.

    `counts` are zeros, one for each number; or none, where keys are few: then each is put in its place.
    """
    groups, start = 0, i4(0)
    if len(counts) == 0:
        for i in range(len(keys)):
            place = i
            while place > 0 and keys[order[place - 1]] > keys[i]:
                order[place] = order[place - 1]
                place -= 1
            order[place] = i
        for i in range(len(keys)):
            if i == 0 or keys[order[i]] != keys[order[i - 1]]:
                bounds[groups] = i
                groups += 1
        bounds[groups] = i8(len(keys))
        return groups
    for i in range(len(keys)):
        counts[keys[i]] += 1
    for number in range(len(counts)):
        count = counts[number]
        if count:
            bounds[groups] = i8(start)
            groups += 1
            counts[number] = start
            start += count
    bounds[groups] = i8(start)
    for i in range(len(keys)):
        key = keys[i]
        order[counts[key]] = i
        counts[key] += 1
    return groups


def levels(
    rows: Ints, shapes: Index, elements: Ints, widths: Index, cursors: Index, of_value: Ints, found: Ints
) -> bool:
    """Write the levels `found`; return whether the calls of each cell are in the order of their values.

    `shapes`, ``[cells, 5]``, hold the calls of each cell, its single arguments, outputs, first sequence and
    number of sequences; `widths` are those of the sequences. `cursors` are two a cell and one a
    sequence; `of_value` has one number a value.
    """
    cells = len(shapes)
    start, at, place = 0, 0, 0
    for value in range(len(of_value)):
        of_value[value] = -1
    for i in range(len(cursors)):
        cursors[i] = 0
    for k in range(cells):
        count, width = shapes[k, 0], 1 + shapes[k, 1] + shapes[k, 4]
        cursors[k], cursors[cells + k] = at, place
        for i in range(1, count):
            if rows[at + i * width] < rows[at + (i - 1) * width]:
                return False
        for s in range(shapes[k, 3], shapes[k, 3] + shapes[k, 4]):
            cursors[2 * cells + s] = start
            for i in range(count):
                start += i8(rows[at + i * width + 1 + shapes[k, 1] + s - shapes[k, 3]]) * widths[s]
        at += count * width
        place += count
    place = 0
    for _ in range(len(found)):  # of the next calls of all cells, the one with the lowest value
        first = -1
        place = 0
        for k in range(cells):
            place += shapes[k, 0]
            if cursors[cells + k] < place and (first < 0 or rows[cursors[k]] < rows[cursors[first]]):
                first = k
        at, arguments, sequence = cursors[first], shapes[first, 1], shapes[first, 3]
        level = i4(-1)
        for i in range(at + 1, at + 1 + arguments):
            level = max(level, of_value[rows[i]])
        for s in range(shapes[first, 4]):
            start = cursors[2 * cells + sequence + s]
            stop = start + i8(rows[at + 1 + arguments + s]) * widths[sequence + s]
            for i in range(start, stop):
                level = max(level, of_value[elements[i]])
            cursors[2 * cells + sequence + s] = stop
        for value in range(i8(rows[at]), i8(rows[at]) + shapes[first, 2]):
            of_value[value] = level + 1
        found[cursors[cells + first]] = level + 1
        cursors[first] = at + 1 + arguments + shapes[first, 4]
        cursors[cells + first] += 1
    return True
