"""Examples and their traces: an example that cannot have changed is traced once."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, TypeAlias, TypeVar

import numpy as np

from foldbatch.engines.batch import Owner, Planned, SubBatch, belongs, fingerprint
from foldbatch.engines.results import Results
from foldbatch.errors import ExampleError, ExampleTypeError, counted
from foldbatch.model.columns import items_of
from foldbatch.model.decoding import renumbered
from foldbatch.model.model import Model
from foldbatch.model.tracer import TraceAll, Tracer
from foldbatch.planning.policies import levels
from foldbatch.scheduler.trace import Ints, Trace, loose_of, pack
from foldbatch.system.processes import start_in_each_process
from foldbatch.system.showing import Bar
from foldbatch.trees import Tree, TreeNode
from foldbatch.trees.given import Rows, rows_of
from foldbatch.types import OBJECT, describe_value, types_in

TRACED = 512  # examples that are traced between two looks at a bar
PLANNED_BYTES = 64_000_000  # for plans of single examples
PLAN_BYTES, CALL_BYTES = 20_000, 300  # about the size of a plan, and of each of its calls
ATOMS = (str, bytes, int, float, np.generic, type(None))


@dataclass(frozen=True, slots=True, repr=False, weakref_slot=True)
class Prepared:
    """An example traced ahead by `Program.prepare`; the same program takes it in the example's place.

    Pickled, it can be given to a program of the same block and policy in another process.
    """

    trace: Trace
    owner: Owner | str

    def __repr__(self) -> str:
        return f"Prepared({counted(self.trace.size, 'call')})"

    def __reduce__(self) -> tuple[type[Prepared], tuple[object, ...]]:
        return Prepared, (self.trace, fingerprint(self.owner))


# As `TraceAll`; it may run a small batch without a schedule.
R = TypeVar("R", bound=Results)
TraceOrRun: TypeAlias = "Callable[[Sequence[object], Sequence[int]], list[Trace] | R]"


class _TracedExample(weakref.ref["Tree | Prepared"]):
    """An example traced before: its id and trace, and perhaps the plan of a batch of it alone."""

    __slots__ = ("key", "parts", "trace")
    key: int
    trace: Trace
    parts: tuple[SubBatch, ...] | None

    @property
    def nbytes(self) -> int:
        return PLAN_BYTES + CALL_BYTES * self.trace.size


class Traces:
    """The traces of examples for one model."""

    def __init__(self, tracer: Tracer, model: Model) -> None:
        self._tracer, self._model = tracer, model
        self.plan: Callable[[list[Trace]], tuple[SubBatch, ...]]  # of the runner that runs the model
        self._may_hold = OBJECT in types_in(model.result) or any(model.labels)
        self._entries: dict[int, _TracedExample] = {}
        self._ran: dict[int, weakref.ref[Tree]] = {}  # trees that ran in a small batch, without a trace
        self._free_bytes = PLANNED_BYTES
        self._freed = partial(_freed, weakref.ref(self))
        start_in_each_process(self, Traces._start)

    def _start(self) -> None:
        self._lock = threading.RLock()  # a tree may be freed, and its plan forgotten, at any time

    def work(
        self,
        examples: Iterable[object] | Planned,
        owner: Owner,
        trace_all: TraceAll | None = None,
        fresh: dict[int, Trace] | None = None,
        trace_or_run: TraceOrRun[R] | None = None,
    ) -> list[Trace] | tuple[SubBatch, ...] | R:
        """Return the traces of examples, or a kept plan of the batch, or their results."""
        if isinstance(examples, Planned):
            return _owned(examples, owner).parts
        traces = self.all(examples, owner, trace_all, fresh, trace_or_run)
        if isinstance(traces, Results) or self._tracer.model is not self._model:  # it has grown: none fits
            return traces
        if len(traces) == 1 and isinstance(examples, list | tuple):
            key = id(examples[0])
            entry = self._entries.get(key)
            if entry is None and isinstance(examples[0], Prepared):
                entry = self._enter(examples[0], traces[0])
            if entry is not None and entry.trace is traces[0]:
                return self._planned(key, entry) or traces
        return traces

    def all(
        self,
        examples: Iterable[object] | Planned,
        owner: Owner,
        trace_all: TraceAll | None = None,
        fresh: dict[int, Trace] | None = None,
        trace_or_run: TraceOrRun[R] | None = None,
    ) -> list[Trace] | R:
        """Return the traces of examples, in their order: those that are kept, and new ones of other examples.

        Args:
            examples: trees, prepared examples and others; or a plan, which has its traces.
            owner: the program that asks, for errors.
            trace_all: traces the new examples; by default the tracer.
            fresh: traces of this batch by place, made by an earlier call; it is filled with the new ones.
            trace_or_run: does so if all examples are new: it may run them without a schedule, and then their
                results are returned in place of traces. A tree that comes again is traced: its trace is kept.
        """
        if isinstance(examples, Planned):
            return _owned(examples, owner).traces
        examples = listed(examples)
        traces: list[Any] = [None] * len(examples)
        new, fresh = [], {} if fresh is None else fresh
        for number, example in enumerate(examples):
            entry = self._entries.get(id(example))  # a tree seen before, or one prepared and run alone before
            if entry is not None and entry() is example:
                traces[number] = entry.trace
            elif isinstance(example, Prepared):
                traces[number] = _trace_of(example, number, owner)
            elif number in fresh:
                traces[number] = fresh[number]
            else:
                new.append(number)
        if new:
            new_examples = [examples[number] for number in new]
            if trace_or_run is not None and len(new) == len(examples) and not self._came(new_examples):
                new_traces = trace_or_run(new_examples, new)
                if isinstance(new_traces, Results):
                    self._remember_run(new_examples)
                    return new_traces
            else:
                new_traces = (trace_all or self._tracer.trace_all)(new_examples, new)
            fresh.clear()
            fresh.update(zip(new, new_traces, strict=True))
            for number, trace in fresh.items():
                traces[number] = trace
                if not self._tracer.decides and isinstance(example := examples[number], Tree):
                    self._remember(example, trace)
        return traces

    def _came(self, examples: Sequence[object]) -> bool:
        """Whether a tree among examples has run in a small batch before."""
        ran = self._ran
        return bool(ran) and any(id(x) in ran and ran[id(x)]() is x for x in examples)

    def _remember_run(self, examples: Sequence[object]) -> None:
        """Note the trees of a small batch, as long as they live."""
        for key, tree in {id(x): x for x in examples if isinstance(x, Tree)}.items():
            self._ran[key] = weakref.ref(tree, partial(_forget_run, self._ran, key))

    def _remember(self, example: Tree, trace: Trace) -> None:
        """Keep the trace of a tree, which cannot change, as long as the tree lives."""
        # a tree must not live as long as the program, nor the program as long as a tree
        if not self._may_hold or not holds_objects(self._model, trace):
            key = id(example)
            if key in self._entries:  # two threads have traced a tree at once
                self._forget(key)  # the plan of the first is given back
            self._enter(example, trace)

    def _enter(self, example: Tree | Prepared, trace: Trace) -> _TracedExample:
        """Add an entry for an example, as long as it lives."""
        entry = _TracedExample(example, self._freed)
        entry.key, entry.trace, entry.parts = id(example), trace, None
        self._entries[entry.key] = entry
        return entry

    def _planned(self, key: int, entry: _TracedExample) -> tuple[SubBatch, ...] | None:
        """Return the plan of a batch of one example; None if there is no room to keep one."""
        if entry.parts is None and entry.nbytes <= self._free_bytes:
            parts = self.plan([entry.trace])
            self._keep(key, entry, parts)
            return parts
        return entry.parts

    def _keep(self, key: int, entry: _TracedExample, parts: tuple[SubBatch, ...]) -> None:
        """Keep the plan of an example, and count its memory."""
        with self._lock:  # another thread may have planned the same one, or traced it anew
            if entry.parts is None and self._entries.get(key) is entry:
                entry.parts = parts
                self._free_bytes -= entry.nbytes

    def _forget(self, key: int) -> None:
        """Remove an entry, and give back the memory of its plan."""
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is not None and entry.parts is not None:
                self._free_bytes += entry.nbytes


def _forget_run(ran: dict[int, weakref.ref[Tree]], key: int, tree: weakref.ref[Tree]) -> None:
    """Remove the weak reference of a freed tree."""
    if ran.get(key) is tree:  # else another one has its place
        del ran[key]


def _freed(traces: weakref.ref[Traces], tree: _TracedExample) -> None:
    """Forget the entry of an example that Python has freed."""
    owner = traces()
    if owner is not None:
        owner._forget(tree.key)


def _trace_of(example: Prepared, number: int, owner: Any) -> Trace:
    """Return the trace of a prepared example, changed to fit the model if that has grown since.

    Args:
        example: the prepared example.
        number: its number in the batch, for errors.
        owner: the program that runs it.

    Raises:
        ExampleError: when another program prepared it, or the model has changed too much.
    """
    if belongs(example.owner, owner):
        return example.trace
    former: Any = example.owner
    where, expected = f"example {number}", "an example prepared by this program"
    if isinstance(former, str) or former.tracer is not owner.tracer:
        pickled = isinstance(former, str) and owner.tracer.grows
        since = ", or one that was pickled before its walk brought new calls" if pickled else ""
        raise ExampleError(where, expected, f"one of another program{since}", "prepare it with this one")
    trace = _fitted(example.trace, former, owner)
    if trace is None:
        actual = "one of before its walk brought new calls, whose metrics are visited elsewhere"
        raise ExampleError(where, expected, actual, "prepare it again")
    return trace


def _fitted(trace: Trace, former: Any, present: Any) -> Trace | None:
    """Return a trace renumbered for a model that has grown; None where a cell reads other data there.

    Cells have other numbers there, and the new ones no calls. Cells of which more is read yield more values,
    so all values after theirs have other numbers.
    """
    numbers = {cell: (k, draft) for k, (cell, draft) in enumerate(present.cells)}
    model = present.model
    called = [(k, cell, draft) for k, (cell, draft) in enumerate(former.cells) if len(trace.calls[k])]
    pairs: list[tuple[int, int, Any, Any]] = []
    for k, cell, draft in called:
        place, now = numbers.get(cell, (0, None))
        reads = draft.arguments, draft.feeds, draft.sequences
        if (
            now is None
            or reads != (now.arguments, now.feeds, now.sequences)
            or not draft.outputs.keys() <= now.outputs.keys()
        ):
            return None
        pairs.append((k, place, draft, now))
    values, result = trace.values, trace.result
    begins = moved = np.zeros(0, np.int32)
    if any(draft.outputs != now.outputs for *_, draft, now in pairs):
        if any(draft.draft.marks for *_, draft, _ in pairs):  # visits of metrics have numbers, too
            return None
        begins, moved = _moved(trace, pairs)
        values = int(begins[-1])
        result = tuple(renumbered(former.model.result, iter(trace.result), moved))
    widths = [(1 + cell.arguments + len(cell.sequences), cell.sequences) for cell in model.signatures]
    calls = [np.zeros((0, width), np.int32) for width, _ in widths]
    elements = [tuple([np.zeros((0, width), np.int32) for width in widths]) for _, widths in widths]
    feeds = [tuple([np.zeros((0, *f.type.shape), f.type.dtype) for f in columns]) for columns in model.feeds]
    labels: list[tuple[list[Any], ...]] = [tuple([[] for _ in columns]) for columns in model.labels]
    for k, place, *_ in pairs:
        calls[place], elements[place] = trace.calls[k], trace.elements[k]
        feeds[place], labels[place] = trace.feeds[k], trace.labels[k]
        if len(moved):
            rows = calls[place].copy()
            end = 1 + model.signatures[place].arguments  # lengths of sequences follow
            rows[:, 0], rows[:, 1:end] = begins[rows[:, 0]], moved[rows[:, 1:end]]
            calls[place], elements[place] = rows, tuple([moved[part] for part in elements[place]])
    find = partial(levels, present.tracer.policy, model.signatures)
    parts = tuple(calls), tuple(elements)
    return Trace(*parts, find(*parts, values), tuple(feeds), tuple(labels), values, result)


def _moved(trace: Trace, pairs: Sequence[tuple[int, int, Any, Any]]) -> tuple[Ints, Ints]:
    """Return the new numbers of first values of calls, the last that of the end, and those of all values.

    Both are read by the old number, ``[values + 1] int32``.

    Args:
        trace: of a model that has grown since.
        pairs: of each cell that it calls: its number, its new number, what was left of it, and what is now.
    """
    widths = np.zeros(trace.values + 1, np.int64)
    for k, _, _, now in pairs:
        widths[trace.calls[k][:, 0]] = max(len(now.outputs), 1)
    begins = (np.cumsum(widths) - widths).astype(np.int32)
    moved = begins.copy()
    for k, _, draft, now in pairs:
        first = trace.calls[k][:, 0]
        for output, number in draft.outputs.items():
            moved[first + number] = begins[first] + now.outputs[output]
    return begins, moved


def listed(examples: Iterable[object]) -> list[object] | tuple[object, ...]:
    """Return the examples of a batch as a list or tuple."""
    if isinstance(examples, list | tuple):
        return examples
    examples = rows_of(examples)
    if isinstance(examples, Rows):
        return list(examples[:])
    is_single = (
        isinstance(examples, Tree | TreeNode | str | bytes | dict) or getattr(examples, "ndim", 1) == 0
    )
    if is_single or not isinstance(examples, Iterable):
        fix = "for a single example, pass a list of one"
        raise ExampleTypeError("examples", "an iterable of examples", describe_value(examples), fix)
    return list(items_of(examples))


def several_of(examples: object) -> Any:
    """Return examples as they are if they are a list, tuple, plan, Arrow data or prepared; else in a list."""
    if isinstance(examples, list | tuple | Planned):
        return examples
    if isinstance(examples, Sequence) and Prepared in {*map(type, examples)}:
        return examples
    examples = rows_of(examples)
    return examples if isinstance(examples, Rows) else [examples]


def _owned(planned: Planned, owner: Owner) -> Planned:
    """Return a plan, refusing one of another program."""
    if not belongs(planned.owner, owner):
        fix = "plan it with this one"
        raise ExampleError("examples", "a batch planned by this program", "one of another program", fix)
    return planned.owned(owner)


def holds_objects(model: Model, trace: Trace) -> bool:
    """Whether a trace may hold parts of its example: in its result, or as labels of metrics."""
    if OBJECT in types_in(model.result):
        return True
    kinds = {type(label) for columns in trace.labels for labels in columns for label in labels}
    return not all(issubclass(kind, ATOMS) for kind in kinds)


def same_trace(a: Trace, b: Trace) -> bool:
    """Whether two traces for one model have the same calls, data, labels and result."""
    if a.form != b.form or not np.array_equal(pack(a), pack(b)):
        return False
    arrays = zip(chain.from_iterable(loose_of(a)), chain.from_iterable(loose_of(b)), strict=True)
    try:
        equal = bool(a.result == b.result and a.labels == b.labels)
    except ValueError:  # arrays among them
        return False
    return equal and all(x.tobytes() == y.tobytes() for x, y in arrays)


def trace_in_parts(
    tracer: Tracer,
    progress: bool,  # noqa: FBT001 - given by partial application
    examples: Sequence[object],
    numbers: Sequence[int],
) -> list[Trace]:
    """Trace examples as `Tracer.trace_all` does, with a progress bar."""
    traces: list[Trace] = []
    for part in in_parts(examples, "tracing", shown=progress):
        traces += tracer.trace_all(part, numbers[len(traces) : len(traces) + len(part)])
    return traces


def in_parts(examples: Sequence[object], doing: str, *, shown: bool = True) -> Iterator[Sequence[object]]:
    """Yield examples in parts, with a progress bar."""
    with Bar(doing, len(examples), shown=shown) as bar:
        for start in range(0, len(examples), TRACED):
            part = examples[start : start + TRACED]
            yield part
            bar.advance(len(part))
