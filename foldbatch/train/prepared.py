"""Prepared data sets: the traces of many examples in one file, to be read in place of the examples.

The file is one of `system.files`: flat arrays of all examples' numbers, a few texts in JSON, and no code.
A file belongs to a model: digests tell whether the program that reads it makes traces of the same form. They
cover the tracing program, but not functions of the user that it calls; when these change, prepare anew.
Every number that is read is checked against the model, so a file may come from anywhere.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import ExampleError, ExampleTypeError, ReadError
from foldbatch.model.model import Model
from foldbatch.model.traces import check_traces, terminals
from foldbatch.program.program import Program
from foldbatch.program.traced import Prepared, digests
from foldbatch.scheduler.merge import Merged
from foldbatch.scheduler.trace import Trace, pack
from foldbatch.system import files
from foldbatch.types import ObjectType, SequenceType, Type, describe_value, has_objects

KIND, VERSION = "prepared data set", 3
PLAIN = (str, int, float, bool, type(None))
WHAT, ANEW = f"a {KIND} that foldbatch wrote", "prepare it anew"
# what arrays raise that do not fit together
DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

Array = NDArray[Any]
Arrays = dict[str, Array]


@dataclass(frozen=True, slots=True)
class Column:
    """An array in the traces of all examples: its name, the dtype and shape of a row, and how to get it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    of: Callable[[Trace], Array]

    @property
    def none(self) -> Array:
        """No rows."""
        return np.zeros((0, *self.shape), self.dtype)


def save_prepared(
    program: Program,
    examples: Iterable[Any],
    path: str | os.PathLike[str],
    *,
    progress: bool = True,
) -> list[Prepared]:
    """Trace examples, write them to a file for `load_prepared`, and return them.

    The file appears under its name when it is complete, or not at all.

    Args:
        program: whose traces they are.
        examples: as for `Program.prepare`.
        path: of the file, which is replaced.
        progress: whether a bar is shown in a terminal when tracing takes more than a second.

    Raises:
        ExampleError: when an example does not fit the block.
        ExampleTypeError: when a label of a metric, or an object in a result, is no str, int, float, bool
            or None. No file has been touched in either case.
        OSError: when the file cannot be written.
    """
    prepared = program.prepare(examples, progress=progress)
    arrays = _pack(program.model, [example.trace for example in prepared])
    files.write(path, KIND, arrays, {"version": VERSION, "digests": _digests(program)})
    return prepared


def load_prepared(program: Program, path: str | os.PathLike[str]) -> list[Prepared]:
    """Return the examples that `save_prepared` wrote to a file; they stand for the examples in later calls.

    Raises:
        ReadError: when the file is damaged, or holds something else or numbers that do not fit the model.
        ExampleError: when it was prepared with another model, or for another policy.
        OSError: when there is no such file, or it cannot be opened.

    >>> import tempfile; import foldbatch as fb
    >>> model = fb.Map(fb.Scalar()) >> fb.Sum()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = save_prepared(fb.compile(model), [[1, 2], [], [3]], f"{folder}/numbers.prepared")
    ...     program = fb.compile(model)
    ...     examples = load_prepared(program, f"{folder}/numbers.prepared")
    >>> [float(x) for x in program.run(examples)]
    [3.0, 0.0, 3.0]
    """
    where = str(path)
    arrays, header = files.read(path, KIND, ANEW)
    version, written = header.get("version"), header.get("digests")
    if version != VERSION:
        raise ReadError(where, f"version {VERSION} of prepared data sets", f"version {version}", ANEW)
    if not isinstance(written, dict):
        raise ReadError(where, WHAT, "one without digests", ANEW)
    _check_digests(where, program, written)
    try:
        return [Prepared(trace, program.fingerprint) for trace in _unpack(program, arrays)]
    except ExampleError as error:
        raise ReadError(f"{where}: {error.where}", error.expected, error.found, ANEW) from None
    except DAMAGE as error:
        raise ReadError(where, WHAT, f"arrays that do not fit together: {error}", ANEW) from error


def _columns(model: Model) -> list[list[Column]]:
    """Return, per cell, the arrays that a trace has of it: calls, levels, elements, then feeds."""
    arrays = []
    for k, (cell, feeds) in enumerate(zip(model.signatures, model.feeds, strict=True)):
        width = 1 + cell.arguments + len(cell.sequences)
        columns = [
            Column(f"calls{k}", "int32", (width,), _part("calls", k)),
            Column(f"levels{k}", "int32", (), _part("levels", k)),
        ]
        columns += [
            Column(f"elements{k}_{i}", "int32", (n,), _part("elements", k, i))
            for i, n in enumerate(cell.sequences)
        ]
        columns += [
            Column(f"feeds{k}_{i}", feed.type.dtype, feed.type.shape, _part("feeds", k, i))
            for i, feed in enumerate(feeds)
        ]
        arrays.append(columns)
    return arrays


def _part(field: str, *path: int) -> Callable[[Trace], Array]:
    def part(trace: Trace) -> Array:
        array = getattr(trace, field)
        for i in path:
            array = array[i]
        return np.asarray(array)

    return part


def _pack(model: Model, traces: Sequence[Trace]) -> Arrays:
    arrays: Arrays = {"values": np.array([trace.values for trace in traces], np.int64)}
    for k, columns in enumerate(_columns(model)):
        arrays[f"count{k}"] = np.array([len(trace.calls[k]) for trace in traces], np.int64)
        for column in columns:
            arrays[column.name] = np.concatenate([column.none, *map(column.of, traces)])
        for i, metric in enumerate(model.labels[k]):
            where = f"metric {model.metrics[k][metric]!r}"
            arrays[f"labels{k}_{i}"] = _text(
                [
                    _plain(label, f"{where} at example {n}")
                    for n, t in enumerate(traces)
                    for label in t.labels[k][i]
                ]
            )
    arrays["results"] = _text(
        [
            list(_held(model.result, iter(trace.result), f"result of example {number}"))
            for number, trace in enumerate(traces)
        ]
    )
    return arrays


def _unpack(program: Program, arrays: Arrays) -> Iterator[Trace]:
    model = program.model
    _check_arrays(model, arrays)
    values = arrays["values"]
    examples = len(values)
    merged = _merged(model, arrays)
    results = _parsed(arrays["results"])
    check_traces(model, program.lowered.policy, merged, results)
    if has_objects(model.result):
        for number, result in enumerate(results):
            list(
                _held(model.result, iter(result), f"result of example {number}")
            )  # refuses what is not plain
    calls, levels, elements, feeds, labels = [], [], [], [], []
    for k, (cell, feeds_of_cell) in enumerate(zip(model.signatures, model.feeds, strict=True)):
        ends = np.cumsum(merged.counts[k])
        cut = partial(_cut, ends=ends)
        calls.append(cut(arrays[f"calls{k}"]))
        levels.append(cut(arrays[f"levels{k}"]))
        ragged = []
        for i in range(len(cell.sequences)):
            lengths = arrays[f"calls{k}"][:, 1 + cell.arguments + i]
            reached = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])[ends]
            ragged.append(_cut(arrays[f"elements{k}_{i}"], ends=reached))
        elements.append(_together(ragged, examples))
        columns = [cut(arrays[f"feeds{k}_{i}"]) for i in range(len(feeds_of_cell))]
        feeds.append(_together(columns, examples))
        labels.append(_together([cut(column) for column in merged.trace.labels[k]], examples))
    parts = [_together(part, examples) for part in (calls, elements, levels, feeds, labels)]
    for *fields, count, result in zip(*parts, values.tolist(), results, strict=True):
        trace = Trace(fields[0], fields[1], fields[2], fields[3], fields[4], count, tuple(result))
        yield pack(trace, program.model.form)


def _check_arrays(model: Model, arrays: Arrays) -> None:
    columns = [column for columns in _columns(model) for column in columns]
    forms: dict[str, tuple[str, tuple[int, ...]]] = {
        column.name: (column.dtype, column.shape) for column in columns
    }
    forms |= {"values": ("int64", ()), "results": ("uint8", ())}
    forms |= {f"count{k}": ("int64", ()) for k in range(len(model.cells))}
    texts = [f"labels{k}_{i}" for k, labels in enumerate(model.labels) for i in range(len(labels))]
    forms |= dict.fromkeys(texts, ("uint8", ()))
    if arrays.keys() != forms.keys():
        raise ValueError(f"names {sorted(arrays.keys() ^ forms.keys())}")
    for name, (dtype, shape) in forms.items():
        array = arrays[name]
        if array.dtype != dtype or array.ndim != 1 + len(shape) or array.shape[1:] != shape:
            raise ValueError(f"{name} is {array.dtype} of shape {array.shape}")


def _merged(model: Model, arrays: Arrays) -> Merged:
    """Return the traces of all examples joined: their numbers follow each other, as in a batch."""
    values = arrays["values"]
    if (values < 0).any() or (values >= 2**31).any():
        raise ValueError("numbers of values out of range")
    offsets = np.cumsum(values) - values
    calls: list[Any] = []
    elements: list[Any] = []
    counts, labels = [], []
    for k, cell in enumerate(model.signatures):
        count, rows = arrays[f"count{k}"], arrays[f"calls{k}"]
        if (
            len(count) != len(values)
            or (count < 0).any()
            or (count > len(rows)).any()
            or count.sum() != len(rows)
        ):
            raise ValueError(f"count{k} does not add up to {len(rows)} rows")
        offset = np.repeat(offsets, count)
        joined = rows.astype(np.int64)
        joined[:, : 1 + cell.arguments] += offset[:, None]
        parts = []
        for i in range(len(cell.sequences)):
            lengths, part = rows[:, 1 + cell.arguments + i], arrays[f"elements{k}_{i}"]
            if (lengths < 0).any() or lengths.sum(dtype=np.int64) != len(part):
                raise ValueError(f"lengths do not add up to the rows of elements{k}_{i}")
            parts.append(part + np.repeat(offset, lengths)[:, None])
        texts = [_parsed(arrays[f"labels{k}_{i}"]) for i in range(len(model.labels[k]))]
        if any(not isinstance(text, list) or not all(type(x) in PLAIN for x in text) for text in texts):
            raise ValueError(f"labels of cell {k} are no list of plain objects")
        calls.append(joined)
        elements.append(tuple(parts))
        counts.append(count)
        labels.append(tuple(texts))
    cells = range(len(model.cells))
    levels = tuple(arrays[f"levels{k}"] for k in cells)
    feeds = tuple(tuple(arrays[f"feeds{k}_{i}"] for i in range(len(model.feeds[k]))) for k in cells)
    total = int(values.sum())
    return Merged(
        Trace(tuple(calls), tuple(elements), levels, feeds, tuple(labels), total), tuple(counts), offsets
    )


def _cut(rows: Any, ends: Array) -> list[Any]:
    stops = ends.tolist()
    return [rows[start:stop] for start, stop in zip([0, *stops], stops, strict=False)]


def _together(columns: Sequence[Sequence[Any]], examples: int) -> list[tuple[Any, ...]]:
    return list(zip(*columns, strict=True)) if columns else [()] * examples


def _held(type_: Type, held: Iterator[Any], where: str) -> Iterator[Any]:
    """Yield the terminals of a result of a type, as lists; see `foldbatch.engines.results.walk`."""
    for terminal in terminals(type_):
        part = next(held)
        match terminal:
            case SequenceType(element):
                single = len(list(terminals(element))) == 1
                lists = [list(_held(element, iter((one,) if single else one), where)) for one in part]
                yield [column[0] if single else column for column in lists]
            case ObjectType():
                yield _plain(part, where)
            case _:
                yield part


def _plain(value: object, where: str) -> object:
    if type(value) not in PLAIN:
        fix = "convert it with InputTransform, or keep what is prepared in memory"
        raise ExampleTypeError(where, "a str, int, float, bool or None", describe_value(value), fix)
    return value


def _text(value: object) -> Array:
    return np.frombuffer(json.dumps(value).encode("ascii"), np.uint8)


def _parsed(text: Array) -> Any:
    return json.loads(text.tobytes())


def _digests(program: Program) -> dict[str, str]:
    return digests(program.model, program.lowered.source, program.options.policy)


def _check_digests(where: str, program: Program, written: dict[str, str]) -> None:
    for name, digest in _digests(program).items():
        if written.get(name) != digest:
            mismatch = (
                f"those for policy {written.get(name)!r}"
                if name == "policy"
                else f"those of a model with {name}"
            )
            fix = "prepare them anew, or compile what they were prepared with"
            if program.lowered.grows:
                fix = "call program.warm(examples) before, with what the other one learnt from"
            raise ExampleError(where, "examples prepared by this program", mismatch, fix)
