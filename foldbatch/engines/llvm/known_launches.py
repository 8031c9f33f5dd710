"""A batch's launches, with those of products of known rows in the place of others, where that pays.

In a binary tree half of all children are leaves, and words repeat. `write_split` parts what an operand reads
into rows that only a level can multiply, because an earlier level makes them, and rows that can be multiplied
before the first level, each distinct one once. It is one loop over the batch, compiled once a machine; it is
plain Python, too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from foldbatch.engines.bindings import Bound, Directions, Launch, rows_of
from foldbatch.engines.launch import BASE, COPIES, FIRST, HEAD, INDEX, STORES, Ints, LaunchTable
from foldbatch.engines.llvm import known_code
from foldbatch.engines.llvm.compiling import compiled_function
from foldbatch.engines.llvm.table_loops import moved

i8 = u8 = int  # compiled: conversions

SIGNATURE = "i8[] i8 i8[] i8[] i8[]"

# what `write_split` is told of an operand: how many calls read it, the first row that they read, where in the
# index rows are told, and rows of the arena; then, of each output that is known before the recursion and lies
# in the arena, how many calls make it, and where in the index its rows and its copies lie
CALLS, FIRST_ROW, ROWS, HEIGHT, KNOWN, OUTPUT = *range(5), 3
MULTIPLIED, DISTINCT, REPEATS, WORK = range(4)  # what it tells, and where its memory begins


class Split(NamedTuple):
    """The rows that an operand reads, as they are multiplied: column by column.

    An operand has `width` columns. Of its entries, ``calls * width`` rows, call i's begin at ``i * width``.
    Behind the batch's own, the index has, one after the other:

    ==========  =======================================================================================
    ``rows``    rows of the arena that are multiplied: column after column; of each column first those
                that levels multiply, in the order of the calls, then the distinct known ones
    ``ranks``   for each of these the rank of the call, or calls + number of the known row
    ``place``   for each entry the number of its known row, or -1
    ``users``   the ranks that read each known row, one row's after the other's
    ``starts``  where in `users` those of each known row begin, and their end
    ``counts``  for each column, ``[calls + 2]``: where in `rows` those of each rank on begin; the last but
                one is where its known rows begin, the last is where they end
    ==========  =======================================================================================
    """

    whole: Ints  # the index; there is room for as many of each as entries, and of `starts` for one more
    entries: int
    size: int  # how many distinct known rows there are
    repeats: bool  # whether a row is read more than once


def split(told: Ints, width: int, index: Ints) -> Split | None:
    """Part what an operand reads into what is known before the recursion and what is not.

    Returns None if that does not pay.

    Args:
        told: what `write_split` is told.
        width: rows a call.
        index: all index arrays of the batch.
    """
    calls, _, _, height = told[:KNOWN].tolist()
    entries = calls * width
    whole = np.empty(len(index) + 5 * entries + 1 + width * (calls + 2), np.int64)
    work = np.empty(WORK + (2 + width) * height + entries, np.int64)
    compiled_function(write_split, SIGNATURE, sys.modules[__name__])(told, width, index, whole, work)
    multiplied, size, repeats = work[:WORK].tolist()
    return None if entries - multiplied < LEAST * entries else Split(whole, entries, size, repeats > 0)


def number(told: Ints, outputs: int, index: Ints, groups: Ints) -> int:
    """Write the number of each row's value, equal for equal ones, or -1 if it is not known beforehand.

    Return how many numbers there are.
    """
    count = 0
    for row in range(told[HEIGHT]):
        groups[row] = -1
    for output in range(outputs):
        made = moved(told, KNOWN + OUTPUT * output)
        rows, copies = moved(index, made[1]), made[2]
        for rank in range(made[0]):
            begin = index[copies + rank] if copies >= 0 else rank
            end = index[copies + rank + 1] if copies >= 0 else rank + 1
            for i in range(begin, end):
                groups[rows[i]] = count + rank
        count += made[0]
    return count


def write_split(told: Ints, width: int, index: Ints, whole: Ints, work: Ints) -> None:
    """Write a `Split` behind a batch's index, and what it tells of it to the work's first numbers."""
    calls, first, height = told[CALLS], told[FIRST_ROW], told[HEIGHT]
    entries, read, repeats = calls * width, moved(index, told[ROWS]), 0
    groups, seen, uses = moved(work, WORK), moved(work, WORK + height), moved(work, WORK + 2 * height)
    given, rows = moved(uses, width * height), moved(whole, len(index))
    ranks, place, users = moved(rows, entries), moved(rows, 2 * entries), moved(rows, 3 * entries)
    starts, counts = moved(rows, 4 * entries), moved(rows, 5 * entries + 1)
    for i in range(len(index)):
        whole[i] = index[i]
    count = number(told, i8(u8(len(told) - KNOWN) // u8(OUTPUT)), index, groups)
    for key in range(count * width):
        uses[key] = 0
    for row in range(height):
        seen[row] = 0
    for call in range(calls):
        for column in range(width):
            i = call * width + column
            row = read[i] if first < 0 else first + i
            repeats += seen[row]
            given[i], seen[row] = row, 1
            if groups[row] >= 0:
                uses[column * count + groups[row]] += 1
    to, found, total = 0, 0, 0
    for column in range(width):
        counts_of = moved(counts, column * (calls + 2))
        for call in range(calls):
            counts_of[call] = to
            row = given[call * width + column]
            if groups[row] < 0:
                rows[to], ranks[to], place[call * width + column] = row, call, -1
                to += 1
        counts_of[calls] = to
        before = found
        for key in range(column * count, (column + 1) * count):
            if uses[key]:
                starts[found], ranks[to + found - before] = total, -1
                total += uses[key]
                uses[key] = found
                found += 1
        for call in range(calls):
            row = given[call * width + column]
            group = groups[row]
            if group >= 0:
                at = uses[column * count + group]
                place[call * width + column] = at
                there = to + at - before
                if ranks[there] < 0:  # the first of its kind
                    rows[there], ranks[there] = row, calls + at
                users[starts[at]] = call  # starts are where the next one goes, and end up one place ahead
                starts[at] += 1
        to += found - before
        counts_of[calls + 1] = to
    for at in range(found, 0, -1):
        starts[at] = starts[at - 1]
    starts[0] = 0
    work[MULTIPLIED], work[DISTINCT], work[REPEATS] = to, found, repeats


FEWEST = 400  # calls: with fewer, what the levels save is lost before and after them
LEAST = 0.1  # share of the rows that must be saved, as they repeat: else nothing pays for storing products

# by kernel, what is launched in its place: kernels, and the calls of the one level of each; or None for the
# levels of the kernel that they replace
Instead = dict[int, Sequence[tuple[int, tuple[int, int] | None]]]


class Backward(NamedTuple):
    """The kernels of a product backward, by number."""

    step: int  # the cell's step
    after: int  # its stage after the step
    stores: int  # the fact that says whether that stores the weight's gradient
    kernels: tuple[int, ...]  # `prepared`, `backward_step`, `summed`, `returned` and `gradient`
    rest: int | None  # the stage after without the weight's gradient; None if nothing is left of it
    adds: bool  # whether the step yields cotangents of the operand too, to which the product's are added


@dataclass(frozen=True, slots=True)
class ProductPlan:
    """What batches are to launch for a product: numbers of kernels."""

    step: int  # the cell's forward step
    known_rows: int  # the kernel of this name
    forward_step: int  # the kernel of this name
    backward: Backward | None  # those of the other direction; None where it is left to the cell's own
    width: int  # rows of the operand that a call reads
    told: Ints  # what `split` is told of the operand: which of a batch's numbers
    copies: int  # the number that says which calls of the cell share ranks
    stores: int  # the one that says whether the operand's cotangents are stored
    bindings: slice  # which fields of all products are those of this one


class Products(NamedTuple):
    """The products of some kernels of which batches may know rows."""

    bound: Bound  # with places in the numbers of a batch, and behind these in `fields`, for all kernels
    plans: Sequence[ProductPlan]
    fields: Ints  # ``[bindings of all products, FIELDS]``: those that batches change later

    def adapt(self, tables: Directions) -> Directions:
        """Return a batch's launches, with those of known products where that pays."""
        numbers, index = tables.numbers, tables.forward.index
        many = [plan for plan in self.plans if numbers[plan.told[CALLS]] >= FEWEST]
        if not many:
            return tables
        fields, heights = self.fields.copy(), tables.forward.heights.copy()
        instead: Instead = {}
        for plan in many:
            if numbers[plan.copies] >= 0 or not _once(plan, tables):
                continue
            told = numbers.take(plan.told)
            parts = split(told, plan.width, index)
            if parts is not None:
                fields[plan.bindings][known_code.PLACE, FIRST] = told[FIRST_ROW]
                instead |= _instead(plan, numbers, fields[plan.bindings], heights, parts, len(index))
                index = parts.whole
        if not instead:
            return tables
        numbers = np.concatenate([numbers, fields], axis=None)
        forward = _replaced(self.bound, numbers, tables.forward, instead, index, heights)
        backward = tables.backward and _replaced(
            self.bound, numbers, tables.backward, instead, index, heights
        )
        return tables._replace(forward=forward, backward=backward)


def _once(plan: ProductPlan, tables: Directions) -> bool:
    """Whether the cell's levels follow each other: so all that it reads from outside is known before them."""
    wanted = [(tables.forward, plan.step)]
    if plan.backward is not None and tables.backward is not None:
        wanted += [(tables.backward, plan.backward.step), (tables.backward, plan.backward.after)]
    return all(table.launches[:, 0].tolist().count(kernel) == 1 for table, kernel in wanted)


def _instead(
    plan: ProductPlan, numbers: Ints, fields: Ints, heights: Ints, parts: Split, end: int
) -> Instead:
    """Return what is launched for a product, whose fields and heights of buffers are written."""
    _, entries, known, repeats = parts
    calls = entries // plan.width
    rows, ranks, place, users, starts = range(end, end + 5 * entries, entries)
    fields[known_code.ROWS, INDEX] = rows
    fields[known_code.RANKS, INDEX] = ranks
    fields[known_code.PLACE, INDEX] = place
    fields[known_code.PRODUCTS, INDEX] = users
    fields[known_code.PRODUCTS, COPIES] = starts
    counts = starts + entries + 1
    fields[known_code.COUNTS :, INDEX] = range(counts, counts + plan.width * (calls + 2), calls + 2)
    heights[fields[known_code.TABLE, BASE]] = known
    instead: Instead = {plan.step: [(plan.known_rows, (calls, calls + 1)), (plan.forward_step, None)]}
    if plan.backward is not None:
        products, back = fields[known_code.PRODUCTS, BASE], plan.backward
        heights[products] = max(heights[products], calls + known)
        fields[known_code.COTANGENTS, STORES] = int(numbers[plan.stores] and not back.adds)
        fields[known_code.COTANGENTS, FIRST] = -1 if repeats else 0
        fields[known_code.BEHIND, FIRST] = calls
        fields[known_code.GRADIENT, STORES] = numbers[back.stores]
        levels = (0, calls), None, (0, known), (calls, calls + 1), (0, calls + 1)
        instead[back.step] = list(zip(back.kernels, levels, strict=True))
        instead[back.after] = [] if back.rest is None else [(back.rest, None)]
    return instead


def _replaced(
    bound: Bound, numbers: Ints, table: LaunchTable, instead: Instead, index: Ints, heights: Ints
) -> LaunchTable:
    """Return a table with other launches in the place of some kernels' only ones."""
    launches: list[Launch] = []  # annotated, as to call a type of lists takes a microsecond
    more: list[tuple[int, int]] = []
    levels = len(table.bounds)
    for kernel, first, last in table.launches[:, :HEAD].tolist():
        for other, calls in instead.get(kernel, [(kernel, None)]):
            if calls is None:
                launches.append(Launch(other, first, last))
            else:
                at = levels + len(more)
                launches.append(Launch(other, at, at + 1))
                more.append(calls)
    bounds = np.concatenate([table.bounds, more]) if more else table.bounds
    return LaunchTable(rows_of(bound, numbers, launches), bounds, index, heights)
