"""Random typed block programs with data to run them on, for the laws.

A `Recipe` is a block that reads one Python object, with a way to draw objects that fit it. Blocks
are made from the outside in: to yield a type, read it directly, choose between ways of reading it,
recurse, compute it from something else, or hang losses and metrics beside it. Recipes *given*
tensors read ``(object, tensor, ...)``: values made in one region and used in another. All floats
are float64, all functions smooth and tame, so that programs can be compared to the last digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.blocks.block import Block
from foldbatch.errors import GraphError
from foldbatch.params import Parameter
from foldbatch.static import ops
from foldbatch.static.graph import Node, lift
from foldbatch.types import OBJECT, VOID, ObjectType, SequenceType, TensorType, TupleType, Type, VoidType
from tests.strategies import Draw

FLOAT = "float64"
SCALAR, PAIR, TRIPLE, SQUARE = (TensorType(shape, FLOAT) for shape in ((), (2,), (3,), (2, 2)))
TENSORS = (PAIR, SCALAR, TRIPLE, SQUARE)
ID, FLAG = TensorType((), "int32"), TensorType((), "bool")  # an id is 0, 1 or 2
STATE = TupleType((PAIR, PAIR))  # of the tree cells
Given = tuple[TensorType, ...]


@dataclass(slots=True)
class Source:
    """Where data is drawn from: random numbers, and how many more objects may be made."""

    rng: np.random.Generator
    left: int = 60

    def number(self, below: int) -> int:
        """Return a number from 0 to `below`, excluded."""
        return int(self.rng.integers(below))

    def floats(self, shape: tuple[int, ...]) -> Any:
        """Return a number, or nested lists of them."""
        return self.rng.normal(size=shape).round(3).tolist()


Data = Callable[[Source, int], Any]  # the number bounds how deep recursive data may still go


@dataclass(frozen=True, slots=True)
class Recipe:
    """A block that reads an object (and what is given), and a way to draw such objects."""

    block: Block
    data: Data

    def then(self, *blocks: Any) -> Recipe:
        """Return the recipe with blocks behind it."""
        return Recipe(fb.Pipe(self.block, *blocks), self.data)


@dataclass(frozen=True, slots=True)
class Declared:
    """A declaration being defined: how to call it, what it is given and yields."""

    call: Recipe
    given: Given
    type: Type


@dataclass(frozen=True, slots=True)
class BlockProgram:
    """A whole program with examples to run it on."""

    block: Block
    examples: list[Any]
    seed: int

    def __repr__(self) -> str:
        examples = "\n  ".join(map(repr, self.examples))
        return f"BlockProgram(seed={self.seed})\n  {self.block!r}\nexamples\n  {examples}"


# -- functions of tensors


class Expression:
    """A random function of tensors: steps chosen by numbers, the same at every call.

    Its parameters are made at the first call and belong to it from then on.
    """

    def __init__(
        self, steps: Sequence[Sequence[int]], picks: Sequence[int], out: Type, free: Sequence[Parameter]
    ) -> None:
        self.steps = steps
        self.picks = picks
        self.out = out
        self.free = free
        self.weights: dict[tuple[int, ...], Parameter] = {}
        self.__name__ = f"expression to {out}"

    def __call__(self, *xs: Any) -> Any:
        nodes = [node for x in xs for node in _flat(x)]
        if self.free or not nodes:
            nodes += lift("expression", (*self.free, np.array([0.5, -0.25])))
        for which, i, j in self.steps:
            a, b = nodes[-1 - i % len(nodes)], nodes[-1 - j % len(nodes)]
            try:
                node = STEPS[which % len(STEPS)](a, b, self)
            except GraphError:
                continue
            if prod(node.shape) <= 24:
                nodes.append(node)
        return self._result(self.out, nodes, iter(self.picks))

    def _result(self, type_: Type, nodes: list[Node], picks: Iterator[int]) -> Any:
        if isinstance(type_, TupleType):
            return [self._result(item, nodes, picks) for item in type_.items]
        assert isinstance(type_, TensorType)
        node = nodes[-1 - next(picks) % len(nodes)]
        node = ops.segment_sum(node) if node.axis.rank == 2 else node
        if prod(node.shape) != prod(type_.shape):
            node = ops.tanh(ops.reshape(node, -1) @ self.weight((prod(node.shape), prod(type_.shape))))
        return ops.reshape(node, type_.shape)

    def weight(self, shape: tuple[int, ...]) -> Parameter:
        """Return the expression's parameter of a shape."""
        if shape not in self.weights:
            self.weights[shape] = parameter(shape)
        return self.weights[shape]


def parameter(shape: tuple[int, ...], *, trainable: bool = True) -> Parameter:
    """Return a new parameter of moderate random values."""
    return Parameter(
        TensorType(shape, FLOAT), lambda rng, s: rng.normal(0.0, 0.6, s), "w", trainable=trainable
    )


STEPS: tuple[Callable[[Node, Node, Expression], Node], ...] = (
    lambda a, b, e: a + b,
    lambda a, b, e: ops.tanh(a) * b,
    lambda a, b, e: ops.tanh(a @ e.weight((a.shape[-1] if a.shape else 0, 2))),
    lambda a, b, e: ops.sigmoid(a - b),
    lambda a, b, e: ops.concat([a, b]),
    lambda a, b, e: ops.stack([a, b]),
    lambda a, b, e: a[-1],
    lambda a, b, e: a[:1],
    lambda a, b, e: ops.sum(a),
    lambda a, b, e: ops.segment_sum(a),
    lambda a, b, e: ops.softmax(a),
    lambda a, b, e: ops.exp(ops.tanh(a)) / (1 + ops.square(b)),
    lambda a, b, e: 0.5 * a - 1,
    lambda a, b, e: ops.reshape(a, -1),
    lambda a, b, e: ops.logsumexp(a) + b,
    lambda a, b, e: ops.transpose(a) @ b,
    lambda a, b, e: a * np.array([1.5, -0.5]),
    lambda a, b, e: ops.where(ops.less(a, b), a, ops.sigmoid(a)) - ops.where(ops.less(a, b), a, 0.0),
    lambda a, b, e: ops.softmax(a @ e.weight((2, 3)))[0] * b,
)


def _flat(x: Any) -> Iterator[Node]:
    if isinstance(x, tuple):
        for item in x:
            yield from _flat(item)
    elif x is not None:
        yield x


class FromBool:
    """The float tensor of a shape that a bool stands for."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.__name__ = f"to float64{list(shape)}"

    def __call__(self, x: Node) -> Node:
        return ops.broadcast_to(ops.cast(x, FLOAT), self.shape)


# -- types


def is_of_floats(type_: Type) -> bool:
    """Whether a type is a tensor of floats, or a nest of tuples of them that is not empty."""
    if isinstance(type_, TupleType):
        return bool(type_.items) and all(map(is_of_floats, type_.items))
    return isinstance(type_, TensorType) and type_.is_float


def tensors_in(type_: Type) -> list[TensorType]:
    """Return the tensors of a nest of tuples."""
    if isinstance(type_, TupleType):
        return [t for item in type_.items for t in tensors_in(item)]
    return [type_] if isinstance(type_, TensorType) else []


# -- programs


@dataclass(slots=True)
class Maker:
    """Makes recipes; holds what they may share, and how many more blocks it may make."""

    draw: Draw
    left: int
    declared: list[Declared] = field(default_factory=list)
    made: list[tuple[Type, Given, Recipe]] = field(default_factory=list)
    layers: dict[tuple[Any, ...], Block] = field(default_factory=dict)
    free: list[Parameter] = field(default_factory=list)

    def number(self, below: int) -> int:
        """Return a number from 0 to `below`, excluded; the simplest choice is 0."""
        return int(self.draw(st.integers(0, below - 1)))

    def one_of(self, choices: Sequence[Any]) -> Any:
        """Return one of several; the simplest stands first."""
        return choices[self.number(len(choices))]

    def operands(self, depth: int) -> Type:
        """Return a type that a function of tensors can read."""
        tensor = self.one_of(TENSORS)
        ways: list[Type] = [tensor, TupleType((tensor, self.one_of(TENSORS)))]
        if depth > 0:
            ways += [
                SequenceType(tensor),
                SequenceType(STATE),
                TupleType((tensor, SequenceType(self.one_of(TENSORS)))),
                TupleType((tensor, STATE, VOID)),
                TupleType((tensor, tensor, tensor)),
            ]
        type_: Type = self.one_of(ways)
        return type_

    def result(self, depth: int = 2) -> Type:
        """Return a type that a program may yield."""
        match self.number(9 if depth > 0 else 3):
            case 0 | 1:
                type_: Type = self.one_of((*TENSORS, ID, FLAG))
                return type_
            case 2 | 3:
                return STATE
            case 4:
                return TupleType((self.one_of(TENSORS), self.one_of(TENSORS)))
            case 5 | 6:
                return SequenceType(self.result(depth - 1))
            case 7:
                return TupleType((OBJECT, self.result(depth - 1)))
            case _:
                return (
                    TupleType(tuple(self.result(depth - 1) for _ in range(self.number(3))))
                    if self.number(2)
                    else VOID
                )

    def read(self, type_: Type, depth: int, given: Given = ()) -> Recipe:
        """Return a recipe that yields a type."""
        self.left -= 1
        if depth <= 0 or self.left <= 0:
            return self._direct(type_, 0, given)
        ways = [self._direct, self._recursion, self._choice, self._let, self._beside, self._wrapped]
        if any((d.type, d.given) == (type_, given) for d in self.declared):
            ways += [self._call, self._call]
        if any((t, g) == (type_, given) for t, g, _ in self.made):
            ways.append(self._again)
        if is_of_floats(type_):
            ways += [self._derived, self._derived, self._recursion]
        if isinstance(type_, SequenceType | TupleType):
            ways.append(self._part)
        recipe: Recipe = self.one_of(ways)(type_, depth - 1, given)
        if not self.declared:  # what calls a declaration is at home in its definition only
            self.made.append((type_, given, recipe))
        return recipe

    # -- directly

    def _direct(self, type_: Type, depth: int, given: Given) -> Recipe:
        match type_:
            case TensorType():
                return self._leaf(type_, depth, given)
            case TupleType():
                return self._record(type_, depth, given)
            case SequenceType():
                return self._listed(self.read(type_.element, depth), given)
            case VoidType():
                return Recipe(fb.Void(), _nothing)
            case ObjectType():
                return Recipe(_object(given), lambda source, depth: source.number(5))
        raise AssertionError(type_)

    def _leaf(self, type_: TensorType, depth: int, given: Given) -> Recipe:
        if type_ in given and self.number(2) == 0:
            return Recipe(fb.GetItem(1 + given.index(type_)), _nothing)
        if type_ == ID:
            return self._id(depth, given)
        if type_ == FLAG:
            less = fb.Function(lambda i: ops.less(i, 2))
            read = Recipe(_object(given) >> fb.Scalar("bool"), lambda source, depth: bool(source.number(2)))
            return self._id(depth, given).then(less) if self.number(3) == 2 else read
        shape = type_.shape
        match self.number(6 if len(shape) == 1 else 4):
            case 1:
                return Recipe(fb.FromTensor(np.full(shape, 0.25)), _nothing)
            case 2:
                return Recipe(fb.FromTensor(self._free(shape)), _nothing)
            case 3:
                return self.read(FLAG, depth, given).then(fb.Function(FromBool(shape)))
            case 4 | 5:
                return self.read(ID, depth, given).then(self._layer("embedding", *shape))
        return Recipe(_object(given) >> fb.Tensor(shape, FLOAT), lambda source, depth: source.floats(shape))

    def _id(self, depth: int, given: Given) -> Recipe:
        """A number from 0 to 2, read or computed."""
        match self.number(4):
            case 1:
                return Recipe(fb.FromTensor(np.int32(self.number(3))), _nothing)
            case 2:
                return self.read(ID, depth - 1, given).then(fb.Function(lambda i: 2 - i))
            case 3:
                long = Recipe(_object(given) >> fb.Scalar("int64"), lambda source, depth: source.number(3))
                return long.then(fb.Function(lambda i: ops.cast(i, "int32")))
        return Recipe(_object(given) >> fb.Scalar("int32"), lambda source, depth: source.number(3))

    def _free(self, shape: tuple[int, ...]) -> Parameter:
        """Return a parameter that stands alone, perhaps one used elsewhere."""
        known = [p for p in self.free if p.type.shape == shape]
        if known and self.number(2) == 0:
            return known[0]
        self.free.append(parameter(shape, trainable=self.number(4) < 3))
        return self.free[-1]

    def _layer(self, kind: str, *sizes: int) -> Block:
        """Return a layer, perhaps one used elsewhere."""
        key = (kind, *sizes)
        if key not in self.layers or self.number(2):
            match kind:
                case "embedding":
                    trainable = self.number(5) < 4
                    layer: Block = fb.Embedding(
                        4, sizes[0], "glorot_normal", dtype=FLOAT, trainable=trainable
                    )
                case "linear":
                    activation = self.one_of([None, "tanh", "softmax"])
                    layer = fb.Linear(sizes[1], activation, bias=self.number(3) < 2)
                case "tree":
                    layer = fb.TreeLSTM(2, arity=sizes[1])
                case _:
                    layer = fb.ChildSumTreeLSTM(2)
            self.layers[key] = layer
        return self.layers[key]

    def _record(self, type_: TupleType, depth: int, given: Given) -> Recipe:
        parts = [self.read(item, depth, given) for item in type_.items]
        way = self.number(4)
        if given or way == 0:
            return self._both(parts, given)
        keys = ["a", "b", ("c", 1), None, "{e}", "f"][: len(parts)] if way < 3 else list(range(len(parts)))
        pairs = [(key, part.block) for key, part in zip(keys, parts, strict=True)]
        block = fb.Record(
            dict(pairs) if way == 1 else pairs if way == 2 else tuple(part.block for part in parts)
        )

        def data(source: Source, depth: int) -> Any:
            items = [part.data(source, depth) for part in parts]
            return dict(zip(keys, items, strict=True)) if way < 3 else items

        return Recipe(block, data)

    def _both(self, parts: Sequence[Recipe], given: Given) -> Recipe:
        """Return a recipe of a tuple."""
        block = fb.AllOf(*(_narrow(i, given) >> part.block for i, part in enumerate(parts)))
        return Recipe(block, lambda source, depth: [part.data(source, depth) for part in parts])

    def _listed(self, element: Recipe, given: Given = ()) -> Recipe:
        """Return a recipe of a sequence."""
        block = _object(given) >> fb.Map(element.block)
        return Recipe(
            block, lambda source, depth: [element.data(source, depth) for _ in range(source.number(4))]
        )

    # -- by choice and recursion

    def _choice(self, type_: Type, depth: int, given: Given) -> Recipe:
        cases = [self.read(type_, depth, given) for _ in range(1 + self.number(3))]
        way = self.number(4)
        names: list[Any] = ["x", 7, None][: len(cases)] if way < 2 else list(range(len(cases)))
        blocks = [case.block for case in cases]
        if way % 2 and not given:
            table: Any = dict(zip(names, blocks, strict=True)) if way == 1 else tuple(blocks)
            block: Block = fb.OneOf(lambda x: x["kind"], table, pre_block=fb.GetItem("x"))
        else:
            narrowed = [_narrow("x", given) >> b for b in blocks]
            pairs: Any = list(zip(names, narrowed, strict=True)) if way < 2 else narrowed
            block = fb.OneOf(_object(given) >> fb.GetItem("kind"), pairs)

        def data(source: Source, depth: int) -> Any:
            chosen = source.number(len(cases))
            kind = names[chosen]
            if way >= 2 and source.number(2):
                kind -= len(cases)  # keys of listed cases may count from the end
            return {"kind": kind, "x": cases[chosen].data(source, depth)}

        return Recipe(block, data)

    def _recursion(self, type_: Type, depth: int, given: Given) -> Recipe:
        """Declare a block, and define it by what ends and what goes on."""
        inputs = TupleType((OBJECT, *given)) if given else OBJECT
        declaration = fb.ForwardDeclaration(inputs, type_, self.one_of(["tree", "a b", "2"]))
        parts: list[Recipe] = []

        def data(source: Source, depth: int) -> Any:
            source.left -= 1
            further = depth > 0 and source.left > 0 and source.number(4) > 0
            return {"more": further, "x": parts[further].data(source, depth - further)}

        me = Declared(Recipe(declaration(), data), given, type_)
        parts.append(self.read(type_, depth - 1, given))
        self.declared.append(me)
        parts.append(self._body(me, depth))
        self.declared.remove(me)
        cases = {bool(more): _narrow("x", given) >> part.block for more, part in enumerate(parts)}
        declaration.resolve_to(fb.OneOf(_object(given) >> fb.GetItem("more"), cases))
        return Recipe(declaration(), data) if self.number(2) else me.call

    def _body(self, me: Declared, depth: int) -> Recipe:
        """Return a definition in which declarations are sure to be called."""
        if not is_of_floats(me.type):
            beside = self.read(VOID, depth, me.given)
            return (
                self._both([me.call, beside], me.given).then(fb.GetItem(0))
                if self.number(2)
                else self.read(me.type, depth, me.given)
            )
        if me.type == STATE and self.number(2):
            return self._cell(depth, me.given, me)
        ways = [0, 0, 1] if not me.given else [0, 2]
        match self.one_of(ways):
            case 0:  # of parts, some of them this declaration or another one under way
                others = [d for d in self.declared if d.given == me.given and is_of_floats(d.type)]
                sides, types = [me.call], [me.type]
                for _ in range(self.number(3)):
                    other = self.one_of([None, *others])
                    kind = other.type if other else self.one_of(TENSORS)
                    if other:
                        sides.append(other.call)
                    else:  # another recursion in this one, which may come back to it
                        make = (
                            self._recursion if depth > 0 and self.left > 0 and self.number(2) else self.read
                        )
                        sides.append(make(kind, depth, me.given))
                    types.append(kind)
                return self._both(sides, me.given).then(self.function(TupleType(tuple(types)), me.type))
            case 1:  # of any number of parts
                parts = self._listed(me.call)
                if self.number(2):
                    return parts.then(self.function(SequenceType(me.type), me.type))
                kind = self.one_of(TENSORS)
                both = self._both([self.read(kind, depth), parts], ())
                return both.then(self.function(TupleType((kind, SequenceType(me.type))), me.type))
            case _:  # with something new given
                new = [self.read(t, depth, me.given) for t in me.given]
                down = Recipe(_object(me.given), me.call.data)
                return self._both([down, *new], me.given).then(me.call.block)

    def _call(self, type_: Type, depth: int, given: Given) -> Recipe:
        found: Declared = self.one_of([d for d in self.declared if (d.type, d.given) == (type_, given)])
        return found.call

    # -- from something else

    def _again(self, type_: Type, depth: int, given: Given) -> Recipe:
        """The very block used elsewhere, or one block twice on the same data."""
        recipe: Recipe = self.one_of([r for t, g, r in self.made if (t, g) == (type_, given)])
        if self.number(2):
            return recipe
        return Recipe(fb.AllOf(recipe.block, recipe.block) >> fb.GetItem(1), recipe.data)

    def _let(self, type_: Type, depth: int, given: Given) -> Recipe:
        """A tensor read here, used in another block's regions."""
        kept = given[-1:]
        bound = self.one_of((*TENSORS, ID, FLAG))
        head, body = self.read(bound, depth, given), self.read(type_, depth, (*kept, bound))
        passed = [
            _narrow(0, given) >> _object(given),
            *(fb.GetItem(len(given)) for _ in kept),
            _narrow(1, given) >> head.block,
        ]
        data: Data = lambda source, depth: [body.data(source, depth), head.data(source, depth)]  # noqa: E731
        return Recipe(fb.AllOf(*passed) >> body.block, data)

    def _derived(self, type_: Type, depth: int, given: Given) -> Recipe:
        """Compute the type from another one."""
        if type_ == STATE and self.number(3):
            return self._cell(depth, given)
        if isinstance(type_, TensorType) and len(type_.shape) == 1 and self.number(3) == 0:
            source = self.one_of([PAIR, TRIPLE])
            return self.read(source, depth, given).then(self._layer("linear", *source.shape, *type_.shape))
        if type_ == TRIPLE and self.number(2) == 0:
            flatten = self.number(2) == 1
            parts = TupleType((SCALAR, TupleType((PAIR,)) if flatten else PAIR))
            return self.read(parts, depth, given).then(fb.Concat(flatten=flatten))
        operands = self.operands(depth)
        recipe = self.read(operands, depth, given)
        if isinstance(type_, TupleType) and self.number(2):  # one value, several readers
            return recipe.then(fb.AllOf(*(self.function(operands, item) for item in type_.items)))
        return recipe.then(self.function(operands, type_))

    def _cell(self, depth: int, given: Given, me: Declared | None = None) -> Recipe:
        """A tree cell, whose children are `me` in a recursion."""

        def child() -> Recipe:
            return me.call if me and self.number(4) else self.read(STATE, depth, given)

        if self.number(2) and not given:
            x = self.read(TRIPLE, depth, given)  # without x, a cell needs children
            many = self._listed(child()) if me else self.read(SequenceType(STATE), depth)
            return self._both([x, many], given).then(self._layer("child sum"))
        x = self.read(self.one_of([TRIPLE, VOID]), depth, given)
        kids = [me.call if me else child(), *(child() for _ in range(self.number(3)))]
        if self.number(3) == 2:
            kids.insert(0, Recipe(fb.Void(), _nothing))
        arity = max(2, len(kids)) + self.number(2)
        return self._both([x, self._both(kids, given)], given).then(self._layer("tree", 3, arity))

    def function(self, source: Type, target: Type) -> Block:
        """Return a random function of tensors, perhaps behind a declaration of its own."""
        steps = self.draw(st.lists(st.tuples(*[st.integers(0, 40)] * 3), max_size=6))
        picks = [self.number(4) for _ in tensors_in(target)]
        free = [self._free((2,))] if self.number(4) == 3 else []
        block: Block = fb.Function(Expression(steps, picks, target, free))
        if self.number(6) == 5:
            declaration = fb.ForwardDeclaration(source, target, "f")
            declaration.resolve_to(block)
            return declaration()
        return block

    def _part(self, type_: Type, depth: int, given: Given) -> Recipe:
        """A tuple from a larger one, or a sequence from a sequence or a tuple."""
        if isinstance(type_, TupleType):
            if self.number(2):
                return self.read(TupleType((type_, SCALAR)), depth, given).then(fb.GetItem(0))
            wider = TupleType((*type_.items, self.one_of(TENSORS)))
            return self.read(wider, depth, given).then(fb.GetItem(slice(0, len(type_.items))))
        assert isinstance(type_, SequenceType)
        if not is_of_floats(type_.element):
            return self._direct(type_, depth, given)
        item = self.one_of([self.one_of(TENSORS), STATE, SequenceType(self.one_of(TENSORS))])
        whole = TupleType((item,) * (1 + self.number(3))) if self.number(2) else SequenceType(item)
        return self.read(whole, depth, given).then(fb.Map(self.function(item, type_.element)))

    def _beside(self, type_: Type, depth: int, given: Given) -> Recipe:
        """A loss or a metric beside the value, of it or of something else."""
        main = self.read(type_, depth, given)
        if is_of_floats(type_) and self.number(2) == 0:
            return main.then(fb.AllOf(fb.Identity(), self._sink(type_)), fb.GetItem(0))
        match self.number(4) if not given else 0:
            case 2:
                label = Recipe(fb.InputTransform(lambda x: x), lambda source, depth: source.number(3))
                side = self._both([self.read(PAIR, depth), label], ()).then(fb.Metric("labelled"))
            case 3:
                parts = [self.read(TRIPLE, depth), self.read(ID, depth)]
                side = self._both(parts, ()).then(fb.Function(ops.cross_entropy), fb.Loss("entropy"))
            case _:
                kind = self.one_of(TENSORS)
                side = self.read(kind, depth, given).then(self._sink(kind))
        if self.number(2):
            return self._both([main, side], given).then(fb.GetItem(0))
        return self._both([side, main], given).then(fb.GetItem(1))

    def _sink(self, type_: Type) -> Block:
        """A block that lets a value of tensors go into a loss or a metric."""
        if isinstance(type_, TensorType) and self.number(3) == 2:
            return fb.Metric(f"metric of {type_}")
        if type_ == SCALAR and self.number(3) == 0:
            return fb.Loss("plain")
        return self.function(type_, SCALAR) >> fb.Loss(self.one_of(["loss", "other"]))

    def _wrapped(self, type_: Type, depth: int, given: Given) -> Recipe:
        """The value inside something that a function opens."""
        inner = self.read(type_, depth, given)
        opened = fb.InputTransform(_opened)
        if given:
            opened = fb.AllOf(fb.GetItem(0) >> opened, *map(fb.GetItem, range(1, len(given) + 1)))
        return Recipe(
            opened >> inner.block >> fb.Identity(),
            lambda source, depth: {"closed": inner.data(source, depth)},
        )


def _opened(x: Any) -> Any:
    return x["closed"]


def _nothing(source: Source, depth: int) -> Any:
    return None


def _object(given: Given) -> Block:
    """The block that finds the object in the input."""
    return fb.GetItem(0) if given else fb.Identity()


def _narrow(key: Any, given: Given) -> Block:
    """The block that goes on with an item of the object, and with all that is given."""
    if not given:
        return fb.GetItem(key)
    return fb.AllOf(fb.GetItem(0) >> fb.GetItem(key), *map(fb.GetItem, range(1, len(given) + 1)))


@st.composite
def programs(draw: Draw, *, size: int = 24, depth: int = 5, examples: int = 4) -> BlockProgram:
    """Return a random program, mostly with a loss of all it yields, and random examples."""
    seed = draw(st.integers(0, 2**32 - 1))
    maker = Maker(draw, size)
    type_ = maker.result()
    recipe = maker.read(type_, depth)
    if is_of_floats(type_) and maker.number(4) < 3:
        recipe = recipe.then(
            fb.AllOf(fb.Identity(), maker.function(type_, SCALAR) >> fb.Loss()), fb.GetItem(0)
        )
    rng = np.random.default_rng(seed)
    count = draw(st.integers(1, examples))
    return BlockProgram(recipe.block, [recipe.data(Source(rng), 3) for _ in range(count)], seed)
