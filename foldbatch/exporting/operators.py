"""Operators: what each op of a cell is in ONNX, one paragraph each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx

from foldbatch.params.parameters import Array
from foldbatch.static.graph import CONSTANT, PARAMETER, Graph, Node
from foldbatch.static.op import CALL, UNBATCHED, Axis


@dataclass(slots=True)
class OnnxWriter:
    """The nodes of one graph. The body of a loop has a writer of its own, which shares the constants."""

    constants: dict[str, Array] = field(default_factory=dict)  # the arrays of the whole model, by name
    # the name of each constant, by dtype, shape and bytes
    names: dict[tuple[str, tuple[int, ...], bytes], str] = field(default_factory=dict)
    # how many names have been given, over all writers of a model
    used: list[int] = field(default_factory=lambda: [0])
    nodes: list[Any] = field(default_factory=list)  # the nodes of this graph

    def body(self) -> OnnxWriter:
        """Return the writer of a graph inside this one."""
        return OnnxWriter(self.constants, self.names, self.used)

    def name(self, stem: str) -> str:
        """Return a name that no other tensor has."""
        self.used[0] += 1
        return f"{stem}_{self.used[0]}"

    def constant(self, value: Any, dtype: str | None = None) -> str:
        """Return the name of a constant; equal ones have one name. Python's numbers are int64."""
        array = np.ascontiguousarray(np.asarray(value, dtype)).reshape(np.shape(value))
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.names:
            self.names[key] = self.name("constant")
            self.constants[self.names[key]] = array
        return self.names[key]

    def add(self, op: str, *inputs: str, number: int = 0, **attributes: object) -> str:
        """Add a node, and return the name of its last result, before which so many are left unused."""
        result = self.name(op)
        results = [*(f"{result}_{i}" for i in range(number)), result]
        self.nodes.append(onnx.helper.make_node(op, inputs, results, result, **attributes))
        return result

    def count(self, x: str) -> str:
        """Return the number of rows of a tensor: ``[1] int64``."""
        return self.add("Shape", x, start=0, end=1)

    def extended(self, count: str, shape: Sequence[int]) -> str:
        """Return the shape ``[count, *shape]``: ``[1 + axes] int64``."""
        return self.add("Concat", count, self.constant([*shape], "int64"), axis=0) if shape else count

    def rows(self, x: str, start: str, stop: str) -> str:
        """Return the rows of a tensor from a start to a stop; both are ``[1] int64``."""
        return self.add("Slice", x, start, stop, self.constant([0], "int64"))


@dataclass(frozen=True, slots=True)
class OnnxScope:
    """Where the nodes of a cell are written."""

    writer: OnnxWriter  # of the graph
    counts: Mapping[Axis, str]  # the number of rows along each batch axis: ``[1] int64``
    owners: Mapping[Axis, str]  # for each ragged axis, the call of each element: ``[m] int64``, growing

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node of one result, and return the result's name."""
        return self.writer.add(op, *inputs, **attributes)

    def constant(self, value: object, dtype: str | None = None) -> str:
        """Return the name of a constant."""
        return self.writer.constant(value, dtype)

    def spread(self, x: str, shape: Sequence[int], axis: Axis) -> str:
        """Return an unbatched tensor once for every row of a batch axis."""
        return self.add("Expand", x, self.writer.extended(self.counts[axis], shape))

    def along(self, x: str, source: Node, axis: Axis) -> str:
        """Return a tensor with rows along an axis: as it is, unless it is unbatched."""
        return self.spread(x, source.shape, axis) if source.axis is UNBATCHED is not axis else x

    def reshape(self, x: str, shape: Sequence[int], axis: Axis) -> str:
        """Return a tensor in another instance shape; its rows stay."""
        if axis is UNBATCHED:
            return self.add("Reshape", x, self.constant([*shape], "int64"), allowzero=1)
        if 0 in shape:
            wanted = self.writer.extended(self.writer.count(x), shape)
            return self.add("Reshape", x, wanted, allowzero=1)
        return self.add("Reshape", x, self.constant([0, *shape], "int64"))  # 0: as many rows as before


def first_axis(node: Node) -> int:
    """Return the number of a tensor's first instance axis: 1 if it has rows, else 0."""
    return int(node.axis is not UNBATCHED)


Translation: TypeAlias = Callable[..., str]
TRANSLATIONS: dict[str, Translation] = {}


def translation(function: Translation) -> Translation:
    """Enter a paragraph into the table; its name is that of the op, after an underscore."""
    TRANSLATIONS[function.__name__.removeprefix("_")] = function
    return function


def _by_name(name: str) -> Translation:
    """Return the translation of an op that ONNX has under another name."""
    return lambda at, node, *xs: at.add(name, *xs)


def onnx_type(dtype: str) -> int:
    """Return ONNX's number of a dtype."""
    return int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


BY_NAME = {
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "negative": "Neg",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "abs": "Abs",
    "sign": "Sign",
    "floor": "Floor",
    "round": "Round",
    "stop_gradient": "Identity",
    "tanh": "Tanh",
    "sin": "Sin",
    "cos": "Cos",
    "sigmoid": "Sigmoid",
    "relu": "Relu",
    "maximum": "Max",
    "minimum": "Min",
    "equal": "Equal",
}
TRANSLATIONS |= {op: _by_name(onnx_name) for op, onnx_name in BY_NAME.items()}


@translation
def _add(at: OnnxScope, node: Node, *xs: str) -> str:
    total = xs[0] if len(xs) > 1 else at.add("Identity", xs[0])
    for x in xs[1:]:
        total = at.add("Add", total, x)
    return total


@translation
def _softplus(at: OnnxScope, node: Node, x: str) -> str:
    below = at.add("Exp", at.add("Neg", at.add("Abs", x)))  # which does not overflow
    return at.add("Add", at.add("Relu", x), at.add("Log", at.add("Add", at.constant(1, node.dtype), below)))


def _floored(at: OnnxScope, node: Node, x: str, y: str) -> tuple[str, str]:
    """Return the remainder of truncated division, and whether floored division adds `y` to it."""
    zero, remainder = at.constant(0, node.dtype), at.add("Mod", x, y, fmod=1)
    apart = at.add("Xor", at.add("Less", remainder, zero), at.add("Less", y, zero))
    return remainder, at.add("And", at.add("Not", at.add("Equal", remainder, zero)), apart)


def _zero_like(at: OnnxScope, node: Node, sign: str) -> str:
    zero, below = at.constant(0, node.dtype), at.constant(-0.0, node.dtype)
    return at.add("Where", at.add("Less", sign, zero), below, zero)


@translation
def _mod(at: OnnxScope, node: Node, x: str, y: str) -> str:
    remainder, adds = _floored(at, node, x, y)
    exact = at.add("Equal", remainder, at.constant(0, node.dtype))
    floored = at.add("Where", adds, at.add("Add", remainder, y), remainder)
    return at.add("Where", exact, _zero_like(at, node, y), floored)


@translation
def _floor_divide(at: OnnxScope, node: Node, x: str, y: str) -> str:
    """Write floored division as NumPy's, from the remainder, with its signs of zeros."""
    zero, unit = at.constant(0, node.dtype), at.constant(1, node.dtype)
    remainder, subtracts = _floored(at, node, x, y)
    near = at.add("Div", at.add("Sub", x, remainder), y)
    near = at.add("Where", subtracts, at.add("Sub", near, unit), near)
    floor = at.add("Floor", near)
    above = at.add("Greater", at.add("Sub", near, floor), at.constant(0.5, node.dtype))
    floor = at.add("Where", above, at.add("Add", floor, unit), floor)
    quotient = at.add("Div", x, y)
    small = at.add("Mul", quotient, zero)  # the zero that the exact quotient is rounded down to
    floor = at.add("Where", at.add("Equal", near, zero), small, floor)
    return at.add("Where", at.add("Equal", y, zero), quotient, floor)


@translation
def _where(at: OnnxScope, node: Node, condition: str, a: str, b: str) -> str:
    if node.dtype != "bool":
        return at.add("Where", condition, a, b)
    otherwise = at.add("And", at.add("Not", condition), b)
    return at.add("Or", at.add("And", condition, a), otherwise)


def _compared(name: str) -> Translation:
    """Return the translation of a comparison, which casts bools first, as ONNX takes none."""

    def compared(at: OnnxScope, node: Node, a: str, b: str) -> str:
        if node.inputs[0].dtype == "bool":  # which these do not take
            a, b = (at.add("Cast", x, to=onnx_type("int32")) for x in (a, b))
        return at.add(name, a, b)

    return compared


TRANSLATIONS |= {"less": _compared("Less"), "less_equal": _compared("LessOrEqual")}


@translation
def _cast(at: OnnxScope, node: Node, x: str) -> str:
    """Write a cast; from floats to integers it saturates, and NaN becomes 0."""
    source, to = node.inputs[0].dtype, onnx_type(node.dtype)
    if not source.startswith("float") or not node.dtype.startswith("int"):
        return at.add("Cast", x, to=to)
    limits = np.iinfo(node.dtype)  # beyond these a runtime may do as it likes
    high = np.nextafter(np.array(-float(limits.min), source), np.array(0, source))
    number = at.add("Where", at.add("IsNaN", x), at.constant(0, source), x)
    inside = at.add("Clip", number, at.constant(limits.min, source), at.constant(high))
    above = at.add("GreaterOrEqual", number, at.constant(-float(limits.min), source))
    return at.add("Where", above, at.constant(limits.max, node.dtype), at.add("Cast", inside, to=to))


OF_GRADIENTS = "only graphs of gradients have it"
REFUSED = {
    "random": "it draws random numbers",
    "sum_batch": OF_GRADIENTS,
    "sum_outer": OF_GRADIENTS,
    "sum_outer_by": OF_GRADIENTS,
    "sum_rows": OF_GRADIENTS,
    "when_training": "the graph of inference has one of its operands instead",
}
LAST = np.iinfo(np.int64).min  # where a slice that runs backwards ends, to hold the first element


@translation
def _transpose(at: OnnxScope, node: Node, x: str) -> str:
    first = first_axis(node)
    return at.add("Transpose", x, perm=[*range(first), *(first + axis for axis in node.attrs["axes"])])


def _section(at: OnnxScope, x: str, axis: int, start: int, stop: int, step: int = 1) -> str:
    return at.add("Slice", x, *(at.constant([number], "int64") for number in (start, stop, axis, step)))


@translation
def _slice(at: OnnxScope, node: Node, x: str) -> str:
    axis, start, stop = (node.attrs[name] for name in ("axis", "start", "stop"))
    return _section(at, x, first_axis(node) + axis, start, stop)


@translation
def _pad(at: OnnxScope, node: Node, x: str) -> str:
    width = [0] * (2 * (first_axis(node) + node.ndim))
    axis = first_axis(node) + node.attrs["axis"]
    width[axis], width[axis + len(width) // 2] = node.attrs["before"], node.attrs["after"]
    return at.add("Pad", x, at.constant(width, "int64"))


@translation
def _concat(at: OnnxScope, node: Node, *xs: str) -> str:
    parts = [at.along(x, source, node.axis) for x, source in zip(xs, node.inputs, strict=True)]
    return at.add("Concat", *parts, axis=first_axis(node) + node.attrs["axis"])


@translation
def _broadcast_to(at: OnnxScope, node: Node, x: str) -> str:
    source = node.inputs[0]
    aligned = at.reshape(x, (1,) * (node.ndim - source.ndim) + source.shape, source.axis)
    return at.add("Expand", aligned, at.constant([1] * first_axis(node) + [*node.shape], "int64"))


def _places(at: OnnxScope, node: Node, axes: tuple[int, ...]) -> str:
    return at.constant([first_axis(node) + axis for axis in axes], "int64")


@translation
def _one_hot(at: OnnxScope, node: Node, x: str) -> str:
    column = at.add("Unsqueeze", x, at.constant([-1], "int64"))
    numbers = at.constant(np.arange(node.attrs["size"]), node.inputs[0].dtype)
    return at.add("Cast", at.add("Equal", column, numbers), to=onnx_type(node.dtype))


def _top_and_rest(at: OnnxScope, node: Node, x: str, place: int) -> tuple[str, str]:
    """Return the maximum along an axis, and logsumexp(x) less that, as `ops.reduce.top_and_rest`.

    Runtimes' own functions of this kind may leave NaN out.
    """
    axes = at.constant([place], "int64")
    top = at.add("ReduceMax", x, axes, keepdims=1)
    below = at.add("Where", at.add("Equal", x, top), at.constant(0, node.dtype), at.add("Sub", x, top))
    return top, at.add("Log", at.add("ReduceSum", at.add("Exp", below), axes, keepdims=1))


def _log_chances(at: OnnxScope, node: Node, x: str, place: int) -> str:
    top, below = _top_and_rest(at, node, x, place)
    return at.add("Sub", at.add("Sub", x, top), below)


@translation
def _logsumexp(at: OnnxScope, node: Node, x: str) -> str:
    axis = first_axis(node) + node.attrs["axis"]
    return at.add("Squeeze", at.add("Add", *_top_and_rest(at, node, x, axis)), at.constant([axis], "int64"))


@translation
def _pick(at: OnnxScope, node: Node, lines: str, label: str) -> str:
    return _picked(at, node, at.along(lines, node.inputs[0], node.axis), label)


def _picked(at: OnnxScope, node: Node, rows: str, label: str) -> str:
    """Return the element of each line that a label chooses; labels are the second operand of a node."""
    last, labels = at.constant([-1], "int64"), at.along(label, node.inputs[1], node.axis)
    place = at.add("Unsqueeze", at.add("Cast", labels, to=onnx_type("int64")), last)
    return at.add("Squeeze", at.add("GatherElements", rows, place, axis=-1), last)


@translation
def _cross_entropy(at: OnnxScope, node: Node, logits: str, label: str) -> str:
    chances = _log_chances(at, node, at.along(logits, node.inputs[0], node.axis), -1)
    return at.add("Neg", _picked(at, node, chances, label))


@translation
def _order(at: OnnxScope, node: Node, x: str) -> str:
    """Put NaN, which runtimes leave anywhere, last in a stable order, or first, once others are in theirs."""
    (source,), largest = node.inputs, int(node.attrs["descending"])
    every, count = (at.constant([n], "int64") for n in (source.shape[-1], node.attrs["count"]))
    if not source.type.is_float:
        return at.add("TopK", x, count, axis=-1, largest=largest, number=1)
    unlike = at.add("Not", at.add("Equal", x, x))
    numbers = at.add("Where", unlike, at.constant(np.inf, source.dtype), x)
    order = at.add("TopK", numbers, every, axis=-1, largest=largest, number=1)
    unlike = at.add("GatherElements", at.add("Cast", unlike, to=onnx_type("int32")), order, axis=-1)
    then = at.add("TopK", unlike, count, axis=-1, largest=largest, number=1)
    return at.add("GatherElements", order, then, axis=-1)


@translation
def _linear_by(at: OnnxScope, node: Node, x: str, table: str, ids: str) -> str:
    source = node.inputs[0]
    matrix = at.reshape(x, (source.type.size // max(source.shape[-1], 1), source.shape[-1]), source.axis)
    product = at.add("MatMul", matrix, at.add("Gather", table, ids, axis=0))
    return at.reshape(product, node.shape, node.axis)


def _scattered(at: OnnxScope, source: Node, x: str, start: object, reduction: str) -> str:
    """Return, for each call, a number to start from and the elements of its sequence, reduced."""
    rows = at.spread(at.constant(np.full(source.shape, start, source.dtype)), source.shape, CALL)
    places = at.add("Unsqueeze", at.owners[source.axis], at.constant([1], "int64"))
    return at.add("ScatterND", rows, places, x, reduction=reduction)


def _of_call(at: OnnxScope, source: Node, rows: str) -> str:
    return at.add("Gather", rows, at.owners[source.axis], axis=0)


def _least(dtype: str) -> Any:
    return -np.inf if dtype.startswith("float") else np.iinfo(dtype).min


def _lengths(at: OnnxScope, source: Node) -> str:
    units = at.add("Expand", at.constant(1, "int64"), at.counts[source.axis])
    none = at.add("Expand", at.constant(0, "int64"), at.counts[CALL])
    places = at.add("Unsqueeze", at.owners[source.axis], at.constant([1], "int64"))
    return at.add("ScatterND", none, places, units, reduction="add")


def _positions(at: OnnxScope, source: Node) -> str:
    owners, zero = at.owners[source.axis], at.constant(0, "int64")
    starts = at.add("CumSum", _lengths(at, source), zero, exclusive=1)
    units = at.add("Expand", at.constant(1, "int64"), at.counts[source.axis])
    return at.add("Sub", at.add("CumSum", units, zero, exclusive=1), at.add("Gather", starts, owners, axis=0))


@translation
def _segment_max(at: OnnxScope, node: Node, x: str) -> str:
    """Write the maximum of each call's elements; of no elements it is 0."""
    source, least = node.inputs[0], _least(node.dtype)
    return _or_zero(at, source, _scattered(at, source, x, least, "max"))


@translation
def _segment_is_max(at: OnnxScope, node: Node, x: str) -> str:
    """Write, for each element, whether it is the first that is its call's maximum."""
    source = node.inputs[0]
    position = at.reshape(_positions(at, source), (1,) * source.ndim, source.axis)
    top = _of_call(at, source, _scattered(at, source, x, _least(source.dtype), "max"))
    far = at.constant(np.iinfo("int64").max)
    candidates = at.add("Where", at.add("Equal", x, top), position, far)
    places = at.add("Unsqueeze", at.owners[source.axis], at.constant([1], "int64"))
    start = at.spread(far, source.shape, CALL)
    first = at.add("ScatterND", start, places, candidates, reduction="min")
    return at.add("Equal", position, _of_call(at, source, first))


@translation
def _segment_position(at: OnnxScope, node: Node, x: str) -> str:
    position = at.reshape(_positions(at, node.inputs[0]), (1,) * node.ndim, node.axis)
    return at.add("Expand", position, at.constant([1, *node.shape], "int64"))


@translation
def _segment_softmax(at: OnnxScope, node: Node, x: str) -> str:
    source = node.inputs[0]
    top = _of_call(at, source, _scattered(at, source, x, -np.inf, "max"))
    above = at.add("Exp", at.add("Sub", x, top))
    return at.add("Div", above, _of_call(at, source, _scattered(at, source, above, 0, "add")))


def _remainder_of_call(at: OnnxScope, source: Node, x: str, top: str) -> str:
    """Return, for each call, logsumexp of its elements less the greatest, `top` of each element."""
    below = at.add("Where", at.add("Equal", x, top), at.constant(0, source.dtype), at.add("Sub", x, top))
    return at.add("Log", _scattered(at, source, at.add("Exp", below), 0, "add"))


@translation
def _segment_log_softmax(at: OnnxScope, node: Node, x: str) -> str:
    source = node.inputs[0]
    top = _of_call(at, source, _scattered(at, source, x, -np.inf, "max"))
    remainder = _of_call(at, source, _remainder_of_call(at, source, x, top))
    return at.add("Sub", at.add("Sub", x, top), remainder)


@translation
def _segment_logsumexp(at: OnnxScope, node: Node, x: str) -> str:
    source = node.inputs[0]
    tops = _scattered(at, source, x, -np.inf, "max")
    remainder = _remainder_of_call(at, source, x, _of_call(at, source, tops))
    return _or_zero(at, source, at.add("Add", tops, remainder))


def _or_zero(at: OnnxScope, source: Node, rows: str) -> str:
    """Return the rows that calls reduced their sequences to, and 0 where a sequence is empty."""
    lengths = at.reshape(_lengths(at, source), (1,) * source.ndim, CALL)
    return at.add(
        "Where", at.add("Equal", lengths, at.constant(0, "int64")), at.constant(0, source.dtype), rows
    )


@translation
def _segment_spread(at: OnnxScope, node: Node, *operands: str) -> str:
    pairs = zip(operands[::2], operands[1::2], strict=True)
    return at.add("Sum", *[_times(at, node, a, _of_call(at, node.inputs[0], x)) for a, x in pairs])


@translation
def _segment_dot(at: OnnxScope, node: Node, x: str, q: str) -> str:
    products = at.add("Mul", x, _of_call(at, node.inputs[0], q))
    return at.add("ReduceSum", products, at.constant([-1], "int64"), keepdims=0)


def _times(at: OnnxScope, node: Node, a: str, x: str) -> str:
    return at.add("Mul", at.reshape(a, (*node.shape[:-1], 1), node.inputs[0].axis), x)


# what is said in a line
TRANSLATIONS |= {
    "square": lambda at, node, x: at.add("Mul", x, x),
    "power": lambda at, node, x: at.add("Pow", x, at.constant(node.attrs["exponent"], node.dtype)),
    "reshape": lambda at, node, x: at.reshape(x, node.shape, node.axis),
    "flip": lambda at, node, x: _section(at, x, first_axis(node) + node.attrs["axis"], -1, LAST, -1),
    "sum": lambda at, node, x: at.add("ReduceSum", x, _places(at, node, node.attrs["axes"]), keepdims=0),
    "max": lambda at, node, x: at.add("ReduceMax", x, _places(at, node, (node.attrs["axis"],)), keepdims=0),
    "argmax": lambda at, node, x: at.add("ArgMax", x, axis=first_axis(node) + node.attrs["axis"], keepdims=0),
    "softmax": lambda at, node, x: at.add("Softmax", x, axis=first_axis(node) + node.attrs["axis"]),
    "log_softmax": lambda at, node, x: _log_chances(at, node, x, first_axis(node) + node.attrs["axis"]),
    "linear": lambda at, node, x, weight: at.add("MatMul", x, weight),
    "matmul": lambda at, node, a, b: at.add("MatMul", a, b),
    "segment_check": lambda at, node, code: code,  # where a list has no such element, `gather` yields 0
    "gather": lambda at, node, table, ids: at.add("Gather", table, ids, axis=0),
    "batch": lambda at, node, x: at.spread(x, node.shape, node.axis),
    "repeat": lambda at, node, x: at.add("Gather", x, at.owners[node.axis], axis=0),
    "segment_sum": lambda at, node, x: _scattered(at, node.inputs[0], x, 0, "add"),
    "segment_mix": lambda at, node, a, x: _scattered(at, node.inputs[1], _times(at, node, a, x), 0, "add"),
}


def write(at: OnnxScope, graph: Graph, names: Mapping[Node, str]) -> list[str]:
    """Write the nodes of a graph, and return the names of its outputs, each with rows.

    What depends on parameters and constants alone is computed here, and becomes a constant.
    """
    name_of, folded = dict(names), dict[Node, Array]()
    for node in graph.nodes:
        if node.op is PARAMETER:
            folded[node] = node.attrs["parameter"].value
        elif node.op is CONSTANT:
            folded[node] = node.attrs["value"]
        elif all(x in folded for x in node.inputs) and node.axis is UNBATCHED:
            value = node.op.evaluate(node.attrs, *(folded[x] for x in node.inputs))
            folded[node] = np.asarray(value, node.dtype)
        else:
            for x in node.inputs:
                if x not in name_of:
                    name_of[x] = at.constant(folded[x])
            name_of[node] = TRANSLATIONS[node.op.name](at, node, *(name_of[x] for x in node.inputs))
    results = []
    for node in graph.outputs:
        if node not in name_of:
            name_of[node] = at.spread(at.constant(folded[node]), node.shape, CALL)
        results.append(name_of[node])
    return results
