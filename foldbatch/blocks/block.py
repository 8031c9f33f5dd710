"""Block: an immutable recipe from one typed value to another.

A block has one method that matters, ``build(builder, value) -> value``, which says what it does
to a symbolic value; types flow from input to output, once. Blocks know no parents and keep no
types, so one block may stand in several places and programs. `Pipe` joins two.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from foldbatch.errors import BlockTypeError, BlockValueError, GraphError
from foldbatch.params import Parameter
from foldbatch.static.graph import Node, constant, parameter_node
from foldbatch.types import describe_value

if TYPE_CHECKING:
    from foldbatch.blocks.builder import Builder
    from foldbatch.blocks.values import Value

# Running a block alone needs the floors above; `program` enters its functions here.
RUNNERS: dict[str, Callable[..., Any]] = {}

LONGEST = 60  # characters of a block's repr in an error


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
        inside = "" if error.where == repr(block) else f" in {error.where}"
        where = builder.where(block) + inside
        raise BlockTypeError(where, error.expected, error.found, error.fix) from error


class Pipe(Block):
    """Blocks one after the other; ``a >> b`` makes one.

    Raises:
        BlockTypeError: when an operand is no block, nor anything that stands for one.
    """

    def __init__(self, *blocks: Any) -> None:
        parts: list[Block] = []
        for block in blocks:
            part = as_block(block, ">>")
            parts += part.blocks if isinstance(part, Pipe) else [part]
        self.blocks: tuple[Block, ...] = tuple(parts)

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

    Raises:
        BlockTypeError: when it is none of these, or an array of another kind than numbers.

    >>> FromTensor(np.array([1, 2])).eval("whatever")
    array([1, 2])
    """

    def __init__(self, tensor: Any) -> None:
        if not isinstance(tensor, Parameter | np.ndarray | np.generic | int | float):
            found, fix = describe_value(tensor), "convert it with np.asarray"
            raise BlockTypeError("FromTensor", "an array or a Parameter", found, fix)
        if isinstance(tensor, np.ndarray | np.generic) and tensor.dtype.kind not in "fiub":
            raise BlockTypeError(
                "FromTensor", "an array of numbers", describe_value(tensor), "encode it as numbers"
            )
        self.tensor = tensor if isinstance(tensor, Parameter) else constant(tensor)

    def build(self, builder: Builder, value: Value) -> Node:
        node = parameter_node(self.tensor) if isinstance(self.tensor, Parameter) else self.tensor
        builder.note(node)
        return node

    def arguments(self) -> str:
        return repr(self.tensor) if isinstance(self.tensor, Parameter) else str(self.tensor.type)


# What stands for a block: filled by the modules that define the blocks.
BLOCK_LIKES: list[tuple[tuple[type, ...], Callable[[Any], Block]]] = [
    ((np.ndarray, np.generic, Parameter), FromTensor),
]


def as_block(value: Any, where: str = "block") -> Block:
    """Return the block that a value stands for.

    A Block stands for itself, an array or a Parameter for FromTensor, a dict, list or tuple for
    Record.

    Args:
        value: the block, or what stands for one.
        where: who asks, for errors.

    Raises:
        BlockTypeError: for anything else.
    """
    if isinstance(value, Block):
        return value
    for types, convert in BLOCK_LIKES:
        if isinstance(value, types):
            return convert(value)
    expected = "a block, an array, a Parameter, or a dict, list or tuple of these"
    match value:
        case type() if issubclass(value, Block):
            found, fix = f"the class {value.__name__}", f"make a block of it: {value.__name__}(...)"
        case int() | float():
            found, fix = describe_value(value), "wrap a constant in FromTensor"
        case str():
            found, fix = describe_value(value), f"to read an item, write GetItem({value!r})"
        case None:
            found, fix = "None", "Void() is the block that yields nothing"
        case _ if hasattr(value, "resolve_to"):
            found, fix = "a declaration itself", "call it, as in tree(): that gives a block"
        case _ if callable(value):
            found = f"the function {getattr(value, '__name__', repr(value))}"
            fix = "wrap it in Function (of tensors) or in InputTransform (of objects)"
        case _:
            found, fix = describe_value(value), "combine blocks only"
    raise BlockTypeError(where, expected, found, fix)


def keyed(blocks: object, where: str) -> tuple[list[tuple[Any, Block]], bool]:
    """Return pairs of key and block, and whether the keys were given or are 0, 1, ...

    Args:
        blocks: a dict, pairs of key and block, or a tuple or list of blocks.
        where: who asks, for errors.

    Raises:
        BlockTypeError: when it is none of these.
        BlockValueError: when a key stands twice.
    """
    if isinstance(blocks, Mapping):
        items, given = list(blocks.items()), True
    elif isinstance(blocks, Iterable) and not isinstance(blocks, str | bytes | Block | np.ndarray):
        parts = list(blocks)
        given = bool(parts) and all(isinstance(p, tuple) and len(p) == 2 and _is_key(p[0]) for p in parts)
        items = parts if given else list(enumerate(parts))
    else:
        fix = (
            "put a comma behind a single one"
            if isinstance(blocks, Block)
            else "for example {'left': Scalar()}"
        )
        found = repr(blocks) if isinstance(blocks, Block) else describe_value(blocks)
        raise BlockTypeError(where, "a dict, pairs, or a tuple or list of blocks", found, fix)
    found_keys: set[Any] = set()
    for key, _ in items:
        if key in found_keys:
            raise BlockValueError(where, "every key once", f"{key!r} twice", "drop or rename one")
        found_keys.add(key)
    return [(key, as_block(block, f"{where}[{key!r}]")) for key, block in items], given


def _is_key(value: Any) -> bool:
    """Whether the first of two is a key rather than another block."""
    if isinstance(value, tuple):
        return all(map(_is_key, value))
    return isinstance(value, Hashable) and not isinstance(value, Block | Parameter)


def named(name: object, where: str) -> str:
    """Return a name, refusing what is no string."""
    if not isinstance(name, str):
        raise BlockTypeError(where, "a string as name", describe_value(name), "leave it out for a default")
    return name


def function_name(fn: Callable[..., Any]) -> str:
    """Return how a user's function is called in `repr` and in errors.

    >>> function_name(len), function_name(lambda x: x)
    ('len', '<lambda>')
    """
    name = getattr(fn, "__name__", None)
    return name if isinstance(name, str) else type(fn).__name__


def shown(block: Block) -> str:
    """Return a block's `repr` for errors: its kind alone where it is long.

    >>> shown(FromTensor(1)), shown(Pipe(*[FromTensor(1)] * 9))
    ('FromTensor(int64)', 'Pipe(...)')
    """
    text = repr(block)
    return text if len(text) <= LONGEST else f"{type(block).__name__}(...)"
