"""Prepared data sets: the traces of many examples in one file, to be read in place of the examples.

The file is what NumPy writes with `np.savez`: flat arrays of all examples' numbers, a few texts in
JSON, and no code. Each array has its checksum there. A file belongs to a model: digests tell whether the
program that reads it makes traces of the same form. They cover the tracing program, but not functions of
the user that it calls; when these change, prepare anew.
"""

from __future__ import annotations

import json
import os
import struct
import uuid
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import ExampleError, ExampleTypeError, ReadError
from foldbatch.model.model import Model
from foldbatch.program import Program
from foldbatch.scheduler.trace import Trace, pack
from foldbatch.traced import Prepared, digests
from foldbatch.types import (
    BroadcastType,
    ObjectType,
    SequenceType,
    TupleType,
    Type,
    VoidType,
    describe_value,
)

VERSION = 1
PLAIN = (str, int, float, bool, type(None))
# errors that reading a file raises when it is no zip archive of arrays, or a damaged one
DAMAGE = (
    zipfile.BadZipFile,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    OSError,
    struct.error,
    zlib.error,
)

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


def prepare(program: Program, examples: Iterable[Any], path: str | os.PathLike[str]) -> list[Prepared]:
    """Trace examples, write them to a file for `load_prepared`, and return them.

    The file appears under its name when it is complete, or not at all.

    Args:
        program: whose traces they are.
        examples: as for `Program.prepare`.
        path: of the file, which is replaced.

    Raises:
        ExampleError: when an example does not fit the block.
        ExampleTypeError: when a label of a metric, or an object in a result, is no str, int, float, bool
            or None. No file has been touched in either case.
        OSError: when the file cannot be written.
    """
    prepared = program.prepare(examples)
    arrays = _pack(program.model, [example.trace for example in prepared])
    about = {
        "version": VERSION,
        "digests": _digests(program),
        "examples": len(prepared),
    }
    arrays["about"] = _text(about)
    target = Path(path)
    partial_file = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        with partial_file.open("xb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]  # none is called allow_pickle
            file.flush()
            os.fsync(file.fileno())
        partial_file.replace(target)
    finally:
        partial_file.unlink(missing_ok=True)
    return prepared


def load_prepared(program: Program, path: str | os.PathLike[str]) -> list[Prepared]:
    """Return the examples that `prepare` wrote to a file; they stand for the examples in later calls.

    Raises:
        ReadError: when the file is damaged, or none of `prepare`'s.
        ExampleError: when it was prepared with another model, or for another policy.
        OSError: when there is no such file, or it cannot be opened.

    >>> import tempfile; import foldbatch as fb
    >>> model = fb.Map(fb.Scalar()) >> fb.Sum()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = prepare(fb.compile(model), [[1, 2], [], [3]], f"{folder}/numbers.prepared")
    ...     program = fb.compile(model)
    ...     examples = load_prepared(program, f"{folder}/numbers.prepared")
    >>> [float(x) for x in program.run(examples)]
    [3.0, 0.0, 3.0]
    """
    where = str(path)
    with Path(path).open("rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                damaged = archive.testzip()
            if damaged is not None:
                raise ValueError(damaged)
            file.seek(0)
            arrays = dict(np.load(file, allow_pickle=False))
            about = _parsed(arrays["about"])
            version, written = about["version"], dict(about["digests"])
        except DAMAGE as error:
            found = "a file that is damaged, or of another kind"
            raise ReadError(where, "a prepared data set", found, "prepare it anew") from error
    if version != VERSION:
        found = f"version {version}"
        raise ReadError(where, f"version {VERSION} of prepared data sets", found, "prepare it anew")
    _check_digests(where, program, written)
    try:
        return [Prepared(trace, program) for trace in _unpack(program.model, arrays, about["examples"])]
    except DAMAGE as error:
        raise ReadError(where, "a prepared data set", "arrays that do not fit together") from error


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
    """Return all traces as arrays: the rows of all examples, and how many rows each example has."""
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


def _unpack(model: Model, arrays: Arrays, examples: int) -> Iterator[Trace]:
    """Yield the traces that `_pack` packed.

    Raises:
        ValueError: when arrays do not fit together; also the others of `DAMAGE`.
    """
    calls, levels, elements, feeds, labels = [], [], [], [], []
    for k, (cell, columns) in enumerate(zip(model.signatures, _columns(model), strict=True)):
        for column in columns:
            array = arrays[column.name]
            if array.dtype != column.dtype or array.shape[1:] != column.shape:
                raise ValueError(column.name)
        counts = arrays[f"count{k}"]
        ends = np.cumsum(counts)
        cut = partial(_cut, ends=ends)
        rows = arrays[f"calls{k}"]
        calls.append(cut(rows))
        levels.append(cut(arrays[f"levels{k}"]))
        values = np.repeat(
            arrays["values"], counts
        )  # of each call's example; compiled loops do not check ranges
        _check_range(rows[:, : 1 + cell.arguments], values)
        _check_range(rows[:, :1] + max(len(cell.outputs) - 1, 0), values)
        _check_range(arrays[f"levels{k}"][:, None], values)
        ragged = []
        for i in range(len(cell.sequences)):
            lengths = rows[:, 1 + cell.arguments + i]
            _check_range(arrays[f"elements{k}_{i}"], np.repeat(values, lengths))
            reached = np.concatenate([[0], np.cumsum(lengths)])[ends]
            ragged.append(_cut(arrays[f"elements{k}_{i}"], ends=reached))
        elements.append(_together(ragged, examples))
        names = [column.name for column in columns if column.name.startswith("feeds")]
        feeds.append(_together([cut(arrays[name]) for name in names], examples))
        texts = [_parsed(arrays[f"labels{k}_{i}"]) for i in range(len(model.labels[k]))]
        labels.append(_together([cut(text) for text in texts], examples))
    parts = [_together(part, examples) for part in (calls, elements, levels, feeds, labels)]
    numbers = arrays["values"].tolist()
    for *fields, values, result in zip(*parts, numbers, _parsed(arrays["results"]), strict=True):
        yield pack(Trace(fields[0], fields[1], fields[2], fields[3], fields[4], values, tuple(result)))


def _check_range(rows: Array, limits: Array) -> None:
    """Refuse numbers below 0, or not below their row's limit. Shapes: ``rows: [n, k]``, ``limits: [n]``."""
    if len(rows) != len(limits) or (rows < 0).any() or (rows >= limits[:, None]).any():
        raise ValueError("a number out of range")


def _cut(rows: Any, ends: Array) -> list[Any]:
    """Return the rows of each example, which end at `ends`: ``[rows, *]`` with ``ends: [examples]``."""
    stops = ends.tolist()
    if (stops[-1] if stops else 0) != len(rows):
        raise ValueError("rows left over, or missing")
    return [rows[start:stop] for start, stop in zip([0, *stops], stops, strict=False)]


def _together(columns: Sequence[Sequence[Any]], examples: int) -> list[tuple[Any, ...]]:
    """Return, per example, its part of each column."""
    return list(zip(*columns, strict=True)) if columns else [()] * examples


def _held(type_: Type, held: Iterator[Any], where: str) -> Iterator[Any]:
    """Yield the terminals of a result of a type, as lists; see `foldbatch.engines.results.walk`."""
    for terminal in _terminals(type_):
        part = next(held)
        match terminal:
            case SequenceType(element):
                single = len(list(_terminals(element))) == 1
                lists = [list(_held(element, iter((one,) if single else one), where)) for one in part]
                yield [column[0] if single else column for column in lists]
            case ObjectType():
                yield _plain(part, where)
            case _:
                yield part


def _terminals(type_: Type) -> Iterator[Type]:
    """Yield the types of the terminals that a trace holds for a value of a type."""
    match type_:
        case TupleType(items):
            for item in items:
                yield from _terminals(item)
        case BroadcastType(element):
            yield from _terminals(element)
        case VoidType():
            return
        case _:
            yield type_


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
    return digests(program.lowered, program.options.policy)


def _check_digests(where: str, program: Program, written: dict[str, str]) -> None:
    for name, digest in _digests(program).items():
        if written.get(name) != digest:
            mismatch = (
                f"those for policy {written.get(name)!r}"
                if name == "policy"
                else f"those of a model with {name}"
            )
            fix = "prepare them anew, or compile what they were prepared with"
            raise ExampleError(where, "examples prepared by this program", mismatch, fix)
