"""Products taken out of a recursion: rows that are known before it starts are multiplied at once, and once.

A recursive cell often multiplies its operands by a weight, level after level. If a value comes from outside
the recursion (in a binary tree half of all children are leaves), its product need not wait for the level: it
is computed before the first level, together with all other such products, and once for all calls that share
it. So levels multiply only the values of the recursion itself. A batch in which this pays gets other
launches:

====================================  ===================================================================
launches of a batch                   the launches that replace them
====================================  ===================================================================
forward step                          `known_rows`, `forward_step`
backward step                         `prepared`, `backward_step`, `summed`, `returned`, `gradient`
backward after                        the same without the weight's gradient
====================================  ===================================================================

`write_split` divides the rows that an operand reads: rows that only a level can multiply, because an earlier
level computes them, and rows that can be multiplied before the first level, each distinct one once. It is one
loop over the batch, compiled once a machine; it is plain Python, too.

Source: loop-invariant code motion (Aho, Lam, Sethi, Ullman 2006, section 9.1.7), of rows instead of code.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from typing import NamedTuple

import numpy as np

from foldbatch.engines.bindings import Bound, Directions, KernelKey, Launch, bind_routines, rows_of
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
from foldbatch.engines.llvm import known_code
from foldbatch.engines.llvm.coder import KernelCode
from foldbatch.engines.llvm.known_code import ProductForm, own_bindings
from foldbatch.engines.llvm.op_code import encode
from foldbatch.engines.llvm.table_loops import moved
from foldbatch.loops.compiling import compiled_function
from foldbatch.model.model import Model
from foldbatch.params.parameters import Parameter
from foldbatch.static.cell import Phase
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import PARAMETER, Node, reachable
from foldbatch.static.op import CALL
from foldbatch.static.routines import ResultKey, Stage, routine_of
from foldbatch.system.remembering import remembered
from foldbatch.types import TensorType

i8 = u8 = int  # compiled: conversions

SIGNATURE = "i8[] i8 i8[] i8[] i8[]"

# The header of an operand, for `write_split`: the number of calls that read it, the first row that they read
# (-1 if the index has the rows), the offset of these in the index, and the rows of the arena. Behind it: a
# record of three integers for each output in the arena that is known before the recursion: the number of its
# ranks, and the offsets of its rows and of its copies (or -1) in the index.
CALLS, FIRST_ROW, ROWS, HEIGHT, OUTPUTS, OUTPUT = *range(5), 3
MULTIPLIED, DISTINCT, REPEATS, WORK = range(4)  # its results in `work`, and the offset of its scratch there


class Split(NamedTuple):
    """The rows that an operand reads, as they are multiplied: column by column.

    An operand has `width` columns. Of its entries, ``calls * width`` rows, call i's begin at ``i * width``.
    Behind the batch's index arrays, the index has, one after the other:

    ==========  =======================================================================================
    ``rows``    rows of the arena that are multiplied: column after column; of each column first those
                that levels multiply, in the order of the calls, then the distinct known ones
    ``ranks``   for each of these the rank of the call, or calls + number of the known row
    ``place``   for each entry the number of its known row, or -1
    ``users``   the ranks that read each known row, row after row
    ``starts``  the bounds of these in `users`
    ``counts``  for each column, ``[calls + 2]``: the offset in `rows` of the rows of each rank; the last but
                one is the offset of its known rows, the last is their end
    ==========  =======================================================================================
    """

    extended_index: (
        Ints  # the batch's index; there is room for as many of each as entries, and of `starts` for one more
    )
    entries: int
    size: int  # how many distinct known rows there are
    repeats: bool  # whether a row is read more than once


def split(header: Ints, width: int, index: Ints) -> Split | None:
    """Divide the rows that an operand reads into those that are known before the recursion, and the others.

    Returns None if that does not pay.

    Args:
        header: the header of the operand and its records, see `CALLS`.
        width: rows a call.
        index: all index arrays of the batch.
    """
    calls, _, _, height = header[:OUTPUTS].tolist()
    entries = calls * width
    target = np.empty(len(index) + 5 * entries + 1 + width * (calls + 2), np.int64)
    work = np.empty(WORK + (2 + width) * height + entries, np.int64)
    compiled_function(write_split, SIGNATURE, sys.modules[__name__])(header, width, index, target, work)
    multiplied, size, repeats = work[:WORK].tolist()
    return None if entries - multiplied < MIN_SHARE * entries else Split(target, entries, size, repeats > 0)


def number_known(header: Ints, outputs: int, index: Ints, groups: Ints) -> int:
    """Write the number of the value in each row of the arena, or -1 if the recursion computes it.

    Rows of calls that share a rank have one number. Return how many numbers there are.
    """
    count = 0
    for row in range(header[HEIGHT]):
        groups[row] = -1
    for output in range(outputs):
        record = moved(header, OUTPUTS + OUTPUT * output)
        rows, copies = moved(index, record[1]), record[2]
        for rank in range(record[0]):
            begin = index[copies + rank] if copies >= 0 else rank
            end = index[copies + rank + 1] if copies >= 0 else rank + 1
            for i in range(begin, end):
                groups[rows[i]] = count + rank
        count += record[0]
    return count


def write_split(header: Ints, width: int, index: Ints, target: Ints, work: Ints) -> None:
    """Write the arrays of a `Split` behind a batch's index, and its sizes to the beginning of `work`."""
    calls, first, height = header[CALLS], header[FIRST_ROW], header[HEIGHT]
    entries, read, repeats = calls * width, moved(index, header[ROWS]), 0
    groups, seen, uses = moved(work, WORK), moved(work, WORK + height), moved(work, WORK + 2 * height)
    read_rows, rows = moved(uses, width * height), moved(target, len(index))
    ranks, place, users = moved(rows, entries), moved(rows, 2 * entries), moved(rows, 3 * entries)
    starts, counts = moved(rows, 4 * entries), moved(rows, 5 * entries + 1)
    for i in range(len(index)):
        target[i] = index[i]
    count = number_known(header, i8(u8(len(header) - OUTPUTS) // u8(OUTPUT)), index, groups)
    for key in range(count * width):
        uses[key] = 0
    for row in range(height):
        seen[row] = 0
    for call in range(calls):
        for column in range(width):
            i = call * width + column
            row = read[i] if first < 0 else first + i
            repeats += seen[row]
            read_rows[i], seen[row] = row, 1
            if groups[row] >= 0:
                uses[column * count + groups[row]] += 1
    to, distinct, total = 0, 0, 0
    for column in range(width):
        counts_of = moved(counts, column * (calls + 2))
        for call in range(calls):
            counts_of[call] = to
            row = read_rows[call * width + column]
            if groups[row] < 0:
                rows[to], ranks[to], place[call * width + column] = row, call, -1
                to += 1
        counts_of[calls] = to
        before = distinct
        for key in range(column * count, (column + 1) * count):
            if uses[key]:
                starts[distinct], ranks[to + distinct - before] = total, -1
                total += uses[key]
                uses[key] = distinct
                distinct += 1
        for call in range(calls):
            row = read_rows[call * width + column]
            group = groups[row]
            if group >= 0:
                at = uses[column * count + group]
                place[call * width + column] = at
                there = to + at - before
                if ranks[there] < 0:  # the first of its kind
                    rows[there], ranks[there] = row, calls + at
                users[starts[at]] = call  # starts are where the next one goes, and end up one place ahead
                starts[at] += 1
        to += distinct - before
        counts_of[calls + 1] = to
    for at in range(distinct, 0, -1):
        starts[at] = starts[at - 1]
    starts[0] = 0
    work[MULTIPLIED], work[DISTINCT], work[REPEATS] = to, distinct, repeats


FEWEST = 400  # calls: with fewer, the levels save less than the launches before and after them cost
MIN_SHARE = (
    0.1  # share of the rows that must be saved, as they repeat: else nothing pays for storing products
)

# by kernel, the launches in its place: the number of a kernel, and the calls of its only level; or None for
# the levels of the kernel that is replaced
Replacements = dict[int, Sequence[tuple[int, tuple[int, int] | None]]]


class Backward(NamedTuple):
    """The kernels of a product backward, by number."""

    step: int  # the cell's step
    after: int  # its stage after the step
    stores: int  # the fact that says whether that stores the weight's gradient
    kernels: tuple[int, ...]  # `prepared`, `backward_step`, `summed`, `returned` and `gradient`
    after_variant: int | None  # the stage after without the weight's gradient; None if that is all it has
    adds: bool  # whether the step yields cotangents of the operand too, to which the product's are added


@dataclass(frozen=True, slots=True)
class ProductPlan:
    """The numbers of the kernels that batches launch for a product, and of the facts that these need."""

    step: int  # the cell's forward step
    known_rows: int  # the kernel of this name
    forward_step: int  # the kernel of this name
    backward: Backward | None  # the kernels backward; None if the cell's kernels do it
    width: int  # rows of the operand that a call reads
    header: Ints  # the places, among a batch's numbers, of the header and records that `split` takes
    copies: int  # the fact that says which calls of the cell share ranks
    stores: int  # the fact that says whether the operand's cotangents are stored
    bindings: slice  # the product's part of the fields of all products


class Products(NamedTuple):
    """The products of a phase whose rows batches may know before a recursion."""

    bound: Bound  # the routines; their places go on behind the numbers of a batch, in `fields`
    plans: Sequence[ProductPlan]
    fields: Ints  # ``[bindings of all products, FIELDS]``: a batch fills a copy

    def adapt(self, tables: Directions) -> Directions:
        """Return a batch's launches, some of them replaced by those of known products if that pays."""
        numbers = tables.numbers
        index = tables.forward.index
        worthwhile = [plan for plan in self.plans if numbers.item(plan.header.item(CALLS)) >= FEWEST]
        if not worthwhile:
            return tables
        fields, heights = self.fields.copy(), tables.forward.heights.copy()
        replacements: Replacements = {}
        for plan in worthwhile:
            if numbers[plan.copies] >= 0 or not _once(plan, tables):
                continue
            header = numbers.take(plan.header)
            parts = split(header, plan.width, index)
            if parts is not None:
                fields[plan.bindings][known_code.PLACE, FIRST] = header[FIRST_ROW]
                replacements |= _replacements(
                    plan, numbers, fields[plan.bindings], heights, parts, len(index)
                )
                index = parts.extended_index
        if not replacements:
            return tables
        numbers = np.concatenate([numbers, fields], axis=None)
        forward = _replace_launches(self.bound, numbers, tables.forward, replacements, index, heights)
        backward = tables.backward and _replace_launches(
            self.bound, numbers, tables.backward, replacements, index, heights
        )
        return tables._replace(forward=forward, backward=backward)


def _once(plan: ProductPlan, tables: Directions) -> bool:
    """Return whether the cell's levels are one launch: then all values from outside are known before it."""
    wanted = [(tables.forward, plan.step)]
    if plan.backward is not None and tables.backward is not None:
        wanted += [(tables.backward, plan.backward.step), (tables.backward, plan.backward.after)]
    return all(table.launches[:, 0].tolist().count(kernel) == 1 for table, kernel in wanted)


def _replacements(
    plan: ProductPlan, numbers: Ints, fields: Ints, heights: Ints, parts: Split, end: int
) -> Replacements:
    """Return the launches of a product; write its fields and the heights of its buffers."""
    _, entries, size, repeats = parts
    calls = entries // plan.width
    rows, ranks, place, users, starts = range(end, end + 5 * entries, entries)
    fields[known_code.ROWS, INDEX] = rows
    fields[known_code.RANKS, INDEX] = ranks
    fields[known_code.PLACE, INDEX] = place
    fields[known_code.PRODUCTS, INDEX] = users
    fields[known_code.PRODUCTS, COPIES] = starts
    counts = starts + entries + 1
    fields[known_code.COUNTS :, INDEX] = range(counts, counts + plan.width * (calls + 2), calls + 2)
    heights[fields[known_code.TABLE, BASE]] = size
    replacements: Replacements = {
        plan.step: [(plan.known_rows, (calls, calls + 1)), (plan.forward_step, None)]
    }
    if plan.backward is not None:
        products = fields[known_code.PRODUCTS, BASE]
        back = plan.backward
        heights[products] = max(heights[products], calls + size)
        fields[known_code.COTANGENTS, STORES] = int(numbers[plan.stores] and not back.adds)
        fields[known_code.COTANGENTS, FIRST] = -1 if repeats else 0
        fields[known_code.BEHIND, FIRST] = calls
        fields[known_code.GRADIENT, STORES] = numbers[back.stores]
        levels = (0, calls), None, (0, size), (calls, calls + 1), (0, calls + 1)
        replacements[back.step] = list(zip(back.kernels, levels, strict=True))
        replacements[back.after] = [] if back.after_variant is None else [(back.after_variant, None)]
    return replacements


def _replace_launches(
    bound: Bound, numbers: Ints, table: LaunchTable, replacements: Replacements, index: Ints, heights: Ints
) -> LaunchTable:
    """Return a launch table in which some kernels, each launched once, are replaced."""
    launches: list[Launch] = []  # annotated: to call list[Launch]() takes a microsecond
    added_bounds: list[tuple[int, int]] = []
    levels = len(table.bounds)
    for kernel, first, last in table.launches[:, :HEAD].tolist():
        for replacement, calls in replacements.get(kernel, [(kernel, None)]):
            if calls is None:
                launches.append(Launch(replacement, first, last))
            else:
                at = levels + len(added_bounds)
                launches.append(Launch(replacement, at, at + 1))
                added_bounds.append(calls)
    bounds = np.concatenate([table.bounds, added_bounds]) if added_bounds else table.bounds
    return LaunchTable(rows_of(bound, numbers, launches), bounds, index, heights)


VARIANT = "known"
FORWARD_STEP, BACKWARD_STEP = ("forward", "step"), ("backward", "step")
BACKWARD_AFTER = ("backward", "after")
SMALLEST = 64  # numbers of a row: to store and add up the products of shorter rows costs what it saves

Results = Sequence[tuple[ResultKey, Node]]  # the results of a stage or a direction: names and nodes


@dataclass(frozen=True, slots=True)
class KnownProduct:
    """The rows of an operand, side by side, times a weight."""

    operand: int  # the operand's number
    rows: Node  # the node that has them side by side, ``[N, width * k]``
    node: Node  # the product, ``[N, n]``

    @property
    def parameter(self) -> Parameter:
        """The weight, ``[width * k, n]``."""
        parameter: Parameter = self.node.inputs[1].attrs["parameter"]
        return parameter

    def derivative(self, results: Results) -> Derivative | None:
        """Return the gradients that follow from this product; None if the backward graph has another form.

        They are the operand's cotangent and the weight's gradient, both products of the product's cotangent.

        Args:
            results: the results of the backward graph.
        """
        wanted = ("cotangent", self.operand), ("gradient", self.parameter)
        nodes = [node for name in wanted for result, node in results if result == name]
        if len(nodes) != len(wanted):
            return None
        back, gradient = nodes
        terms = back.inputs if back.op.name == "add" and len(back.inputs) == 2 else (back,)
        for i, term in enumerate(terms):
            g = self._product_cotangent(term)
            if g is not None and gradient.op.name == "sum_outer" and gradient.inputs == (self.rows, g):
                addend = terms[1 - i] if len(terms) > 1 else None
                return Derivative(*wanted, g, addend) if addend is None or addend.type == back.type else None
        return None

    def _product_cotangent(self, node: Node) -> Node | None:
        """Return the node g if a node is g times the transposed weight, else None."""
        while node.op.name == "reshape":
            (node,) = node.inputs
        if node.op.name != "linear":
            return None
        g, weight = node.inputs
        transposed = weight.op.name == "transpose" and weight.inputs == self.node.inputs[1:]
        return g if transposed and g.type == self.node.type else None


@dataclass(frozen=True, slots=True)
class Derivative:
    """The gradients that follow from a product."""

    operand: ResultKey  # the name of the backward result that is the operand's cotangent
    gradient: ResultKey  # the name of the result that is the weight's gradient
    cotangent: Node  # the product's cotangent, from which both follow
    addend: Node | None  # the node that is added to the operand's cotangent, or None

    def without(self, results: Results) -> tuple[tuple[ResultKey, Node], ...]:
        """Return a stage's results without those that follow from the product's cotangent."""
        remaining = [pair for pair in results if pair[0] not in (self.operand, self.gradient)]
        if self.addend is not None and any(name == self.operand for name, _ in results):
            remaining.append((self.operand, self.addend))
        return tuple(remaining)


def find_product(graph: CellGraph, ends: Ends) -> KnownProduct | None:
    """Return the product of a recursive operand's rows, side by side, by a weight, if the graph has one."""
    readers: dict[Node, list[Node]] = {}
    for node in reachable(graph.results, graph.inputs):
        for x in node.inputs if node not in graph.inputs else ():
            readers.setdefault(x, []).append(node)
    for number in sorted(ends.recursive_operands):
        operand = graph.operands[number]
        if operand.axis is not CALL or operand.ndim < 2 or prod(operand.shape[1:]) < SMALLEST:
            continue
        for rows in readers.get(operand, []):
            last = readers.get(rows, [])
            if len(last) != 1 or rows in graph.results or rows.op.name != "reshape" or rows.ndim != 1:
                continue
            (product,) = last
            multiplies = product.op.name == "linear" and product.inputs[0] is rows
            if multiplies and product.inputs[1].op is PARAMETER:
                return KnownProduct(number, rows, product)
    return None


@dataclass(frozen=True, slots=True)
class Site:
    """A product of a cell, whose rows batches may know before the recursion."""

    cell: int  # the cell's number
    product: KnownProduct
    # its gradients; None if the cell's kernels compute these
    derivative: Derivative | None
    form: ProductForm  # its sizes
    # the cell's stages without the product, by direction and stage; None for a backward stage without results
    stages: Mapping[tuple[str, str], Stage | None]


def with_known(bound: Bound) -> tuple[Bound, list[KernelCode], Products]:
    """Return the routines of a phase, the codes of all kernels, and the products that batches may know.

    The kernels of known products follow those of the model; the last of them have no routine.
    """
    sites = tuple(find_sites(bound.model, bound.target.precision, training=bound.training))
    variants = {
        KernelKey(site.cell, *name, VARIANT): routine_of(stage, bound.target)
        for site in sites
        for name, stage in site.stages.items()
        if stage is not None
    }
    count = len(bound.routines)
    codes = list(map(_code_of, bound.routines))
    if sites:
        keys, routines = [*bound.keys, *variants], [*bound.routines, *variants.values()]
        bound = bind_routines(bound.model, bound.target, keys, routines, training=bound.training)
    coders = {FORWARD_STEP: known_code.forward_step, BACKWARD_STEP: known_code.backward_step}
    forms = {site.cell: site.form for site in sites}
    for key, routine in zip(bound.keys[count:], bound.routines[count:], strict=True):
        name = key.direction, key.stage
        codes.append(coders[name](forms[key.cell], routine) if name in coders else _code_of(routine))
    plans, fields = list[ProductPlan](), list[Ints]()
    read: dict[int, tuple[int, slice]] = {}
    for site in sites:
        bound, plan = _plan_product(bound, site, codes, fields, read)
        plans.append(plan)
    placed = replace(bound, places=_places(bound, len(codes), read)) if sites else bound
    return bound, codes, Products(placed, plans, np.array(fields, np.int64).reshape(-1, FIELDS))


_code_of = remembered(encode)


def find_sites(model: Model, precision: str, *, training: bool) -> Iterator[Site]:
    """Yield the products of a phase's cells whose rows batches may know before the recursion."""
    for k, cell in enumerate(model.cells):
        phase = cell.phase(training=training)
        product = find_product(phase.graph, cell.ends)
        step = phase.forward.get("step")
        if product is None or step is None or product.node not in step.computed:
            continue
        if not known_code.can_multiply(product.node.dtype):
            continue
        operand = model.signatures[k].operands[product.operand]
        width = len(operand.columns) or 1
        numbers = prod(product.rows.shape)
        form = ProductForm(width, numbers // width, product.node.shape[0], product.node.dtype, precision)
        inputs = {**step.inputs, product.node: known_code.PRODUCT_SLOT}
        stages: dict[tuple[str, str], Stage | None] = {FORWARD_STEP: replace(step, inputs=inputs)}
        derivative = _derivative(product, phase)
        if derivative is not None:
            for name in ("step", "after"):
                stage = phase.backward[name]
                remainder = replace(stage, results=derivative.without(stage.results))
                stages["backward", name] = remainder if remainder.results or remainder.kept else None
        yield Site(k, product, derivative, form, stages)


def _derivative(product: KnownProduct, phase: Phase) -> Derivative | None:
    """Return a product's derivative, if the step stores its cotangent for the stage after; else None."""
    results = list(chain.from_iterable(stage.results for stage in phase.backward.values()))
    derivative = product.derivative(results)
    step, after = phase.backward.get("step"), phase.backward.get("after")
    if derivative is None or step is None or after is None:
        return None
    apart = any(name == derivative.operand for name, _ in step.results)
    apart = apart and any(name == derivative.gradient for name, _ in after.results)
    return derivative if apart and derivative.cotangent in step.kept else None


def _plan_product(
    bound: Bound, site: Site, codes: list[KernelCode], fields: list[Ints], read: dict[int, tuple[int, slice]]
) -> tuple[Bound, ProductPlan]:
    """Return the routines with a site's buffers, and the plan of its product.

    Appended are, to `codes`, the codes of the site that have no routine, and, to `fields`, its fields. `read`
    gets the kernels that read these: how many bindings a kernel has before them, and which fields.
    """
    form = site.form
    k = site.cell
    model = bound.model
    facts = bound.facts
    arena = model.signatures[k].operands[site.product.operand].arena
    operand = site.product.operand
    bases = np.full((form.bindings, FIELDS), -1, np.int64)
    site_fields = slice(len(fields), len(fields) + len(bases))
    fields += [*bases]  # views of `bases`, which is filled below
    bases[:, FIRST], bases[:, WIDTH], bases[:, STORES] = 0, 1, 0
    bases[known_code.VALUES, BASE] = bound.buffers["values", arena]
    bases[known_code.WEIGHT, BASE] = bound.buffers["parameter", site.product.parameter]
    bases[known_code.PLACE, WIDTH] = form.width
    bases[known_code.TABLE, [BASE, STORES]] = len(bound.types), 1
    types = [TensorType((form.size,), form.dtype)]
    step, variant = (bound.numbers[KernelKey(k, *FORWARD_STEP, name)] for name in ("", VARIANT))
    read |= {variant: (own_bindings(bound.routines[variant]), site_fields), len(codes): (0, site_fields)}
    codes.append(known_code.known_rows(form))
    outputs = [
        (facts["all", producer], facts["output", producer, j], facts["copies", producer])
        for producer, cell in enumerate(model.signatures)
        for j, output in enumerate(cell.outputs)
        if output == arena and cell.component != model.signatures[k].component
    ]
    where = facts["all", k], facts["first", k, operand], facts["rows", k, operand], facts["arena", arena]
    header = np.array([*where, *chain.from_iterable(outputs)], np.int64)
    first = len(codes) - 1
    backward = None
    if site.derivative is not None:
        bases[known_code.COTANGENTS, BASE] = bound.buffers["cotangents", arena]
        bases[known_code.BACK, BASE] = len(bound.types) + 1
        bases[known_code.GRADIENT, BASE] = bound.buffers["gradient", site.product.parameter]
        kept = model.cells[k].training.backward["step"].kept[site.derivative.cotangent]
        bases[[known_code.PRODUCTS, known_code.BEHIND], BASE] = bound.buffers["kept", k, kept]
        bases[known_code.PRODUCTS, FIRST] = -1  # the index has the rows
        types.append(TensorType((form.size, form.width * form.height), form.dtype))
        back, changed = (bound.numbers[KernelKey(k, *BACKWARD_STEP, name)] for name in ("", VARIANT))
        read[changed] = own_bindings(bound.routines[changed]), site_fields
        after = bound.numbers[KernelKey(k, *BACKWARD_AFTER)]
        after_variant = bound.numbers.get(KernelKey(k, *BACKWARD_AFTER, VARIANT))
        prepared, *later = range(len(codes), len(codes) + 4)
        read |= dict.fromkeys((prepared, *later), (0, site_fields))
        codes += [known_code.prepared(form), known_code.summed(form)]
        codes += [known_code.returned(form), known_code.gradient(form)]
        stores = facts["stores", site.product.parameter]
        adds = site.derivative.addend is not None
        backward = Backward(back, after, stores, (prepared, changed, *later), after_variant, adds)
    numbers = facts["copies", k], facts["stores", k, operand]
    plan = ProductPlan(step, first, variant, backward, form.width, header, *numbers, site_fields)
    return replace(bound, types=(*bound.types, *types)), plan


def _places(bound: Bound, kernels: int, read: Mapping[int, tuple[int, slice]]) -> Ints:
    """Return the places of all kernels' launch numbers; fields of products follow a batch's other numbers."""
    behind = len(bound.facts) + len(bound.fixed)
    wide = bound.places.shape[1]
    wide = max(
        [
            wide,
            *(
                HEAD + FIELDS * (first + site_fields.stop - site_fields.start)
                for first, site_fields in read.values()
            ),
        ]
    )
    places = np.full(
        (kernels, wide), bound.places[0, 0], np.int64
    )  # the place of a -1, for bindings that a kernel does not read
    places[: len(bound.places), : bound.places.shape[1]] = bound.places
    for kernel, (first, site_fields) in read.items():
        start = HEAD + FIELDS * first
        numbers = range(behind + FIELDS * site_fields.start, behind + FIELDS * site_fields.stop)
        places[kernel, start : start + len(numbers)] = numbers
    return places
