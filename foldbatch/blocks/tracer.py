"""Tracing: running the program that `Builder` wrote on the examples of a batch.

The program's functions are there twice. As plain functions they call each other, as deep as Python's stack
allows; from there on they are generators, driven by a loop with its own stack, so that a chain of a million
nodes needs memory but no recursion. Data is only collected while the program runs and checked afterwards,
column by column. When anything fails, the examples are traced again one by one, with every datum checked on
the spot, and the error tells the block, the example and the place in it.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import CodeType, FrameType
from typing import Any

from foldbatch.blocks.by_number import FIELDS, Numbered, by_number, fields_of, suits
from foldbatch.blocks.direct import DRIVEN, PLAIN, TOOLS, direct
from foldbatch.blocks.drafts import Line, Procedure
from foldbatch.blocks.endless import Steps, TooManyCallsError, cycle
from foldbatch.blocks.interrupts import interrupted, is_accident
from foldbatch.blocks.recorder import Recorder
from foldbatch.errors import (
    ExampleError,
    ExampleIndexError,
    ExampleKeyError,
    ExampleTypeError,
    FoldbatchError,
)
from foldbatch.model.columns import BadDataError
from foldbatch.model.model import Model
from foldbatch.model.tracer import MAX_CALLS, Look
from foldbatch.scheduler.arithmetic import NUMPY, Arithmetic
from foldbatch.scheduler.levels import levels
from foldbatch.scheduler.policies import Policy
from foldbatch.scheduler.record import Together, TraceColumns, renumbered
from foldbatch.scheduler.trace import Form, Trace
from foldbatch.system.garbage import no_garbage
from foldbatch.types import describe_value

FILENAME = "<foldbatch trace>"
DEEPEST = 2_000_000  # calls within calls; data that is deeper contains itself
SHALLOW = 10_000  # calls within calls; from here on, whenever their number doubles, a cycle is looked for


@dataclass(frozen=True)
class Tracer:
    """A compiled tracing program. Several threads may run it at once, and a run may start other runs.

    A run has globals of its own: the functions of the program, and the lists that they append to.

    Attributes:
        functions: the functions of the program, the root's first.
        model: the model that traces fit.
        policy: the policy that levels are computed for.
        source: the program's text, its functions being generators.
        globals: what all runs have among their globals.
        collections: the variables that hold lists of collected values.
        memos: the variables that hold memos, which `foldbatch.blocks.memo` explains.
        max_calls: how many calls an example may make.
        arithmetic: what finds levels.
        bounds: per cell and feed, the number that ids must be below, or None.
        form: the form of traces.
        code: the compiled text, of generators and of plain functions.
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
    arithmetic: Arithmetic = NUMPY
    bounds: Sequence[Sequence[int | None]] = field(init=False)
    form: Form = field(init=False)
    code: tuple[CodeType, ...] = field(init=False, repr=False)
    unused: list[dict[str, Any]] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", self.model.bounds)
        object.__setattr__(self, "form", self.model.form)
        texts: list[Any] = [self.source, direct(self.source)]
        object.__setattr__(self, "code", tuple([compile(text, FILENAME, "exec") for text in texts]))

    @cached_property
    def numbered(self) -> Numbered | None:
        """The program on trees, where it gains something: made when the first tree is read."""
        return by_number(direct(self.source), self.globals)

    def trace(self, example: Any, number: int = 0) -> Trace:
        """Return the calls that an example makes.

        Args:
            example: what the root block reads.
            number: the example's number in its batch, for errors.

        Raises:
            ExampleError: when the example does not fit the blocks, with block path, example and place.
        """
        return self.trace_all([example], [number])[0]

    def trace_all(
        self, examples: Sequence[Any], numbers: Sequence[int], look: Look | None = None
    ) -> list[Trace]:
        """Return the calls that examples make, each in a trace of its own.

        Args:
            examples: what the root block reads.
            numbers: the examples' numbers in their batch, for errors.
            look: is given the data that were read before they become arrays, and may put others in their
                places: per cell and feed, a list in the order of calls. It is called again with the data of
                the next examples where there are very many.

        Raises:
            ExampleError: when an example does not fit the blocks; it tells of the first one that does not.
        """
        traces: list[Trace] = []
        while len(traces) < len(examples):
            done = len(traces)
            with no_garbage():  # long traces make very many numbers
                record = self.record(examples[done:], numbers[done:], look)
            traces += self.traces_of(record)
        return traces

    def traces_of(self, record: TraceColumns) -> list[Trace]:
        """Return the traces of the examples of a record, with the levels of their calls."""
        cells = self.model.signatures
        batched = renumbered(record, [cell.arguments for cell in cells])
        values = int(batched.offsets[-1])
        height = levels(self.policy, cells, batched.calls, batched.elements, values, self.arithmetic)
        return Together(replace(batched, levels=height), self.form).traces()

    def record(
        self, examples: Sequence[Any], numbers: Sequence[int], look: Look | None = None
    ) -> TraceColumns:
        """Return the record of examples, or of the first ones where there are very many calls.

        Arguments and errors are those of `trace_all`.
        """
        recorder = self._recorder(careful=False)
        numbered = self.numbered if all(map(suits, examples)) else None
        tables = None if numbered is None else numbered.tables()
        try:
            with self._namespace(recorder) as namespace:
                root, depth = namespace[PLAIN + self.functions[0].name], _depth()
                if numbered is not None and numbered.root not in namespace:
                    exec(numbered.code, namespace)  # noqa: S102 - the text is our own
                namespace.update(tables or {})
                for example in examples:
                    namespace.update(recorder.begin())
                    if numbered is not None and tables is not None:
                        namespace.update(fields_of(example))
                        recorder.end(namespace[numbered.root](example.index, depth))
                    else:
                        recorder.end(root(example, depth))
                    if recorder.full:
                        break
            if look is not None:
                look(self.model, recorder.data)
            return recorder.record()
        except Exception as error:
            bad = None if interrupted(error) else recorder.first_bad() or (recorder.ended, error)
            if bad is None or bad[0] == len(examples):  # it is no example's fault
                raise
            number, cause = bad
            refused = self._refused(examples[number], numbers[number], cause)
            raise refused from refused.__cause__

    def _refused(self, example: Any, number: int, error: Exception) -> Exception:
        """Return the error for an example that does not fit, or one that is no example's fault."""
        if isinstance(error, TooManyCallsError):
            expected = f"at most {self.max_calls:,} calls"
            fix = "raise the option max_calls, or visit shared parts once: ForwardDeclaration(memo=True)"
            return ExampleError(f"model at example {number}", expected, "more", fix)
        lines = self.source.splitlines(keepends=True)
        linecache.cache[FILENAME] = (len(self.source), None, lines, FILENAME)
        try:
            self.walk(example)
        except Located as located:
            refused = located.error(number)
            refused.__cause__ = located.cause
            return refused
        except (BadDataError, TooManyCallsError):
            pass
        if is_accident(error, example):
            return error
        refused = _unlocated(error, number)
        refused.__cause__ = error
        return refused

    def walk(self, example: Any, adapt: Callable[[dict[str, Any]], None] = lambda _: None) -> None:
        """Read an example with care: each datum is checked at once, and errors are `Located`.

        Args:
            example: what the root block reads.
            adapt: changes the globals of the run.
        """
        recorder = self._recorder(careful=True)
        adapt(recorder.bindings)
        with self._namespace(recorder) as namespace, no_garbage():
            namespace.update(recorder.begin())
            recorder.end(_drive(self, namespace, namespace[self.functions[0].name](example), careful=True))
        recorder.record()

    def _recorder(self, *, careful: bool) -> Recorder:
        return Recorder(
            self.model, self.collections, self.memos, self.max_calls, self.bounds, careful=careful
        )

    @contextmanager
    def _namespace(self, recorder: Recorder) -> Iterator[dict[str, Any]]:
        """Return the globals of a run, with what a recorder brings."""
        try:
            namespace = self.unused.pop()
        except IndexError:  # all are in use
            namespace = self.globals | TOOLS
            namespace[DRIVEN] = partial(_drive, self, namespace)
            for code in self.code:
                exec(code, namespace)  # noqa: S102 - the text is our own
        namespace.update(recorder.bindings)
        try:
            yield namespace
        finally:
            namespace.update(
                dict.fromkeys(
                    [*recorder.bindings, "call", "numbers", *self.collections, *self.memos, *FIELDS]
                )
            )
            self.unused.append(namespace)


def _depth() -> int:
    """Return how deep plain functions may call each other; half of the stack is left to the user's."""
    frame: FrameType | None = sys._getframe()
    used = 0
    while frame is not None:
        frame, used = frame.f_back, used + 1
    return max((sys.getrecursionlimit() - used) // 2, 0)


def write_source(functions: Sequence[Procedure]) -> str:
    """Return the program's text; tracebacks show it."""
    parts = []
    for function in functions:
        header = f"def {function.name}({', '.join(slot.code for slot in function.parameters)}):"
        # the unreachable yield makes every function a generator, whether it calls others or not
        parts.append("\n".join([header, *(line.text for line in function.lines), "    yield"]))
    return "\n\n".join(parts) + "\n"


def _drive(
    tracer: Tracer, namespace: dict[str, Any], begun: Steps, *, careful: bool = False
) -> tuple[Any, ...]:
    """Run a generator of the program to its end, with all that it calls; return its result."""
    stack: list[Steps] = [begun]
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
        if careful and not interrupted(error):
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
