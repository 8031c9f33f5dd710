"""Tracing: running the program that `Builder` wrote on one example.

The program's functions are generators; a loop with its own stack drives them, so that a chain
of a million nodes needs memory but no recursion. Data is only collected while the program
runs and checked afterwards, column by column. When anything fails, the example is traced
again with every datum checked on the spot, and the error tells the block, the example and the
place in it.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from foldbatch.blocks.builder import Draft, Function
from foldbatch.errors import ExampleError, ExampleKeyError, ExampleTypeError, FoldbatchError
from foldbatch.scheduler.policies import Policy, levels
from foldbatch.scheduler.trace import CellSignature, Trace
from foldbatch.types import TensorType, describe_value

Steps = Generator[Any, Any, tuple[Any, ...]]


class BadDataError(Exception):
    """A datum is not what a block needs; `found` says what it is."""

    def __init__(self, expected: str, found: str, fix: str, kind: type[ExampleError] = ExampleError) -> None:
        super().__init__(expected, found, fix)
        self.expected, self.found, self.fix, self.kind = expected, found, fix, kind


def column(items: list[Any], type_: TensorType, bound: int | None) -> NDArray[Any]:
    """Return data as one array ``[n, *shape]``, refusing what is of another shape, kind or range.

    Raises:
        BadDataError: when any item is not of the type, or not below `bound`.
    """
    expected = str(type_) if bound is None else f"{type_} from 0 to {bound - 1}"
    if not items:
        return np.zeros((0, *type_.shape), type_.dtype)
    try:
        array = np.asarray(items)
    except (ValueError, TypeError, OverflowError):
        raise BadDataError(expected, describe_value(items[0]), "give numbers of this shape", ExampleTypeError) from None
    allowed = {"f": "fiub", "i": "iu", "b": "b"}[np.dtype(type_.dtype).kind]
    if array.dtype.kind not in allowed:
        fix = "convert it before, for example with InputTransform"
        raise BadDataError(expected, describe_value(items[0]), fix, ExampleTypeError)
    if array.shape[1:] != type_.shape:
        raise BadDataError(expected, describe_value(items[0]), "declare the shape that the data has")
    if array.dtype.kind in "iu" and type_.dtype.startswith("int") and array.size:
        limits = np.iinfo(type_.dtype)
        low, high = (0, bound - 1) if bound is not None else (limits.min, limits.max)
        if int(array.min()) < low or int(array.max()) > high:
            fix = "map unknown words to an id of their own" if bound is not None else "declare int64"
            raise BadDataError(expected, describe_value(items[0]), fix)
    return array.astype(type_.dtype, copy=False)


@dataclass(frozen=True, slots=True)
class Tracer:
    """A compiled tracing program.

    `root(x, ...)` starts it; `source` is its text; `width` the values reserved for each call.
    """

    functions: Sequence[Function]
    drafts: Sequence[Draft]
    cells: Sequence[CellSignature]
    bounds: Sequence[Sequence[int | None]]
    policy: Policy
    source: str
    namespace: dict[str, Any]
    width: int

    def trace(self, example: Any, number: int = 0) -> Trace:
        """Return the calls that an example makes.

        Args:
            example: what the root block reads.
            number: the example's number in its batch, for errors.

        Raises:
            ExampleError: when the example does not fit the blocks, with block path, example and place.
        """
        try:
            return self._trace(example, careful=False)
        except Exception as error:
            try:
                self._trace(example, careful=True)
            except _Located as located:
                raise located.error(number) from located.cause
            raise error

    def _trace(self, example: Any, *, careful: bool) -> Trace:
        record = _Record(self, careful=careful)
        result = _drive(self, record.start(example), careful=careful)
        return record.pack(result)


class _Record:
    """The lists that one run of the program appends to."""

    def __init__(self, tracer: Tracer, *, careful: bool) -> None:
        self.tracer = tracer
        self.calls = 0
        self.rows: list[list[tuple[int, ...]]] = [[] for _ in tracer.drafts]
        self.elements: list[list[list[Any]]] = [[[] for _ in d.sequences] for d in tracer.drafts]
        self.feeds: list[list[list[Any]]] = [[[] for _ in d.feeds] for d in tracer.drafts]
        self.labels: list[list[list[Any]]] = [[[] for _ in d.labels] for d in tracer.drafts]
        counter = iter(range(0, 2**31 - tracer.width, tracer.width))
        # the program finds its lists among its globals; each run gives it new ones
        scope = tracer.namespace
        scope["call"] = counter.__next__
        for k, draft in enumerate(tracer.drafts):
            scope[f"row{k}"] = self.rows[k].append
            for i, elements in enumerate(self.elements[k]):
                scope[f"elements{k}_{i}"] = elements.extend
            for i, labels in enumerate(self.labels[k]):
                scope[f"label{k}_{i}"] = labels.append
            for i, items in enumerate(self.feeds[k]):
                bound = tracer.bounds[k][i]
                scope[f"feed{k}_{i}"] = _checking(draft.feeds[i][1].type, bound, items) if careful else items.append
        self.root = scope[tracer.functions[0].name]
        self.counter = counter

    def start(self, example: Any) -> Steps:
        steps: Steps = self.root(example)
        return steps

    def pack(self, result: Any) -> Trace:
        cells = self.tracer.cells
        values = next(self.counter)
        calls, elements, feeds = [], [], []
        for k, (cell, draft) in enumerate(zip(cells, self.tracer.drafts, strict=True)):
            width = 1 + cell.arguments + len(cell.sequences)
            calls.append(np.array(self.rows[k], np.int32).reshape(-1, width))
            elements.append(
                tuple(np.array(part, np.int32).reshape(-1, n) for part, n in zip(self.elements[k], cell.sequences, strict=True))
            )
            bounds = self.tracer.bounds[k]
            feeds.append(
                tuple(
                    column(items, draft.feeds[i][1].type, bounds[i]) for i, items in enumerate(self.feeds[k])
                )
            )
        verdicts = levels(self.tracer.policy, cells, calls, elements, values)
        return Trace(tuple(calls), tuple(elements), verdicts, tuple(feeds), tuple(map(tuple, self.labels)), values, result)


FILENAME = "<foldbatch trace>"


def _checking(type_: TensorType, bound: int | None, items: list[Any]) -> Callable[[Any], None]:
    def check(item: Any) -> None:
        column([item], type_, bound)
        items.append(item)

    return check


def compile_source(functions: Sequence[Function]) -> str:
    """Return the program's text; tracebacks show it."""
    parts = []
    for function in functions:
        header = f"def {function.name}({', '.join(slot.code for slot in function.parameters)}):"
        # the unreachable yield makes every function a generator, whether it calls others or not
        parts.append("\n".join([header, *(line.text for line in function.lines), "    yield"]))
    source = "\n\n".join(parts) + "\n"
    linecache.cache[FILENAME] = (len(source), None, source.splitlines(keepends=True), FILENAME)
    return source


def _drive(tracer: Tracer, steps: Steps, *, careful: bool) -> tuple[Any, ...]:
    stack = [steps]
    value: Any = None
    try:
        while True:
            try:
                stack.append(stack[-1].send(value))
                value = None
            except StopIteration as done:
                value = done.value
                stack.pop()
                if not stack:
                    return value  # type: ignore[no-any-return]
    except Exception as error:
        if careful:
            raise _Located(tracer, stack, error) from None
        raise


class _Located(Exception):  # noqa: N818 - carries an error, is none itself
    """An error with the lines at which the program's functions stood."""

    def __init__(self, tracer: Tracer, stack: Sequence[Steps], cause: Exception) -> None:
        super().__init__()
        self.cause = cause
        starts: dict[str, tuple[int, Function]] = {}
        line = 1
        for function in tracer.functions:
            starts[function.name] = (line, function)
            line += len(function.lines) + 3
        frames = [(s.gi_frame.f_code.co_name, s.gi_frame.f_lineno, s.gi_frame.f_locals) for s in stack if s.gi_frame]
        trace = cause.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == FILENAME:
                innermost = (trace.tb_frame.f_code.co_name, trace.tb_lineno, trace.tb_frame.f_locals)
            trace = trace.tb_next
        if len(frames) < len(stack):  # a generator that raised has no frame any more
            frames.append(innermost)
        self.places: list[str] = []
        for name, number, scope in frames:
            start, function = starts[name]
            self.line = function.lines[number - start - 1]
            self.scope = scope
            place = self.line.subject.place if self.line.subject else ()
            self.places += [part.format(**scope) for part in place]

    def error(self, number: int) -> FoldbatchError:
        line, cause = self.line, self.cause
        place = "".join(self.places if len(self.places) <= 40 else [*self.places[:20], "...", *self.places[-20:]])
        where = f"{line.where} at example {number}" + (f" {place}" if place else "")
        if isinstance(cause, BadDataError):
            return cause.kind(where, cause.expected, cause.found, cause.fix)
        found = self._found()
        if line.expected and isinstance(cause, KeyError | IndexError):
            return ExampleKeyError(where, line.expected, found, "add it to the example, or read another field")
        if line.expected and isinstance(cause, TypeError | AttributeError):
            return ExampleTypeError(where, line.expected, found, "check the example's structure")
        expected = line.expected or "the example to be readable"
        return ExampleError(where, expected, f"{type(cause).__name__}: {cause} (given {found})", "see the error above")

    def _found(self) -> str:
        subject = self.line.subject
        if subject is None or subject.code not in self.scope:
            return type(self.cause).__name__
        return describe_value(self.scope[subject.code])


def refuse(expected: str, found: object, fix: str) -> NoReturn:
    """Raise what the program raises when a value has no case written for it."""
    raise BadDataError(expected, describe_value(found), fix, ExampleKeyError)
