"""Records of building: functions of the tracing program, regions of it with cells in the making, and values.

Plain records; `builder` fills them, `lower` and `tracer` read them. One kind of value flows through blocks
for each kind of type. At run time a tensor is an int (the number of a value), a sequence a list, an object
itself. While building, a value says which expression of the tracing program will hold it: a tensor is a
symbolic `Node` in the graph of its region, everything else has an `Expression`. A tuple is a Python tuple of
values, void is None.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from collections.abc import Sequence as PySequence
from dataclasses import dataclass, field
from typing import Any, Union

import numpy as np

from foldbatch.blocks.tracing import Body, CallOutput, Expression, Place, Tuple
from foldbatch.errors import BlockValueError
from foldbatch.model.drafts import Draft, Feed, Flow, components
from foldbatch.static.graph import Node
from foldbatch.static.op import CALL, UNBATCHED, Axis
from foldbatch.trees import Tree, TreeNode
from foldbatch.types import (
    OBJECT,
    VOID,
    BroadcastType,
    ObjectType,
    SequenceType,
    TensorType,
    TupleType,
    Type,
    VoidType,
    describe_value,
    terminals,
)


@dataclass(frozen=True, slots=True)
class FeedReading(Feed):
    """Data read from the example, with the object that is read."""

    source: Object


@dataclass(slots=True)
class MetricVisit:
    """A tensor that a `Metric` collects, with its label, until a cell of the region computes it.

    That cell's call comes at the region's end, after calls of loops, cases and functions that the
    program enters meanwhile. Where it enters any, `mark` is a number drawn beforehand from the counter
    of calls: it records when the metric was visited.
    """

    name: str
    node: Node
    label: Object | None
    mark: Object | None = None


@dataclass(frozen=True, slots=True)
class Drafted:
    """A cell that a region calls, and the variable that holds the number of the call."""

    variable: str
    draft: Draft

    def output(self, node: Node) -> tuple[Expression, Flow]:
        """Make a node an output; return its number and its wire."""
        number, wire = self.draft.output(node)
        return CallOutput(self.variable, self.draft.number, number), wire


@dataclass(slots=True)
class Region:
    """Tensors available at one place of the tracing program, and cells drafted there."""

    values: dict[Node, tuple[Expression, Flow]] = field(default_factory=dict)
    feeds: dict[Node, FeedReading] = field(default_factory=dict)
    elements: dict[Node, tuple[Expression, Axis, int, Flow]] = field(default_factory=dict)
    drafts: list[Drafted] = field(default_factory=list)
    losses: list[tuple[str, Node]] = field(default_factory=list)
    metrics: list[MetricVisit] = field(default_factory=list)
    collected: list[tuple[Sequence, Value]] = field(default_factory=list)


@dataclass(slots=True)
class Procedure:
    """A function of the tracing program, in the making or done."""

    name: str  # as in the tracing program
    path: str  # the path of its block
    input_type: Type  # `input_type`, `output_type`: the types of its argument and result
    output_type: Type
    parameters: list[Terminal]  # `parameters`, `results`: the terminals of these
    results: list[Terminal]
    body: Body = ()  # its statements, the last of which returns
    calls: list[str] = field(default_factory=list)  # the functions that it calls
    always: list[str] = field(default_factory=list)  # those of them that it calls in every case
    # whether a visit does more than yield a result: losses, metrics, collected values, random numbers
    effects: bool = False
    # whether it visits arguments only once; None leaves that to `foldbatch.blocks.drafts`
    memo: bool | None = False

    @property
    def names(self) -> list[str]:
        """The variables of the parameters."""
        return [str(slot.expression) for slot in self.parameters]

    @property
    def objects(self) -> list[str]:
        """The parameters that hold no tensors."""
        return [str(slot.expression) for slot in self.parameters if not isinstance(slot.type, TensorType)]


_VALUES = (int, float, complex, str, bytes, type(None), np.generic, Tree, TreeNode)


# -- memos: a part of an example that is reached on several ways is visited once. A declared function of the
# tracing program looks up its arguments, objects by identity and tensors by the number of the value. Values
# without an identity of their own are not looked up, nor are trees and nodes, which lie below one node only.


class Kinds(dict[type, bool]):
    """Whether objects of a type are looked up by identity: containers and users' objects are.

    An iterator is another one after each reading, so it is visited each time.

    >>> kinds = Kinds()
    >>> [kinds[type(x)] for x in ([], (), {}, 1, "a", None, iter(()))]
    [True, True, True, False, False, False, False]
    """

    def __missing__(self, kind: type) -> bool:
        self[kind] = not issubclass(kind, _VALUES) and not hasattr(kind, "__next__")
        return self[kind]


def decide_memos(functions: PySequence[Procedure]) -> list[str]:
    """Decide which functions have a memo; return the variables that hold the memos.

    A function that may choose (`memo` is None) has one if it calls itself, directly or through others, and
    if it has no effects, nor anything that it calls: losses, metrics, collected values and random numbers.
    There is one of these for each visit, so it matters how many visits there are.
    """
    component = components([f.name for f in functions], {f.name: f.calls for f in functions})
    effects = {component[f.name] for f in functions if f.effects}
    for function in sorted(functions, key=lambda f: component[f.name], reverse=True):  # called ones first
        if any(component[name] in effects for name in function.calls):
            effects.add(component[function.name])
    for function in functions:
        if function.memo is None:
            recursion = component[function.name]
            recurs = any(component[name] == recursion for name in function.calls)
            function.memo = recurs and recursion not in effects
    return [f"memo_{function.name}" for function in functions if function.memo]


@dataclass(frozen=True, slots=True)
class Object:
    """A Python object; `place` leads to it from the argument."""

    expression: Expression
    place: Place = ()


@dataclass(frozen=True, slots=True)
class Sequence:
    """A finite sequence, held as a list.

    An element is what its type's terminals are at run time: itself where there is one, else a
    flat tuple. `wires` has an entry per terminal, None where it holds no tensor.
    """

    expression: Expression
    element: Type
    wires: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Repeated:
    """One value, repeated for each reader."""

    value: Value


Value = Union[Node, Object, Sequence, Repeated, tuple["Value", ...], None]  # noqa: UP007 - it names itself


@dataclass(frozen=True, slots=True)
class Terminal:
    """A tensor, object or sequence of a value, as the tracing program holds it while it runs."""

    expression: Expression
    type: Type
    wires: Any = None
    place: Place = ()


def is_int(value: object) -> bool:
    """Whether a user's value is an int and no bool."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def refuse_no_count(name: str, value: Any, least: int) -> None:
    """Raise `BlockValueError` for a value that is no whole number of `least` or more."""
    if not is_int(value) or value < least:
        expected, fix = f"a whole number of {least} or more", "leave it out for the default"
        raise BlockValueError(name, expected, describe_value(value), fix)


def type_of(value: Value) -> Type:
    """Return the type of a value."""
    match value:
        case None:
            return VOID
        case Node():
            return value.type
        case Object():
            return OBJECT
        case Sequence():
            return SequenceType(value.element)
        case Repeated():
            return BroadcastType(type_of(value.value))
        case tuple():
            return TupleType(tuple(type_of(item) for item in value))


def leaves(value: Value) -> Iterator[Node | Object | Sequence]:
    """Yield the terminals of a value in order; a broadcast has its value's."""
    match value:
        case None:
            return
        case tuple():
            for item in value:
                yield from leaves(item)
        case Repeated():
            yield from leaves(value.value)
        case _:
            yield value


def as_object(value: Value) -> Value:
    """Return a tuple of objects as one object, a tuple at run time; any other value as itself.

    >>> as_object((Object("a"), (Object("b"),)))
    Object(expression=Tuple(items=('a', Tuple(items=('b',)))), place=())
    """
    match value:
        case tuple() if value:
            items = [as_object(item) for item in value]
            objects = [item for item in items if isinstance(item, Object)]
            if len(objects) == len(items):
                return Object(Tuple(tuple(item.expression for item in objects)), objects[0].place)
    return value


def new_wires(type_: Type) -> object:
    """Return wires for a terminal of a type: one for a tensor, a tuple for a sequence's elements."""
    match type_:
        case TensorType():
            return Flow()
        case SequenceType(element):
            return tuple(new_wires(t) for t in run_time_terminals(element))
        case _:
            return None


def feed(source: object, target: object) -> None:
    """Connect the wires of one terminal to those of another of the same type."""
    match source, target:
        case Flow(), Flow():
            source.feed(target)
        case tuple(), tuple():
            for a, b in zip(source, target, strict=True):
                feed(a, b)


def run_time_terminals(type_: Type) -> list[Type]:
    """Return the terminals of a type as functions pass them: a broadcast as the value that it repeats."""
    types: list[Type] = []
    for terminal in terminals(type_):
        match terminal:
            case BroadcastType(element):
                types += run_time_terminals(element)
            case ObjectType() | TensorType() | SequenceType():
                types.append(terminal)
            case TupleType() | VoidType():
                raise AssertionError(terminal)
    return types


class UnknownTypeError(Exception):
    """The type of a block's result cannot be inferred, as that of a declaration without an output type."""


def pattern(value: Value) -> Hashable | None:
    """Return a key that values share if no block can tell them apart while it is built.

    A block's result is remembered for each pattern of its input, so the parts of a large model are inferred
    once, however often they are put into larger ones. The key is None for sequences and for tensors of a
    sequence's elements: each has an axis of its own, by which blocks tell it from others of its type.

    >>> pattern((Object("x"), None))
    (ObjectType(), VoidType())
    """
    match value:
        case None:
            return VOID
        case Node() if value.axis is UNBATCHED:
            return value.type, "unbatched"
        case Node() if value.axis is CALL:
            return value.type
        case Object():
            return OBJECT
        case Repeated():
            inner = pattern(value.value)
            return None if inner is None else ("repeat", inner)
        case tuple():
            items = tuple(map(pattern, value))
            return None if None in items else items
    return None
