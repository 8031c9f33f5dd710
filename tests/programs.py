"""Random typed block programs with data to run them on, for the laws.

A `Recipe` is a block that reads one Python object, with a way to draw objects that fit it. Blocks
are made from the outside in: to yield a type, read it directly, choose between ways of reading it,
recurse, compute it from something else, or hang losses and metrics beside it. Recipes *given*
tensors read ``(object, tensor, ...)``: values made in one region and used in another. All floats
are float64, all functions smooth and tame, so that programs can be compared to the last digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
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
SCALAR = TensorType((), FLOAT)
SHAPES: tuple[tuple[int, ...], ...] = ((2,), (), (3,), (2, 2))
STATE = TupleType((TensorType((2,), FLOAT), TensorType((2,), FLOAT)))
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


@dataclass(frozen=True, slots=True)
class Declared:
    """A declaration being defined: what it is given and yields, and how its objects are drawn."""

    call: Callable[[], Block]
    given: Given
    type: Type
    data: Data


@dataclass(frozen=True, slots=True)
class BlockProgram:
    """A whole program with examples to run it on."""

    block: Block
    examples: list[Any]
    seed: int

    def __repr__(self) -> str:
        examples = "\n  ".join(map(repr, self.examples))
        return f"BlockProgram(seed={self.seed})\n  {self.block!r}\nexamples\n  {examples}"


def _is_tensors(type_: Type) -> bool:
    """Whether a type is a tensor, or a nest of tuples of tensors that is not empty."""
    if isinstance(type_, TupleType):
        return bool(type_.items) and all(map(_is_tensors, type_.items))
    return isinstance(type_, TensorType)


def _tensors_in(type_: Type) -> list[TensorType]:
    if isinstance(type_, TupleType):
        return [t for item in type_.items for t in _tensors_in(item)]
    return [type_] if isinstance(type_, TensorType) else []


class Expression:
    """A random function of tensors: steps chosen by numbers, the same at every call.

    Its parameters are made at the first call and belong to it from then on.
    """

    def __init__(self, steps: Sequence[tuple[int, int, int]], picks: Sequence[int], out: Type, weights: Sequence[Parameter]) -> None:
        self.steps = steps
        self.picks = picks
        self.out = out
        self.free = weights
        self.weights: dict[tuple[int, ...], Parameter] = {}
        self.__name__ = f"expression{len(steps)}"

    def __call__(self, *xs: Any) -> Any:
        nodes = [node for x in xs for node in _flat(x) if node.dtype == FLOAT]
        nodes += lift("expression", tuple(self.free)) or [lift("expression", (np.array([0.5, -0.25]),))[0]]
        for which, i, j in self.steps:
            a, b = nodes[-1 - i % len(nodes)], nodes[-1 - j % len(nodes)]
            try:
                node = STEPS[which % len(STEPS)](a, b, self)
            except GraphError:
                continue
            if prod(node.shape) <= 24:
                nodes.append(node)
        picks = iter(self.picks)
        return self._built(self.out, nodes, picks)

    def _built(self, type_: Type, nodes: list[Node], picks: Iterator[int]) -> Any:
        if isinstance(type_, TupleType):
            return [self._built(item, nodes, picks) for item in type_.items]
        assert isinstance(type_, TensorType)
        node = nodes[-1 - next(picks, 0) % len(nodes)]
        return self.shaped(ops.segment_sum(node) if node.axis.rank == 2 else node, type_.shape)

    def shaped(self, node: Node, shape: tuple[int, ...]) -> Node:
        """Return a node of another shape, through a weight where sizes differ."""
        if prod(node.shape) != prod(shape):
            node = ops.tanh(ops.reshape(node, -1) @ self.weight((prod(node.shape), prod(shape))))
        return ops.reshape(node, shape)

    def weight(self, shape: tuple[int, ...]) -> Parameter:
        """Return the expression's parameter of a shape."""
        if shape not in self.weights:
            self.weights[shape] = parameter(shape)
        return self.weights[shape]


def _flat(x: Any) -> Iterator[Node]:
    if isinstance(x, tuple | list):
        for item in x:
            yield from _flat(item)
    elif x is not None:
        yield x


def parameter(shape: tuple[int, ...], *, trainable: bool = True) -> Parameter:
    """Return a new parameter of moderate random values."""
    return Parameter(TensorType(shape, FLOAT), lambda rng, s: rng.normal(0.0, 0.6, s), "w", trainable=trainable)


STEPS: tuple[Callable[[Node, Node, Expression], Node], ...] = (
    lambda a, b, e: a + b,
    lambda a, b, e: ops.tanh(a) * b,
    lambda a, b, e: ops.tanh(a @ e.weight((a.shape[-1] if a.shape else 0, 2))),
    lambda a, b, e: ops.sigmoid(a - b),
    lambda a, b, e: ops.concat([a, b]),
    lambda a, b, e: ops.stack([a, b, a]),
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
    lambda a, b, e: ops.where(ops.less(a, b), ops.tanh(a), ops.tanh(a)),
)


@dataclass(slots=True)
class Programs:
    """Makes recipes; holds what they may share."""

    draw: Draw
    left: int
    declared: list[Declared] = field(default_factory=list)
    made: list[tuple[Type, Given, Recipe]] = field(default_factory=list)
    layers: dict[tuple[Any, ...], Block] = field(default_factory=dict)
    free: list[Parameter] = field(default_factory=list)

    # -- choices

    def number(self, below: int) -> int:
        """Return a number from 0 to `below`, excluded; the simplest choice is 0."""
        return int(self.draw(st.integers(0, below - 1)))

    def one_of(self, choices: Sequence[Any]) -> Any:
        """Return one of several; the simplest stands first."""
        return choices[self.number(len(choices))]

    def tensor(self) -> TensorType:
        """Return a tensor type."""
        return TensorType(self.one_of(SHAPES), FLOAT)

    def operands(self, depth: int) -> Type:
        """Return a type that a function of tensors can read."""
        match self.number(6 if depth > 0 else 2):
            case 0:
                return self.tensor()
            case 1:
                return TupleType((self.tensor(), self.tensor()))
            case 2:
                return SequenceType(self.one_of([self.tensor(), STATE]))
            case 3:
                return TupleType((self.tensor(), SequenceType(self.tensor())))
            case 4:
                return TupleType((self.tensor(), STATE, VOID))
            case _:
                kind = self.tensor()
                return TupleType((kind, kind, kind))

    def result(self, depth: int = 2) -> Type:
        """Return a type that a program may yield."""
        match self.number(7 if depth > 0 else 2):
            case 0:
                return self.tensor()
            case 1:
                return TupleType((self.tensor(), self.tensor()))
            case 2:
                return SequenceType(self.result(depth - 1))
            case 3:
                return STATE
            case 4:
                return TupleType(tuple(self.result(depth - 1) for _ in range(self.number(4))))
            case 5:
                return VOID
            case _:
                return TupleType((OBJECT, self.result(depth - 1)))

    # -- reading a type from an object

    def read(self, type_: Type, depth: int, given: Given = ()) -> Recipe:
        """Return a recipe that yields a type."""
        self.left -= 1
        if depth <= 0 or self.left <= 0:
            return self._direct(type_, 0, given)
        ways = [self._direct, self._choice, self._recursion, self._let]
        if any(d.type == type_ and d.given == given for d in self.declared):
            ways += [self._call, self._call]
        if any(t == type_ and g == given for t, g, _ in self.made):
            ways.append(self._again)
        if _is_tensors(type_):
            ways += [self._derived, self._derived]
        if isinstance(type_, SequenceType | TupleType):
            ways.append(self._mapped)
        ways += [self._beside, self._wrapped]
        recipe: Recipe = self.one_of(ways)(type_, depth - 1, given)
        if not self.declared:  # a block that calls a declaration is at home in its definition only
            self.made.append((type_, given, recipe))
        return recipe

    def _direct(self, type_: Type, depth: int, given: Given) -> Recipe:
        match type_:
            case TensorType():
                return self._leaf(type_, given)
            case TupleType():
                return self._record(type_, depth, given)
            case SequenceType():
                return self._list(type_, depth, given)
            case VoidType():
                return Recipe(fb.Void(), _nothing)
            case ObjectType():
                return Recipe(_object(given), lambda source, depth: source.number(5))
        raise AssertionError(type_)

    def _leaf(self, type_: TensorType, given: Given) -> Recipe:
        ways: list[Recipe] = []
        shape = type_.shape
        ways.append(Recipe(_object(given) >> fb.Tensor(shape, FLOAT), lambda source, depth: source.floats(shape)))
        if type_ in given:
            ways = [Recipe(fb.GetItem(1 + given.index(type_)), _nothing), *ways]
        if len(shape) == 1:
            table = self._layer("embedding", *shape)
            dtype = self.one_of(["int32", "int64"])
            ways.append(Recipe(_object(given) >> fb.Scalar(dtype) >> table, lambda source, depth: source.number(4)))
        ways.append(Recipe(fb.FromTensor(np.full(shape, 0.25)), _nothing))
        ways.append(Recipe(fb.FromTensor(self._free(shape)), _nothing))
        ways.append(Recipe(_object(given) >> fb.Scalar("bool") >> fb.Function(_Cast(shape)), lambda s, _: bool(s.number(2))))
        recipe: Recipe = self.one_of(ways)
        return recipe

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
                    frozen = self.number(5) == 4
                    self.layers[key] = fb.Embedding(4, sizes[0], "glorot_normal", dtype=FLOAT, trainable=not frozen)
                case "linear":
                    self.layers[key] = fb.Linear(sizes[1], self.one_of([None, "tanh", "softmax"]), bias=self.number(3) < 2)
                case "tree":
                    self.layers[key] = fb.TreeLSTM(2, arity=sizes[1])
                case _:
                    self.layers[key] = fb.ChildSumTreeLSTM(2)
        return self.layers[key]

    def _record(self, type_: TupleType, depth: int, given: Given) -> Recipe:
        parts = [self.read(item, depth, given) for item in type_.items]
        keys: list[Any] = list(range(len(parts)))
        way = self.number(4)
        if way in (1, 2):
            keys = ["a", "b", ("c", 1), None, "e", "f"][: len(parts)]
        if given or way == 3:
            block: Block = fb.AllOf(*(_narrow(key, given) >> part.block for key, part in zip(keys, parts, strict=True)))
        elif way == 1:
            block = fb.Record({key: part.block for key, part in zip(keys, parts, strict=True)})
        elif way == 2:
            block = fb.Record([(key, part.block) for key, part in zip(keys, parts, strict=True)])
        else:
            block = fb.Record(tuple(part.block for part in parts))

        def data(source: Source, depth: int) -> Any:
            items = [part.data(source, depth) for part in parts]
            return dict(zip(keys, items, strict=True)) if way in (1, 2) else items

        return Recipe(block, data)

    def _list(self, type_: SequenceType, depth: int, given: Given) -> Recipe:
        element = self.read(type_.element, depth)
        block = _object(given) >> fb.Map(element.block)

        def data(source: Source, depth: int) -> Any:
            return [element.data(source, depth) for _ in range(source.number(4))]

        return Recipe(block, data)

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
        inputs = TupleType((OBJECT, *given)) if given else OBJECT
        declaration = fb.ForwardDeclaration(inputs, type_, self.one_of(["tree", "a b", "2"]))
        parts: list[Recipe] = []

        def data(source: Source, depth: int) -> Any:
            source.left -= 1
            further = depth > 0 and source.left > 0 and source.number(4) > 0
            return {"more": further, "x": parts[further].data(source, depth - further)}

        me = Declared(declaration, given, type_, data)
        early = self.number(2)
        calls = declaration() if early else None
        parts.append(self.read(type_, depth - 1, given))
        self.declared.append(me)
        parts.append(self._body(me, depth))
        self.declared.remove(me)
        self.made = [entry for entry in self.made if entry[2] is not parts[1]]
        cases = {more: _narrow("x", given) >> part.block for more, part in enumerate(parts)}
        declaration.resolve_to(fb.OneOf(_object(given) >> fb.GetItem("more"), cases))
        return Recipe(calls or declaration(), data)

    def _body(self, me: Declared, depth: int) -> Recipe:
        """Return a definition in which the declaration is sure to be called."""
        call = Recipe(me.call(), me.data)
        match self.number(5):
            case 0 if _is_tensors(me.type):
                sides = [call, call] if self.number(2) else [call, self.read(self.tensor(), depth, me.given)]
                types = [me.type, me.type] if sides[1] is call else [me.type, self.tensor()]
                if sides[1] is not call:
                    sides[1] = self.read(types[1], depth, me.given)
                return self._then(self._both(sides, me.given), self.function(TupleType(tuple(types)), me.type))
            case 1 if _is_tensors(me.type) and not me.given:
                many = self._many(call, SequenceType(me.type))
                if me.type == STATE and self.number(2) == 0:
                    x = self.read(self.one_of([self.tensor_of(3), VOID]), depth)
                    # a child-sum cell without children needs an x: give it one of its own
                    pair = self._both([self.read(self.tensor_of(3), depth), many], ())
                    return self._then(pair, self._layer("child_sum")) if x else pair
                return self._then(many, self.function(SequenceType(me.type), me.type))
            case 2 if me.given:
                bound = [self.read(t, depth, me.given) for t in me.given]
                inner = self._both([Recipe(_object(me.given), me.data), *bound], me.given)
                return self._then(inner, me.call())
            case 3:
                return self._then(self._both([call, self.read(VOID, depth, me.given)], me.given), fb.GetItem(0))
        return self.read(me.type, depth, me.given)

    def tensor_of(self, size: int) -> TensorType:
        """Return the type of a vector."""
        return TensorType((size,), FLOAT)

    def _many(self, call: Recipe, type_: SequenceType) -> Recipe:
        return Recipe(fb.Map(call.block), lambda source, depth: [call.data(source, depth) for _ in range(source.number(4))])

    def _both(self, parts: Sequence[Recipe], given: Given) -> Recipe:
        """Return a recipe of a tuple."""
        block = fb.AllOf(*(_narrow(i, given) >> part.block for i, part in enumerate(parts)))
        return Recipe(block, lambda source, depth: [part.data(source, depth) for part in parts])

    def _then(self, recipe: Recipe, *blocks: Any) -> Recipe:
        return Recipe(fb.Pipe(recipe.block, *blocks), recipe.data)

    def _call(self, type_: Type, depth: int, given: Given) -> Recipe:
        found = [d for d in self.declared if d.type == type_ and d.given == given]
        declared = self.one_of(found)
        return Recipe(declared.call(), declared.data)

    def _again(self, type_: Type, depth: int, given: Given) -> Recipe:
        """The very block used elsewhere, or one block twice on the same data."""
        recipe: Recipe = self.one_of([r for t, g, r in self.made if t == type_ and g == given])
        return recipe if self.number(2) else self._then(replace(recipe, block=fb.AllOf(recipe.block, recipe.block)), fb.GetItem(1))

    def _let(self, type_: Type, depth: int, given: Given) -> Recipe:
        """A tensor read here, used in another block's regions."""
        bound = self.tensor()
        head, body = self.read(bound, depth, given), self.read(type_, depth, (*given, bound)[-2:])
        kept = given[-1:]
        parts = [Recipe(_object(given), body.data), *(Recipe(fb.GetItem(len(given) - len(kept) + 1 + i), _nothing) for i in range(len(kept))), head]
        if not given:
            return self._then(self._both(parts, given), body.block)
        passed = [_narrow(0, given) >> parts[0].block, *(p.block for p in parts[1:-1]), _narrow(2, given) >> head.block]
        block = fb.AllOf(*passed) >> body.block
        return Recipe(block, lambda source, depth: [body.data(source, depth), None, head.data(source, depth)])

    def _derived(self, type_: Type, depth: int, given: Given) -> Recipe:
        """Compute the type from another one."""
        if isinstance(type_, TensorType) and len(type_.shape) == 1 and self.number(3) == 0:
            size = self.number(2) + 2
            return self._then(self.read(self.tensor_of(size), depth, given), self._layer("linear", size, *type_.shape))
        if isinstance(type_, TensorType) and type_.shape == (3,) and self.number(3) == 0:
            parts = TupleType((self.tensor_of(2), SCALAR))
            return self._then(self.read(parts, depth, given), fb.Concat())
        if type_ == STATE and self.number(3) < 2:
            return self._state(depth, given)
        source = self.operands(depth)
        recipe = self.read(source, depth, given)
        if isinstance(type_, TupleType) and self.number(2):  # one value, several readers
            return self._then(recipe, fb.AllOf(*(self.function(source, item) for item in type_.items)))
        return self._then(recipe, self.function(source, type_))

    def _state(self, depth: int, given: Given) -> Recipe:
        x = self.read(self.one_of([self.tensor_of(3), VOID]), depth, given)
        if isinstance(x.block, fb.Void) or self.number(2):
            kids = [self.read(STATE, depth, given) for _ in range(1 + self.number(2))]
            if self.number(3) == 0:
                kids.insert(0, Recipe(fb.Void(), _nothing))
            arity = max(2, len(kids)) + self.number(2)
            return self._then(self._both([x, self._both(kids, given)], given), self._layer("tree", 3, arity))
        many = self.read(SequenceType(STATE), depth, given)
        return self._then(self._both([self.read(self.tensor_of(3), depth, given), many], given), self._layer("child_sum"))

    def function(self, source: Type, target: Type) -> Block:
        """Return a random function of tensors, perhaps behind a declaration of its own."""
        steps = self.draw(st.lists(st.tuples(*[st.integers(0, 40)] * 3), max_size=6))
        picks = [self.number(4) for _ in _tensors_in(target)]
        free = [self._free((2,))] if self.number(4) == 3 else []
        block: Block = fb.Function(Expression(steps, picks, target, free))
        if self.number(6) == 5:
            declaration = fb.ForwardDeclaration(source, target, "f")
            declaration.resolve_to(block)
            return declaration()
        return block

    def _mapped(self, type_: Type, depth: int, given: Given) -> Recipe:
        """A sequence from another one, or from a tuple; a tuple from items of one."""
        if isinstance(type_, TupleType):
            wider = TupleType((*type_.items, self.tensor()))
            if self.number(2) == 0:
                return self._then(self.read(wider, depth, given), fb.GetItem(slice(0, len(type_.items))))
            return self._then(self.read(TupleType((type_, SCALAR)), depth, given), fb.GetItem(0))
        assert isinstance(type_, SequenceType)
        if not _is_tensors(type_.element):
            return self._direct(type_, depth, given)
        item = self.one_of([self.tensor(), STATE, SequenceType(self.tensor())])
        whole = SequenceType(item) if self.number(2) == 0 else TupleType((item,) * (1 + self.number(3)))
        return self._then(self.read(whole, depth, given), fb.Map(self.function(item, type_.element)))

    def _beside(self, type_: Type, depth: int, given: Given) -> Recipe:
        """A loss or a metric beside the value, of it or of something else."""
        main = self.read(type_, depth, given)
        if _is_tensors(type_) and self.number(2) == 0:
            return self._then(main, fb.AllOf(fb.Identity(), self._sink(type_)), fb.GetItem(0))
        if self.number(3) == 0 and not given:  # a labelled metric, or a loss with a class
            other = Recipe(fb.InputTransform(lambda x: x), lambda source, depth: source.number(3))
            value = self.read(self.tensor_of(3), depth)
            if self.number(2):
                side = self._then(self._both([value, other], ()), fb.Metric("labelled"))
            else:
                label = self._then(other, fb.Scalar("int32"))
                side = self._then(self._both([value, label], ()), fb.Function(ops.cross_entropy), fb.Loss("entropy"))
        else:
            kind = self.tensor()
            side = self._then(self.read(kind, depth, given), self._sink(kind))
        parts = [main, side]
        if self.number(2):
            return self._then(self._both(parts, given), fb.GetItem(0))
        return self._then(self._both(parts[::-1], given), fb.GetItem(1))

    def _sink(self, type_: Type) -> Block:
        """A block that lets a value of tensors go into a loss or a metric."""
        if isinstance(type_, TensorType) and self.number(3) == 0:
            return fb.Metric(f"metric of {type_}")
        if type_ == SCALAR and self.number(3) == 0:
            return fb.Loss("plain")
        return self.function(type_, SCALAR) >> fb.Loss(self.one_of(["loss", "other"]))

    def _wrapped(self, type_: Type, depth: int, given: Given) -> Recipe:
        inner = self.read(type_, depth, given)
        if given:
            block = fb.AllOf(fb.GetItem(0) >> fb.InputTransform(_opened), *map(fb.GetItem, range(1, len(given) + 1))) >> inner.block
        else:
            block = fb.InputTransform(_opened) >> inner.block >> fb.Identity()
        return Recipe(block, lambda source, depth: {"closed": inner.data(source, depth)})


def _opened(x: Any) -> Any:
    return x["closed"]


def _nothing(source: Source, depth: int) -> Any:
    return None


class _Cast:
    """The float tensor of a shape that a bool stands for."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.__name__ = f"cast{list(shape)}"

    def __call__(self, x: Node) -> Node:
        return ops.broadcast_to(ops.cast(x, FLOAT), self.shape)


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
    """Return a random program with a loss of all it yields, and random examples, perhaps none."""
    seed = draw(st.integers(0, 2**32 - 1))
    maker = Programs(draw, size)
    type_ = maker.result()
    recipe = maker.read(type_, depth)
    if _is_tensors(type_) and maker.number(4) < 3:
        recipe = maker._then(recipe, fb.AllOf(fb.Identity(), maker.function(type_, SCALAR) >> fb.Loss()), fb.GetItem(0))
    rng = np.random.default_rng(seed)
    count = draw(st.integers(1, examples))
    return BlockProgram(recipe.block, [recipe.data(Source(rng), 3) for _ in range(count)], seed)
