"""Products taken out of a recursion: what is known before it starts is multiplied at once, and once each.

A recursive cell often multiplies what it reads by a weight, level after level. Where a value comes from
outside the recursion (in a binary tree half of all children are leaves), its product need not wait for the
level: it is made before the first one, with all others of its kind, and once for all calls that share it. So
levels multiply only what the recursion itself has made. A batch in which this pays is given other launches:

====================================  ===================================================================
launches of a batch                   what is put there instead
====================================  ===================================================================
forward step                          `known_rows`, `forward_step`
backward step                         `prepared`, `backward_step`, `summed`, `returned`, `gradient`
backward after                        the same without the weight's gradient
====================================  ===================================================================

Source: loop-invariant code motion (Aho, Lam, Sethi, Ullman 2006, section 9.1.7), of rows instead of code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import prod

import numpy as np

from foldbatch.engines.arrays import Adapt
from foldbatch.engines.bindings import Bound, Key, bind_routines
from foldbatch.engines.launch import (
    BASE,
    COPIES,
    FIELDS,
    FIRST,
    HEAD,
    INDEX,
    STORES,
    WIDTH,
    Ints,
    LaunchTable,
)
from foldbatch.engines.launches import Directions, Launch, rows_of
from foldbatch.engines.numba import known_code
from foldbatch.engines.numba.coder import Code
from foldbatch.engines.numba.instructions import encode
from foldbatch.engines.numba.known_code import Form, own_bindings
from foldbatch.engines.numba.known_products import Derivative, Product, find_product
from foldbatch.engines.numba.known_rows import Split, split
from foldbatch.engines.numba.loop_texts import TARGET
from foldbatch.model.model import Model
from foldbatch.scheduler.schedule import CellTable, Index, Schedule
from foldbatch.static.cell import Phase
from foldbatch.static.routines import Stage, routine_of
from foldbatch.static.statements import Binding
from foldbatch.types import TensorType

FEWEST = 400  # calls: with fewer, what the levels save is lost before and after them
LEAST = 0.1  # share of the rows that must be saved, as they repeat: else nothing pays for storing products

VARIANT = "known"
FORWARD_STEP, BACKWARD_STEP = ("forward", "step"), ("backward", "step")
BACKWARD_AFTER = ("backward", "after")


@dataclass(frozen=True, slots=True)
class Site:
    """A product of a cell of which batches may know rows.

    Attributes:
        cell: the cell's number.
        product: the product.
        derivative: what is made of it backward; None where that is left to the cell's kernels.
        form: its sizes.
        stages: the cell's stages without the product, by direction and stage: of a backward stage of which
            nothing is left, None.
    """

    cell: int
    product: Product
    derivative: Derivative | None
    form: Form
    stages: Mapping[tuple[str, str], Stage | None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a batch is to launch for a site: numbers of kernels and buffers.

    Attributes:
        site: the product.
        step: the cell's forward step.
        known_rows, forward_step: what is launched instead.
        back: the cell's backward step and stage after it, the latter -1 if there is none.
        back_kernels: `prepared`, `backward_step`, `summed`, `returned`, `gradient`; none without derivative.
        after: the stage after without the weight's gradient; -1 if nothing is left of it.
        bases: ``[bindings, FIELDS]``: the fields of the product's bindings that no batch changes.
        starts: where the product's bindings begin, by kernel.
        result: of the backward stage after, the number of the binding that is the weight's gradient.
    """

    site: Site
    step: int
    known_rows: int
    forward_step: int
    back: tuple[int, int]
    back_kernels: tuple[int, ...]
    after: int
    bases: Ints
    starts: Mapping[int, int]
    result: int


def with_known(bound: Bound) -> tuple[Bound, list[Code], Adapt]:
    """Return the routines of a phase with their codes, and what gives batches launches of known products.

    The kernels of known products follow those of the model; the last of them have no routine.
    """
    sites = tuple(find_sites(bound.model, training=bound.training))
    variants = {
        Key(site.cell, *name, VARIANT): routine_of(stage, TARGET)
        for site in sites
        for name, stage in site.stages.items()
        if stage is not None
    }
    count = len(bound.routines)
    codes = [encode(routine) for routine in bound.routines]
    if sites:
        keys, routines = [*bound.keys, *variants], [*bound.routines, *variants.values()]
        bound = bind_routines(bound.model, keys, routines, training=bound.training)
    coders = {FORWARD_STEP: known_code.forward_step, BACKWARD_STEP: known_code.backward_step}
    forms = {site.cell: site.form for site in sites}
    for key, routine in zip(bound.keys[count:], bound.routines[count:], strict=True):
        name = key.direction, key.stage
        codes.append(coders[name](forms[key.cell], routine) if name in coders else encode(routine))
    plans = []
    for site in sites:
        bound, plan = _planned(bound, site, codes)
        plans.append(plan)
    return bound, codes, partial(adapt, bound, plans)


def find_sites(model: Model, *, training: bool) -> Iterator[Site]:
    """Yield the products of a phase's cells of which batches may know rows."""
    for k, cell in enumerate(model.cells):
        phase = cell.phase(training=training)
        product = find_product(phase.graph, cell.ends)
        step = phase.forward.get("step")
        if product is None or step is None or product.node not in step.computed:
            continue
        if not known_code.can_multiply(product.node.dtype):
            continue
        operand = model.signatures[k].operands[product.operand]
        width, numbers = len(operand.columns) or 1, prod(product.rows.shape)
        form = Form(width, numbers // width, product.node.shape[0], product.node.dtype)
        given = {**step.given, product.node: known_code.GIVEN}
        stages: dict[tuple[str, str], Stage | None] = {FORWARD_STEP: replace(step, given=given)}
        derivative = _derivative(product, phase)
        if derivative is not None:
            for name in ("step", "after"):
                stage = phase.backward[name]
                left = replace(stage, results=derivative.without(stage.results))
                stages["backward", name] = left if left.results or left.kept else None
        yield Site(k, product, derivative, form, stages)


def _derivative(product: Product, phase: Phase) -> Derivative | None:
    """Return what is made of a product backward, if the step leaves its cotangent to the stage after."""
    results = list(chain.from_iterable(stage.results for stage in phase.backward.values()))
    derivative = product.derivative(results)
    step, after = phase.backward.get("step"), phase.backward.get("after")
    if derivative is None or step is None or after is None:
        return None
    apart = any(what == derivative.what for what, _ in step.results)
    apart = apart and any(what == derivative.gradient for what, _ in after.results)
    return derivative if apart and derivative.cotangent in step.kept else None


def _planned(bound: Bound, site: Site, codes: list[Code]) -> tuple[Bound, Plan]:
    """Append the codes of a site that have no routine; return the routines with the site's buffers."""
    form, product, derivative, k = site.form, site.product, site.derivative, site.cell
    table, back = len(bound.types), len(bound.types) + 1
    types = (
        TensorType((form.size,), form.dtype),
        TensorType((form.size, form.width * form.height), form.dtype),
    )
    bound = replace(bound, types=(*bound.types, *types))
    bases = np.full((form.bindings, FIELDS), -1, np.int64)
    bases[:, FIRST], bases[:, WIDTH], bases[:, STORES] = 0, 1, 0
    arena = bound.model.signatures[k].operands[product.operand].arena
    bases[known_code.VALUES, BASE] = bound.buffers["values", arena]
    bases[known_code.TABLE, [BASE, STORES]] = table, 1
    bases[known_code.WEIGHT, BASE] = bound.buffers["parameter", product.parameter]
    bases[known_code.PLACE, WIDTH] = form.width
    step = bound.numbers[Key(k, *FORWARD_STEP)]
    forward_step = bound.numbers[Key(k, *FORWARD_STEP, VARIANT)]
    starts = {forward_step: own_bindings(bound.routines[forward_step])}
    first = len(codes)
    codes.append(known_code.known_rows(form))
    if derivative is None:
        return bound, Plan(site, step, first, forward_step, (-1, -1), (), -1, bases, starts, -1)
    kept = bound.buffers["kept", k, bound.model.cells[k].training.backward["step"].kept[derivative.cotangent]]
    bases[known_code.COTANGENTS, BASE] = bound.buffers["cotangents", arena]
    bases[known_code.BACK, BASE] = back
    bases[[known_code.PRODUCTS, known_code.BEHIND], BASE] = kept
    bases[known_code.PRODUCTS, FIRST] = -1
    bases[known_code.GRADIENT, BASE] = bound.buffers["gradient", product.parameter]
    backward_step = bound.numbers[Key(k, *BACKWARD_STEP, VARIANT)]
    starts[backward_step] = own_bindings(bound.routines[backward_step])
    codes += [make(form) for make in (known_code.prepared, known_code.summed)]
    codes += [make(form) for make in (known_code.returned, known_code.gradient)]
    originals = bound.numbers[Key(k, *BACKWARD_STEP)], bound.numbers[Key(k, *BACKWARD_AFTER)]
    after = bound.routines[originals[1]]
    bindings = [result.binding for result in after.results]
    result = len(after.slots) + bindings.index(Binding(*derivative.gradient))
    kernels = first + 1, backward_step, first + 2, first + 3, first + 4
    left = bound.numbers.get(Key(k, *BACKWARD_AFTER, VARIANT), -1)
    return bound, Plan(site, step, first, forward_step, originals, kernels, left, bases, starts, result)


def adapt(bound: Bound, plans: Sequence[Plan], schedule: Schedule, tables: Directions) -> Directions:
    """Return a batch's launches, with those of known products where that pays."""
    for plan in plans:
        at = np.flatnonzero(tables.forward.launches[:, 0] == plan.step)
        if len(at) == 1:  # else the cell is no recursion of its own: not all it reads is known before it
            parts = known_of(bound.model, schedule, plan.site)
            if parts is not None:
                tables = _adapted(bound, plan, schedule, tables, parts)
    return tables


def known_of(model: Model, schedule: Schedule, site: Site) -> Split | None:
    """Return which of a product's rows a batch knows; None if that does not pay.

    All that the cell reads from outside must have been computed before its first level.
    """
    table, signature = schedule.cells[site.cell], model.signatures[site.cell]
    if len(table.order) < FEWEST or table.copies is not None:
        return None
    span = table.operands[site.product.operand]
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
    return groups if table.copies is None else np.repeat(groups, np.diff(table.copies))


def _adapted(bound: Bound, plan: Plan, schedule: Schedule, tables: Directions, parts: Split) -> Directions:
    """Return a batch's launches with those of a product's known rows."""
    index, fields = _located(plan, tables.forward.index, parts)
    table = schedule.cells[plan.site.cell]
    calls, span = len(table.order), table.operands[plan.site.product.operand]
    fields[known_code.PLACE, FIRST] = -1 if span.start is None else span.start
    fields[known_code.BEHIND, FIRST] = calls
    heights = tables.forward.heights.copy()
    heights[fields[known_code.TABLE, BASE]] = parts.size
    if plan.back_kernels:
        assert tables.backward is not None
        assert plan.site.derivative is not None
        products = fields[known_code.PRODUCTS, BASE]
        heights[products] = max(heights[products], calls + parts.size)
        adds = plan.site.derivative.rest is not None
        fields[known_code.COTANGENTS, STORES] = int(span.first and not adds)
        fields[known_code.COTANGENTS, FIRST] = -1 if span.repeats else 0
        after = tables.backward.launches[tables.backward.launches[:, 0] == plan.back[1]][0]
        fields[known_code.GRADIENT, STORES] = after[HEAD + FIELDS * plan.result + STORES]
    editor = _Editor(bound, plan, tables.numbers, fields)
    forward = editor.replaced(
        tables.forward,
        {plan.step: [(plan.known_rows, (calls, calls + 1)), (plan.forward_step, None)]},
    )
    backward = tables.backward
    if plan.back_kernels:
        assert backward is not None
        levels = (0, calls), None, (0, parts.size), (calls, calls + 1), (0, calls + 1)
        steps = list(zip(plan.back_kernels, levels, strict=True))
        afters = [(plan.after, None)] if plan.after >= 0 else []
        backward = editor.replaced(backward, {plan.back[0]: steps, plan.back[1]: afters})
    if backward is not None:
        backward = replace(backward, index=index, heights=heights)
    forward = replace(forward, index=index, heights=heights)
    return tables._replace(forward=forward, backward=backward)


def _located(plan: Plan, index: Ints, parts: Split) -> tuple[Ints, Ints]:
    """Return the index with a split's arrays behind it, and the product's fields with their places."""
    arrays = [index, parts.rows, parts.ranks, parts.place, parts.users, parts.starts, parts.counts.ravel()]
    rows, ranks, place, users, starts, counts, _ = np.cumsum([len(array) for array in arrays]).tolist()
    fields = plan.bases.copy()
    fields[known_code.ROWS, INDEX] = rows
    fields[known_code.RANKS, INDEX] = ranks
    fields[known_code.PLACE, INDEX] = place
    fields[known_code.PRODUCTS, INDEX] = users
    fields[known_code.PRODUCTS, COPIES] = starts
    fields[known_code.COUNTS :, INDEX] = counts + np.arange(len(parts.counts)) * parts.counts.shape[1]
    return np.concatenate(arrays), fields


@dataclass(frozen=True, slots=True)
class _Editor:
    """Puts launches of a plan's kernels in the place of others: ``fields`` are the product's in the batch."""

    bound: Bound
    plan: Plan
    numbers: Ints
    fields: Ints

    def replaced(
        self, table: LaunchTable, kernels: Mapping[int, Sequence[tuple[int, tuple[int, int] | None]]]
    ) -> LaunchTable:
        """Return a table with some kernels' launches replaced.

        Args:
            table: the table.
            kernels: by kernel, what is launched instead: a kernel, and the calls of its one level; None, if
                it runs on the levels of the kernel that it replaces.
        """
        bounds = [*map(list, table.bounds.tolist())]
        widest = HEAD + FIELDS * (max(self.plan.starts.values()) + len(self.fields))
        rows: list[Ints] = []
        for row in table.launches:
            if int(row[0]) not in kernels:
                rows.append(row)
                continue
            for kernel, level in kernels[int(row[0])]:
                launch = Launch(kernel, int(row[1]), int(row[2]))
                if level is not None:
                    launch = Launch(kernel, len(bounds), len(bounds) + 1)
                    bounds.append(list(level))
                rows.append(self._row(launch, widest))
        launches = np.full((len(rows), max(widest, *map(len, rows))), -1, np.int64)
        for row, launch_row in zip(launches, rows, strict=True):
            row[: len(launch_row)] = launch_row
        return replace(table, launches=launches, bounds=np.array(bounds, np.int64))

    def _row(self, launch: Launch, widest: int) -> Ints:
        """Return a launch's row, with the product's bindings behind those of its routine."""
        row: Ints = np.full(widest, -1, np.int64)
        if launch.kernel < len(self.bound.routines):
            own: Ints = rows_of(self.bound, self.numbers, [launch])[0]
            if launch.kernel not in self.plan.starts:
                return own
            row = np.full(max(widest, len(own)), -1, np.int64)
            row[: len(own)] = own
        row[:HEAD] = launch
        start = HEAD + FIELDS * self.plan.starts.get(launch.kernel, 0)
        row[start : start + self.fields.size] = self.fields.ravel()
        return row
