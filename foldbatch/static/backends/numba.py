"""How Numba computes: as NumPy does, but elementwise ops and products by weights are compiled.

Groups of elementwise ops become loops; products are those of `products` where the processor is known to them.

A loop's text is plain Python over raw memory, typed so that LLVM vectorises it: numbers of elements
are unsigned (signed ones could count from the end), constants have the dtype of their op. tanh,
sigmoid and exp are `vector_functions`; what they lack (log, sin, power, ...) stays with NumPy, whose
own loops are as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from foldbatch.engines.numba.loop_compiler import called_by, compile_levels, compile_loop
from foldbatch.engines.numba.named_loops import KINDS, TEXTS
from foldbatch.static.backends import numpy as _numpy
from foldbatch.static.graph import Node
from foldbatch.static.loops import Loop, Place, Sweep, nest
from foldbatch.static.strided import access

# What an op makes of one element of each operand; `t` is the type of its result.
EXPRESSIONS: dict[str, str] = {
    "subtract": "{0} - {1}",
    "multiply": "{0} * {1}",
    "divide": "{0} / {1}",
    "negative": "-{0}",
    "square": "{0} * {0}",
    "abs": "abs({0})",
    "sign": "{t}(1) if {0} > {t}(0) else {t}(-1) if {0} < {t}(0) else {0}",
    "sqrt": "sqrt({0})",
    "exp": "exp_{t}({0})",
    "tanh": "tanh_{t}({0})",
    "sigmoid": "sigmoid_{t}({0})",
    # the comparisons that decide are false for NaN, which must come out as it went in
    "relu": "{t}(0) if {0} < {t}(0) else {0}",
    "maximum": "{0} if ({0} >= {1}) | ({0} != {0}) else {1}",
    "minimum": "{0} if ({0} <= {1}) | ({0} != {0}) else {1}",
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "equal": "{0} == {1}",
    "where": "{1} if {0} else {2}",
}
ALONE = frozenset({"sigmoid", "where"})  # of several passes in NumPy, so one loop of their own is better


def takes(node: Node) -> bool:
    """Return whether a loop can compute a node.

    >>> from foldbatch.static import ops
    >>> from foldbatch.static.graph import input_node
    >>> from foldbatch.types import TensorType
    >>> x = input_node(TensorType((3,)))
    >>> takes(ops.tanh(x)), takes(ops.log(x)), takes(ops.softmax(x))
    (True, False, False)
    """
    known = node.op.name in EXPRESSIONS or node.op.name in ("add", "cast")
    return known and node.type.size > 0 and all(x.dtype in KINDS for x in (node, *node.inputs))


def alone(node: Node) -> bool:
    """Return whether a single node is worth a loop: NumPy would take several passes for it."""
    return node.op.name in ALONE or (node.op.name == "add" and len(node.inputs) > 2)


def spell(loop: Loop) -> str:
    """Return the text of a loop as a function ``loop(n, *buffers)``; without `n` if it has no rows.

    The first line tells the types of the arguments, which the compiler reads.
    """
    arguments = ["n"] * loop.batched + [f"x{i}" for i in range(len(loop.buffers))]
    types = ["i8"] * loop.batched + [_array(b.dtype, b.ndim, written=b.written) for b in loop.buffers]
    lines = [f"a{i} = flat(x{i})" for i in range(len(loop.buffers))]
    if len(loop.sweeps) == 1:
        lines += _sweep(loop, loop.sweeps[0], by_rows=loop.batched)
    else:
        inner = [line for sweep in loop.sweeps for line in _sweep(loop, sweep, by_rows=False)]
        lines += ["for r in range(u8(n)):", *_indented(inner)] if loop.batched else inner
    body = "\n".join(_indented(lines))
    return f"# {', '.join(types)}\ndef loop({', '.join(arguments)}):\n{body}\n"


def _array(dtype: str, ndim: int, *, written: bool) -> str:
    return f"{KINDS[dtype]}[{ndim}]{'w' if written else ''}"


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _sweep(loop: Loop, sweep: Sweep, *, by_rows: bool) -> list[str]:
    """Return a sweep over one row; over all rows if it is the only one."""
    places = sweep.places
    loops = nest(sweep.shape, places, by_rows=by_rows)
    row = loop.batched and not by_rows
    elements = [
        f"a{place.buffer}[{_number(place, strides, row=row)}]"
        for place, strides in zip(places, loops.strides, strict=True)
    ]
    is_bool = [loop.buffers[place.buffer].dtype == "bool" for place in places]  # bytes, in memory
    lines = [f"t{i} = {elements[i]}{' != 0' * is_bool[i]}" for i in range(len(sweep.loads))]
    for i, step in enumerate(sweep.operations, len(sweep.loads)):
        operands = [f"t{x}" if isinstance(x, int) else _literal(x) for x in step.operands]
        lines.append(f"t{i} = {_expression(step.node, operands)}")
    for i, (value, _) in enumerate(sweep.stores, len(sweep.loads)):
        lines.append(f"{elements[i]} = {f'u1(t{value})' if is_bool[i] else f't{value}'}")
    for i, turns in reversed(list(enumerate(loops.turns))):
        times = f"u8({turns})" if not by_rows or i else "u8(n)" if turns == 1 else f"u8(n) * u8({turns})"
        lines = [f"for j{i} in range({times}):", *_indented(lines)]
    return lines


def _number(place: Place, strides: Sequence[int], *, row: bool) -> str:
    """Return the expression of the number of an element in its buffer."""
    steps = [("r", place.row)] * row + [(f"j{i}", stride) for i, stride in enumerate(strides)]
    terms = [name if stride == 1 else f"{name} * u8({stride})" for name, stride in steps if stride]
    if place.offset or not terms:
        terms.append(f"u8({place.offset})")
    return " + ".join(terms)


def _literal(constant: Node) -> str:
    value = constant.attrs["value"].item()
    return repr(value) if constant.dtype == "bool" else f"{KINDS[constant.dtype]}({value!r})"


def _expression(node: Node, operands: Sequence[str]) -> str:
    kind = KINDS[node.dtype]
    match node.op.name:
        case "add":
            text = " + ".join(operands)
        case "cast":
            return f"{operands[0]} != 0" if kind == "b1" else f"{kind}({operands[0]})"
        case name:
            text = EXPRESSIONS[name].format(*operands, t=kind)
    # Numba widens integers; NumPy lets them wrap around
    return f"{kind}({text})" if np.issubdtype(node.dtype, np.integer) else text


COMPILED = ("linear", "sum", "softmax", "cross_entropy")  # most of them, and as one call each


def _multiplied(name: str) -> _numpy.Spelling:
    """Return the spelling of a product by a weight, or of its gradient: NumPy's, or our own product."""

    def spell(node: Node, operands: Sequence[str], out: str, rows: str) -> list[str]:
        lines = _numpy.SPELLINGS[name](node, operands, out, rows)
        if not _has_product(node):
            return lines
        ours = f"product_{KINDS[node.dtype]}("
        return [line.replace("np.matmul(", ours).replace(", out=", ", ") for line in lines]

    return spell


def _has_product(node: Node) -> bool:
    from foldbatch.engines.numba import products  # noqa: PLC0415 - it needs Numba

    vector = node.ndim + (node.axis.rank > 0) < 2
    return not vector and node.dtype in ("float32", "float64") and products.blocks() is not None


def compiles(node: Node, lines: Sequence[str]) -> bool:
    """Return whether a node's statements can be compiled as they stand: products, and moves to a buffer."""
    if node.op.name in COMPILED:
        return all(line.startswith(("product_", *(f"{name}_" for name in TEXTS))) for line in lines)
    return node.op.name in ("concat", "stack", "pad")


def _transpose(node: Node, operands: Sequence[str], out: str, rows: str) -> list[str]:
    """Spell the common case so that it costs nothing in a loop over levels."""
    if node.axis.rank == 0 and node.attrs["axes"] == (1, 0):
        return [f"{operands[0]}.T"]
    return _numpy.SPELLINGS["transpose"](node, operands, out, rows)


def _sum(node: Node, operands: Sequence[str], out: str, rows: str) -> list[str]:
    """Spell a sum over neighbouring axes of what lies side by side; of anything else it is NumPy's."""
    (x,), axes = node.inputs, node.attrs["axes"]
    first, last = min(axes, default=0), max(axes, default=0) + 1
    apart = len(axes) < last - first or not _is_whole(x) or x.type.size == 0
    if apart or node.dtype not in ("float32", "float64"):
        return _numpy.SPELLINGS["sum"](node, operands, out, rows)
    outer = [rows] * (node.axis.rank > 0) + [str(prod(x.shape[:first]))]
    middle, inner = prod(x.shape[first:last]), prod(x.shape[last:])
    left = " * ".join(outer)
    whole, sums = f"{operands[0]}.reshape({left}, {middle}, {inner})", f"{out}.reshape({left}, {inner})"
    return [f"sum_axis_{KINDS[node.dtype]}({whole}, {sums})"]


def _sum_batch(node: Node, operands: Sequence[str], out: str, rows: str) -> list[str]:
    """Spell a sum over all rows: in order, as NumPy's, whose calls cost more than few rows do."""
    (x,), size = node.inputs, node.type.size
    if node.dtype not in ("float32", "float64") or not size or not x.axis.rank or not _is_whole(x):
        return _numpy.SPELLINGS["sum_batch"](node, operands, out, rows)
    return [f"sum_axis_{KINDS[node.dtype]}({operands[0]}.reshape(1, -1, {size}), {out}.reshape(1, {size}))"]


def _softmax(node: Node, operands: Sequence[str], out: str, rows: str) -> list[str]:
    if not _is_table(node, *node.inputs):
        return _numpy.SPELLINGS["softmax"](node, operands, out, rows)
    return [f"softmax_{KINDS[node.dtype]}({operands[0]}, {out})"]


def _cross_entropy(node: Node, operands: Sequence[str], out: str, rows: str) -> list[str]:
    logits, labels = node.inputs
    fits = _is_table(logits) and labels.axis is node.axis and labels.dtype in ("int32", "int64")
    if not fits or labels.ndim or not _is_whole(labels) or logits.axis is not node.axis:
        return _numpy.SPELLINGS["cross_entropy"](node, operands, out, rows)
    return [f"cross_entropy_{KINDS[node.dtype]}_{KINDS[labels.dtype]}({', '.join(operands)}, {out})"]


def sum_rows_call(node: Node, operands: Sequence[str]) -> str:
    """Return the expression of rows summed by id: NumPy's sorting, and a compiled sum."""
    call = _numpy.sum_rows_call(node, operands)
    if node.dtype not in ("float32", "float64"):
        return call
    return f"{call[:-1]}, sum_copies_{KINDS[node.dtype]})"


def _is_table(*nodes: Node) -> bool:
    """Return whether values are a whole table with a row of floats for each call."""
    floats = all(x.dtype in ("float32", "float64") for x in nodes)
    return floats and all(x.ndim == 1 and x.axis.rank > 0 and x.type.size > 0 and _is_whole(x) for x in nodes)


def _is_whole(x: Node) -> bool:
    """Return whether a value's elements lie side by side, row by row."""
    found = access(x)
    strides = tuple(prod(x.shape[i + 1 :]) for i in range(x.ndim))
    return found.strides == strides and found.row == (x.type.size if x.axis.rank else 0)


SPELLINGS = {
    **_numpy.SPELLINGS,
    "transpose": _transpose,
    "sum": _sum,
    "sum_batch": _sum_batch,
    "softmax": _softmax,
    "cross_entropy": _cross_entropy,
    **{name: _multiplied(name) for name in ("linear", "sum_outer")},
}
GAPPED = {name: _numpy.SPELLINGS[name] for name in ("sum", "sum_batch", "softmax", "cross_entropy")}
CALLED_BY: Callable[[str], dict[str, Callable[..., None]]] = called_by
COMPILE: Callable[[str], Callable[..., None]] = compile_loop
COMPILE_LEVELS: Callable[[str, tuple[str, ...]], Callable[..., None]] = compile_levels
