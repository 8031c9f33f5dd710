"""What a walk means, said a second time: its calls are computed at once, one example at a time, in float64.

Random walks call what stands here: cells, ops, layers, losses, metrics and data. Either foldbatch's own are called, or,
in `meaning`, an interpreter. That shares with the package only the interpreter of graphs, which applies the bodies of
cells; how arguments are read, which tensors a structure holds, what a call yields and what is collected are its own, and
ops outside of cells are NumPy's. It knows inference only: dropout drops nothing.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

import foldbatch as fb
from foldbatch.operators import in_function, is_symbolic
from foldbatch.params.parameters import Parameter
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, Node, input_node, lift, reachable
from foldbatch.static.op import ragged
from foldbatch.static.ops.random import KEY
from foldbatch.static.passes.simplify import in_phase
from foldbatch.types import VOID, TensorType
from tests.oracle import WALKS, Meaning, apply
from tests.oracle import plain as plain_of_block
from tests.oracle.values import Given, Listed, as_object, type_of_value

NUMBERS = {bool: "bool", int: "int32", float: "float32"}  # what Python's numbers are read as
ARRAYS = {
    "float64": "float32",
    "int8": "int32",
    "uint8": "int32",
}  # what arrays are read as, if not annotated


class Exact:
    """A value of a walk: an array, its floats in float64, and the dtype that it is declared to have."""

    def __init__(self, array: Any, dtype: str) -> None:
        self.array = np.asarray(array, "float64" if dtype.startswith("float") else dtype)
        self.dtype = dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def __add__(self, other: Any) -> Exact:
        return Exact(self.array + plain(other), self.dtype)

    def __radd__(self, other: Any) -> Exact:
        return Exact(plain(other) + self.array, self.dtype)

    def __sub__(self, other: Any) -> Exact:
        return Exact(self.array - plain(other), self.dtype)

    def __rsub__(self, other: Any) -> Exact:
        return Exact(plain(other) - self.array, self.dtype)

    def __mul__(self, other: Any) -> Exact:
        return Exact(self.array * plain(other), self.dtype)

    def __rmul__(self, other: Any) -> Exact:
        return Exact(plain(other) * self.array, self.dtype)

    def __truediv__(self, other: Any) -> Exact:
        return Exact(self.array / plain(other), self.dtype)

    def __matmul__(self, other: Any) -> Exact:
        return Exact(self.array @ plain(other), self.dtype)

    def __pow__(self, other: Any) -> Exact:
        return Exact(self.array**other, self.dtype)

    def __neg__(self) -> Exact:
        return Exact(-self.array, self.dtype)

    def __lt__(self, other: Any) -> Exact:
        return Exact(self.array < plain(other), "bool")

    def __gt__(self, other: Any) -> Exact:
        return Exact(self.array > plain(other), "bool")

    def __getitem__(self, key: Any) -> Exact:
        return Exact(self.array[key], self.dtype)

    def __iter__(self) -> Iterator[Exact]:
        return iter([self[i] for i in range(len(self.array))])


def plain(x: Any) -> Any:
    return x.array if isinstance(x, Exact) else x.value if isinstance(x, Parameter) else x


def _softmax(x: Any) -> Any:
    shifted = np.exp(x - x.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def _entropy(logits: Any, label: Any) -> Any:
    return -np.log(_softmax(logits)[int(label)])


def _same(function: Callable[..., Any], dtype: str | None = None) -> Callable[..., Any]:
    """Return a function of values that NumPy's function of arrays makes; by default the dtype is the first one's."""

    def applied(*xs: Any, **options: Any) -> Any:
        first = next(x for x in xs if isinstance(x, Exact))
        return Exact(function(*map(plain, xs), **options), dtype or first.dtype)

    return applied


def _of_several(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda xs, **options: Exact(function([plain(x) for x in xs], **options), xs[0].dtype)


def _chosen(where: Any, a: Any, b: Any) -> Exact:
    found = np.where(plain(where), plain(a), plain(b))
    return Exact(found, next((x.dtype for x in (a, b) if isinstance(x, Exact)), found.dtype.name))


EXACTLY = SimpleNamespace(
    tanh=_same(np.tanh),
    sigmoid=_same(lambda x: 1 / (1 + np.exp(-x))),
    square=_same(np.square),
    exp=_same(np.exp),
    sum=_same(np.sum),
    mean=_same(np.mean),
    softmax=lambda x, axis: _same(_softmax)(x),
    reshape=_same(lambda x, shape: x.reshape(shape)),
    transpose=_same(np.transpose),
    minimum=_same(np.minimum),
    maximum=_same(np.maximum),
    add=_same(np.add),
    multiply=_same(np.multiply),
    matmul=_same(np.matmul),
    less=_same(np.less, "bool"),
    argmax=_same(np.argmax, "int64"),
    cast=lambda x, dtype: Exact(x.array, dtype),
    where=_chosen,
    cross_entropy=lambda x, label: None if label is None else _same(_entropy)(x, label),
    gather=lambda table, ids: Exact(plain(table)[plain(ids)], "float64"),
    concat=_of_several(np.concatenate),
    stack=_of_several(np.stack),
    segment_sum=_of_several(lambda xs: np.sum(xs, 0)),
    segment_mean=_of_several(lambda xs: np.mean(xs, 0)),
)


@dataclass
class Tag:
    """An object that a cell is given."""

    object: Any


@dataclass(eq=False)
class Interpreter:
    """Computes the calls of one example.

    Attributes:
        found: what was collected so far.
        known: names of parameters by body, and what bodies of cells made of symbols, by body and structure.
    """

    known: dict[Any, Any]
    found: Meaning = field(default_factory=Meaning)
    inside: list[Any] = field(default_factory=list)  # losses and metrics of the body that runs

    def cell(self, body: Callable[..., Any], *args: Any, **static: Any) -> Any:
        if is_symbolic():
            return body(*args, **static)
        if body not in self.known:
            self.known[body] = [*inspect.signature(body).parameters]
        names = self.known[body]
        arrays: list[Any] = []
        objects: list[Any] = []
        hints = getattr(body, "__annotations__", {})
        forms = [_form(x, hints.get(name), arrays, objects) for name, x in zip(names, args, strict=False)]
        key = body, repr(forms), repr(sorted(static.items()))
        if key not in self.known:
            self.known[key] = self._applied(body, forms, static)
        graph, (result, asides) = self.known[key]
        found = iter(evaluate(graph, [*arrays, *([np.int64(0)] * (len(graph.inputs) - len(arrays)))]))
        outputs = [Exact(next(found), node.dtype) for node in graph.outputs]
        for kind, name, label, place in asides:
            if kind == "loss":
                self.found.loss += float(outputs[place].array)
            else:
                given = objects[label] if label is not None else None
                self.found.metrics[name].append((_as_declared(outputs[place]), given))
        return _filled(result, outputs)

    def _applied(self, body: Callable[..., Any], forms: list[Any], static: dict[str, Any]) -> Any:
        """Apply a body to symbols; return the graph, the result with numbers for nodes, and asides."""
        inputs: list[Node] = []
        numbers = iter(range(1000))
        symbols = [_symbols(form, inputs, numbers) for form in forms]
        self.inside.append([])
        try:
            with in_function():
                made = body(*symbols, **static)
        finally:
            asides = self.inside.pop()
        ends: list[Node] = []
        result = _numbered(made, ends)
        places = [(kind, name, label, _numbered(node, ends)) for kind, name, label, node in asides]
        drawn = [KEY] if KEY in reachable(ends, {*inputs, KEY}) else []
        graph = in_phase(Graph((*inputs, *drawn), tuple(ends)), training=False)
        return graph, (result, [(kind, n, label, at.at) for kind, n, label, at in places])

    def loss(self, value: Any, name: str, weight: float) -> None:
        if value is None:
            return
        if self.inside:
            self.inside[-1].append(("loss", name, None, value * weight))
        else:
            self.found.loss += float(value.array) * weight

    def metric(self, name: str, value: Any, label: Any) -> None:
        if value is None:
            return
        if self.inside:
            self.inside[-1].append(("metric", name, label.object if label is not None else None, value))
        else:
            value = value if isinstance(value, Exact) else self.tensor(value, None)
            self.found.metrics[name].append((_as_declared(value), label))

    def tensor(self, values: Any, dtype: str | None) -> Exact:
        if isinstance(values, Exact):
            return Exact(values.array, dtype or values.dtype)
        if dtype is None:
            kind = np.asarray(values).dtype
            dtype = str({"f": "float32", "i": "int32", "b": "bool"}[kind.kind])
            if isinstance(values, np.ndarray | np.generic):
                dtype = ARRAYS.get(str(kind), str(kind))
        return Exact(np.asarray(values).astype(dtype), dtype)


@dataclass
class _Place:
    """Where a result stands among the outputs of a graph."""

    at: int


def _form(x: Any, hint: Any, arrays: list[Any], objects: list[Any]) -> Any:
    """Return the structure of an argument, as plain data; its numbers go into `arrays`."""
    if isinstance(x, Exact):
        arrays.append(x.array)
        return "tensor", x.shape, x.dtype
    if x is None:
        return ("none",)
    declared = fb.functions.specs.hint_of(hint, {}) if hint is not None else None
    if isinstance(declared, TensorType):
        arrays.append(np.asarray(x, declared.dtype))
        return "tensor", declared.shape, declared.dtype
    if isinstance(x, list):
        if not x and declared is None:
            return ("empty",)
        element = _element(x[0]) if x else _hinted(declared[0])
        columns = [[_member(item, path).array for item in x] for path, _, _ in _members(element, ())]
        arrays += columns
        return "list", element
    opened = parts_of(x)
    if opened is not None:
        kind, keys, items = opened
        return "nest", kind, keys, [_form(item, None, arrays, objects) for item in items]
    if type(x) in NUMBERS:
        arrays.append(np.asarray(x, NUMBERS[type(x)]))
        return "tensor", (), NUMBERS[type(x)]
    if isinstance(x, np.ndarray | np.generic):
        dtype = ARRAYS.get(str(x.dtype), str(x.dtype))
        arrays.append(np.asarray(x, dtype))
        return "tensor", x.shape, dtype
    objects.append(x)
    return ("object",)


def parts_of(x: Any) -> tuple[Any, Any, list[Any]] | None:
    """Return class, keys and items of a tuple, dict or dataclass; None of other things."""
    if isinstance(x, dict):
        return dict, tuple(x), list(x.values())
    if isinstance(x, tuple):
        return type(x), tuple(range(len(x))), list(x)
    if dataclasses.is_dataclass(x) and not isinstance(x, type | Tag):
        names = [each.name for each in dataclasses.fields(x)]
        return type(x), tuple(names), [getattr(x, name) for name in names]
    return None


def nest_of(kind: Any, keys: Any, items: list[Any]) -> Any:
    if kind is tuple:
        return tuple(items)
    return dict(zip(keys, items, strict=True)) if kind is dict else kind(*items)


def _element(x: Any) -> Any:
    opened = parts_of(x)
    if opened is None:
        return "tensor", x.shape, x.dtype
    kind, keys, items = opened
    return "nest", kind, keys, [_element(item) for item in items]


def _hinted(declared: Any) -> Any:
    if isinstance(declared, tuple):
        return "nest", tuple, tuple(range(len(declared))), [_hinted(each) for each in declared]
    return "tensor", declared.shape, declared.dtype


def _members(form: Any, path: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Any, Any]]:
    if form[0] == "tensor":
        yield path, form[1], form[2]
    else:
        for number, item in enumerate(form[3]):
            yield from _members(item, (*path, number))


def _member(x: Any, path: tuple[int, ...]) -> Any:
    for number in path:
        x = parts_of(x)[2][number]  # type: ignore[index]
    return x


def _symbols(form: Any, inputs: list[Node], numbers: Iterator[int], axis: Any = None) -> Any:
    match form[0]:
        case "tensor":
            type_ = TensorType(form[1], form[2])
            inputs.append(input_node(type_) if axis is None else input_node(type_, axis))
            return inputs[-1]
        case "list":
            return _symbols(form[1], inputs, numbers, ragged())
        case "nest":
            return nest_of(form[1], form[2], [_symbols(item, inputs, numbers, axis) for item in form[3]])
        case "empty":
            return ()
        case "object":
            return Tag(next(numbers))
    return None


def _numbered(x: Any, ends: list[Node]) -> Any:
    if x is None:
        return None
    opened = parts_of(tuple(x) if isinstance(x, list) else x)
    if opened is not None:
        return nest_of(opened[0], opened[1], [_numbered(item, ends) for item in opened[2]])
    ends.append(lift("oracle", (x,))[0])
    return _Place(len(ends) - 1)


def _filled(x: Any, outputs: list[Exact]) -> Any:
    if isinstance(x, _Place):
        return outputs[x.at]
    if x is None:
        return None
    kind, keys, items = parts_of(x)  # type: ignore[misc]
    return nest_of(kind, keys, [_filled(item, outputs) for item in items])


def _as_declared(x: Exact) -> Any:
    return x.array.astype(x.dtype)


def _result(x: Any) -> Any:
    """Return a walk's result as a program gives it."""
    if isinstance(x, Exact):
        return _as_declared(x)
    if isinstance(x, tuple):
        return tuple(map(_result, x))
    return list(map(_result, x)) if isinstance(x, list) else x


class _Now:
    """The interpreter that computes calls; None where they are foldbatch's."""

    interpreter: Interpreter | None = None


def meaning(walk: Callable[[Any], Any], example: Any, known: dict[Any, Any]) -> Meaning:
    """Return what a walk makes of an example; `known` is kept between its examples."""
    interpreter = _Now.interpreter = Interpreter(known)
    try:
        interpreter.found.result = _result(walk(example))
    finally:
        _Now.interpreter = None
    return interpreter.found


def cell(body: Callable[..., Any], noted: Any = None) -> Callable[..., Any]:
    """Return a cell for walks; `noted` is foldbatch's, by default made of the body."""
    noted = fb.cell(body) if noted is None else noted

    def call(*args: Any, **static: Any) -> Any:
        now = _Now.interpreter
        return noted(*args, **static) if now is None else now.cell(body, *args, **static)

    return call


def layer(of: Any, arguments: int) -> Callable[..., Any]:
    names = ", ".join(f"x{i}" for i in range(arguments))
    return cell(eval(f"lambda {names}: apply({names})", {"apply": of.apply}), of)


def ops() -> Any:
    return fb.ops if _Now.interpreter is None else EXACTLY


def block(of: Any, types: tuple[Any, ...] | None = None) -> Callable[..., Any]:
    """Return a block as walks call it, with an object and values; an empty list is of the type in `types`."""

    def call(x: Any, *given: Any) -> Any:
        now = _Now.interpreter
        if now is None:
            return of(x, *given)
        values = map(_to_block, given, types or [None] * len(given))
        read = (Given(x), *values) if given else Given(x)
        outer, now.found.collected = now.found.collected, defaultdict(list)
        found = apply(of, read, now.found)
        now.found.collected = outer
        return _to_walk(found)

    return call


def _walked(of: Any, value: Any) -> Any:
    """Return what a walk that stands for a block makes of a value of blocks."""
    value = as_object(value)
    given = tuple(map(_to_walk, value)) if isinstance(value, tuple) else (_to_walk(value),)
    return _to_block(of.function(*given), of.output_type)


def _to_walk(value: Any) -> Any:
    match value:
        case np.ndarray() | np.generic():
            return Exact(value, str(value.dtype))
        case tuple():
            return tuple(map(_to_walk, value))
        case Listed():
            return list(map(_to_walk, value.items))
    return plain_of_block(value)


def _to_block(x: Any, type_: Any = None) -> Any:
    match x:
        case Exact():
            return x.array
        case tuple():
            types = [None] * len(x) if type_ is None else type_.items
            return tuple(map(_to_block, x, types))
        case list():
            element = type_.element if type_ is not None else None
            items = [_to_block(item, element) for item in x]
            return Listed(items, element or type_of_value(items[0]) if items or element else VOID)
    return x


WALKS.append(_walked)


def loss(value: Any, name: str = "loss", weight: float = 1.0) -> None:
    """Add a scalar to the losses, in a cell or in the walk."""
    now = _Now.interpreter
    if now is None:
        fb.loss(value, name, weight=weight)
    else:
        now.loss(value, name, weight)


def metric(name: str, value: Any, label: Any = None) -> None:
    """Collect a tensor, in a cell or in the walk."""
    now = _Now.interpreter
    if now is None:
        fb.metric(name, value, label)
    else:
        now.metric(name, value, label)


def tensor(values: Any, dtype: str | None = None) -> Any:
    now = _Now.interpreter
    return fb.tensor(values, dtype) if now is None else now.tensor(values, dtype)
