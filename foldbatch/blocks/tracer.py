"""Runs of a tracing program: how deep they go, and where they stood at an error.

Its functions call each other, half as deep as Python's stack allows, and from there on in a thread
with a large one, so that a chain of a million nodes is traced as any other.
"""

from __future__ import annotations

import sys
from ast import literal_eval
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, takewhile
from traceback import walk_stack, walk_tb
from types import FrameType, TracebackType
from typing import Any, TypeAlias

import numpy as np

from foldbatch.blocks import printing
from foldbatch.blocks.drafts import Procedure
from foldbatch.blocks.purity import is_pure
from foldbatch.blocks.tracing import Blame
from foldbatch.errors import (
    ExampleError,
    ExampleIndexError,
    ExampleKeyError,
    ExamplePlace,
    ExampleTypeError,
    FoldbatchError,
)
from foldbatch.model.columns import BadDataError, Datum
from foldbatch.model.model import Model
from foldbatch.model.reading_paths import ReadingPath, Through
from foldbatch.system.processes import in_depth, raise_limit
from foldbatch.trees.tree import TreeNode
from foldbatch.types import describe_value

FILENAME = "<foldbatch trace>"
MAX_LEVELS = 2_000_000  # calls within calls; data that is deeper contains itself
SHALLOW = 10_000  # calls within calls; from here on, whenever their number doubles, a cycle is looked for
NO_TREE = dict.fromkeys((printing.TREE, printing.KIDS))  # globals of an example that is a tree, if none is
SPARE = 10_000  # calls within calls that are left to functions of the user

# Reads an example with each datum checked; before it runs, a function may change the globals of the run.
Bindings: TypeAlias = dict[
    str, Any
]  # functions that a compiled program calls, by the names that it has for them
CarefulReading: TypeAlias = "Callable[[Any, Callable[[Bindings], None]], None]"


def depth_left() -> int:
    """Return how deep the tracing program may recurse; half of the stack is left to the user's functions."""
    frame: FrameType | None = sys._getframe()
    used = 0
    while frame is not None:
        frame, used = frame.f_back, used + 1
    return max((sys.getrecursionlimit() - used) // 2, 0)


class EndlessError(BadDataError):
    """Data contains itself."""

    def __init__(self) -> None:
        fix = "cut the cycle, or stop at objects already seen"
        super().__init__("data that ends", "a part that contains itself", fix)


@dataclass(slots=True)
class Descent:
    """Continues a recursion that has reached the depth allowed so far, in a thread with a larger stack."""

    functions: Sequence[Procedure]  # those of the tracing program
    namespace: Bindings  # their globals
    levels: int = 0  # how deep they may call each other so far; 0 where they run in no thread for that yet

    def __call__(self, function: Callable[..., object], *arguments: object) -> object:
        """Call a function of the tracing program with a larger limit of depth.

        Raises:
            BadDataError: where the data contains itself, or is deeper than any.
        """
        before = self.levels
        if before:
            calls = frames_of(self.namespace, walk_stack(sys._getframe(1)))
            newest = [*islice(calls, before // 10)]  # to look at all would take too long
            if cycle(newest[::-1], self.functions) is not None:
                raise EndlessError
        additional = min(before or SHALLOW, MAX_LEVELS - before)
        if additional <= 0:
            fix = "data must not contain itself; let every case of the recursion go on to a part of it"
            raise BadDataError("data that ends", f"more than {MAX_LEVELS} levels", fix)
        self.levels = before + additional
        try:
            if not before:
                return in_depth(partial(function, *arguments, additional), additional + SPARE)
            raise_limit(self.levels + SPARE)
            return function(*arguments, additional)
        finally:
            self.levels = before


# A call of a function of the tracing program: the function, the line where it stands, and its variables.
Frame: TypeAlias = "tuple[str, int, Mapping[str, Any]]"


def cycle(frames: Sequence[Frame], functions: Sequence[Procedure]) -> int | None:
    """Return the place of the first call with the same objects as an earlier call of its function.

    What a function does depends on the objects that it is given, and never on tensors. So such a call never
    ends, unless an object is an iterator, which changes as it is read.
    """
    objects = {function.name: function.objects for function in functions}
    seen: set[tuple[object, ...]] = set()
    for place, (name, _, scope) in enumerate(frames):
        arguments = [scope[x] for x in objects.get(name, ())]
        if not arguments or not scope[printing.REMAINING] or any(hasattr(x, "__next__") for x in arguments):
            continue  # without any calls left, the call is made once more
        call = (name, *map(id, arguments))
        if call in seen:
            return place
        seen.add(call)
    return None


def frames_of(namespace: Mapping[str, object], calls: Iterable[tuple[FrameType, int]]) -> Iterator[Frame]:
    """Yield the frames, among some calls, of a tracing program's functions."""
    for frame, line in calls:
        if frame.f_globals is namespace and printing.REMAINING in frame.f_code.co_varnames:
            yield frame.f_code.co_name, line, frame.f_locals


class Located(Exception):  # noqa: N818 - carries an error, is none itself
    """An error with the lines at which the tracing program's functions stood."""

    def __init__(
        self,
        blames: Mapping[int, Blame],
        functions: Sequence[Procedure],
        namespace: Mapping[str, object],
        cause: Exception,
    ) -> None:
        super().__init__()
        self.cause = cause
        frames = [*frames_of(namespace, walk_tb(cause.__traceback__))]
        if isinstance(cause, EndlessError):
            frames = frames[: cycle(frames, functions)]
        self.frames = [(blames[line], scope) for _, line, scope in frames if line in blames]
        parts = [part.format(**scope) for blame, scope in self.frames for part in blame.place]
        self.places = [part for part in parts if part]
        _shorten(namespace, cause)

    def error(self, number: int) -> FoldbatchError:
        """Return the error that the user meets."""
        (line, scope), cause = self.frames[-1], self.cause
        kind: type[ExampleError]
        place = joined(self.places)
        where = ExamplePlace(line.where, number, place)
        if isinstance(cause, BadDataError):
            return cause.kind(where, cause.expected, cause.found, cause.fix)
        match cause:
            case ExampleKeyError():  # a tree says which fields it has
                return ExampleKeyError(where, cause.expected, cause.found, cause.fix)
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
                if not place and not number:
                    fix += "; run takes a list of examples, eval one"
            case _:
                kind, fix = ExampleError, ""
        actual = "no object"
        if isinstance(line.subject, str) and line.subject in scope:
            subject = scope[line.subject]
            actual = describe_value(subject)
            if kind is ExampleTypeError and line.item.isidentifier() and hasattr(subject, line.item):
                fix = f"an attribute is read by InputTransform(operator.attrgetter({line.item!r}))"
        if line.expected and fix:
            return kind(where, line.expected, actual, fix)
        expected = line.expected or (
            f"a {line.calls} that succeeds" if line.calls else "an example that can be read"
        )
        refused = kind(where, expected, f"{_brief(cause)}, given {actual}", "see the exception above")
        refused.__cause__ = cause  # it may come from a function of the user's
        return refused


def joined(places: Sequence[str]) -> str:
    """Return a place as Python would index it; the middle of a long one is left out."""
    return "".join(places if len(places) <= 40 else [*places[:20], "...", *places[-20:]])


def _shorten(namespace: Mapping[str, object], cause: BaseException) -> None:
    """Let the traceback of an exception begin at the innermost function of the tracing program."""
    trace: TracebackType | None = cause.__traceback__
    innermost = trace
    while trace is not None:
        if trace.tb_frame.f_globals is namespace and printing.REMAINING in trace.tb_frame.f_code.co_varnames:
            innermost = trace
        trace = trace.tb_next
    cause.__traceback__ = innermost


def unlocated(error: Exception, number: int) -> FoldbatchError:
    """Return the error for an example that failed once, and not when it was read again to find the place.

    Args:
        error: the exception of the first reading.
        number: the number of the example in its batch.
    """
    where = ExamplePlace("model", number)
    if isinstance(error, BadDataError):
        return error.kind(where, error.expected, error.found, error.fix)
    fix = "see the exception above; of iterators, which are used up by reading, make lists"
    return ExampleError(where, "an example that can be read", _brief(error), fix)


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


# -- places: which part of an example a call of a cell is for


class _ReachedError(Exception):
    """The call that is looked for has been reached."""


def place_of(model: Model, read_carefully: CarefulReading, example: object, cell: int, call: int) -> str:
    """Return the part of an example that a call is for, as Python would index it.

    That is the part that holds all data that the call reads; of a call that reads none, the part that the
    innermost recursive block was given. It is empty for the whole example, and where the example does not
    make the call again. Calls of a cell count from 0.
    """
    numbers = {*model.keys[cell], *(feed for _, feed in model.marks[cell])}
    data = [f"feed{cell}_{i}" for i in range(len(model.feeds[cell])) if i not in numbers]
    places = [_stopped(read_carefully, example, name, call) for name in data or [f"row{cell}"]]
    alike = takewhile(lambda parts: len(set(parts)) == 1, zip(*places, strict=False))
    return joined([parts[0] for parts in alike])


def _stopped(read_carefully: CarefulReading, example: object, name: str, call: int) -> list[str]:
    """Return the place in the example at which a global function is called once more than `call` times."""
    calls = iter(range(call))

    def adapt(bindings: Bindings) -> None:
        """Replace the function by one that stops the tracing program at that call."""
        append = bindings[name]

        def stop(item: object) -> None:
            if next(calls, None) is None:
                raise _ReachedError
            append(item)

        bindings[name] = stop

    try:
        read_carefully(example, adapt)
    except Located as located:
        return located.places if isinstance(located.cause, _ReachedError) else []
    except BadDataError:
        pass
    return []


def paths_of(
    model: Model, read_carefully: CarefulReading, blames: Mapping[int, Blame], example: object
) -> dict[tuple[int, int], list[ReadingPath]]:
    """Return where the data of an example lie that calls read; see `foldbatch.model.tracer.Tracer`.

    Args:
        model: the tracer's model.
        read_carefully: runs the tracing program.
        blames: the parts of errors, by line of the tracing program.
        example: the example.
    """
    paths: dict[tuple[int, int], list[ReadingPath]] = {}

    def adapt(bindings: Bindings) -> None:
        """Let the functions that note calls and data keep their paths."""

        def watched(key: tuple[int, int], name: str) -> Callable[[Any], None]:
            """Return the function of a name that keeps the path of what it is given, and then notes it."""
            append, of_feed = bindings[name], paths.setdefault(key, [])

            def noted(item: object) -> None:
                """Keep the path of what is noted, and note it."""
                if bindings[printing.DEEPER].levels:  # what called it stands in another thread
                    of_feed.append(ReadingPath(""))
                    append(item)
                    return
                frames = [*frames_of(bindings, walk_stack(sys._getframe(1)))][::-1]
                parts = [
                    Through(part.function) if isinstance(part, Through) else part.format(**scope)
                    for _, line, scope in frames
                    if line in blames
                    for part in blames[line].place
                ]
                of_feed.append(_resolved(example, parts, item if key[1] >= 0 else None))
                append(item)

            return noted

        for k, feeds in enumerate(model.feeds):
            numbers = {*model.keys[k], *(feed for _, feed in model.marks[k])}
            for i in range(len(feeds)):
                if i not in numbers:
                    bindings[f"feed{k}_{i}"] = watched((k, i), f"feed{k}_{i}")
            bindings[f"row{k}"] = watched((k, -1), f"row{k}")

    read_carefully(example, adapt)
    return paths


def _resolved(example: Datum, parts: Sequence[str], datum: Datum) -> ReadingPath:
    """Return the path of a datum, given the parts of its place.

    It is exact where what lies there, passed through the same functions, is the datum: functions of the user
    that are not known to be pure are not called again.
    """
    last = max((i for i, part in enumerate(parts) if not isinstance(part, Through)), default=-1)
    part, node, source = example, None, example
    text = ""
    try:
        for place, step in enumerate(parts):
            if isinstance(part, TreeNode):
                node = part
            if isinstance(step, Through):
                if place <= last:
                    name = getattr(step.function, "__name__", type(step.function).__name__)
                    text = f"{name}({text or 'example'})"
                if not is_pure(step.function):
                    return ReadingPath(text + "".join(parts[place:]), node=node)
                part = step.function(part)
            else:
                text += step
                part = _item(part, step)
            if place <= last:
                source = part
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, SyntaxError):
        return ReadingPath("".join(parts), node=node)
    node = part if isinstance(part, TreeNode) else node
    exact = part is datum or (type(part) is type(datum) and np.array_equal(part, datum))
    return ReadingPath(text, exact, node, source if exact else None)


def _item(part: Datum, step: str) -> Datum:
    """Return the item to which a step leads, such as ``['token']``, ``[0]``, ``.name`` or ``.items()``."""
    if step == ".items()":
        return sorted(part.items())
    if step.startswith("."):
        return getattr(part, step[1:])
    return part[literal_eval(step[1:-1])]
