"""Eager mode: one example with real numbers, each op as it is called, so that print and pdb show them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from operator import itemgetter
from typing import Any

import numpy as np

from foldbatch.functions import notes
from foldbatch.functions.cells import COUNTERS, CellFunction, Signature, Stale, go_slow
from foldbatch.functions.learnt import Learnt
from foldbatch.functions.loose import WalkRecorder
from foldbatch.functions.mixed import BlockInWalk, Slots
from foldbatch.functions.noted import is_named, replaced
from foldbatch.functions.readings import Reading, Readings
from foldbatch.functions.specs import rebuilt, too_deep
from foldbatch.functions.suspended import finished
from foldbatch.functions.values import Noted, Numbers, Value, by_hand, released, typed_class, value_class
from foldbatch.model.columns import BadDataError, column
from foldbatch.model.drafts import Feed
from foldbatch.model.replacing import Replacements
from foldbatch.model.rereading import Snapshot
from foldbatch.params.parameters import Parameter
from foldbatch.recorder.lists import CallLists, numbers_of
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, Node
from foldbatch.static.passes.simplify import in_phase
from foldbatch.types import TensorType


class Real(Value, gc=False, eq=False):
    """A value with its numbers, in eager mode."""

    array: Numbers = None  # the numbers

    def __repr__(self) -> str:
        return f"{self.array!r}"

    __bool__, __int__, __float__ = Value.__bool__, Value.__int__, Value.__float__

    def __hash__(self) -> int:
        return object.__hash__(self) if self.type.shape else hash(self.array.item())

    def _read(self, where: str) -> Numbers:
        return self.array

    def __await__(self) -> Generator[Value, object, Value]:
        """Return the value: its numbers are there."""
        return self
        yield self


@cache
def _real_class(type_: TensorType) -> Any:
    return typed_class(f"Real[{type_}]", (Real, value_class(type_)), {"is_array": True})


@dataclass(slots=True)
class Seen:
    """The result, losses and metrics of one example in eager mode."""

    result: object = None  # what the walk returned, with arrays in the place of values
    losses: dict[str, float] = field(default_factory=dict)  # by name
    # by name, the values in the order of calls, each with its label
    metrics: dict[str, list[tuple[Numbers, object]]] = field(default_factory=dict)

    @property
    def loss(self) -> float:
        """The sum of all losses."""
        return sum(self.losses.values())


class _Eager:
    seen: Seen
    dtype: str | None = None
    key: int = 0
    visits: list[
        tuple[int, str, tuple[Numbers, object]]
    ]  # of metrics: number, name, and the value with its label
    begin: Callable[[Parameter], None]
    replacements: Replacements


def run(
    walk: Callable[[Any], object],
    example: object,
    dtype: str | None = None,
    begin: Callable[[Parameter], None] = lambda _: None,
    learnt: Learnt | None = None,
) -> Seen:
    """Run a walk on one example, with real numbers of one precision, or that of each tensor.

    `begin` is given each parameter before it is read. Cells and parameters are those of a program that has
    `learnt` them, else those of the model as it is.

    Raises:
        ExampleError: when a datum is not what its cell reads.
    """
    learnt = Learnt() if learnt is None else learnt
    with _mode(dtype, begin, learnt.replacements) as seen:
        learnt.install()
        reading = Reading([example], [0], Readings(), Snapshot([example]))
        walking = lambda x: finished(partial(walk, x))  # noqa: E731
        noted = notes.note(walking, reading, [], 1 << 60, EagerRecorder(), accept=learnt.accept)
        try:
            seen.result = _arrays(noted.results[0])
        except RecursionError:
            raise too_deep("walk") from None
        for _, name, visit in sorted(_Eager.visits, key=itemgetter(0)):
            seen.metrics.setdefault(name, []).append(visit)
    return seen


@contextmanager
def _mode(
    dtype: str | None, begin: Callable[[Parameter], None], replacements: Replacements
) -> Iterator[Seen]:
    """Run calls of cells on real numbers within the context; yield the `Seen` that takes losses and metrics.

    `begin` is called with each parameter before it is read; a dtype replaces that of all tensors.
    """
    with notes.LOCK:
        _Eager.seen, _Eager.dtype, _Eager.key = Seen(), dtype, 0
        _Eager.visits = []
        _Eager.begin, _Eager.replacements = staticmethod(begin), replacements
        go_slow(on=True)
        try:
            yield _Eager.seen
        finally:
            go_slow(on=False)


def _arrays(x: object) -> object:
    """Return a result with arrays in the place of real values."""
    match x:
        case Real():
            return x.array
        case tuple() | list() if not is_named(x):
            return type(x)(map(_arrays, x))
        case dict():
            return {key: _arrays(item) for key, item in x.items()}
    return replaced(x, _arrays)


def _call(cell: CellFunction, arguments: dict[str, object]) -> object:
    """Compute a call of a cell on real arguments at once, and return its result."""
    signature = cell.find(arguments)
    try:
        notes.accept(signature)
    except Stale:
        signature = cell.find(arguments)
        notes.accept(signature)
    labels = [_at(arguments, path) for path in signature.labels]
    number = COUNTERS[0]
    COUNTERS[0] += 1
    notes.State.drawn += 1
    arrays = _computed(signature, _inputs(signature, arguments), labels, number)
    outputs = [_real(array, node.type) for array, node in zip(arrays, signature.outputs, strict=True)]
    result_leaves = [
        outputs[leaf] if isinstance(leaf, int) else _at(arguments, leaf) for leaf in signature.leaves
    ]
    return rebuilt(signature.result, iter(result_leaves))


def _computed(
    signature: Signature,
    inputs: dict[Node, Numbers],
    labels: list[Any],
    number: int,
    marks: Sequence[int] = (),
) -> list[Numbers]:
    """Compute a call, given its inputs by node, and return its outputs; `marks` are numbers of visits."""
    draft = signature.draft
    for parameter in signature.parameters:
        _Eager.begin(_Eager.replacements.of(parameter))
    nodes, values = [*inputs], [*inputs.values()]
    ends = _Eager.replacements.in_nodes(signature.ends, nodes)
    graph = in_phase(Graph(tuple(nodes), tuple(ends)), training=False)
    results = iter(evaluate(graph, values, _Eager.dtype))
    outputs = [np.asarray(next(results)) for _ in signature.outputs]
    for name, _ in draft.losses:
        _Eager.seen.losses[name] = _Eager.seen.losses.get(name, 0.0) + float(next(results))
    label_of = dict(zip(draft.labels, labels, strict=True))
    visit_of = dict(zip([metric for metric, _ in draft.marks], marks, strict=True))
    for place, (name, _) in enumerate(draft.metrics):
        seen = np.asarray(next(results)), released(label_of.get(place))
        _Eager.visits.append((visit_of.get(place, number), name, seen))
    return outputs


class _Block(Slots):
    """A block that a walk calls: its calls are noted, and computed as soon as a value is read."""

    def __init__(self, part: BlockInWalk) -> None:
        self.part = part
        self.arrays: dict[int, Numbers] = {}
        self.lists = [notes.lists_of(signature) for signature in part.signatures]

    def run(self, x: object) -> Noted:
        """Run the block's program on one value, compute the calls that it notes, and return its result."""
        part = self.part
        lists = {
            s.number: signature_lists for s, signature_lists in zip(part.signatures, self.lists, strict=True)
        }
        bindings = part.bindings(lambda kind, n, i=0: lists[n].appender(kind, i))
        results = part.run(self, bindings, self.slots(part.input_type, x, ""))
        self.compute()
        return self.values(part.yields, iter(results))

    def value(self, type_: TensorType, number: int) -> Value:
        self.compute()
        return _real(self.arrays[number], type_)

    def number(self, value: Noted) -> int:
        number = -1 - len(self.arrays)
        self.arrays[number] = value.array
        return number

    def compute(self) -> None:
        """Compute the calls noted since the last time, in their order, and empty the lists that held them."""
        pending = []
        for signature, lists in zip(self.part.signatures, self.lists, strict=True):
            width, ends = signature.arguments, [0] * len(lists.elements)
            for call in range(len(lists.rows) // width):
                row = lists.rows[call * width : (call + 1) * width]
                pending.append((row[0], signature, self._inputs(signature, lists, call, row, ends)))
            lists.clear()
        for number, signature, (reads, feed_values, labels, marks) in sorted(pending, key=itemgetter(0)):
            inputs = {node: self._arrays_of(numbers) for node, numbers in reads.items()} | feed_values
            for j, array in enumerate(_computed(signature, inputs, labels, number, marks)):
                self.arrays[number + j] = array

    def _arrays_of(self, numbers: Any) -> Numbers:
        return [self.arrays[n] for n in numbers] if not isinstance(numbers, int) else self.arrays[numbers]

    def _inputs(
        self, signature: Signature, lists: CallLists, call: int, row: Sequence[int], ends: list[int]
    ) -> tuple[dict[Node, Numbers], dict[Node, Numbers], list[Any], list[int]]:
        """Return the numbers that a call reads, its data, labels and visits; `ends` are of lists so far."""
        reads: dict[Node, Numbers] = {
            node: n for (_, node), n in zip(signature.operands, row[1:], strict=False)
        }
        for s, (_, _, members) in enumerate(signature.sequences):
            size = row[1 + len(signature.operands) + s] * len(members)
            flat = lists.elements[s][ends[s] : ends[s] + size]
            ends[s] += size
            reads |= {node: flat[m :: len(members)] for m, (_, node) in enumerate(members)}
        data = [items[call] for items in lists.feeds]
        feed_values = {
            node: _datum(path, feed, bound, item)
            for (path, node, feed), bound, item in zip(signature.feeds, signature.bounds, data, strict=True)
        }
        marks = [numbers_of(lists.feeds[feed])[call] for _, feed in signature.draft.marks]
        return reads, feed_values, [items[call] for items in lists.labels], marks


def _real(array: object, type_: TensorType) -> Value:
    value: Value = _real_class(type_)(-1, array=np.asarray(array))
    return value


def _at(arguments: dict[str, object], path: str) -> Noted:
    """Return the part of the arguments that a path such as ``left[0].h`` names."""
    return eval(path, {"None": None}, arguments)  # noqa: S307 - the path is our own


def _array_of(value: object, reader: Signature) -> Numbers:
    """Return the numbers of a value that a call reads; refuse one that no call has returned."""
    array = getattr(value, "array", None)
    if array is None:
        raise by_hand(reader.name)
    return array


def _inputs(signature: Signature, arguments: dict[str, object]) -> dict[Node, Numbers]:
    """Return arrays for the inputs of a cell's graph, by node, read from the arguments of a call."""
    inputs: dict[Node, Numbers] = {}
    for path, node in signature.operands:
        inputs[node] = _array_of(_at(arguments, path), signature)
    for path, _, members in signature.sequences:
        elements = _at(arguments, path)
        for inner, node in members:
            inputs[node] = [_array_of(_at({"x": x}, f"x{inner}"), signature) for x in elements]
    for (path, node, feed), bound in zip(signature.feeds, signature.bounds, strict=True):
        inputs[node] = _datum(path, feed, bound, _at(arguments, path) if path else None)
    return inputs


def _datum(path: str, feed: Feed, bound: int | None, item: object) -> object:
    """Return the number or array of a feed, checked; without a path, another number for each call."""
    if not path:
        _Eager.key += 1
        return np.int64(_Eager.key)
    try:
        return column([item], feed.type, bound, feed.declared)[0]
    except BadDataError as error:
        raise error.kind(feed.where, error.expected, error.found, error.fix) from None


def _of_block(part: BlockInWalk, x: object) -> object:
    for signature in part.signatures:
        notes.accept(signature)
    return _Block(part).run(x)


class EagerRecorder(WalkRecorder):
    """Computes the calls of a walk at once, in place of noting them."""

    call = staticmethod(_call)

    def run_block(self, part: BlockInWalk, x: object) -> Noted:
        """Run a block on an argument, and return its result with its numbers."""
        return _of_block(part, x)
