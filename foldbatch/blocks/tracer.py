"""Tracing: running the program that `Builder` wrote on one example.

The program's functions are generators; a loop with its own stack drives them, so that a chain
of a million nodes needs memory but no recursion. Data is only collected while the program
runs and checked afterwards, column by column. When anything fails, the example is traced
again with every datum checked on the spot, and the error tells the block, the example and the
place in it.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import CodeType
from typing import Any

import numpy as np

from foldbatch.blocks.columns import BadDataError, column
from foldbatch.blocks.drafts import Line, Procedure
from foldbatch.blocks.endless import Steps, TooManyCallsError, call_numbers, cycle
from foldbatch.errors import (
    ExampleError,
    ExampleIndexError,
    ExampleKeyError,
    ExampleTypeError,
    FoldbatchError,
)
from foldbatch.garbage import no_garbage
from foldbatch.model.drafts import Feed
from foldbatch.model.model import Model
from foldbatch.scheduler.policies import Policy, levels
from foldbatch.scheduler.trace import Form, Trace, pack
from foldbatch.types import describe_value

FILENAME = "<foldbatch trace>"
DEEPEST = 2_000_000  # calls within calls; data that is deeper contains itself
SHALLOW = 10_000  # calls within calls; from here on, whenever their number doubles, a cycle is looked for
MAX_CALLS = 10_000_000  # calls of one example, by default


@dataclass(frozen=True, slots=True)
class Tracer:
    """A compiled tracing program. Several threads may run it at once, and a run may start other runs.

    A run has globals of its own: the functions of the program, and the lists that they append to.

    Attributes:
        functions: the functions of the program, the root's first.
        model: the model that traces fit.
        policy: the policy that levels are computed for.
        source: the program's text.
        globals: what all runs have among their globals.
        collections: the variables that hold lists of collected values.
        memos: the variables that hold memos, which `foldbatch.blocks.memo` explains.
        max_calls: how many calls an example may make.
        width: how many value numbers each call reserves.
        bounds: per cell and feed, the number that ids must be below, or None.
        form: the form of traces.
        code: the compiled text.
        unused: globals of runs that have ended, for other runs.
    """

    functions: Sequence[Procedure]
    model: Model
    policy: Policy
    source: str
    globals: dict[str, Any]
    collections: Sequence[str] = ()
    memos: Sequence[str] = ()
    max_calls: int = MAX_CALLS
    width: int = field(init=False)
    bounds: Sequence[Sequence[int | None]] = field(init=False)
    form: Form = field(init=False)
    code: CodeType = field(init=False, repr=False)
    unused: list[dict[str, Any]] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        outputs = [len(signature.outputs) for signature in self.model.signatures]
        object.__setattr__(self, "width", max([1, *outputs]))
        object.__setattr__(self, "bounds", self.model.bounds)
        object.__setattr__(self, "form", self.model.form)
        object.__setattr__(self, "code", compile(self.source, FILENAME, "exec"))

    def trace(self, example: Any, number: int = 0) -> Trace:
        """Return the calls that an example makes.

        Args:
            example: what the root block reads.
            number: the example's number in its batch, for errors.

        Raises:
            ExampleError: when the example does not fit the blocks, with block path, example and place.
        """
        try:
            return self.walk(example, careful=False)
        except TooManyCallsError:
            expected = f"at most {self.max_calls:,} calls"
            fix = "raise compile(max_calls=), or visit shared parts once: ForwardDeclaration(memo=True)"
            raise ExampleError(f"model at example {number}", expected, "more", fix) from None
        except Exception as error:
            lines = self.source.splitlines(keepends=True)
            linecache.cache[FILENAME] = (len(self.source), None, lines, FILENAME)
            try:
                self.walk(example, careful=True)
            except Located as located:
                raise located.error(number) from located.cause
            except BadDataError:
                pass  # found in a whole column only
            raise _unlocated(error, number) from error

    def walk(
        self, example: Any, *, careful: bool, adapt: Callable[[dict[str, Any]], None] = lambda _: None
    ) -> Trace:
        """Run the program once, with globals that `adapt` may change; a careful run raises `Located`."""
        record = _Record(self, careful=careful)
        try:
            namespace = self.unused.pop()
        except IndexError:  # all are in use
            namespace = dict(self.globals)
            exec(self.code, namespace)  # noqa: S102 - the text is our own
        adapt(record.bindings)
        namespace.update(record.bindings)
        with no_garbage():  # a long trace makes very many numbers
            try:
                result = _drive(self, namespace, example, careful=careful)
            finally:
                namespace.update(dict.fromkeys(record.bindings))
                self.unused.append(namespace)
            return record.pack(result)


class _Record:
    """The lists that one run of the program appends to, and finds among its globals."""

    def __init__(self, tracer: Tracer, *, careful: bool) -> None:
        self.tracer = tracer
        self.rows: list[list[tuple[int, ...]]] = [[] for _ in tracer.model.cells]
        self.elements: list[list[list[Any]]] = [[[] for _ in s.sequences] for s in tracer.model.signatures]
        self.feeds: list[list[list[Any]]] = [[[] for _ in feeds] for feeds in tracer.model.feeds]
        self.labels: list[list[list[Any]]] = [[[] for _ in labels] for labels in tracer.model.labels]
        self.counter = call_numbers(tracer.max_calls, tracer.width)
        self.bindings: dict[str, Any] = {"call": self.counter.__next__}
        self.bindings |= {name: [] for name in tracer.collections}
        self.bindings |= {name: {} for name in tracer.memos}
        for k, cell_feeds in enumerate(tracer.model.feeds):
            self.bindings[f"row{k}"] = self.rows[k].append
            for i, elements in enumerate(self.elements[k]):
                self.bindings[f"elements{k}_{i}"] = elements.extend
            for i, labels in enumerate(self.labels[k]):
                self.bindings[f"label{k}_{i}"] = labels.append
            for i, items in enumerate(self.feeds[k]):
                check = _checking(cell_feeds[i], tracer.bounds[k][i], items)
                self.bindings[f"feed{k}_{i}"] = check if careful else items.append

    def pack(self, result: Any) -> Trace:
        model = self.tracer.model
        cells = model.signatures
        values = next(self.counter)
        calls, elements, feeds = [], [], []
        for k, (cell, bounds) in enumerate(zip(cells, self.tracer.bounds, strict=True)):
            width = 1 + cell.arguments + len(cell.sequences)
            rows = np.fromiter(chain.from_iterable(self.rows[k]), np.int32, width * len(self.rows[k]))
            calls.append(rows.reshape(-1, width))
            parts = zip(self.elements[k], cell.sequences, strict=True)
            elements.append(tuple(np.array(part, np.int32).reshape(-1, n) for part, n in parts))
            types = [feed.type for feed in model.feeds[k]]
            declared = [feed.declared for feed in model.feeds[k]]
            feeds.append(tuple(map(column, self.feeds[k], types, bounds, declared)))
        verdicts = levels(self.tracer.policy, cells, calls, elements, values)
        labels = tuple(map(tuple, self.labels))
        trace = Trace(tuple(calls), tuple(elements), verdicts, tuple(feeds), labels, values, result)
        return pack(trace, self.tracer.form)


def _checking(feed: Feed, bound: int | None, items: list[Any]) -> Callable[[Any], None]:
    def check(item: Any) -> None:
        column([item], feed.type, bound, feed.declared)
        items.append(item)

    return check


def write_source(functions: Sequence[Procedure]) -> str:
    """Return the program's text; tracebacks show it."""
    parts = []
    for function in functions:
        header = f"def {function.name}({', '.join(slot.code for slot in function.parameters)}):"
        # the unreachable yield makes every function a generator, whether it calls others or not
        parts.append("\n".join([header, *(line.text for line in function.lines), "    yield"]))
    return "\n\n".join(parts) + "\n"


def _drive(tracer: Tracer, namespace: dict[str, Any], example: Any, *, careful: bool) -> tuple[Any, ...]:
    stack: list[Steps] = [namespace[tracer.functions[0].name](example)]
    value: Any = None
    limit = SHALLOW
    try:
        while True:
            try:
                stack.append(stack[-1].send(value))
                value = None
                if len(stack) > limit:
                    _refuse_endless(tracer, stack)
                    limit = min(2 * limit, DEEPEST)
            except StopIteration as done:
                value = done.value
                stack.pop()
                if not stack:
                    return value  # type: ignore[no-any-return]
    except Exception as error:
        if careful:
            raise Located(tracer, namespace, stack, _as_raised(error, namespace)) from None
        raise


def _refuse_endless(tracer: Tracer, stack: list[Steps]) -> None:
    """Refuse data that contains itself, or is deeper than any; the stack is cut where it begins again."""
    newest = stack[len(stack) * 9 // 10 :]  # looking at all of them would take too long
    if cycle(newest, tracer.functions) is not None:
        del stack[cycle(stack, tracer.functions) :]
        found, fix = "a part that contains itself", "cut the cycle, or stop at objects already seen"
        raise BadDataError("data that ends", found, fix)
    if len(stack) > DEEPEST:
        fix = "data must not contain itself; let every case of the recursion go on to a part of it"
        raise BadDataError("data that ends", f"more than {DEEPEST} levels", fix)


class Located(Exception):  # noqa: N818 - carries an error, is none itself
    """An error with the lines at which the program's functions stood."""

    def __init__(
        self, tracer: Tracer, namespace: dict[str, Any], stack: Sequence[Steps], cause: Exception
    ) -> None:
        super().__init__()
        self.cause = cause
        starts: dict[str, tuple[int, Procedure]] = {}
        start = 1
        for function in tracer.functions:
            starts[function.name] = (start, function)
            start += len(function.lines) + 3
        frames = [
            (s.gi_frame.f_code.co_name, s.gi_frame.f_lineno, s.gi_frame.f_locals) for s in stack if s.gi_frame
        ]
        if len(frames) < len(stack):  # a generator that raised has no frame any more; the traceback has
            innermost = _innermost(namespace, cause)
            assert innermost is not None, "the program did not raise"
            frames.append(innermost)
        self.places: list[str] = []
        for name, number, scope in frames:
            start, function = starts[name]
            self.line: Line = function.lines[max(number - start - 1, 0)]
            self.scope: dict[str, Any] = scope
            place = self.line.subject.place if self.line.subject else ()
            self.places += [part.format(**scope) for part in place]

    def error(self, number: int) -> FoldbatchError:
        """Return the error that the user meets."""
        line, cause = self.line, self.cause
        kind: type[ExampleError]
        place = joined(self.places)
        where = f"{line.where} at example {number}" + (f" {place}" if place else "")
        if isinstance(cause, BadDataError):
            return cause.kind(where, cause.expected, cause.found, cause.fix)
        match cause:
            case KeyError():
                kind, fix = (
                    ExampleKeyError,
                    "add it to the example, read another field, or write GetItem(key, default=...)",
                )
            case IndexError():
                kind, fix = (
                    ExampleIndexError,
                    "give the example more items, read another one, or write GetItem(index, default=...)",
                )
            case TypeError() | AttributeError():
                kind, fix = ExampleTypeError, "check the structure of the example"
            case _:
                kind, fix = ExampleError, ""
        found = self._found()
        if line.expected and fix:
            return kind(where, line.expected, found, fix)
        expected = line.expected or (
            f"a {line.calls} that succeeds" if line.calls else "an example that can be read"
        )
        return kind(where, expected, f"{_brief(cause)}, given {found}", "see the exception above")

    def _found(self) -> str:
        subject = self.line.subject
        if subject is None or subject.code not in self.scope:
            return "no object"
        return describe_value(self.scope[subject.code])


def joined(places: Sequence[str]) -> str:
    """Return a place as Python would index it; the middle of a long one is left out."""
    return "".join(places if len(places) <= 40 else [*places[:20], "...", *places[-20:]])


def _as_raised(error: Exception, namespace: dict[str, Any]) -> Exception:
    """Return the exception that left a line of the program; of StopIteration Python makes RuntimeError."""
    cause = error.__cause__
    if isinstance(error, RuntimeError) and isinstance(cause, StopIteration) and _innermost(namespace, cause):
        return cause
    return error


def _innermost(namespace: dict[str, Any], cause: Exception) -> tuple[str, int, dict[str, Any]] | None:
    """Return the function, line and variables of the program where an exception left it, if it did."""
    innermost = None
    trace = cause.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_filename == FILENAME and frame.f_globals is namespace:
            innermost = innermost or (frame.f_code.co_name, trace.tb_lineno, frame.f_locals)
        trace = trace.tb_next
    return innermost


def _unlocated(error: Exception, number: int) -> FoldbatchError:
    """Return the error for a failure that did not happen again when the example was read a second time."""
    where = f"model at example {number}"
    if isinstance(error, BadDataError):
        return error.kind(where, error.expected, error.found, error.fix)
    fix = "see the exception above; of iterators, which are used up by reading, make lists"
    return ExampleError(where, "an example that can be read", _brief(error), fix)


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
