"""Node, Graph: tensor expressions as immutable, interned nodes.

A *node* is one use of an *op*; equal expressions are one object, so common subexpressions and
dead code vanish by construction. A *graph* is a cut of the node DAG: its inputs may be interior
nodes, so that splitting a graph means choosing nodes, never rewriting.

Elementwise ops broadcast: an unbatched operand fits anywhere, and a call's row is repeated for
the elements of its sequence.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np

from foldbatch.errors import PACKAGE, GraphError, UnknownNameError
from foldbatch.operators import Operators, is_symbolic, unknown
from foldbatch.params.parameters import Array, Parameter
from foldbatch.static.op import CALL, OPS, UNBATCHED, Attrs, Axis, Op, fail
from foldbatch.types import TensorType, describe_value, is_masked


class _ElementShape(tuple[int, ...]):
    """The shape of each element of a list, whose first number may be taken for the list's length."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, int) and key >= 0:
            fix = "shape[-1] is of each element; give the cell the list's length as a number"
            fail("shape", "a tensor of one call", f"shape[{key}] of every element of a list", fix)
        return super().__getitem__(key)


class Node(Operators["Node"]):
    """A symbolic tensor: the result of an op. Behaves as a NumPy array of instance shape (`operators`).

    Attributes: `op`, `inputs`, `attrs`, `type`, `axis`, and `number`, which grows with every
    node made, so that sorting by it is a topological order.
    """

    __slots__ = ("__weakref__", "attrs", "axis", "inputs", "number", "op", "type")
    _numbers = itertools.count()
    __getattr__ = unknown

    def __init__(self, op: Op, inputs: tuple[Node, ...], attrs: Attrs, type: TensorType, axis: Axis) -> None:
        self.op = op
        self.inputs = inputs
        self.attrs = attrs
        self.type = type
        self.axis = axis
        self.number = next(Node._numbers)

    def __repr__(self) -> str:
        return f"<{self.op.name} {self.axis} {self.type}>"

    def __copy__(self) -> Node:
        return self  # nothing changes it

    def __deepcopy__(self, memo: object) -> Node:
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """The instance shape, without the batch axis; of a list's tensor that of each element."""
        shape, of_elements = self.type.shape, self.axis.rank > CALL.rank and is_symbolic()
        asks = of_elements and not sys._getframe(1).f_code.co_filename.startswith(
            PACKAGE
        )  # a user's function
        return _ElementShape(shape) if asks else shape

    def __len__(self) -> int:
        self._is_no_list("len", "give the cell the list's length as a number, or use ops.segment_mean")
        return super().__len__()

    def __iter__(self) -> Iterator[Node]:
        self._is_no_list("iter", "use ops.segment_sum and its like, or call a cell for each element")
        return super().__iter__()

    def __getitem__(self, key: object) -> Node:
        first = key[0] if isinstance(key, tuple) and key else key
        # slices of what is computed are parts of each element, as of gates side by side
        if isinstance(first, int | np.integer) or (self.op is INPUT and isinstance(first, slice)):
            ways = "x[..., 0] is of every element, ops.gather(x, 0) one element"
            self._is_no_list("getitem", ways)
        return super().__getitem__(key)

    def _is_no_list(self, op: str, fix: str) -> None:
        """Refuse what a user's function means of a list, where it would be done with every element."""
        if self.axis.rank > CALL.rank and is_symbolic():
            fail(op, "a tensor of one call", f"a {self.type} for every element of a list", fix)


TensorLike = Node | Parameter | Array | float | int | bool

_interned: weakref.WeakValueDictionary[tuple[Any, ...], Node] = weakref.WeakValueDictionary()


def _freeze(value: object) -> object:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return id(value) if isinstance(value, Parameter) else value


class Id(Node):
    """A node of a whole number or a flag: a user's function finds it in no set and no dict."""

    __slots__ = ()

    def __hash__(self) -> int:
        if is_symbolic():
            asking = sys._getframe(1).f_globals.get("__name__", "")
            if not asking.startswith(("foldbatch.", "weakref")):  # which look for nodes
                bool(self)  # which is refused; `id in {1, 2}` would else be false for each
        return object.__hash__(self)


def _intern(op: Op, inputs: tuple[Node, ...], attrs: Attrs, type_: TensorType, axis: Axis) -> Node:
    """Return the node of an op on these inputs: one that exists, or a new one."""
    # a node keeps what it is made of; a key that did, too, would keep the node where a parameter has cells
    frozen = tuple((name, _freeze(attrs[name])) for name in sorted(attrs))
    key = op.name, tuple(map(id, inputs)), frozen, type_, axis
    node = _interned.get(key)
    if node is None:
        node = (Node if type_.shape or type_.is_float else Id)(op, inputs, attrs, type_, axis)
        _interned[key] = node
    return node


def _no_types(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    raise AssertionError("a source has no type rule")


def _no_value(attrs: Attrs, *arrays: Array) -> Array:
    raise AssertionError("an input's value is given from outside")


INPUT = Op("input", _no_types, _no_value)
PARAMETER = Op("parameter", _no_types, lambda attrs: attrs["parameter"].value)
CONSTANT = Op("constant", _no_types, lambda attrs: attrs["value"])
SOURCES = (INPUT, PARAMETER, CONSTANT)


def input_node(type_: TensorType, axis: Axis = CALL, name: str = "x") -> Node:
    """Return a new input; two inputs are never the same node, whatever their names."""
    return (Node if type_.shape or type_.is_float else Id)(INPUT, (), {"name": name}, type_, axis)


def cotangent_node(output: Node, number: int) -> Node:
    """Return the input for the cotangent of a graph's output; equal for the same output only.

    So two cells of one graph have one backward graph, whose nodes stand in one order.
    """
    key = "cotangent", output, number
    node = _interned.get(key)
    if node is None:
        node = _interned[key] = input_node(output.type, name=f"g{number}")
    return node


def parameter_node(parameter: Parameter) -> Node:
    """Return the node of a parameter; equal for the same object only."""
    return _intern(PARAMETER, (), {"parameter": parameter}, parameter.type, UNBATCHED)


def constant(value: object, dtype: str | None = None) -> Node:
    """Return a constant, the same in every example.

    Its array is a copy in C order and native byte order, whatever the memory of `value` looks like: engines
    read it as raw memory.
    """
    if is_masked(value):
        fail("constant", "numbers without a mask", describe_value(value), "fill it first, as in x.filled(0)")
    array = np.asarray(value)
    if dtype is None and array.dtype == np.float64 and not isinstance(value, np.ndarray | np.generic):
        dtype = "float32"
    native = np.dtype(dtype or array.dtype).newbyteorder("=")
    array = np.array(array, dtype=native, order="C")
    array.setflags(write=False)
    return _intern(CONSTANT, (), {"value": array}, TensorType(array.shape, array.dtype.name), UNBATCHED)


def lift(op: str, operands: tuple[TensorLike, ...]) -> tuple[Node, ...]:
    """Turn operands into nodes; Python numbers, and arrays beside floats, take the first tensor's dtype."""
    dtype = next((x.type.dtype for x in operands if isinstance(x, Node | Parameter)), None)
    nodes: list[Node] = []
    for x in operands:
        match x:
            case Node():
                nodes.append(x)
            case Parameter():
                nodes.append(parameter_node(x))
            case bool() | int() | float():
                if isinstance(x, float) and dtype and not dtype.startswith("float"):
                    fix = "cast the tensor with ops.cast first"
                    fail(op, f"operands of one dtype ({dtype})", f"the float {x}", fix)
                if dtype == "bool" and x not in (0, 1):  # as a bool it would be true
                    fix = "cast the tensor with ops.cast first"
                    fail(op, f"operands of one dtype ({dtype})", f"the int {x}", fix)
                nodes.append(constant(x, dtype))
            case np.ndarray() | np.generic():
                floats = dtype is not None and dtype.startswith("float") and x.dtype.kind in "fiu"
                nodes.append(constant(x, dtype if floats else None))
            case _:
                numbers = isinstance(x, list | tuple) and all(isinstance(item, int | float) for item in x)
                fix = "make it an array: np.array(x, 'float32')" if numbers else ""
                if type(x).__module__ == "torch":
                    fix = "make it an array: x.detach().numpy(); what learns is a Parameter"
                if isinstance(x, str):
                    fix = "give its number; a label that is missing is None"
                if isinstance(x, Operators):  # a value of the walk
                    fix = "what a cell reads of the walk is given to it as an argument, a generator as a list"
                if x is None:
                    fix = "a cell may ask `if x is None`; else give it a tensor, as of zeros"
                fail(op, "a symbolic tensor, a parameter, an array or a number", type(x).__name__, fix)
    return tuple(nodes)


def apply(name: str, *operands: TensorLike, **attrs: object) -> Node:
    """Return the node of an op on operands, checked and interned.

    Raises:
        UnknownNameError: when there is no such op.
        GraphError: when types, dtypes or batch axes do not fit.
    """
    if name not in OPS:
        raise UnknownNameError("ops", f"one of {', '.join(sorted(OPS))}", repr(name))
    op = OPS[name]
    inputs = lift(name, operands)
    if not inputs:
        fail(name, "at least one tensor", "none")
    axes = tuple(x.axis for x in inputs)
    axis = op.axis(axes, attrs) if op.axis else _widest(name, axes)
    if op.axis is None and axis.rank == 2:
        inputs = tuple(apply("repeat", x, axis=axis) if x.axis is CALL else x for x in inputs)
    type_ = op.infer(tuple(x.type for x in inputs), attrs)
    if op.elementwise and axis.rank:
        inputs = tuple(_with_rank(x, len(type_.shape)) for x in inputs)
    return _intern(op, inputs, attrs, type_, axis)


def _widest(op: str, axes: tuple[Axis, ...]) -> Axis:
    widest = max(axes, key=lambda axis: axis.rank)
    if widest.rank == 2 and any(axis.rank == 2 and axis is not widest for axis in axes):
        fix = "make one of both: blocks by Zip, cells as a list of tuples"
        fail(op, "elements of one sequence", "elements of two sequences", fix)
    return widest


def _with_rank(x: Node, rank: int) -> Node:
    """Give a batched operand leading axes of 1, lest its batch axis meet an instance axis."""
    if x.axis is UNBATCHED or x.ndim == rank:
        return x
    return apply("reshape", x, shape=(1,) * (rank - x.ndim) + x.shape)


def matmul(a: TensorLike, b: TensorLike) -> Node:
    """Return ``a @ b`` with NumPy's meaning on instance axes; one GEMM where `b` is unbatched.

    Where a weight is a row of a table, gathered by one id for each call, no row is copied.
    """
    a, b = lift("matmul", (a, b))
    if a.ndim == 0 or b.ndim == 0:
        fail("matmul", "tensors of at least one axis", f"{a.type} and {b.type}", "multiply with * instead")
    rows = b.shape[max(b.ndim - 2, 0)]
    if a.shape[-1] != rows:
        fix = f"the last axis of the left ({a.shape[-1]}) must match the right's rows ({rows})"
        fail("matmul", "matching inner extents", f"{a.type} @ {b.type}", fix)
    if a.dtype != b.dtype or not a.type.is_float:
        fail("matmul", "float tensors of one dtype", f"{a.type} @ {b.type}", "cast with ops.cast")
    if b.axis is UNBATCHED and b.ndim == 2:
        return apply("linear", a, b)
    if a.axis is UNBATCHED and a.ndim == 2 and b.ndim == 1:
        return apply("linear", b, a.T)
    if _is_chosen(b):
        return _linear_by(a, *b.inputs)
    if _is_chosen(a) and b.ndim == 1:
        return _linear_by(b, a.inputs[0].transpose(0, 2, 1), a.inputs[1])
    if max(a.ndim, b.ndim) > 2:
        fail("matmul", "at most two axes on both sides, unless the right is a weight", f"{a.type} @ {b.type}")
    lhs = apply("reshape", a, shape=(1, *a.shape)) if a.ndim == 1 else a
    rhs = apply("reshape", b, shape=(*b.shape, 1)) if b.ndim == 1 else b
    product = apply("matmul", lhs, rhs)
    shape = a.shape[:-1] + (b.shape[-1:] if b.ndim > 1 else ())
    return product if shape == product.shape else apply("reshape", product, shape=shape)


MATRICES = 256  # of larger tables, the gradient is better kept as the few matrices that a batch reads


def _is_chosen(weight: Node) -> bool:
    """Whether a weight is one matrix of a table for each row of the batch."""
    if weight.op.name != "gather" or weight.axis is UNBATCHED:
        return False
    table, ids = weight.inputs
    return table.ndim == 3 and ids.ndim == 0 and 0 < table.shape[0] <= MATRICES


def _linear_by(x: Node, table: Node, ids: Node) -> Node:
    """Return each row times the matrix that its id chooses; both along the wider of their batch axes."""
    axis = _widest("matmul", (x.axis, ids.axis))
    x, ids = (
        node if node.axis is axis else apply("batch" if node.axis is UNBATCHED else "repeat", node, axis=axis)
        for node in (x, ids)
    )
    return apply("linear_by", x, table, ids)


def is_view(node: Node) -> bool:
    """Whether the node costs nothing to make again from its operand."""
    return node.op.view != ""


def reachable(outputs: Iterable[Node], stop: Iterable[Node] = ()) -> list[Node]:
    """Return the nodes that `outputs` depend on, operands first, not looking behind `stop`.

    They stand in the order in which they were made. Nodes that depend on parameters and constants alone stand
    before the first node that reads them: they are found again when a graph is built again, so their numbers
    tell what else the process has built.
    """
    ends = list(outputs)
    stops = set(stop)
    nodes: set[Node] = set()
    stack = list(ends)
    while stack:
        node = stack.pop()
        if node not in nodes:
            nodes.add(node)
            if node not in stops:
                stack.extend(node.inputs)
    ordered = sorted(nodes, key=attrgetter("number"))
    fixed: set[Node] = set()
    for node in ordered:
        if node not in stops and node.op is not INPUT and fixed.issuperset(node.inputs):
            fixed.add(node)
    if not fixed:
        return ordered
    placed: dict[Node, None] = {}
    for node in [node for node in ordered if node not in fixed] + ends:
        stack = [node]
        while stack:  # fixed operands first, which may be deep
            waiting = [x for x in reversed(stack[-1].inputs) if x in fixed and x not in placed]
            if waiting and stack[-1] not in stops:
                stack += waiting
            else:
                placed[stack.pop()] = None
    return list(placed)


def substitute(outputs: Iterable[Node], replacement: dict[Node, Node]) -> list[Node]:
    """Return `outputs` with nodes replaced wherever they are read; untouched nodes stay themselves."""
    outputs = list(outputs)
    replaced = dict(replacement)
    for node in reachable(outputs, replacement):
        if node in replaced:
            continue
        inputs = tuple(replaced[x] for x in node.inputs)
        replaced[node] = node if inputs == node.inputs else apply(node.op.name, *inputs, **node.attrs)
    return [replaced[node] for node in outputs]


def renewed(
    inputs: Sequence[Node], outputs: Iterable[Node], replacement: Mapping[Node, Node]
) -> tuple[list[Node], list[Node]]:
    """Return a copy of a graph, inputs and outputs, whose nodes are made in the order of the originals.

    Its inputs are new, so no node that depends on them was made before: the order in which the copy's nodes
    are numbered follows from the graph alone, whatever other models have built. Parameters and constants are
    found as they are, but for those that `replacement` has something else for.
    """
    copies = dict(replacement)
    copies |= {x: input_node(x.type, x.axis, x.attrs.get("name", "x")) for x in inputs if x not in copies}
    return [copies[x] for x in inputs], substitute(outputs, copies)


@dataclass(frozen=True, eq=False)
class Graph:
    """A cut of the node DAG: the nodes that compute `outputs` from `inputs`.

    `inputs` may be interior nodes of a larger graph; parameters and constants need no mention.
    """

    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every node between the cut's ends, operands first, inputs left out.

        Sources stand where they are first read: their numbers tell what was built before.
        """
        placed: dict[Node, None] = dict.fromkeys(self.inputs)
        for node in reachable(self.outputs, self.inputs):
            if node not in placed and node.op not in SOURCES:
                placed.update(dict.fromkeys((*node.inputs, node)))
        placed.update(dict.fromkeys(self.outputs))
        return tuple(placed)[len(self.inputs) :]

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters it reads, in order of first use."""
        return tuple(node.attrs["parameter"] for node in self.nodes if node.op is PARAMETER)

    @property
    def computes(self) -> bool:
        """Whether it does more than pass on inputs and constants."""
        return any(node.op not in SOURCES for node in self.nodes)


def verify(graph: Graph, where: str = "graph") -> Graph:
    """Return the graph, having checked that it is complete and well typed.

    Raises:
        AssertionError: an input is missing or given twice, or a node's type or axis is not what
            its rule yields; the message names `where` (the pass) and prints the graph.
    """
    assert len(set(graph.inputs)) == len(graph.inputs), f"{where}: an input is given twice"
    inputs = set(graph.inputs)
    for node in reachable(graph.outputs, graph.inputs):
        if node in inputs:
            continue
        assert node.op is not INPUT, f"{where}: {node} is read but not an input of\n{_text(graph)}"
        if node.op in SOURCES:
            continue
        try:
            type_, axis = _infer(node)
        except GraphError as error:
            raise AssertionError(f"{where}: {error}, in\n{_text(graph)}") from error
        name = f"{where}: {node.op.name}"
        assert type_ == node.type, f"{name} yields {type_}, not {node.type}, in\n{_text(graph)}"
        assert axis is node.axis, f"{name} runs along {axis}, not {node.axis}, in\n{_text(graph)}"
        assert all(x.number < node.number for x in node.inputs), f"{where}: {node} precedes its operands"
    return graph


def _infer(node: Node) -> tuple[TensorType, Axis]:
    """Return the node's type and axis according to the rules of its op."""
    axes = tuple(x.axis for x in node.inputs)
    type_ = node.op.infer(tuple(x.type for x in node.inputs), node.attrs)
    if node.op.axis:
        return type_, node.op.axis(axes, node.attrs)
    batched = {axis for axis in axes if axis is not UNBATCHED}
    assert len(batched) <= 1, f"{node.op.name} mixes the axes {sorted(map(str, batched))}"
    if node.op.elementwise:
        ranks = {x.ndim for x in node.inputs if x.axis is not UNBATCHED}
        alike = not batched or ranks == {len(type_.shape)}
        assert alike, f"{node.op.name} has batched operands of ranks {ranks}"
    return type_, batched.pop() if batched else UNBATCHED


def _text(graph: Graph) -> str:
    return f"{len(graph.nodes)} nodes to {[str(node.type) for node in graph.outputs]}"


def slice_of(x: Node, axis: int, start: int, stop: int) -> Node:
    """Return a slice of a tensor, or the tensor where that is all of it."""
    return x if (start, stop) == (0, x.shape[axis]) else apply("slice", x, axis=axis, start=start, stop=stop)
