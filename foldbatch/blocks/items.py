"""Blocks that read items: of objects while tracing, of tuples while building.

A model that reads the first two children of a node would predict the same whatever the third one is. So a
block that reads an object item by item, from 0 to the last, checks that this was the last. A block that names
one item, as `GetItem` does, says nothing of the others and checks nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as PySequence
from operator import itemgetter
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from foldbatch.blocks.block import BLOCK_LIKES, Block, Key, Settings, as_block, check, keyed, settings_of
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.building import build
from foldbatch.blocks.drafts import Object, Sequence, Value, as_object, is_int, type_of
from foldbatch.blocks.flow import expect_list
from foldbatch.blocks.tracing import Constant, Cut, Limit
from foldbatch.errors import (
    BlockOrderError,
    BlockTypeError,
    BlockValueError,
    ExampleIndexError,
    ExampleTypeError,
)
from foldbatch.model.columns import BadDataError
from foldbatch.static.graph import Node
from foldbatch.trees import TreeNode
from foldbatch.types import OBJECT, VOID, ObjectType, SequenceType, TupleType, Type, VoidType, describe_value

UnreadItems: TypeAlias = Literal["error", "ignore"]  # items that no block reads are an error, or ignored
FIX = "for example Record((Map(...), Identity())) >> Nth()"


class GetItem(Block[Any, Any]):
    """Reads ``x[key]``: of an object when tracing, of a tuple when building.

    Args:
        key: any key of the object; for a tuple, an int or a slice.
        default: the Python value that stands for an item that an object lacks: a missing key, or an index
            beyond the end of a list. Without it (``...``), that is an error.

    Raises:
        BlockTypeError: when the input has no items, or a tuple no such item; or there is a default, and
            the input is no object.
        ExampleKeyError: when tracing, where the object lacks the key, and there is no default.
        ExampleIndexError: when tracing, where the list is too short, and there is no default.

    >>> (fb.GetItem("a") >> fb.Scalar()).eval({"a": 1})
    array(1., dtype=float32)
    >>> [fb.GetItem(2, default="none").eval(x) for x in ("abc", "ab")]
    ['c', 'none']
    """

    def __init__(self, key: object, *, default: object = ...) -> None:
        self.key = key
        self.default = default

    @property
    def input_type(self) -> Type | None:
        return None if isinstance(self.key, int | slice) else OBJECT

    def build(self, builder: Builder, value: Value) -> Value:
        return self.select(builder, value, builder.where(self))

    def select(self, builder: Builder, value: Value, where: str) -> Value:
        """Build the item; errors are blamed on `where`."""
        match value:
            case Object():
                place = (*value.place, f"[{_literal(repr(self.key))}]")
                default = None if self.default is ... else builder.constant("default", self.default)
                return builder.item(value, self.key, default, place, f"an item {self.key!r}", where)
            case tuple() | Sequence() if self.default is not ...:
                fix = "leave the default out, or read the item before tensors are made"
                raise BlockTypeError(where, "an object, where there is a default", str(type_of(value)), fix)
            case tuple():
                return self._of_tuple(builder, value)
            case Sequence():
                return self._of_sequence(builder, value)
        fix = (
            "select parts of a tensor in Function"
            if isinstance(value, Node)
            else "give it something with items"
        )
        expected = "an object, a tuple or a sequence"
        raise BlockTypeError(builder.where(self), expected, str(type_of(value)), fix)

    def _of_tuple(self, builder: Builder, value: tuple[Value, ...]) -> Value:
        """Return the items of a tuple that an int or a slice selects, at compile time."""
        if not isinstance(self.key, int | slice) or isinstance(self.key, bool):
            fix = f"the tuple is {type_of(value)}; a Record of names yields a tuple too"
            expected = "an int or a slice as key of a tuple"
            raise BlockTypeError(builder.where(self), expected, repr(self.key), fix)
        try:
            return value[self.key]
        except IndexError:
            expected = f"an index from {-len(value)} to {len(value) - 1}"
            expected = expected if value else "an item"
            actual, fix = f"{self.key} of {type_of(value)}", "indices count from 0"
            raise BlockTypeError(builder.where(self), expected, actual, fix) from None

    def _of_sequence(self, builder: Builder, value: Sequence) -> Value:
        """Return one element of a sequence as tensors, or a part of the sequence."""
        if isinstance(self.key, slice):
            cut = Cut(value.expression, builder.constant("key", self.key))
            return Sequence(cut, value.element, value.wires)
        if not isinstance(self.key, int) or isinstance(self.key, bool):
            fix = "to apply it to every element, write Map(GetItem(...))"
            expected = "an int or a slice as key of a sequence"
            raise BlockTypeError(builder.where(self), expected, repr(self.key), fix)
        source = Object(value.expression)
        item = builder.item(source, self.key, None, (), f"an element {self.key}", builder.where(self))
        return builder.element(value, item.expression)

    def same(self, other: GetItem) -> bool:
        """Whether another block reads the same item."""
        alike = type(self.key) is type(other.key) and self.default is other.default
        return alike and bool(self.key == other.key)


class Items(Block[ObjectType, ObjectType]):
    """Turns a mapping into the list of its pairs ``(key, value)``, sorted by key.

    Raises:
        BlockTypeError: when the input is no object.
        ExampleTypeError: when tracing, where the object is no mapping, or its keys cannot be sorted.

    >>> Items().eval({"b": 2, "a": 1})
    [('a', 1), ('b', 2)]
    """

    input_type = OBJECT

    def build(self, builder: Builder, value: Value) -> Object:
        """Build a call that sorts the items of a mapping; return the list of pairs."""
        source = as_object(value)
        if not isinstance(source, Object):
            fix = "make the pairs before their values become tensors"
            raise BlockTypeError(builder.where(self), "a Python object", str(type_of(value)), fix)
        place = (*source.place, ".items()")
        return builder.apply(SORTED_ITEMS, source, place=place, where=builder.where(self))


def _sorted_items(data: object) -> list[tuple[object, object]]:
    """Return the items of a mapping in the order of their keys; refuse keys that cannot be sorted."""
    if not isinstance(data, Mapping):
        raise BadDataError("a mapping", describe_value(data), "give it a dict", ExampleTypeError)
    try:
        return sorted(data.items(), key=itemgetter(0))
    except TypeError:
        kinds = ", ".join(sorted({type(key).__name__ for key in data}))
        fix = "make all keys strings, or all numbers"
        raise BadDataError("keys that can be sorted", f"keys of {kinds}", fix, ExampleTypeError) from None


SORTED_ITEMS = Constant("sorted_items", _sorted_items)


def _literal(text: str) -> str:
    """Escape text for `str.format`."""
    return text.replace("{", "{{").replace("}", "}}")


class Slice(Block[ObjectType | TupleType | SequenceType, Any]):
    """Reads ``x[start:stop:step]`` of an object, a tuple or a finite sequence.

    Raises:
        BlockTypeError: when a bound is no int, or the input has no order.

    >>> Slice(start=1).eval("abc"), Slice(step=-1).eval([1, 2])
    ('bc', [2, 1])
    """

    def __init__(self, *, start: int | None = None, stop: int | None = None, step: int | None = None) -> None:
        for name, bound in (("start", start), ("stop", stop), ("step", step)):
            if bound is not None and not is_int(bound):
                fix = "for example Slice(start=1)"
                raise BlockTypeError("Slice", f"an int or None as {name}", describe_value(bound), fix)
        if step == 0:
            raise BlockValueError("Slice", "a step other than 0", "0", "leave it out, or go back with -1")
        self.start, self.stop, self.step = start, stop, step
        self.bounds = slice(start, stop, step)

    def build(self, builder: Builder, value: Value) -> Value:
        return GetItem(self.bounds).select(builder, value, builder.where(self))


class Nth(Block[TupleType | ObjectType, Any]):
    """Selects, of a pair of a sequence and an int, the element of that number; -1 is the last.

    Raises:
        BlockTypeError: when the input is no pair, its first no finite sequence, or its second no object.
        ExampleIndexError: when tracing, where the sequence has no such element.
        ExampleTypeError: when tracing, where the number is no int.

    >>> float((fb.Record((fb.Map(fb.Scalar()), fb.Identity())) >> fb.Nth()).eval(([1, 2, 3], -1)))
    3.0
    """

    def build(self, builder: Builder, value: Value) -> Value:
        """Build a read of the item at an index that the input has, too."""
        where = builder.where(self)
        pair = as_object(value)
        if isinstance(pair, Object):
            expected = "a pair of a sequence and the number of an element"
            refuse_rest(builder, pair, 2, where)
            return builder.apply(ITEM_OF_PAIR, pair, expected=expected)
        if not isinstance(value, tuple) or len(value) != 2:
            raise BlockTypeError(where, "a pair of a sequence and an object", str(type_of(value)), FIX)
        source, number = value[0], as_object(value[1])
        if not isinstance(number, Object):
            raise BlockTypeError(where, "an object as number", str(type_of(number)), FIX)
        items = expect_list(self, builder, source)
        if isinstance(items, Object):
            expected = "the number of an element"
            return builder.apply(ITEM, number, items.expression, place=items.place, expected=expected)
        picked = builder.apply(PICK, Object(items.expression), number.expression, where=where)
        return builder.element(items, picked.expression)


def _pick(items: list[Any], number: Any) -> Any:
    """Return an element of a sequence by a number that the example holds."""
    if not hasattr(number, "__index__"):
        fix = "count from 0, or back from -1"
        raise BadDataError("an int as number of an element", describe_value(number), fix, ExampleTypeError)
    if not -len(items) <= number < len(items):
        expected, fix = f"the number of one of {len(items)} elements", "count from 0, or back from -1"
        raise BadDataError(expected, describe_value(number), fix, ExampleIndexError)
    return items[number]


def _item(number: object, items: Any) -> Any:
    return items[number]


def _item_of_pair(pair: Any) -> Any:
    return pair[0][pair[1]]


PICK, ITEM = Constant("pick", _pick), Constant("numbered_item", _item)
ITEM_OF_PAIR = Constant("item_of_pair", _item_of_pair)


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

    >>> fb.Record({"a": fb.Scalar(), "b": fb.Scalar("int32")}).eval({"a": 1, "b": 2})
    (array(1., dtype=float32), array(2, dtype=int32))
    >>> fb.Record((fb.Scalar(),), rest="ignore").eval([1, "more", "still more"])
    (array(1., dtype=float32),)
    """

    def __init__(
        self, blocks: Mapping[Key, object] | Iterable[object], *, rest: UnreadItems = "error"
    ) -> None:
        if rest not in get_args(UnreadItems):
            expected = f"rest as one of {', '.join(map(repr, get_args(UnreadItems)))}"
            raise BlockValueError("Record", expected, describe_value(rest), "leave it out to refuse the rest")
        pairs, self.named = keyed(blocks, "Record")
        self.blocks = tuple(pairs)
        self.rest = rest
        check(self)

    def settings(self) -> Settings:
        blocks: object = (self.blocks or {}) if self.named else tuple(block for _, block in self.blocks)
        return {**settings_of(self), "blocks": blocks}

    @property
    def input_type(self) -> Type | None:
        return OBJECT if self.named or _reading([block.input_type for _, block in self.blocks]) else None

    def build(self, builder: Builder, value: Value) -> tuple[Value, ...]:
        """Build each block on its item; return the results as a tuple."""
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
        """Return the blocks as text: a dict, a list of pairs, or a tuple."""
        if any(isinstance(key, slice) for key, _ in self.blocks):  # no key of a dict before Python 3.12
            return "[" + ", ".join(f"({key!r}, {block!r})" for key, block in self.blocks) + "]"
        if self.named:
            return "{" + ", ".join(f"{key!r}: {block!r}" for key, block in self.blocks) + "}"
        inner = ", ".join(repr(block) for _, block in self.blocks)
        return f"({inner},)" if len(self.blocks) == 1 else f"({inner})"


class AllOf(Block[Any, TupleType]):
    """Gives the same input to several blocks; the results form a tuple. Without blocks it is a `Void`.

    Raises:
        BlockTypeError: when an argument is no block, nor anything that stands for one.

    >>> fb.AllOf(fb.Scalar(), fb.Scalar("int32")).eval(1)
    (array(1., dtype=float32), array(1, dtype=int32))
    """

    def __init__(self, *blocks: object) -> None:
        self.blocks = tuple(as_block(block, f"AllOf[{i}]") for i, block in enumerate(blocks))
        check(self)

    @property
    def input_type(self) -> Type | None:
        types = [block.input_type for block in self.blocks]
        if all(type_ == VOID for type_ in types):
            return VOID
        return next((type_ for type_ in types if type_ not in (None, VOID)), None)

    def build(self, builder: Builder, value: Value) -> Value:
        """Build each block on the input; return the results as a tuple."""
        if not self.blocks:
            return None
        results = []
        for number, block in enumerate(self.blocks):
            with builder.at(f"[{number}]"):
                results.append(build(block, builder, value))
        return tuple(results)


def _reading(types: list[Type | None]) -> bool:
    """Whether all blocks that read anything read objects."""
    return OBJECT in types and all(type_ in (OBJECT, VOID) for type_ in types)


# Classes whose items have an order. Mappings are read by key; `len` of a user's class may count other things.
ORDERED = (TreeNode, list, tuple, np.ndarray, PySequence)


def refuse_rest(builder: Builder, source: Object, count: int, where: str) -> None:
    """Add a check to the tracing program that refuses an object of more than `count` items.

    One of fewer items is not refused here, but where an item is read.
    """
    blame = builder.blame(source, _items(count), where=where)
    builder.add(Limit(blame, source.expression, count, REFUSE_REST))


def _refuse(data: object, count: int) -> None:
    """Refuse an object with more items than blocks read; the fix names a block that reads all."""
    if isinstance(data, ORDERED) and len(data) > count:
        fix = "give a block for each, or read them all with Map"
        if isinstance(data, TreeNode):
            fix = "read all children with Map and ChildSumTreeLSTM, or binarise the trees"
            fix += f", or use TreeLSTM(arity={len(data)}) with a Record for each number of children"
        raise BadDataError(_items(count), f"{len(data)}", f"{fix}; Record(..., rest='ignore') drops the rest")


REFUSE_REST = Constant("refuse_rest", _refuse)


def _items(count: int) -> str:
    return "1 item" if count == 1 else f"{count} items"


BLOCK_LIKES.append(((Mapping, list, tuple), Record))
