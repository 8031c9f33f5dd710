"""Blocks that apply several blocks side by side and yield a tuple."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias, get_args

from foldbatch.blocks.block import BLOCK_LIKES, Block, as_block, build, check, keyed
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.items import GetItem
from foldbatch.blocks.positions import refuse_rest
from foldbatch.blocks.settings import settings_of
from foldbatch.blocks.values import Object, Value, type_of
from foldbatch.errors import BlockOrderError, BlockTypeError, BlockValueError
from foldbatch.types import OBJECT, VOID, ObjectType, TupleType, Type, VoidType, describe_value

Rest: TypeAlias = Literal["error", "ignore"]  # what may become of items that no block reads


class Record(Block[ObjectType | TupleType | VoidType, TupleType]):
    """Applies a block to each of several items of its input; the results form a tuple.

    Args:
        blocks: a dict from key to block (outputs keep its order), pairs of them, or a tuple or
            list of blocks whose keys are 0, 1, ... The input is an object or a tuple; or nothing, and
            then no block may read anything: so blocks in a tuple make a first state of `RNN`.
        rest: what becomes of items that blocks without keys do not read: "error" refuses them where the
            input is a tuple, or an object that is a tree, list, tuple, array or other sequence; "ignore"
            drops them. `Record(())` reads nothing, of an object or a tensor.

    Raises:
        BlockTypeError: when the blocks are none of these, or the input has no items, or is a tuple
            of another length; or a block reads something where there is nothing.
        BlockValueError: when a key stands twice, or `rest` is neither "error" nor "ignore".
        ExampleKeyError: when tracing, where the object lacks a key.
        ExampleIndexError: when tracing, where it has fewer items than blocks.
        ExampleError: when tracing, where it has more.

    >>> from foldbatch.blocks.leaves import Scalar
    >>> Record({"a": Scalar(), "b": Scalar("int32")}).eval({"a": 1, "b": 2})
    (array(1., dtype=float32), array(2, dtype=int32))
    >>> Record((Scalar(),), rest="ignore").eval([1, "more", "still more"])
    (array(1., dtype=float32),)
    """

    def __init__(self, blocks: Mapping[Any, Any] | Iterable[Any], *, rest: Rest = "error") -> None:
        if rest not in get_args(Rest):
            expected = f"rest as one of {', '.join(map(repr, get_args(Rest)))}"
            raise BlockValueError("Record", expected, describe_value(rest), "leave it out to refuse the rest")
        pairs, self.named = keyed(blocks, "Record")
        self.blocks = tuple(pairs)
        self.rest = rest
        check(self)

    def settings(self) -> dict[str, Any]:
        given: Any = (self.blocks or {}) if self.named else tuple(block for _, block in self.blocks)
        return {**settings_of(self), "blocks": given}

    @property
    def input_type(self) -> Type | None:
        return OBJECT if self.named or _reading([block.input_type for _, block in self.blocks]) else None

    def build(self, builder: Builder, value: Value) -> tuple[Value, ...]:
        where = builder.where(self)
        count, refuses = len(self.blocks), self.rest == "error"
        match value:
            case tuple() if self.named:
                fix = "give the blocks as a tuple"
                raise BlockOrderError(where, "an object with named items", str(type_of(value)), fix)
            case tuple() if len(value) < count or (refuses and len(value) > count):
                fix = "give one block for each item"
                raise BlockTypeError(where, f"a tuple of {count}", str(type_of(value)), fix)
            case Object() if count and refuses and not self.named:
                refuse_rest(builder, value, count, where)
            case Object() | tuple() | None:
                pass
            case _ if not count:  # nothing is read of it
                pass
            case _:
                fix = "give the whole of it to several blocks with AllOf"
                raise BlockTypeError(where, "an object or a tuple", str(type_of(value)), fix)
        results = []
        for key, block in self.blocks:
            with builder.at(f"[{key!r}]"):
                item = None if value is None else GetItem(key).select(builder, value, builder.path)
                results.append(build(block, builder, item))
        return tuple(results)

    def arguments(self) -> str:
        return self._blocks() + ("" if self.rest == "error" else f", rest={self.rest!r}")

    def _blocks(self) -> str:
        if any(isinstance(key, slice) for key, _ in self.blocks):  # no key of a dict before Python 3.12
            return "[" + ", ".join(f"({key!r}, {block!r})" for key, block in self.blocks) + "]"
        if self.named:
            return "{" + ", ".join(f"{key!r}: {block!r}" for key, block in self.blocks) + "}"
        inner = ", ".join(repr(block) for _, block in self.blocks)
        return f"({inner},)" if len(self.blocks) == 1 else f"({inner})"


class AllOf(Block[Any, TupleType]):
    """Gives the same input to several blocks; the results form a tuple. Without blocks it yields nothing.

    Raises:
        BlockTypeError: when an argument is no block, nor anything that stands for one.

    >>> from foldbatch.blocks.leaves import Scalar
    >>> AllOf(Scalar(), Scalar("int32")).eval(1)
    (array(1., dtype=float32), array(1, dtype=int32))
    """

    def __init__(self, *blocks: Any) -> None:
        self.blocks = tuple(as_block(block, f"AllOf[{i}]") for i, block in enumerate(blocks))
        check(self)

    @property
    def input_type(self) -> Type | None:
        types = [block.input_type for block in self.blocks]
        if all(type_ == VOID for type_ in types):
            return VOID
        return next((type_ for type_ in types if type_ not in (None, VOID)), None)

    def build(self, builder: Builder, value: Value) -> Value:
        if not self.blocks:
            return None
        results = []
        for number, block in enumerate(self.blocks):
            with builder.at(f"[{number}]"):
                results.append(build(block, builder, value))
        return tuple(results)

    def arguments(self) -> str:
        return ", ".join(map(repr, self.blocks))


def _reading(types: list[Type | None]) -> bool:
    """Whether blocks read objects, all that read anything."""
    return OBJECT in types and all(type_ in (OBJECT, VOID) for type_ in types)


BLOCK_LIKES.append(((Mapping, list, tuple), Record))
