"""Maker: makes all choices of a program, and holds what its parts share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import foldbatch as fb
from foldbatch.blocks.block import Block
from foldbatch.params.parameters import Parameter
from foldbatch.types import OBJECT, VOID, SequenceType, TensorType, TupleType, Type
from tests.programs.expressions import STEPS, Expression, parameter
from tests.programs.recipes import (
    FLAG,
    FLOAT,
    ID,
    PAIR,
    SCALAR,
    STATE,
    TENSORS,
    Declared,
    Given,
    Recipe,
    each_of,
    is_of_floats,
    items,
    many_of,
    narrow,
    tensors_in,
)

Way = Callable[["Maker", Type, int, Given], Recipe]  # of making a recipe for a type, with what is given


@dataclass(slots=True)
class Maker:
    """Makes recipes; holds what they may share.

    It makes so many choices at random, the simplest from then on, and so many blocks, then only such
    as read directly. `ways` says how a type can be made; the first way is for when nothing more may be made.
    """

    rng: Random
    choices: int
    left: int
    ways: Callable[[Maker, Type, Given], Sequence[Way]]
    dropout: bool = False
    declared: list[Declared] = field(default_factory=list)
    made: list[tuple[Type, Given, Recipe]] = field(default_factory=list)
    layers: dict[tuple[Any, ...], Block] = field(default_factory=dict)
    parameters: list[Parameter] = field(default_factory=list)
    collected: list[Type] = field(default_factory=list)  # by the Collected blocks being made

    def number(self, below: int) -> int:
        self.choices -= 1
        return self.rng.randrange(below) if self.choices >= 0 else 0

    def one_of(self, choices: Sequence[Any]) -> Any:
        return choices[self.number(len(choices))]

    def read(self, type_: Type, depth: int, given: Given = ()) -> Recipe:
        self.left -= 1
        ways = self.ways(self, type_, given)
        if depth <= 0 or self.left <= 0:
            return ways[0](self, type_, 0, given)
        recipe: Recipe = self.one_of(ways)(self, type_, depth - 1, given)
        recipe = recipe.then(*self.collect(type_))
        if not self.declared:  # what calls a declaration is at home in its definition only
            self.made.append((type_, given, recipe))
        return recipe

    def collect(self, type_: Type) -> list[Block]:
        """Return, sometimes, the block that collects values of a type that are being collected."""
        return [fb.blocks.Collect(str(type_))] if type_ in self.collected and self.number(2) else []

    # -- types

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

    def floats(self) -> Type:
        type_: Type = self.one_of((*TENSORS, STATE))
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
                items = tuple(self.result(depth - 1) for _ in range(self.number(3)))
                return TupleType(items) if self.number(2) else VOID

    # -- recipes of recipes

    def both(self, parts: Sequence[Recipe], given: Given) -> Recipe:
        block = fb.AllOf(*(narrow(i, given) >> part.block for i, part in enumerate(parts)))
        return Recipe(block, each_of(parts))

    def listed(self, element: Recipe, given: Given = (), least: int = 0) -> Recipe:
        """Return a recipe of a sequence, whose elements are given the same."""
        data = many_of(element, least, self.one_of([4, 4, 6]))
        match self.number(7):
            case 6 if not given and not least:  # the values of a map
                named = lambda source, depth: {str(i): x for i, x in enumerate(data(source, depth))}  # noqa: E731
                return Recipe(fb.blocks.Items() >> fb.Map(fb.GetItem(1) >> element.block), named)
            case 4:  # of neighbours, one each
                n = 1 + self.number(3)
                block = items(given, fb.NGrams(n)) >> fb.Map(narrow(self.number(n), given) >> element.block)
                return Recipe(block, many_of(element, least + n - 1, 3 + n))
            case 5 if not least:  # of some
                bounds = slice(self.number(3), None, self.one_of([1, 2, -1]))
                part = (
                    fb.GetItem(bounds) if self.number(2) else fb.Slice(start=bounds.start, step=bounds.step)
                )
                return Recipe(items(given, part) >> fb.Map(element.block), data)
            case 3 if not given:  # two lists side by side
                both = self.both([element, element], ()).then(fb.GetItem(self.number(2)))
                pair = lambda source, depth: [data(source, depth), data(source, depth)]  # noqa: E731
                return Recipe(fb.AllOf(fb.GetItem(0), fb.GetItem(1)) >> fb.ZipWith(both.block), pair)
        return Recipe(items(given) >> fb.Map(element.block), data)

    # -- blocks

    def free(self, shape: tuple[int, ...]) -> Parameter:
        """Return a parameter that stands alone, perhaps one used elsewhere."""
        known = [p for p in self.parameters if p.type.shape == shape]
        if known and self.number(2) == 0:
            return known[0]
        self.parameters.append(parameter(shape, trainable=self.number(4) < 3))
        return self.parameters[-1]

    def constant(self, type_: Type) -> Block:
        """Return a block that reads nothing."""
        if is_of_floats(type_) and self.number(3):
            if isinstance(type_, TupleType):
                parts = tuple(map(self.constant, type_.items))
                return fb.AllOf(*parts) if self.number(2) else fb.Record(parts)
            assert isinstance(type_, TensorType)
            if self.number(2):
                return fb.FromTensor(self.free(type_.shape))
            return fb.FromTensor(self.free((2,))) >> self.function(PAIR, type_)
        if isinstance(type_, SequenceType) and is_of_floats(type_.element) and self.number(2):
            parts = [self.constant(PAIR) for _ in range(1 + self.number(2))]
            return fb.AllOf(*parts) >> fb.Map(self.function(PAIR, type_.element))
        return fb.Zeros(type_)

    def function(self, source: Type, target: Type) -> Block:
        """Return a random function of tensors, perhaps behind a declaration of its own."""
        steps = [(self.number(len(STEPS)), self.number(8), self.number(8)) for _ in range(self.number(7))]
        picks = [self.number(4) for _ in tensors_in(target)]
        free = [self.free((2,))] if self.number(2) else []
        block: Block = fb.Function(Expression(steps, picks, target, free))
        if self.number(6) == 5:
            declaration = fb.ForwardDeclaration(source, target, "f")
            declaration.resolve_to(block)
            return declaration()
        return block

    def sink(self, type_: Type) -> Block:
        """Return a block that lets a value of tensors go into a loss or a metric."""
        if isinstance(type_, TensorType) and self.number(3) == 2:
            return fb.Metric(f"metric of {type_}")
        if type_ == SCALAR and self.number(3) == 0:
            return fb.Loss("plain")
        return self.function(type_, SCALAR) >> fb.Loss(self.one_of(["loss", "other"]))

    def layer(self, kind: str, *sizes: int) -> Block:
        key = (kind, *sizes)
        if key not in self.layers or self.number(2):
            self.layers[key] = self._new_layer(kind, *sizes)
        return self.layers[key]

    def _new_layer(self, kind: str, *sizes: int) -> Block:
        match kind:
            case "embedding":
                trainable = self.number(5) < 4
                return fb.Embedding(4, sizes[0], "glorot_normal", dtype=FLOAT, trainable=trainable)
            case "linear":
                activation = self.one_of([None, "tanh", "softmax"])
                return fb.Linear(sizes[1], activation, bias=self.number(3) < 2)
            case "layer norm":
                return fb.blocks.LayerNorm(0.1)  # with less, it is too steep for finite differences
            case "attention":
                return fb.blocks.Attention(3)
            case "lstm":
                return fb.LSTMCell(2)
            case "gru":
                return fb.GRUCell(2, reset_after=self.number(2) == 0)
            case "tree lstm":
                return fb.TreeLSTM(2, arity=sizes[1])
            case "child sum":
                return fb.ChildSumTreeLSTM(2)
            case "tree rnn":
                return fb.blocks.TreeRNN(2, arity=sizes[1])
            case "rntn":
                return fb.blocks.RNTN(2)
        assert kind == "tree gru", kind
        return fb.blocks.TreeGRU(2)
