"""Differentiation as a transformation of graphs: reverse mode (vjp) and forward mode (jvp).

Both come of one walk over the ops' rule table, which only builds nodes. Broadcasting is undone here,
once, so that no rule repeats it; a gradient with several sources is one n-ary sum.

Source: the walk follows Baydin et al. 2018 (Automatic differentiation in machine learning),
sections 3.1 and 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence

from foldbatch.static.graph import PARAMETER, Node, apply, input_node, reachable
from foldbatch.static.op import UNBATCHED


def depends_on(outputs: Sequence[Node], wrt: Sequence[Node]) -> set[Node]:
    """Return the nodes behind `outputs` (them included) through which `wrt` acts on them.

    An op without derivatives (a comparison, `sign`) ends every path.
    """
    sources = set(wrt)
    active: set[Node] = set()
    for node in reachable(outputs):
        differentiable = node.op.vjp is not None and any(x in active for x in node.inputs)
        if node.type.is_float and (node in sources or differentiable):
            active.add(node)
    return active


def trainable(outputs: Sequence[Node]) -> list[Node]:
    nodes = reachable(outputs)
    return [node for node in nodes if node.op is PARAMETER and node.attrs["parameter"].trainable]


def vjp(outputs: Sequence[Node], cotangents: Sequence[Node], wrt: Sequence[Node]) -> list[Node | None]:
    """Return, for each node of `wrt`, the cotangent that `cotangents` of `outputs` give it.

    None means that no gradient reaches it. `wrt` may hold inputs, parameters or interior nodes;
    the walk stops behind none of them.
    """
    active = depends_on(outputs, wrt)
    contributions_to: dict[Node, list[Node]] = {}
    for output, cotangent in zip(outputs, cotangents, strict=True):
        if output in active:
            contributions_to.setdefault(output, []).append(_along(cotangent, output))
    totals: dict[Node, Node] = {}
    for node in reversed(reachable([output for output in outputs if output in active])):
        contributions = contributions_to.pop(node, None)
        if not contributions:
            continue
        g = contributions[0] if len(contributions) == 1 else apply("add", *contributions)
        totals[node] = g
        if not any(x in active for x in node.inputs):
            continue
        assert node.op.vjp is not None, f"op {node.op.name} is active but has no derivative"
        for x, contribution in zip(node.inputs, node.op.vjp(g, node, *node.inputs), strict=True):
            if contribution is not None and x in active:
                contributions_to.setdefault(x, []).append(_along(_like(contribution, x), x))
    return [totals.get(node) for node in wrt]


def _along(g: Node, x: Node) -> Node:
    """Repeat a derivative that is the same for every row of `x`, so that sums count each row."""
    if g.axis is UNBATCHED and x.axis is not UNBATCHED:
        return apply("batch", g, axis=x.axis)
    return apply("repeat", g, axis=x.axis) if g.axis.rank < x.axis.rank else g


def _like(g: Node, x: Node) -> Node:
    """Sum a cotangent over the axes along which `x` was broadcast."""
    if x.axis is UNBATCHED and g.axis is not UNBATCHED:
        g = apply("sum_batch", g)
    if g.shape == x.shape:
        return g
    extra = g.ndim - x.ndim
    axes = tuple(range(extra)) + tuple(
        extra + axis for axis, extent in enumerate(x.shape) if extent == 1 and g.shape[extra + axis] != 1
    )
    if axes:
        g = apply("sum", g, axes=axes)
    # what is left differs by axes of extent 1, or the rule's cotangent was itself broadcast
    return g if g.shape == x.shape else _spread(g, x)


def _spread(g: Node, x: Node) -> Node:
    """Bring a cotangent smaller than its operand (a rule's constant) to the operand's shape."""
    if g.type.size == x.type.size:
        return apply("reshape", g, shape=x.shape)
    return apply("broadcast_to", g, shape=x.shape)


def jvp(outputs: Sequence[Node], wrt: Sequence[Node], tangents: Sequence[Node]) -> list[Node | None]:
    """Return, for each output, its tangent when `wrt` moves along `tangents`; None where it is zero.

    What reverse mode makes of cotangents is linear in them; forward mode is the transpose of that.
    """
    seeds = [input_node(y.type, y.axis) for y in outputs]
    derivatives = vjp(outputs, seeds, wrt)
    pairs = [(g, tangent) for g, tangent in zip(derivatives, tangents, strict=True) if g is not None]
    return vjp([g for g, _ in pairs], [tangent for _, tangent in pairs], seeds)
