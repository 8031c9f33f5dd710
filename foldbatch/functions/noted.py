"""The notes of a walk as arrays, the tables by which loops check and pack them, and the results of walks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, ValuesView
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import ExampleError, ExamplePlace, WalkError
from foldbatch.functions.cells import Signature
from foldbatch.functions.learnt import Learnt, Output, Slot
from foldbatch.functions.specs import DEEPEST, fix_for_types, opened, too_deep
from foldbatch.functions.values import Value, refuse_made
from foldbatch.model.drafts import PrunedDraft
from foldbatch.params.parameters import Parameter
from foldbatch.planning.noting import CalledCell, Noting
from foldbatch.recorder.checks import NotedData, first_bad
from foldbatch.recorder.lists import CallLists, numbers_of
from foldbatch.types import OBJECT, VOID, NestType, SequenceType, TensorType, TupleType, Type, describe_value

Index = NDArray[np.int64]
PrunedCell = tuple[Signature, PrunedDraft]  # a cell, and its operands, feeds and outputs that a model has
_NONE: Index = np.zeros(0, np.int64)


@dataclass(eq=False, slots=True)
class Noted:
    """Calls of a cell; numbers of values count from the beginning of the run."""

    signature: Signature  # the cell
    rows: Index  # ``[n, arguments]``: a call's number, those of its operands, lengths of its lists
    elements: list[Index]  # per list ``[m, members]``, those of all calls one after the other
    feeds: list[list[object]]  # `feeds`, `labels`: data and labels, in the order of calls
    labels: list[list[object]]

    @property
    def bases(self) -> Index:
        """The numbers of calls ``[n]``."""
        return self.rows[:, 0]

    def lengths(self, number: int) -> Index:
        """Return the lengths ``[n]`` of a list."""
        return self.rows[:, 1 + len(self.signature.operands) + number]


@dataclass(eq=False, slots=True)
class Reads:
    """Every value that calls read, operands and members of lists."""

    slots: list[tuple[Slot, TensorType]]  # where values are read, and of what type
    slot: Index  # ``[reads]``: the place in `slots`
    numbers: Index  # ``[reads]``: the numbers that are read
    by: Index  # ``[reads]``: the calls that read them


def bases_of(calls: Noted | CallLists, signature: Signature, start: int) -> Index:
    """Return the numbers of calls ``[n]``, which count from the beginning of a run."""
    if isinstance(calls, Noted):
        return calls.bases
    return np.array(calls.rows, np.int64)[:: signature.arguments] - start


def reads_of(noted: Iterable[Noted]) -> Reads:
    """Return the numbers that noted calls read, with the operand of each and the call that reads it."""
    slots = list[tuple[Slot, TensorType]]()
    parts: list[tuple[Index, Index, Index]] = [(_NONE, _NONE, _NONE)]

    def add(read_slots: list[tuple[Slot, TensorType]], numbers: Index, by: Index) -> None:
        if width := len(read_slots):
            at = np.arange(len(slots), len(slots) + width)
            parts.append((np.full((len(by), width), at).ravel(), numbers.ravel(), np.repeat(by, width)))
            slots.extend(read_slots)

    for calls in noted:
        cell = calls.signature
        operands = [((cell, i, -1), node.type) for i, (_, node) in enumerate(cell.operands)]
        add(operands, calls.rows[:, 1 : 1 + len(operands)], calls.bases)
        for s, (_, _, members) in enumerate(cell.sequences):
            inner = [((cell, m, s), node.type) for m, (_, node) in enumerate(members)]
            add(inner, calls.elements[s], np.repeat(calls.bases, calls.lengths(s)))
    return Reads(slots, *map(np.concatenate, zip(*parts, strict=True)))


def noted_of(lists: Mapping[Signature, CallLists], start: int) -> dict[Signature, Noted]:
    """Return the contents of lists from a run's first number on; data and labels stay in these very lists."""
    noted, end = {}, 0
    columns = [flat for appended in lists.values() for flat in (appended.rows, *appended.elements)]
    counted = np.concatenate([_NONE, *columns])
    counted -= start
    for signature, appended in lists.items():
        begin, end = end, end + len(appended.rows)
        rows = counted[begin:end].reshape(-1, signature.arguments)
        elements = []
        if signature.sequences:
            rows[:, 1 + len(signature.operands) :] += start  # lengths
            for flat, (_, _, members) in zip(appended.elements, signature.sequences, strict=True):
                begin, end = end, end + len(flat)
                elements.append(counted[begin:end].reshape(-1, max(len(members), 1)))
        feeds = [*appended.feeds]
        for _, i in signature.draft.marks:
            feeds[i] = [number - start for number in numbers_of(feeds[i])]
        noted[signature] = Noted(signature, rows, elements, feeds, appended.labels)
    return noted


def late_error(
    noted: Mapping[Signature, Noted | CallLists], start: int, number: Callable[[int], int]
) -> ExampleError | None:
    """Return the error for the first datum that its cell does not read; None where each can be read.

    Args:
        noted: the calls of cells.
        start: the first number of the run.
        number: gives the number of the example in the batch, of a call by its number in the run.
    """
    data = list[NotedData]()
    for signature, calls in noted.items():
        bases = bases_of(calls, signature, start).tolist()
        for (path, _, feed), bound, items in zip(signature.feeds, signature.bounds, calls.feeds, strict=True):
            if path:  # else it is the number of the call
                data.append(NotedData(feed, bound, items, bases))
    datum = first_bad(data)
    if datum is None:
        return None
    error, place = datum.error, ExamplePlace(datum.where, number(datum.call))
    late = error.kind(place, error.expected, error.found, error.fix)
    late.late = True
    return late


def type_of(slot: Slot) -> TensorType:
    """Return the type of the values that a slot reads."""
    signature, i, s = slot
    return (signature.operands[i] if s < 0 else signature.sequences[s][2][i])[1].type


def learn_wire(learnt: Learnt, slot: Slot, output: Output) -> None:
    """Add a wire to what is learnt: a slot reads an output.

    Raises:
        WalkError: when the output is of another type than the slot reads.
    """
    refuse_other_type(slot[0], type_of(slot), output[0].outputs[output[1]].type)
    learnt.wires[slot] = {*learnt.wires.get(slot, ()), output}  # a new set: the old one may come back


def refuse_other_type(signature: Signature, type_: TensorType, actual: TensorType) -> None:
    """Refuse a value of another type than a slot of a cell reads."""
    if actual != type_:
        fix = fix_for_types(type_, actual, "elements of a list have one shape and dtype")
        raise WalkError(signature.title, f"elements of {type_}", f"one of {actual}", fix)


def leak(reader: str, example: int) -> WalkError:
    """Return the error for a value of another example or run, which something reads at an example."""
    fix = "compute it in the walk of each example that uses it"
    actual = "one kept from another example or run"
    return WalkError(ExamplePlace(reader, example), "values of the same example", actual, fix)


def kept_result(example: int) -> WalkError:
    """Return the error for a value of another example or run in the result of an example."""
    where, fix = ExamplePlace("walk", example), "return what this example's calls yield"
    return WalkError(where, "a value of the same example", "one kept from another example or run", fix)


def refuse_leaks(reads: Reads, example: Index, numbers: Sequence[int]) -> None:
    """Refuse a call that reads a value of another example or run.

    `example` has the example of each value, by place in the batch; `numbers` has the examples' numbers.
    """
    read, by = reads.numbers, reads.by
    wrong = (read < 0) | (read >= by)
    owners = example.take(by)
    wrong |= example.take(read, mode="clip") != owners
    if wrong.any():
        first = int(wrong.argmax())
        raise leak(reads.slots[int(reads.slot[first])][0][0].title, numbers[int(owners[first])])


# -- as a model's columns


def outputs_of(called: Sequence[Signature]) -> list[Output]:
    """Return the outputs of cells in the order in which tables count them."""
    return [(signature, j) for signature in called for j in range(len(signature.outputs))]


def noting_of(
    called: Sequence[Signature],
    wires: Mapping[Slot, AbstractSet[Output]],
    cells: Sequence[PrunedCell] = (),
    results: AbstractSet[Output] = frozenset(),
) -> Noting:
    """Return the tables by which a compiled function checks and packs the calls of a walk.

    Args:
        called: the cells that the walk calls.
        wires: the outputs that each slot may read.
        cells: those that the model has, in its order.
        results: the outputs that may be part of a result.
    """
    number = {signature: k for k, signature in enumerate(called)}
    place = {output: o for o, output in enumerate(outputs_of(called))}
    pruned = dict(cells)

    def read(*slot: Any) -> list[int]:
        return [place[output] for output in wires.get(slot, ())]

    described = [
        CalledCell(
            [read(signature, i, -1) for i in range(len(signature.operands))],
            [
                [read(signature, m, s) for m in range(len(members))]
                for s, (_, _, members) in enumerate(signature.sequences)
            ],
            [
                pruned[signature].outputs.get(j, -1) if signature in pruned else -1
                for j in range(len(signature.outputs))
            ],
            pruned[signature].arguments if signature in pruned else None,
        )
        for signature in called
    ]
    kept = [number[signature] for signature, _ in cells]
    return Noting(described, kept, [place[output] for output in results])


# classes of items that are no values; a list of these alone is not looked at item by item
ATOMS = {bool, float, int, str, type(None)}
_HOLDING = AbstractSet, ValuesView, deque  # containers that are refused as results where they hold values
OBJECTS = SequenceType(OBJECT)  # the type of a list of `ATOMS`
EMPTY = SequenceType(VOID)  # the type of an empty list


# -- results: what walks return, as a type that all examples share, and terminals that traces hold


@dataclass(frozen=True, slots=True)
class _ListOfValues:
    """A list of values of one type, by number."""

    numbers: list[int]


@dataclass(frozen=True, slots=True)
class _ListOfParts:
    """A list of parts of a result that are no plain values."""

    items: list[Any]


def relative(part: object, begin: int, start: int, new: NDArray[np.integer] | None) -> object:
    """Return part of a result with numbers that count from the example's beginning."""
    if isinstance(part, Value):
        number = part.n - start
        return (number if new is None else new.item(number)) - begin
    if isinstance(part, _ListOfValues):
        numbers = np.array(part.numbers, np.int64) - start
        counted: list[int] = ((numbers if new is None else new[numbers]) - begin).tolist()
        return counted
    if isinstance(part, _ListOfParts):
        return [relative(item, begin, start, new) for item in part.items]
    if type(part) is tuple:
        return tuple([relative(item, begin, start, new) for item in part])
    return part


def joined_result(
    previous: Type | None, value: object, start: int, terminals: list[object], seen: set[int], example: int
) -> Type:
    """Return the type of results so far, joined with that of one more; append its terminals to `terminals`.

    Raises:
        WalkError: when it is of another structure, or holds an object that no result may hold.
    """
    try:
        type_ = _taken(value, start, terminals, seen, example)
    except (AttributeError, TypeError):
        refuse_made(value, ExamplePlace("walk", example))
        raise
    joined = _joined(previous, type_)
    if joined is None:
        expected = f"a result of {previous}, as of other examples"
        fix = "return one structure; what only some examples have, as a list, which may be empty"
        kind = describe_value(value) if type_ is OBJECT else str(type_)
        fix = fix_for_types(previous, kind, fix)
        raise WalkError(ExamplePlace("walk", example), expected, kind, fix)
    return joined


def _taken(
    x: object, start: int, terminals: list[object], seen: set[int], example: int, levels: int = DEEPEST
) -> Type:
    """Return the type of a result, and put its terminals into `terminals`."""
    if type(x) in ATOMS:
        terminals.append(x)
        return OBJECT
    if not levels:
        raise too_deep(ExamplePlace("walk", example))
    match x:
        case Value():
            if x.n < start:
                raise kept_result(example)
            seen.add(x.n)
            terminals.append(x)
            return x.type
        case tuple() if type(x) is tuple or not is_named(x):
            return TupleType(tuple([_taken(item, start, terminals, seen, example, levels - 1) for item in x]))
        case list() if {*map(type, x)} <= ATOMS:
            terminals.append(_ListOfParts(x))
            return OBJECTS if x else EMPTY
        case list():
            kinds = {item.__class__ for item in x}
            if len(kinds) == 1 and issubclass(kind := kinds.pop(), Value):
                numbers = [item.n for item in x]
                if min(numbers) >= start:  # else the loop below refuses the first older one
                    seen.update(numbers)
                    terminals.append(_ListOfValues(numbers))
                    return SequenceType(kind.type)
            element: Type | None = None
            items: list[Any] = []
            for item in x:
                parts: list[Any] = []
                type_ = _taken(item, start, parts, seen, example, levels - 1)
                joined = _joined(element, type_)
                if joined is None:
                    where = ExamplePlace("result", example, link="of")
                    raise WalkError(where, f"a list of {element}", f"a {type_} in it", "return a tuple")
                element = joined
                items.append(parts[0] if len(parts) == 1 else tuple(parts))
            terminals.append(_ListOfParts(items))
            return SequenceType(VOID if element is None else element)
    if is_named(x):
        keys, field_values = opened(x, ExamplePlace("walk", example))
        types = [_taken(part, start, terminals, seen, example, levels - 1) for part in field_values]
        return NestType(type(x), getattr(x, "_fields", keys) if isinstance(x, tuple) else keys, tuple(types))
    _refuse_no_result(x, example)
    terminals.append(x)
    return OBJECT


def _refuse_no_result(x: object, example: int) -> None:
    """Refuse objects in which values would be returned without numbers, and parameters."""
    if isinstance(x, np.ndarray):
        items: Any = x.flat if x.dtype == object else ()
    else:
        items = x if isinstance(x, _HOLDING) else ()
    parts = [part for item in items for part in (item if type(item) is tuple else [item])]
    of_values = any(isinstance(part, Value) for part in parts)
    lazy = isinstance(x, Iterator)  # its calls would come when the walk has ended
    if lazy or isinstance(x, dict) or of_values or (is_dataclass(x) and not isinstance(x, type)):
        expected = "values, tuples, lists, dicts with keys that are texts, and dataclasses"
        fix = "return a tuple of them"
        actual = describe_value(x)
        if isinstance(x, dict) and type(x) is not dict:  # its keys may be texts
            actual = f"a {type(x).__name__}, which is another dict"
        elif is_dataclass(x):
            actual = f"a {type(x).__name__}, with its own __new__ or a property as a field"
        raise WalkError(ExamplePlace("walk", example), expected, actual, fix)
    if isinstance(x, Parameter):
        fix = "return fb.tensor(parameter), its value"
        raise WalkError(ExamplePlace("walk", example), "values", f"the parameter {x.path}", fix)


def _joined(a: Type | None, b: Type) -> Type | None:
    """Return the type that two results share, if any; an empty list is one of any elements."""
    if a is b or a is None or a == b:
        return b
    match a, b:
        case SequenceType(x), SequenceType(y):
            if VOID in (x, y):
                return b if x == VOID else a
            joined = _joined(x, y)
            return None if joined is None else SequenceType(joined)
        case TupleType(xs), TupleType(ys) if len(xs) == len(ys) and b.with_items(xs) == a:
            items = [joined for x, y in zip(xs, ys, strict=True) if (joined := _joined(x, y)) is not None]
            return b.with_items(tuple(items)) if len(items) == len(ys) else None
    return None


# -- dicts, dataclasses and named tuples in results


def is_named(x: Any) -> bool:
    """Whether results may hold an object part by part: a dict of texts, a dataclass or a named tuple."""
    kind: Any = type(x)
    return {*map(type, x)} <= {str} if kind is dict else _has_fields(kind)


@lru_cache(100)
def _has_fields(kind: type) -> bool:
    if not is_dataclass(kind):
        return issubclass(kind, tuple) and hasattr(kind, "_fields")
    members = [getattr(kind, field.name, None) for field in fields(kind)]  # properties cannot be set
    return kind.__new__ is object.__new__ and not any(isinstance(x, property) and not x.fset for x in members)


def replaced(x: object, part: Callable[[object], object]) -> object:
    """Return a dict, a dataclass or a named tuple with other parts; anything else as it is."""
    if not is_named(x):
        return x
    keys, parts = opened(x)
    return NestType(type(x), keys, ()).value_of(map(part, parts))
