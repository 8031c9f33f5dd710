"""Recipes: blocks that read one Python object, with a way to draw objects that fit them.

Recipes *given* something read ``(object, value, ...)``: values made in one region and used in another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import foldbatch as fb
from foldbatch.blocks.block import Block
from foldbatch.types import ObjectType, TensorType, TupleType, Type
from tests.oracle import Meaning, meaning

FLOAT = os.environ.get("FOLDBATCH_FLOAT") or "float64"
SCALAR, PAIR, TRIPLE, SQUARE = (TensorType(shape, FLOAT) for shape in ((), (2,), (3,), (2, 2)))
TENSORS = (PAIR, SCALAR, TRIPLE, SQUARE)
ID, FLAG = TensorType((), "int32"), TensorType((), "bool")  # an id is 0, 1 or 2
STATE = TupleType((PAIR, PAIR))  # of the LSTMs
Given = tuple[Type, ...]


@dataclass(slots=True)
class Source:
    """Where data is drawn from: random numbers, and how many more objects may be made.

    Where it is `poisoned`, what only losses and metrics read is drawn, and then replaced by what nobody can read.
    """

    rng: np.random.Generator
    left: int = 60
    poisoned: bool = False

    def number(self, below: int) -> int:
        return int(self.rng.integers(below))

    def floats(self, shape: tuple[int, ...]) -> Any:
        return self.rng.normal(size=shape).round(3).tolist()

    def apart(self, count: int, shape: tuple[int, ...]) -> list[Any]:
        """Return tensors whose elements at any one place differ by 1/2 or more."""
        places = np.broadcast_to(np.arange(count).reshape(-1, *[1] * len(shape)), (count, *shape))
        found: list[Any] = (0.5 * self.rng.permuted(places, axis=0) - 0.75).tolist()
        return found


Data = Callable[[Source, int], Any]  # the number bounds how deep recursive data may still go


@dataclass(frozen=True, slots=True)
class Recipe:
    """A block that reads an object (and what is given), and a way to draw such objects."""

    block: Block
    data: Data

    def then(self, *blocks: Any) -> Recipe:
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
    poisoned: Sequence[Any] = ()  # the same examples, but what only losses and metrics read cannot be read

    def meant(self, example: Any) -> Meaning:
        return meaning(self.block, example)

    def __repr__(self) -> str:
        examples = "\n  ".join(map(repr, self.examples))
        return f"BlockProgram(seed={self.seed})\n  {self.block!r}\nexamples\n  {examples}"


def is_of_floats(type_: Type) -> bool:
    """Whether a type is a tensor of floats, or a nest of tuples of them that is not empty."""
    if isinstance(type_, TupleType):
        return bool(type_.items) and all(map(is_of_floats, type_.items))
    return isinstance(type_, TensorType) and type_.is_float


def has_zero(type_: Type) -> bool:
    """Whether a type has a zero: whether no objects are in it."""
    if isinstance(type_, TupleType):
        return all(map(has_zero, type_.items))
    return not isinstance(type_, ObjectType)


def is_vector(type_: Type) -> bool:
    return isinstance(type_, TensorType) and type_.is_float and len(type_.shape) == 1


def tensors_in(type_: Type) -> list[TensorType]:
    if isinstance(type_, TupleType):
        return [t for item in type_.items for t in tensors_in(item)]
    return [type_] if isinstance(type_, TensorType) else []


def nothing(source: Source, depth: int) -> Any:
    return None


def aside(recipe: Recipe) -> Recipe:
    """Return a recipe whose data only losses and metrics read."""

    def data(source: Source, depth: int) -> Any:
        drawn = recipe.data(source, depth)
        return object() if source.poisoned else drawn

    return Recipe(recipe.block, data)


def a_number(below: int) -> Data:
    return lambda source, depth: source.number(below)


def each_of(recipes: Sequence[Recipe]) -> Data:
    return lambda source, depth: [recipe.data(source, depth) for recipe in recipes]


def many_of(recipe: Recipe, least: int = 0, below: int = 4) -> Data:
    return lambda source, depth: [
        recipe.data(source, depth) for _ in range(least + source.number(below - least))
    ]


def whole(given: Given) -> Block:
    return fb.GetItem(0) if given else fb.Identity()


def narrow(key: Any, given: Given) -> Block:
    """Return the block that goes on with an item of the object, and with all that is given."""
    if not given:
        return fb.GetItem(key)
    return fb.AllOf(fb.GetItem(0) >> fb.GetItem(key), *map(fb.GetItem, range(1, len(given) + 1)))


def items(given: Given, listed: Block | None = None) -> Block:
    """Return the block that lists the object's items (or what `listed` lists), with all that is given."""
    if not given:
        return listed or fb.Identity()
    repeated = [fb.GetItem(i) >> fb.Broadcast() for i in range(1, len(given) + 1)]
    return fb.AllOf(fb.GetItem(0) >> (listed or fb.Identity()), *repeated) >> fb.Zip()


def spread(at: int, given: Given) -> list[Block]:
    """Return blocks that find the object and what is given in an item that `items` made."""
    if not given:
        return [fb.GetItem(at)]
    return [fb.GetItem(at) >> fb.GetItem(i) for i in range(len(given) + 1)]
