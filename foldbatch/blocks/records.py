"""Blocks that apply several blocks side by side and yield a tuple."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from foldbatch.blocks.block import BLOCK_LIKES, Block, as_block, build
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.leaves import GetItem
from foldbatch.blocks.values import Object, Value, type_of
from foldbatch.errors import BlockTypeError


class Record(Block):
    """Applies a block to each of several items of its input; the results form a tuple.

    Args:
        blocks: a dict from key to block (outputs keep its order), pairs of them, or a tuple or
            list of blocks whose keys are 0, 1, ... The input is an object or a tuple.

    Raises:
        BlockTypeError: when the input has no items, or a tuple of another length.
        ExampleKeyError: when tracing, where the object lacks a key.

    >>> from foldbatch.blocks.leaves import Scalar
    >>> Record({"a": Scalar(), "b": Scalar("int32")}).eval({"a": 1, "b": 2})
    (array(1., dtype=float32), array(2, dtype=int32))
    """

    def __init__(self, blocks: Mapping[Any, Any] | Iterable[Any]) -> None:
        if isinstance(blocks, Mapping):
            items = list(blocks.items())
            self.named = True
        else:
            parts = list(blocks)
            self.named = bool(parts) and all(isinstance(p, tuple) and len(p) == 2 and not isinstance(p[0], Block) for p in parts)
            items = parts if self.named else list(enumerate(parts))
        self.blocks = tuple((key, as_block(block)) for key, block in items)

    def build(self, builder: Builder, value: Value) -> tuple[Value, ...]:
        where = f"{builder.path} {type(self).__name__}"
        match value:
            case tuple() if self.named:
                raise BlockTypeError(where, "an object with named items", str(type_of(value)), "give the blocks as a tuple")
            case tuple() if len(value) != len(self.blocks):
                raise BlockTypeError(where, f"a tuple of {len(self.blocks)}", str(type_of(value)), "one block an item")
            case Object() | tuple():
                pass
            case _:
                raise BlockTypeError(where, "an object or a tuple", str(type_of(value)))
        results = []
        for key, block in self.blocks:
            with builder.at(f"[{key!r}]"):
                results.append(build(block, builder, GetItem(key).build(builder, value)))
        return tuple(results)

    def arguments(self) -> str:
        if self.named:
            return "{" + ", ".join(f"{key!r}: {block!r}" for key, block in self.blocks) + "}"
        inner = ", ".join(repr(block) for _, block in self.blocks)
        return f"({inner},)" if len(self.blocks) == 1 else f"({inner})"


class AllOf(Block):
    """Gives the same input to several blocks; the results form a tuple.

    >>> from foldbatch.blocks.leaves import Scalar
    >>> AllOf(Scalar(), Scalar("int32")).eval(1)
    (array(1., dtype=float32), array(1, dtype=int32))
    """

    def __init__(self, *blocks: Any) -> None:
        self.blocks = tuple(map(as_block, blocks))

    def build(self, builder: Builder, value: Value) -> tuple[Value, ...]:
        results = []
        for number, block in enumerate(self.blocks):
            with builder.at(f"[{number}]"):
                results.append(build(block, builder, value))
        return tuple(results)

    def arguments(self) -> str:
        return ", ".join(map(repr, self.blocks))


BLOCK_LIKES.append(((Mapping, list, tuple), Record))
