"""Tree code: what a tracing program does on trees, as integers. `foldbatch.engines.llvm` compiles this.

An instruction is its number and then its operands. A *slot* is a place in the frame of a function. It holds
the number of a node among those of all trees, or of a value, or a list: where it begins in a pool, and in
the next slot its length. A *place* is where an instruction begins in the code.
"""

# ruff: noqa: PLR0915, PLR1714, SIM109 - one loop is one call; compiled text has no tuples

from __future__ import annotations

from typing import Any

from foldbatch.scheduler.trace import Index, Ints

# the instructions, with their operands
MOVE, ZERO, CHILD, GOTO, FAIL, LIMIT = range(6)  # slot from more | slot | slot node key | place | | node most
OF_ARITY, OF_NODE = 6, 7  # node table cases place..: by how many children it has, or by the node
# slot node place: its first child, or there is none | slot place: the next one
FIRST_CHILD, NEXT_CHILD = 8, 9
ROOM, ROOMS, APPEND = 10, 11, 12  # list node width | list list width: as long as | list width (slot more)..
ITEM = 13  # counter list slot width place: the next item, or there is none
INVOKE, RETURN = 14, 15  # place frame count slot.. count slot.. | count (slot more)..
# slot | cell slot count (slot more).. count list.. count (slot kind)..: what is noted for data, the node or,
# if the kind is 1, the number that the value has in its example
NUMBER, CALL = 16, 17
READ_WORDS = 6  # words that are read of each instruction before it is known

# The header of a batch: the number of trees, numbers a call takes, calls an example may make, values after
# which no further tree is read, slots of the first function, cells, lists that cells read, results, the
# length of tables by arity, the capacities for nodes, visits, values and numbers in lists, and the end of the
# stack. Behind it: the first node of each tree, and the end; and the node at which each tree's walk begins.
(
    TREES,
    WIDTH,
    CALL_LIMIT,
    FULL,
    FRAME,
    CELLS,
    LISTS,
    RESULTS,
    ARITIES,
    NODES,
    VISITS,
    VALUES,
    POOL,
    STACK,
    STARTS,
) = range(15)
# The record of a cell: the count and capacity of its calls, offset and length of its rows, offsets of levels
# and data, its component (-1 for none), its first list, the number of feeds that are single integers, and of
# data that are noted. The record of a list: count and capacity of its elements, their offset, and their
# width.
COUNT, LIMITED, ROWS, ROW, LEVELS, DATA, SCOPE, LIST, FEEDS, NOTED, CELL = range(11)
ELEMENTS, ELEMENTS_LIMITED, ELEMENTS_AT, ELEMENT, SEQUENCE = range(5)
REFUSED = -1  # the result where the Python program must run instead; below it, ``-2 - arity`` has no table

i4 = i8 = int  # compiled: conversions


def linked(batch: Index, parents: Ints, first: Ints, following: Ints, arity: Ints) -> None:
    """Write the first child of each node, the next child of the same parent, and how many children it has."""
    for t in range(batch[TREES]):
        start, end = batch[STARTS + t], batch[STARTS + t + 1]
        for i in range(start, end):
            first[i], following[i], arity[i] = i4(-1), i4(-1), i4(0)
        for i in range(end - 2, start - 1, -1):
            above = i8(parents[i]) + start
            following[i], first[above] = first[above], i4(i)
            arity[above] += i4(1)


def traced(
    code: Index,
    batch: Index,
    parents: Ints,
    tables: Ints,
    tests: Ints,
    cell_table: Index,
    memory: Ints,
    stack: Index,
    out: Ints,
    report: Index,
) -> int:
    """Run the code on the trees of a batch; return how many were read, or why the program must run.

    `tables` are the cases by arity, `tests` those by node. `cell_table` has the records of cells and lists,
    whose counts grow. `memory` and `stack` are scratch; `out` gets the packed trace (`joined`), and `report`
    the first value of each example, and the end, the number of calls and elements after each example, and
    results.
    """
    total, examples = batch[NODES], batch[TREES]
    cells, lists, results = batch[CELLS], batch[LISTS], batch[RESULTS]
    first, following, arity = memory, moved(memory, total), moved(memory, 2 * total)
    level_of = moved(memory, 3 * total)
    scope_of, pool = moved(level_of, batch[VALUES]), moved(level_of, 2 * batch[VALUES])
    packed, out = out, moved(pool, batch[POOL])
    linked(batch, parents, first, following, arity)
    sequences = moved(cell_table, cells * CELL)
    counts, lengths = moved(report, examples + 1), moved(report, examples + 1 + examples * cells)
    result_table = moved(report, examples + 1 + examples * (cells + lists))
    value, top, visits, example = i8(0), i8(0), i8(0), i8(0)
    report[0] = 0
    while example < examples and value <= batch[FULL]:
        offset, last = value, min(value + batch[CALL_LIMIT] * batch[WIDTH], batch[VALUES])
        pc, fp, running = i8(0), i8(2), True
        stack[fp] = batch[STARTS + 1 + examples + example]
        while running:
            op = code[pc]
            a, b, c = code[pc + 1], code[pc + 2], code[pc + 3]
            if op == MOVE:
                stack[fp + a] = stack[fp + b] + c
                pc += 4
            elif op == CHILD:
                number, node = c, stack[fp + b]
                if number < 0:
                    number += i8(arity[node])
                if number < 0 or number >= i8(arity[node]):
                    return REFUSED
                node = i8(first[node])
                for _ in range(number):
                    node = i8(following[node])
                stack[fp + a] = node
                pc += 4
            elif op == OF_ARITY:
                number = i8(arity[stack[fp + a]])
                if number >= batch[ARITIES]:
                    return REFUSED - 1 - number
                number = i8(tables[b * batch[ARITIES] + number])
                if number < 0 or number >= c:
                    return REFUSED
                pc = code[pc + 4 + number]
            elif op == OF_NODE:
                number = i8(tests[b * total + stack[fp + a]])
                if number < 0 or number >= c:
                    return REFUSED
                pc = code[pc + 4 + number]
            elif op == CALL:
                call, to = moved(cell_table, a * CELL), i8(0)
                count = call[COUNT]
                if count >= call[LIMITED] or value >= last:
                    return REFUSED
                at, level, scope = call[ROWS] + count * call[ROW], i4(0), i4(call[SCOPE])
                out[at] = i4(value)
                pc += 4
                for _ in range(c):
                    read = stack[fp + code[pc]] + code[pc + 1]
                    at += 1
                    out[at] = i4(read)
                    if scope_of[read] == scope:
                        level = max(level, level_of[read] + i4(1))
                    pc += 2
                sequence = moved(sequences, call[LIST] * SEQUENCE)
                for _ in range(code[pc]):
                    pc += 1
                    begin, length = stack[fp + code[pc]], stack[fp + code[pc] + 1]
                    at += 1
                    out[at] = i4(length)
                    if sequence[ELEMENTS] + length > sequence[ELEMENTS_LIMITED]:
                        return REFUSED
                    to = sequence[ELEMENTS_AT] + sequence[ELEMENTS] * sequence[ELEMENT]
                    sequence[ELEMENTS] += length
                    for i in range(length * sequence[ELEMENT]):
                        member = pool[begin + i]
                        out[to + i] = member
                        if scope_of[member] == scope:
                            level = max(level, level_of[member] + i4(1))
                    sequence = moved(sequence, SEQUENCE)
                pc += 1
                stack[fp + b], to = value, call[DATA] + count
                for _ in range(code[pc]):
                    out[to] = i4(stack[fp + code[pc + 1]] - offset * code[pc + 2])
                    to += call[LIMITED]
                    pc += 2
                pc += 1
                for i in range(batch[WIDTH]):
                    level_of[value + i], scope_of[value + i] = level, scope
                if call[SCOPE] < 0:
                    level = i4(0)
                out[call[LEVELS] + count] = level
                call[COUNT] = count + 1
                value += batch[WIDTH]
            elif op == INVOKE:
                visits += 1
                inner = fp + b + 2
                if inner + batch[FRAME] > batch[STACK] or visits > batch[VISITS]:
                    return REFUSED
                for i in range(c):
                    stack[inner + i] = stack[fp + code[pc + 4 + i]]
                stack[inner - 2], stack[inner - 1] = pc + 4 + c, fp
                fp, pc = inner, a
            elif op == RETURN:
                if fp == 2:
                    for i in range(a):
                        result_table[example * results + i] = (
                            stack[fp + code[pc + 2 + 2 * i]] + code[pc + 3 + 2 * i]
                        )
                    running = False
                else:
                    to, outer = stack[fp - 2], stack[fp - 1]
                    for i in range(a):
                        read = stack[fp + code[pc + 2 + 2 * i]] + code[pc + 3 + 2 * i]
                        stack[outer + code[to + 1 + i]] = read
                    fp, pc = outer, to + 1 + code[to]
            elif op == FIRST_CHILD:
                stack[fp + a] = i8(first[stack[fp + b]])
                pc = c if stack[fp + a] < 0 else pc + 4
            elif op == NEXT_CHILD:
                stack[fp + a] = i8(following[stack[fp + a]])
                pc = pc + 3 if stack[fp + a] < 0 else b
            elif op == GOTO:
                pc = a
            elif op == LIMIT:
                if i8(arity[stack[fp + a]]) > b:
                    return REFUSED
                pc += 3
            elif op == ZERO:
                stack[fp + a] = 0
                pc += 2
            elif op == ROOM or op == ROOMS:
                stack[fp + a], stack[fp + a + 1] = top, 0
                top += c * (i8(arity[stack[fp + b]]) if op == ROOM else stack[fp + b + 1])
                if top > batch[POOL]:
                    return REFUSED
                pc += 4
            elif op == APPEND:
                to = stack[fp + a] + stack[fp + a + 1] * b
                pc += 3
                for i in range(b):
                    pool[to + i] = i4(stack[fp + code[pc + 2 * i]] + code[pc + 2 * i + 1])
                stack[fp + a + 1] += 1
                pc += 2 * b
            elif op == ITEM:
                to = stack[fp + b] + stack[fp + a] * code[pc + 4]
                if stack[fp + a] >= stack[fp + b + 1]:
                    pc = code[pc + 5]
                else:
                    for i in range(code[pc + 4]):
                        stack[fp + c + i] = i8(pool[to + i])
                    stack[fp + a] += 1
                    pc += 6
            elif op == NUMBER:
                if value >= last:
                    return REFUSED
                for i in range(batch[WIDTH]):
                    level_of[value + i], scope_of[value + i] = i4(0), i4(-1)
                stack[fp + a] = value
                value += batch[WIDTH]
                pc += 2
            else:
                return REFUSED
        for k in range(cells):
            counts[example * cells + k] = cell_table[k * CELL + COUNT]
        for j in range(lists):
            lengths[example * lists + j] = sequences[j * SEQUENCE + ELEMENTS]
        example += 1
        report[example] = value
    packed[0] = i4(value)
    joined(batch, cell_table, out, packed)
    return example


def joined(batch: Index, cell_table: Index, noted: Ints, out: Ints) -> None:
    """Write a packed trace of all trees, but for the number of values and data, which what follows is for.

    Of each cell, `ROWS` becomes where its feeds go, and `DATA` where it lies that they are made of.
    """
    cells, to = batch[CELLS], 1 + batch[CELLS] + batch[LISTS]
    for k in range(cells):
        call = moved(cell_table, k * CELL)
        out[1 + k] = i4(call[COUNT])
        for i in range(call[COUNT] * call[ROW]):
            out[to + i] = noted[call[ROWS] + i]
        to += call[COUNT] * call[ROW]
    for j in range(batch[LISTS]):
        sequence = moved(cell_table, cells * CELL + j * SEQUENCE)
        out[1 + cells + j] = i4(sequence[ELEMENTS])
        for i in range(sequence[ELEMENTS] * sequence[ELEMENT]):
            out[to + i] = noted[sequence[ELEMENTS_AT] + i]
        to += sequence[ELEMENTS] * sequence[ELEMENT]
    for k in range(cells):
        call = moved(cell_table, k * CELL)
        for i in range(call[COUNT]):
            out[to + i] = noted[call[LEVELS] + i]
        to += call[COUNT]
    for k in range(cells):
        call = moved(cell_table, k * CELL)
        call[ROWS] = to
        to += call[COUNT] * call[FEEDS]
    for k in range(cells):
        call, begin = moved(cell_table, k * CELL), to
        for d in range(call[NOTED]):
            for i in range(call[COUNT]):
                out[to + i] = noted[call[DATA] + d * call[LIMITED] + i]
            to += call[COUNT]
        call[DATA] = begin


def moved(array: Any, count: int) -> Any:
    """Return an array without its first numbers; compiled, a pointer."""
    return array[count:]
