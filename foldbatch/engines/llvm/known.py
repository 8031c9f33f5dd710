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
from itertools import chain
from math import prod

import numpy as np

from foldbatch.engines.bindings import Bound, KernelKey, bind_routines
from foldbatch.engines.launch import BASE, FIELDS, FIRST, HEAD, STORES, WIDTH, Ints
from foldbatch.engines.llvm import known_code
from foldbatch.engines.llvm.coder import KernelCode
from foldbatch.engines.llvm.known_code import ProductForm, own_bindings
from foldbatch.engines.llvm.known_launches import Backward, ProductPlan, Products
from foldbatch.engines.llvm.op_code import encode
from foldbatch.model.model import Model
from foldbatch.params.parameters import Parameter
from foldbatch.static.cell import Phase
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import PARAMETER, Node, reachable
from foldbatch.static.op import CALL
from foldbatch.static.routines import Stage, What, routine_of
from foldbatch.system.remembering import remembered
from foldbatch.types import TensorType

VARIANT = "known"
FORWARD_STEP, BACKWARD_STEP = ("forward", "step"), ("backward", "step")
BACKWARD_AFTER = ("backward", "after")
SMALLEST = 64  # numbers of a row: to store and add up the products of shorter ones costs what it saves

Results = Sequence[tuple[What, Node]]  # of a stage or a direction: what each is, and its node


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
        """Return how the operand's and the weight's gradients follow from the product; None if not simply."""
        wanted = ("cotangent", self.operand), ("gradient", self.parameter)
        nodes = [node for what in wanted for other, node in results if other == what]
        if len(nodes) != len(wanted):
            return None
        back, gradient = nodes
        terms = back.inputs if back.op.name == "add" and len(back.inputs) == 2 else (back,)
        for i, term in enumerate(terms):
            g = self._behind(term)
            if g is not None and gradient.op.name == "sum_outer" and gradient.inputs == (self.rows, g):
                rest = terms[1 - i] if len(terms) > 1 else None
                return Derivative(*wanted, g, rest) if rest is None or rest.type == back.type else None
        return None

    def _behind(self, node: Node) -> Node | None:
        """Return what is multiplied by the transposed weight to yield a node, if that is all it is."""
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

    what: What  # the result of the backward direction that is the operand's cotangent
    gradient: What  # the result that is the weight's gradient
    cotangent: Node  # the product's cotangent, of which both are made
    rest: Node | None  # what else is added to the operand's cotangent, or None

    def without(self, results: Results) -> tuple[tuple[What, Node], ...]:
        """Return what is left of a stage's results without what is made of the product's cotangent."""
        left = [pair for pair in results if pair[0] not in (self.what, self.gradient)]
        if self.rest is not None and any(what == self.what for what, _ in results):
            left.append((self.what, self.rest))
        return tuple(left)


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
    """A product of a cell of which batches may know rows."""

    cell: int  # the cell's number
    product: KnownProduct
    # what is made of it backward; None where that is left to the cell's kernels
    derivative: Derivative | None
    form: ProductForm  # its sizes
    # the cell's stages without the product, by direction and stage: of a backward stage of which nothing is
    # left, None
    stages: Mapping[tuple[str, str], Stage | None]


def with_known(bound: Bound) -> tuple[Bound, list[KernelCode], Products]:
    """Return the routines of a phase with their codes, and what gives batches launches of known products.

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
        bound, plan = _planned(bound, site, codes, fields, read)
        plans.append(plan)
    placed = replace(bound, places=_places(bound, len(codes), read)) if sites else bound
    return bound, codes, Products(placed, plans, np.array(fields, np.int64).reshape(-1, FIELDS))


_code_of = remembered(encode)


def find_sites(model: Model, precision: str, *, training: bool) -> Iterator[Site]:
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
        form = ProductForm(width, numbers // width, product.node.shape[0], product.node.dtype, precision)
        given = {**step.given, product.node: known_code.GIVEN}
        stages: dict[tuple[str, str], Stage | None] = {FORWARD_STEP: replace(step, given=given)}
        derivative = _derivative(product, phase)
        if derivative is not None:
            for name in ("step", "after"):
                stage = phase.backward[name]
                left = replace(stage, results=derivative.without(stage.results))
                stages["backward", name] = left if left.results or left.kept else None
        yield Site(k, product, derivative, form, stages)


def _derivative(product: KnownProduct, phase: Phase) -> Derivative | None:
    """Return what is made of a product backward, if the step leaves its cotangent to the stage after."""
    results = list(chain.from_iterable(stage.results for stage in phase.backward.values()))
    derivative = product.derivative(results)
    step, after = phase.backward.get("step"), phase.backward.get("after")
    if derivative is None or step is None or after is None:
        return None
    apart = any(what == derivative.what for what, _ in step.results)
    apart = apart and any(what == derivative.gradient for what, _ in after.results)
    return derivative if apart and derivative.cotangent in step.kept else None


def _planned(
    bound: Bound, site: Site, codes: list[KernelCode], fields: list[Ints], read: dict[int, tuple[int, slice]]
) -> tuple[Bound, ProductPlan]:
    """Append the codes of a site that have no routine; return the routines with the site's buffers.

    Its fields are appended, too. What reads them is told by kernel: how many bindings come before.
    """
    form, k, model, facts = site.form, site.cell, bound.model, bound.facts
    arena, operand = model.signatures[k].operands[site.product.operand].arena, site.product.operand
    bases = np.full((form.bindings, FIELDS), -1, np.int64)
    own = slice(len(fields), len(fields) + len(bases))
    fields += [*bases]  # rows of it, which are written below
    bases[:, FIRST], bases[:, WIDTH], bases[:, STORES] = 0, 1, 0
    bases[known_code.VALUES, BASE] = bound.buffers["values", arena]
    bases[known_code.WEIGHT, BASE] = bound.buffers["parameter", site.product.parameter]
    bases[known_code.PLACE, WIDTH] = form.width
    bases[known_code.TABLE, [BASE, STORES]] = len(bound.types), 1
    types = [TensorType((form.size,), form.dtype)]
    step, variant = (bound.numbers[KernelKey(k, *FORWARD_STEP, name)] for name in ("", VARIANT))
    read |= {variant: (own_bindings(bound.routines[variant]), own), len(codes): (0, own)}
    codes.append(known_code.known_rows(form))
    outputs = [
        (facts["all", other], facts["output", other, j], facts["copies", other])
        for other, cell in enumerate(model.signatures)
        for j, output in enumerate(cell.outputs)
        if output == arena and cell.component != model.signatures[k].component
    ]
    where = facts["all", k], facts["first", k, operand], facts["rows", k, operand], facts["arena", arena]
    told = np.array([*where, *chain.from_iterable(outputs)], np.int64)
    first, backward = len(codes) - 1, None
    if site.derivative is not None:
        bases[known_code.COTANGENTS, BASE] = bound.buffers["cotangents", arena]
        bases[known_code.BACK, BASE] = len(bound.types) + 1
        bases[known_code.GRADIENT, BASE] = bound.buffers["gradient", site.product.parameter]
        kept = model.cells[k].training.backward["step"].kept[site.derivative.cotangent]
        bases[[known_code.PRODUCTS, known_code.BEHIND], BASE] = bound.buffers["kept", k, kept]
        bases[known_code.PRODUCTS, FIRST] = -1  # rows are told by the index
        types.append(TensorType((form.size, form.width * form.height), form.dtype))
        back, changed = (bound.numbers[KernelKey(k, *BACKWARD_STEP, name)] for name in ("", VARIANT))
        read[changed] = own_bindings(bound.routines[changed]), own
        after = bound.numbers[KernelKey(k, *BACKWARD_AFTER)]
        rest = bound.numbers.get(KernelKey(k, *BACKWARD_AFTER, VARIANT))
        prepared, *others = range(len(codes), len(codes) + 4)
        read |= dict.fromkeys((prepared, *others), (0, own))
        codes += [known_code.prepared(form), known_code.summed(form)]
        codes += [known_code.returned(form), known_code.gradient(form)]
        stores, adds = facts["stores", site.product.parameter], site.derivative.rest is not None
        backward = Backward(back, after, stores, (prepared, changed, *others), rest, adds)
    numbers = facts["copies", k], facts["stores", k, operand]
    plan = ProductPlan(step, first, variant, backward, form.width, told, *numbers, own)
    return replace(bound, types=(*bound.types, *types)), plan


def _places(bound: Bound, kernels: int, read: Mapping[int, tuple[int, slice]]) -> Ints:
    """Return the places of all kernels: fields of products follow the other numbers of a batch."""
    behind, wide = len(bound.facts) + len(bound.fixed), bound.places.shape[1]
    wide = max([wide, *(HEAD + FIELDS * (first + own.stop - own.start) for first, own in read.values())])
    places = np.full((kernels, wide), bound.places[0, 0], np.int64)  # that of -1, where nothing is read
    places[: len(bound.places), : bound.places.shape[1]] = bound.places
    for kernel, (first, own) in read.items():
        start = HEAD + FIELDS * first
        numbers = range(behind + FIELDS * own.start, behind + FIELDS * own.stop)
        places[kernel, start : start + len(numbers)] = numbers
    return places
