"""Whether traces fit a model: every integer is checked, so that engines can trust what they run.

Engines follow the numbers of a trace without looking again, compiled ones by address. Traces that the blocks'
tracer makes fit by construction. Traces of another origin, such as a file or another front end, are checked
here. All checks work on whole arrays, over as many examples as are joined.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import ExampleError
from foldbatch.model.model import Model
from foldbatch.planning.merge import Merged
from foldbatch.planning.policies import Policy
from foldbatch.scheduler.trace import Index, Trace
from foldbatch.types import BroadcastType, SequenceType, TensorType, TupleType, Type, VoidType

Array = NDArray[Any]
Flags = NDArray[np.bool_]
NONE = -1  # where there is no value
FIX = "let the front end that made the trace write it for this model"


@dataclass(frozen=True, slots=True)
class _CellCalls:
    name: str  # the cell's name, for errors
    counts: Index  # ``[examples]``: how many calls each example makes
    base: Array  # ``[n]``: the number of each call's first value
    first: Index  # ``[n]``: where the value numbers of the call's example begin
    stop: Index  # ``[n]``: where they end
    arguments: Array  # ``[n, arguments]``: the single values that each call reads
    lengths: tuple[Index, ...]  # per sequence argument ``[n] int64``


@dataclass(frozen=True, slots=True)
class _Values:
    arena: NDArray[np.int32]  # ``[values] int32``: the arena of the value
    # ``[values] int32``: when the value is there: twice the component of its cell, and one more where it is
    # computed after the recursion
    turn: NDArray[np.int32]
    scope: NDArray[np.int32]  # ``[values] int32``: the scope of its cell
    level: NDArray[np.int32]  # ``[values] int32``: the level of its call


def check_trace(model: Model, policy: Policy, trace: Trace) -> None:
    """Check that a trace fits a model, so that any engine can run it.

    >>> tracer = fb.compile(fb.Scalar("int32") >> fb.Embedding(4, 2), "numpy").lowered
    >>> (trace,) = tracer.trace_all([3], [0])
    >>> check_trace(tracer.model, tracer.policy, trace)
    >>> trace.feeds[0][0][0] = 4
    >>> try:
    ...     check_trace(tracer.model, tracer.policy, trace)
    ... except ExampleError as error:
    ...     print(error.where, "|", error.expected, "|", error.found)
    model at example 0 | ids from 0 to 3 for model Scalar('int32') | 4
    """
    integers = [*trace.calls, *trace.levels, *chain.from_iterable(trace.elements)]
    if any(array.dtype != np.int32 for array in integers):
        raise ExampleError("trace", "calls, elements and levels of int32", "another dtype", FIX)
    counts = tuple([np.array([len(rows)], np.int64) for rows in trace.calls])
    check_traces(model, policy, Merged(trace, counts, np.zeros(1, np.int64)), [trace.result])


def check_traces(model: Model, policy: Policy, merged: Merged, results: Sequence[Any]) -> None:
    """Check that the joined traces of some examples fit a model."""
    _check_shapes(model, merged)
    cells = _calls(model, merged)
    values = _values(model, policy, merged, cells)
    bounds = model.bounds
    for k, calls in enumerate(cells):
        _check_reads(model, merged.trace, k, calls, values)
        _check_levels(policy, model, merged.trace, k, calls, values)
        for i in range(len(model.feeds[k])):
            _check_feed(model, merged.trace, (k, i), calls, bounds[k][i])
    _check_results(model, merged, results, values)


def _check_shapes(model: Model, merged: Merged) -> None:
    trace = merged.trace
    parts = (trace.calls, trace.elements, trace.levels, trace.feeds, trace.labels, merged.counts)
    if any(len(part) != len(model.cells) for part in parts):
        raise ExampleError("trace", f"parts for {len(model.cells)} cells", "another number of parts", FIX)
    for k, cell in enumerate(model.signatures):
        rows, counts = trace.calls[k], merged.counts[k]
        n = len(rows) if rows.ndim else 0
        _check_array(cell.name, "calls", rows, "i", (n, 1 + cell.arguments + len(cell.sequences)))
        _check_array(cell.name, "levels", trace.levels[k], "i", (n,))
        _check_array(cell.name, "numbers of calls", counts, "i", merged.offsets.shape)
        if (counts < 0).any() or (counts > n).any() or counts.sum() != n:
            raise ExampleError(cell.name, f"{n} calls in all examples", "other numbers of calls", FIX)
        given = len(trace.elements[k]), len(trace.feeds[k]), len(trace.labels[k])
        wanted = len(cell.sequences), len(model.feeds[k]), len(model.labels[k])
        if given != wanted:
            raise ExampleError(cell.name, f"{wanted} sequences, data and labels", str(given), FIX)
        for i, (part, width) in enumerate(zip(trace.elements[k], cell.sequences, strict=True)):
            lengths = rows[:, 1 + cell.arguments + i]
            if (lengths < 0).any():
                raise ExampleError(cell.name, "lengths of 0 or more", str(lengths.min()), FIX)
            _check_array(cell.name, "elements", part, "i", (int(lengths.sum(dtype=np.int64)), width))
        for column, feed in zip(trace.feeds[k], model.feeds[k], strict=True):
            _check_array(cell.name, f"data of {feed.where}", column, feed.type.dtype, (n, *feed.type.shape))
        if any(len(labels) != n for labels in trace.labels[k]):
            raise ExampleError(cell.name, f"{n} labels", "another number of labels", FIX)


def _check_array(where: str, what: str, array: Array, dtype: str, shape: tuple[int, ...]) -> None:
    """Check an array's shape, and its dtype: a name, or "i" for whole numbers of any width."""
    if array.shape != shape or (array.dtype != dtype if dtype != "i" else array.dtype.kind != "i"):
        expected = f"{what} of shape {shape}" + (f", {dtype}" if dtype != "i" else "")
        raise ExampleError(where, expected, f"{array.shape}, {array.dtype}", FIX)


def _calls(model: Model, merged: Merged) -> list[_CellCalls]:
    ends = _ends(merged)
    sizes = ends - merged.offsets
    # a block that a walk calls counts by the widest of its cells, which may have been left out
    width = max([8, *(len(cell.outputs) for cell in model.signatures)])
    numbered = np.zeros(len(ends), np.int64)  # calls, and the visits of metrics that have a number, too
    for counts, marks in zip(merged.counts, model.marks, strict=True):
        numbered += counts * (1 + len(marks))
    wrong = (sizes < 0) | (sizes > width * numbered)  # what is made for values is in keeping with the input
    if wrong.any():
        where = f"trace of example {int(wrong.argmax())}"
        raise ExampleError(where, f"no more than {width} values a call", str(sizes[wrong][0]), FIX)
    cells = []
    for k, cell in enumerate(model.signatures):
        rows, counts = merged.trace.calls[k], merged.counts[k]
        base, arguments = rows[:, 0], rows[:, 1 : 1 + cell.arguments]
        lengths = [rows[:, 1 + cell.arguments + i].astype(np.int64) for i in range(len(cell.sequences))]
        first, stop = (np.repeat(bound, counts) for bound in (merged.offsets, ends))
        calls = _CellCalls(cell.name, counts, base, first, stop, arguments, tuple(lengths))
        outside = (base < first) | (base > stop - max(1, len(cell.outputs)))
        _blame(calls, outside, "a call's number to be one of its example", base)
        _blame(calls, np.diff(base, prepend=-1) <= 0, "calls in the order of their numbers", base)
        cells.append(calls)
    return cells


def _values(model: Model, policy: Policy, merged: Merged, cells: Sequence[_CellCalls]) -> _Values:
    total = merged.trace.values
    arena, turn, scope, level = (np.full(total, NONE, np.int32) for _ in range(4))
    taken, claims = np.zeros(total, np.bool_), 0
    for k, (cell, calls) in enumerate(zip(model.signatures, cells, strict=True)):
        for output in range(max(1, len(cell.outputs))):  # a call without values has a number, too
            number = calls.base + output
            taken[number] = True
            claims += len(number)
            if cell.outputs:
                arena[number] = cell.outputs[output]
                turn[number] = 2 * cell.component + (output not in model.cells[k].ends.recursive_outputs)
                scope[number] = policy.scope(cell)
                level[number] = merged.trace.levels[k]
    if np.count_nonzero(taken) != claims:
        raise ExampleError("trace", "a number of its own for each value", "one number twice", FIX)
    return _Values(arena, turn, scope, level)


def _check_reads(model: Model, trace: Trace, k: int, calls: _CellCalls, values: _Values) -> None:
    """Check that the values a cell's calls read are computed before, and lie in the arenas that it reads."""
    cell, ends = model.signatures[k], model.cells[k].ends
    callers = [np.repeat(np.arange(len(calls.base)), lengths) for lengths in calls.lengths]
    groups: list[tuple[Array, Index | None]] = [(calls.arguments, None)]
    groups += list(zip(trace.elements[k], callers, strict=True))
    for numbers, caller in groups:
        low, high = (bound if caller is None else bound[caller] for bound in (calls.first, calls.base))
        wrong = (numbers < low[:, None]) | (numbers >= high[:, None])
        _blame(calls, wrong, "values of earlier calls", numbers, caller)
    for number, operand in enumerate(cell.operands):
        numbers, caller = groups[0 if operand.sequence is None else 1 + operand.sequence]
        numbers = numbers[:, list(operand.columns) if operand.sequence is None else [operand.member]]
        expected = f"values of {model.arenas[operand.arena]} that its operand {number} can hold"
        _blame(calls, values.arena[numbers] != operand.arena, expected, numbers, caller)
        latest = 2 * cell.component - (number not in ends.recursive_operands)
        _blame(calls, values.turn[numbers] > latest, "values that are there when it runs", numbers, caller)


def _check_levels(
    policy: Policy, model: Model, trace: Trace, k: int, calls: _CellCalls, values: _Values
) -> None:
    """Check that each call's level is what `foldbatch.planning.policies.levels` computes.

    A call reads values of earlier calls alone, so it is enough to look at the levels of what it reads.
    """
    scope = policy.scope(model.signatures[k])

    def highest(numbers: Array) -> Array:
        levels = np.where(values.scope[numbers] == scope, values.level[numbers], -1)
        most: Array = levels.max(axis=1, initial=-1)
        return most

    needed = highest(calls.arguments)
    for part, lengths in zip(trace.elements[k], calls.lengths, strict=True):
        some = lengths > 0
        if some.any():
            starts = (np.cumsum(lengths) - lengths)[some]
            needed[some] = np.maximum(needed[some], np.maximum.reduceat(highest(part), starts))
    levels = trace.levels[k]
    _blame(calls, levels != needed + 1, f"the level that policy {policy.name!r} gives a call", levels)


def _check_feed(
    model: Model, trace: Trace, place: tuple[int, int], calls: _CellCalls, bound: int | None
) -> None:
    k, i = place
    column, feed = trace.feeds[k][i], model.feeds[k][i]
    number = calls.base - calls.first
    if i in model.keys[k]:
        # calls that a model leaves out have taken numbers, too
        _blame(calls, column < number, "a key that is not below the call's own number", column)
    elif i in dict(model.marks[k]).values():
        wrong = (column < 0) | (column > number)
        _blame(calls, wrong, "an earlier call's number as the place of a visit", column)
    elif column.dtype.kind == "b":
        _blame(calls, column.view(np.uint8) > 1, f"0 or 1 as bools of {feed.where}", column.view(np.uint8))
    elif column.dtype.kind == "i":
        limits = np.iinfo(feed.declared or column.dtype)
        low, high = (0, min(limits.max, bound - 1)) if bound is not None else (limits.min, limits.max)
        wrong = (column < low) | (column > high)
        what = "numbers" if bound is None else "ids"
        _blame(calls, wrong, f"{what} from {low} to {high} for {feed.where}", column)


def _check_results(model: Model, merged: Merged, results: Sequence[Any], values: _Values) -> None:
    if len(results) != len(merged.offsets):
        raise ExampleError("result", f"those of {len(merged.offsets)} examples", f"{len(results)}", FIX)
    sizes = (_ends(merged) - merged.offsets).tolist()
    numbers: dict[TensorType, list[int]] = {}
    examples: dict[TensorType, list[int]] = {}
    for example, (held, offset, size) in enumerate(zip(results, merged.offsets.tolist(), sizes, strict=True)):
        where = f"result of example {example}"
        for type_, number in _tensors(model.result, held, where):
            if type(number) is not int or not 0 <= number < size:
                raise ExampleError(where, "numbers of values of the example", repr(number)[:40], FIX)
            numbers.setdefault(type_, []).append(offset + number)
            examples.setdefault(type_, []).append(example)
    for type_, read in numbers.items():
        fitting = [a for a in sorted(model.results) if model.arenas[a] == type_]
        wrong = ~np.isin(values.arena[np.array(read, np.int64)], fitting)
        if wrong.any():
            example = examples[type_][int(wrong.argmax())]
            raise ExampleError(f"result of example {example}", f"a value of {type_}", "another value", FIX)


def terminals(type_: Type) -> Iterator[Type]:
    """Yield the types of the terminals that a trace holds for a value of a type: those that are no tuple.

    >>> [str(t) for t in terminals(TupleType(TensorType((3,)), VoidType(), TupleType(SequenceType(2))))]
    ['float32[3]', '[float32[2], ...]']
    """
    match type_:
        case TupleType(items):
            for item in items:
                yield from terminals(item)
        case BroadcastType(element):
            yield from terminals(element)
        case VoidType():
            return
        case _:
            yield type_


def _tensors(type_: Type, held: Any, where: str) -> Iterator[tuple[TensorType, Any]]:
    """Yield the value numbers of a result with their types; `held` are its terminals."""
    types = list(terminals(type_))
    if not isinstance(held, list | tuple) or len(held) != len(types):
        raise ExampleError(where, f"{len(types)} parts of {type_}", repr(held)[:40], FIX)
    for terminal, part in zip(types, held, strict=True):
        match terminal:
            case TensorType():
                yield terminal, part
            case SequenceType(element):
                if not isinstance(part, list | tuple):
                    raise ExampleError(where, f"a list for {terminal}", repr(part)[:40], FIX)
                single = len(list(terminals(element))) == 1  # then an element is held as it is
                for one in part:
                    yield from _tensors(element, (one,) if single else one, where)


def _ends(merged: Merged) -> Index:
    """Return where the value numbers of each example end: ``[examples] int64``."""
    return np.append(merged.offsets[1:], merged.trace.values)[: len(merged.offsets)]


def _blame(calls: _CellCalls, wrong: Flags, expected: str, found: Array, caller: Index | None = None) -> None:
    if wrong.any():
        place = np.unravel_index(int(wrong.argmax()), wrong.shape)
        call = int(place[0]) if caller is None else int(caller[place[0]])
        example = int(np.searchsorted(np.cumsum(calls.counts), call, "right"))
        raise ExampleError(f"{calls.name} at example {example}", expected, str(found[place]), FIX)
