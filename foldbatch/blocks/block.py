"""Block: an immutable recipe from one typed value to another.

A block has one method that matters, ``build(builder, value) -> value``, which says what it does
to a symbolic value; types flow from input to output, once. Blocks know no parents and keep no
types, so one block may stand in several places and programs. `Pipe` joins two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from foldbatch.errors import BlockTypeError, GraphError
from foldbatch.params import Parameter
from foldbatch.static.graph import Node, constant, parameter_node

if TYPE_CHECKING:
    from foldbatch.blocks.builder import Builder
    from foldbatch.blocks.values import Value

# Running a block alone needs the floors above; `program` enters its functions here.
RUNNERS: dict[str, Callable[..., Any]] = {}


class Block:
    """A recipe for one example; combine blocks with ``>>`` and the other combinators.

    Subclasses say how to build in `build`, and their constructor's arguments in `arguments`.
    """

    def build(self, builder: Builder, value: Value) -> Value:
        """Return what becomes of `value`; raises BlockTypeError where it cannot be used."""
        raise NotImplementedError

    def arguments(self) -> str:
        """Return the constructor's arguments as text, for `repr`."""
        return ""

    def __rshift__(self, other: Any) -> Block:
        return Pipe(self, other)

    def __rrshift__(self, other: Any) -> Block:
        return Pipe(other, self)

    # an array on the left of >> must leave the operator to us
    __array_ufunc__ = None

    def eval(self, example: Any, backend: str = "auto") -> Any:
        """Return what the block makes of one example: nested arrays, lists and tuples.

        With metrics, returns ``(result, metrics)``, metrics by name. The block is compiled anew.

        Raises:
            BlockTypeError: when the block is ill typed.
            ExampleError: when the example does not fit it.
        """
        return RUNNERS["eval"](self, example, backend)

    def max_depth(self, example: Any) -> int:
        """Return how many levels the example needs, after blocks that run together are joined."""
        depth: int = RUNNERS["max_depth"](self, example)
        return depth

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.arguments()})"


def build(block: Block, builder: Builder, value: Value) -> Value:
    """Build a block, turning the errors of tensor expressions into errors of the block."""
    try:
        return block.build(builder, value)
    except GraphError as error:
        where = f"{builder.path} {block!r} in {error.where}"
        raise BlockTypeError(where, error.expected, error.found, error.fix) from error


class Pipe(Block):
    """Blocks one after the other; ``a >> b`` makes one.

    Raises:
        BlockTypeError: when an operand is no block, nor anything that stands for one.
    """

    def __init__(self, *blocks: Any) -> None:
        parts: list[Block] = []
        for block in map(as_block, blocks):
            parts += block.blocks if isinstance(block, Pipe) else [block]
        self.blocks = tuple(parts)

    def build(self, builder: Builder, value: Value) -> Value:
        for block in self.blocks:
            value = build(block, builder, value)
        return value

    def __repr__(self) -> str:
        return " >> ".join(map(repr, self.blocks)) if self.blocks else "Pipe()"


class FromTensor(Block):
    """A constant array or a parameter, whatever the input.

    Args:
        tensor: an array, a number or a `foldbatch.Parameter`.
    """

    def __init__(self, tensor: Any) -> None:
        if not isinstance(tensor, Parameter | np.ndarray | np.generic | int | float):
            raise BlockTypeError("FromTensor", "an array or a Parameter", type(tensor).__name__, "convert it with np.asarray")
        self.tensor = tensor

    def build(self, builder: Builder, value: Value) -> Node:
        node = parameter_node(self.tensor) if isinstance(self.tensor, Parameter) else constant(self.tensor)
        builder.note(node)
        return node

    def arguments(self) -> str:
        return repr(self.tensor)


# What stands for a block: filled by the modules that define the blocks.
BLOCK_LIKES: list[tuple[tuple[type, ...], Callable[[Any], Block]]] = [
    ((np.ndarray, np.generic, Parameter), FromTensor),
]


def as_block(value: Any) -> Block:
    """Return the block that a value stands for.

    A Block stands for itself, an array or a Parameter for FromTensor, a dict, list or tuple for
    Record.

    Raises:
        BlockTypeError: for anything else.
    """
    if isinstance(value, Block):
        return value
    for types, convert in BLOCK_LIKES:
        if isinstance(value, types):
            return convert(value)
    expected = "a block, an array, a Parameter, or a dict, list or tuple of these"
    kind = "a function" if callable(value) else type(value).__name__
    fix = "wrap it in Function (tensors) or InputTransform (objects)" if callable(value) else "see foldbatch's blocks"
    raise BlockTypeError("block", expected, f"{kind} {value!r}"[:80], fix)


def named(name: object, where: str) -> str:
    """Return a name, refusing what is no string."""
    if not isinstance(name, str):
        raise BlockTypeError(where, "a string for name", type(name).__name__)
    return name

