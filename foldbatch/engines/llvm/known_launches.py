"""A batch's launches, with those of products of known rows in the place of others, where that pays.

In a binary tree half of all children are leaves, and words repeat. `split` parts what an operand reads into
rows that only a level can multiply, because an earlier level makes them, and rows that can be multiplied
before the first level, each distinct one once. It is one loop over the batch, compiled once a machine; it is
plain Python, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from foldbatch.engines.bindings import Bound, Directions, Launch, rows_of
from foldbatch.engines.launch import BASE, COPIES, FIELDS, FIRST, HEAD, INDEX, STORES, Ints, LaunchTable
from foldbatch.engines.llvm import known_code
from foldbatch.engines.llvm.compiling import compiled_function
from foldbatch.model.model import Model
from foldbatch.scheduler.schedule import CellTable, Index, Schedule

i8 = u8 = int  # compiled: conversions

SIGNATURE = "i8[] i8 i8[] i8[] i8[] i8[] i8[,] i8[] i8[] i8[]"


class Split(NamedTuple):
    """The rows that an operand reads, as they are multiplied: column by column.

    An operand has `width` columns: call i reads ``entries[i * width]`` to ``entries[(i + 1) * width - 1]``.
    """

    # ``[*] int64``: the arena's rows that are multiplied: column after column; of each column first those
    # that levels multiply, in the order of the calls, then the distinct known ones
    rows: Index
    ranks: Index  # ``[*] int64``: for each of these the rank of the call, or calls + number of the known row
    # ``[width, calls + 2] int64``: where in `rows` those of each rank on begin, of a column; the last but
    # one is where its known rows begin, the last is where they end
    counts: Index
    place: Index  # ``[calls * width] int64``: for each entry the number of its known row, or -1
    users: Index  # ``[*] int64``: the ranks that read each known row, one row's after the other's
    starts: Index  # ``[m + 1] int64``: where those of each of the m known rows begin

    @property
    def size(self) -> int:
        """How many distinct known rows there are."""
        return len(self.starts) - 1


def split(entries: Index, width: int, groups: Index, count: int) -> Split:
    """Part what an operand reads into what is known before the recursion and what is not.

    Args:
        entries: ``[calls * width] int64``: the arena's rows that it reads.
        width: rows a call.
        groups: ``[*] int64``: for each row of the arena the number of its value, equal for equal ones, or -1
            if it is not known beforehand.
        count: how many such numbers there are.
    """
    calls = len(entries) // width
    rows, ranks, place, users = (np.empty(len(entries), np.int64) for _ in range(4))
    counts, starts = np.empty((width, calls + 2), np.int64), np.empty(len(entries) + 1, np.int64)
    uses = np.zeros(count * width, np.int64)
    write = compiled_function(write_split, SIGNATURE, sys.modules[__name__])
    size = write(entries, width, groups, uses, rows, ranks, counts, place, users, starts)
    late = sum(counts[:, -2].tolist()) - sum(counts[:, 0].tolist())
    users, starts = users[: len(entries) - late], starts[: size - late + 1]
    return Split(rows[:size], ranks[:size], counts, place, users, starts)


def write_split(
    entries: Index,
    width: int,
    groups: Index,
    uses: Index,
    rows: Index,
    ranks: Index,
    counts: Index,
    place: Index,
    users: Index,
    starts: Index,
) -> int:
    """Write a `Split`, to arrays that are long enough; return how many rows there are.

    `uses` are zeros, one for each column and group.
    """
    size, calls = i8(u8(len(uses)) // u8(width)), i8(u8(len(entries)) // u8(width))
    for call in range(calls):
        for column in range(width):
            group = groups[entries[call * width + column]]
            if group >= 0:
                uses[column * size + group] += 1
    to, found, total = 0, 0, 0
    for column in range(width):
        for call in range(calls):
            counts[column, call] = to
            row = entries[call * width + column]
            if groups[row] < 0:
                rows[to], ranks[to], place[call * width + column] = row, call, -1
                to += 1
        counts[column, calls] = to
        first = found
        for key in range(column * size, (column + 1) * size):
            if uses[key]:
                starts[found], ranks[to + found - first] = total, -1
                total += uses[key]
                uses[key] = found
                found += 1
        for call in range(calls):
            row = entries[call * width + column]
            group = groups[row]
            if group >= 0:
                at = uses[column * size + group]
                place[call * width + column] = at
                there = to + at - first
                if ranks[there] < 0:  # the first of its kind
                    rows[there], ranks[there] = row, calls + at
                users[starts[at]] = call  # starts are where the next one goes, and end up one place ahead
                starts[at] += 1
        to += found - first
        counts[column, calls + 1] = to
    for at in range(found, 0, -1):
        starts[at] = starts[at - 1]
    starts[0] = 0
    return to


FEWEST = 400  # calls: with fewer, what the levels save is lost before and after them
LEAST = 0.1  # share of the rows that must be saved, as they repeat: else nothing pays for storing products

# changes what a batch runs to what yields the same faster
Adapt = Callable[[Schedule, Directions], Directions]
Instead = Mapping[int, Sequence[tuple[int, tuple[int, int] | None]]]  # see `_replaced`


class Backward(NamedTuple):
    """The kernels of a product backward, by number."""

    step: int  # the cell's step
    after: int  # its stage after the step
    gradient: int  # of that stage, the number of the binding that is the weight's gradient
    kernels: tuple[int, ...]  # `prepared`, `backward_step`, `summed`, `returned` and `gradient`
    rest: int | None  # the stage after without the weight's gradient; None if nothing is left of it
    adds: bool  # whether the step yields cotangents of the operand too, to which the product's are added


@dataclass(frozen=True, slots=True)
class ProductPlan:
    """What batches are to launch for a product: numbers of kernels."""

    cell: int  # the cell's number
    operand: int  # the number of the operand that is multiplied
    step: int  # the cell's forward step
    known_rows: int  # the kernel of this name
    forward_step: int  # the kernel of this name
    backward: Backward | None  # those of the other direction; None where it is left to the cell's own
    # ``[bindings, FIELDS]``: the fields of the product's bindings; those that batches change later
    bases: Ints
    starts: Mapping[int, int]  # where the product's bindings begin, of kernels that have other ones


def adapt(bound: Bound, plans: Sequence[ProductPlan], schedule: Schedule, tables: Directions) -> Directions:
    """Return a batch's launches, with those of known products where that pays."""
    for plan in plans:
        if len(schedule.orders[plan.cell]) >= FEWEST and _launched_once(plan, tables):
            parts = known_of(bound.model, schedule, plan.cell, plan.operand)
            if parts is not None:
                tables = _adapted(bound, plan, schedule, tables, parts)
    return tables


def _launched_once(plan: ProductPlan, tables: Directions) -> bool:
    """Whether the cell's levels follow each other: so all that it reads from outside is known before them."""
    wanted = [(tables.forward, plan.step)]
    if plan.backward is not None and tables.backward is not None:
        wanted += [(tables.backward, plan.backward.step), (tables.backward, plan.backward.after)]
    return all(table.launches[:, 0].tolist().count(kernel) == 1 for table, kernel in wanted)


def known_of(model: Model, schedule: Schedule, cell: int, operand: int) -> Split | None:
    """Return which rows of a cell's operand a batch knows; None if that does not pay.

    All that the cell reads from outside must have been computed before its first level.
    """
    table, signature = schedule.cells[cell], model.signatures[cell]
    if table.copies is not None:
        return None
    span = table.operands[operand]
    groups = np.full(schedule.arena_rows[span.arena], -1, np.int64)
    count = 0
    for other, written in zip(model.signatures, schedule.cells, strict=True):
        for arena, rows in zip(other.outputs, written.outputs, strict=True):
            if arena == span.arena and other.component != signature.component:
                groups[rows] = _groups(written, count)
                count += len(written.order)
    entries = span.rows if span.start is None else np.arange(span.start, span.start + span.size)
    assert entries is not None
    parts = split(entries, span.width, groups, count)
    return None if len(entries) - len(parts.rows) < LEAST * len(entries) else parts


def _groups(table: CellTable, first: int) -> Index:
    """Return the group of each result of a cell, ``[n]``: calls that are shared are one."""
    groups = np.arange(first, first + len(table.order))
    return groups if table.copies is None else np.repeat(groups, table.copies[1:] - table.copies[:-1])


def _adapted(
    bound: Bound, plan: ProductPlan, schedule: Schedule, tables: Directions, parts: Split
) -> Directions:
    """Return a batch's launches with those of a product's known rows."""
    calls, known = len(schedule.cells[plan.cell].order), parts.size
    span = schedule.cells[plan.cell].operands[plan.operand]
    index, fields = _located(plan, tables.forward.index, parts)
    fields[known_code.PLACE, FIRST] = -1 if span.start is None else span.start
    heights = tables.forward.heights.copy()
    heights[fields[known_code.TABLE, BASE]] = known
    row_of = partial(_row, bound, plan, tables.numbers, fields)
    instead: Instead = {plan.step: [(plan.known_rows, (calls, calls + 1)), (plan.forward_step, None)]}
    forward, backward = _replaced(tables.forward, instead, row_of), tables.backward
    if plan.backward is not None:
        assert backward is not None
        products, back = fields[known_code.PRODUCTS, BASE], plan.backward
        heights[products] = max(heights[products], calls + known)
        fields[known_code.COTANGENTS, STORES] = int(span.first and not back.adds)
        fields[known_code.COTANGENTS, FIRST] = -1 if span.repeats else 0
        fields[known_code.BEHIND, FIRST] = calls
        (after,) = backward.launches[backward.launches[:, 0] == back.after]
        fields[known_code.GRADIENT, STORES] = after[HEAD + FIELDS * back.gradient + STORES]
        levels = (0, calls), None, (0, known), (calls, calls + 1), (0, calls + 1)
        rest = [] if back.rest is None else [(back.rest, None)]
        instead = {back.step: list(zip(back.kernels, levels, strict=True)), back.after: rest}
        backward = _replaced(backward, instead, row_of)
        backward = replace(backward, index=index, heights=heights)
    forward = replace(forward, index=index, heights=heights)
    return tables._replace(forward=forward, backward=backward)


def _located(plan: ProductPlan, index: Ints, parts: Split) -> tuple[Ints, Ints]:
    """Return the index with a split's arrays behind it, and the product's fields with their places."""
    arrays = [index, parts.rows, parts.ranks, parts.place, parts.users, parts.starts, parts.counts.ravel()]
    rows, ranks, place, users, starts, counts, _ = accumulate(map(len, arrays))
    fields = plan.bases.copy()
    fields[known_code.ROWS, INDEX] = rows
    fields[known_code.RANKS, INDEX] = ranks
    fields[known_code.PLACE, INDEX] = place
    fields[known_code.PRODUCTS, INDEX] = users
    fields[known_code.PRODUCTS, COPIES] = starts
    fields[known_code.COUNTS :, INDEX] = [*range(counts, counts + parts.counts.size, parts.counts.shape[1])]
    return np.concatenate(arrays), fields


def _row(bound: Bound, plan: ProductPlan, numbers: Ints, fields: Ints, launch: Launch) -> Ints:
    """Return a launch's row: a kernel of the product has its fields behind those of its routine."""
    own: Ints = np.array(launch, np.int64)
    if launch.kernel < len(bound.routines):
        own = rows_of(bound, numbers, [launch])[0]
        if launch.kernel not in plan.starts:
            return own
    start = HEAD + FIELDS * plan.starts.get(launch.kernel, 0)
    return np.concatenate([own[:start], fields.ravel()])


def _replaced(table: LaunchTable, instead: Instead, row_of: Callable[[Launch], Ints]) -> LaunchTable:
    """Return a table with other launches in the place of some kernels' only ones.

    They are kernels, and the calls of the one level of each; or None for the levels of the kernel that they
    replace. `row_of` returns the row of a launch.
    """
    kernels, bounds = table.launches[:, 0].tolist(), table.bounds.tolist()
    places, rows, done = {kernels.index(kernel): kernel for kernel in instead}, list[Ints](), 0
    for place in sorted(places):
        _, first, last = table.launches[place, :HEAD].tolist()
        rows += [*table.launches[done:place]]
        done = place + 1
        for kernel, calls in instead[places[place]]:
            if calls is None:
                rows.append(row_of(Launch(kernel, first, last)))
            else:
                rows.append(row_of(Launch(kernel, len(bounds), len(bounds) + 1)))
                bounds.append(calls)
    rows += [*table.launches[done:]]
    launches = np.full((len(rows), max(map(len, rows))), -1, np.int64)
    for place, row in enumerate(rows):
        launches[place, : len(row)] = row
    return replace(table, launches=launches, bounds=np.array(bounds, np.int64))
