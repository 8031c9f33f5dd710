"""Tracing a walk: its function is run on each example of a batch, and what it noted becomes arrays.

Which cell feeds which is *learnt*: once a batch is noted, a look-up for each column of arguments tells
whether all wires are known. Where one is new, or a cell, the model is linked again, from all that was learnt.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import DecidingError, ExampleError, WalkError
from foldbatch.functions.cells import Signature
from foldbatch.functions.eager import Seen, run
from foldbatch.functions.learnt import Learnt, Output, owned
from foldbatch.functions.noted import Noted, Owners, Reads, noted_of, reads_of, refuse_leaks
from foldbatch.functions.notes import LOCK, Forced, Notes, line_of, lists_of, note, refuse_iterators
from foldbatch.functions.remarks import remarks
from foldbatch.functions.results import joined_result, relative
from foldbatch.functions.saving import written
from foldbatch.functions.values import released
from foldbatch.model.columns import BadDataError, column
from foldbatch.model.drafts import ASIDES, Feed
from foldbatch.model.link import StagedBefore, link
from foldbatch.model.model import Model
from foldbatch.model.needed import PrunedDraft, needed
from foldbatch.model.tracer import Decide, Look, Written
from foldbatch.model.wires import Flow
from foldbatch.params.parameters import Parameter
from foldbatch.scheduler.arithmetic import NUMPY, Arithmetic
from foldbatch.scheduler.levels import levels
from foldbatch.scheduler.policies import Policy
from foldbatch.scheduler.record import Together, TraceColumns
from foldbatch.scheduler.trace import Form, Trace
from foldbatch.system.processes import no_garbage
from foldbatch.trees.records import Records
from foldbatch.types import VOID, TensorType

Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Linked:
    """A model, and how what is noted becomes traces for it.

    Attributes:
        version: that of what was learnt when it was linked.
        model: the model.
        cells: per cell of the model, the signature, and what is left of it.
        form: of traces.
        bounds: those of the model.
    """

    version: int
    model: Model
    cells: tuple[tuple[Signature, PrunedDraft], ...]
    form: Form
    bounds: list[list[int | None]]


class FunctionTracer:
    """A walk and the model that was learnt of it; it is a `foldbatch.model.tracer.Tracer`.

    Args:
        walk: the user's function of one example.
        policy: what levels are computed for.
        kept_bytes: how much a call may keep for its backward pass.
        max_calls: how many numbers an example may take.
        asides: which of ``losses`` and ``metrics`` the model has.
        arithmetic: what finds the levels of calls.
        learnt: what is known of the walk.
    """

    def __init__(
        self,
        walk: Callable[[Any], Any],
        policy: Policy,
        kept_bytes: int | None,
        max_calls: int,
        asides: frozenset[str] = ASIDES,
        arithmetic: Arithmetic = NUMPY,
        learnt: Learnt | None = None,
    ) -> None:
        self.walk = walk
        self.policy = policy
        self.kept_bytes, self.max_calls = kept_bytes, max_calls
        self.asides = asides
        self.arithmetic = arithmetic
        self.learnt = Learnt() if learnt is None else learnt
        self._known = StagedBefore()
        self._linked = self._link()

    # -- what a tracer is

    @property
    def origin(self) -> Any:
        return self.walk

    @property
    def name(self) -> str:
        return str(getattr(self.walk, "__qualname__", type(self.walk).__name__))

    @property
    def model(self) -> Model:
        return self.linked().model

    @property
    def grows(self) -> bool:
        return True

    @property
    def source(self) -> str:
        """The user's function as far as Python has its text, and the cells that were learnt."""
        try:
            text = inspect.getsource(self.walk).rstrip()
        except (OSError, TypeError):
            text = self.name
        return "\n".join([text, "", *(cell.heading for cell, _ in self.linked().cells)])

    @property
    def way(self) -> str:
        cells, wires = len(self.learnt.cells), sum(map(len, self.learnt.wires.values()))
        if not cells:
            return "by the function, run once an example; no cells are known yet: call program.warm(examples)"
        return f"by the function, run once an example; {cells} cells and {wires} wires were learnt so far"

    @property
    def reached(self) -> Iterable[Any]:
        return [self.walk]

    def lock(self) -> AbstractContextManager[Any]:
        return LOCK

    def variant(self, asides: frozenset[str], policy: Policy | None = None) -> FunctionTracer:
        return FunctionTracer(
            self.walk,
            policy or self.policy,
            self.kept_bytes,
            self.max_calls,
            asides,
            self.arithmetic,
            self.learnt,
        )

    def place_of(self, example: Any, cell: int, call: int) -> str:
        signature, _ = self.linked().cells[cell]
        try:
            return line_of(self.walk, example, signature, call, self.max_calls)
        except WalkError:  # it reads numbers, which are not there now
            return ""

    def remarks(self, calls: Sequence[int]) -> Sequence[str]:
        cells = self.linked().cells
        return [*remarks(self.learnt, {s: n for (s, _), n in zip(cells, calls, strict=True) if n})]

    def debug(self, example: Any, begin: Callable[[Parameter], None]) -> Seen:
        return run(self.walk, example, begin=begin, own=self.learnt.own)

    def written(self, parameters: Mapping[str, Parameter]) -> Written:
        return written(self.walk, self.learnt, parameters)

    @property
    def decides(self) -> bool:
        return self.learnt.decides

    def trace_all(
        self,
        examples: Sequence[Any],
        numbers: Sequence[int],
        look: Look | None = None,
        decide: Decide | None = None,
    ) -> list[Trace]:
        if isinstance(examples, Records):
            examples = examples.objects()
        with LOCK:
            undo = self._undo()
            try:
                return self._traced(examples, numbers, look, decide)
            except (BadDataError, ExampleError):  # of which call, and whether the walk goes on, is told below
                undo()
            except BaseException:
                undo()
                raise
            try:
                return self._traced(examples, numbers, look, decide, careful=True)
            except BadDataError as error:
                undo()
                raise error.kind("walk", error.expected, error.found, error.fix) from None
            except BaseException:
                undo()
                raise

    def _traced(
        self,
        examples: Sequence[Any],
        numbers: Sequence[int],
        look: Look | None,
        decide: Decide | None,
        *,
        careful: bool = False,
    ) -> list[Trace]:
        """Return the traces of examples; where `careful`, a datum is checked at the call that it is for."""
        parts, done = [], 0
        while done < len(examples):
            left = numbers[done:]
            with no_garbage():
                notes, noted = self._note(examples[done:], left, decide, careful=careful)
            parts.append((notes, noted, self._learn(notes, noted, left)))
            done += len(notes.ends)
        # of all parts: no example is walked twice because a later one brings a cell
        linked = self.linked()
        records = [self._recorded(linked, *part, look) for part in parts]
        return [trace for record in records for trace in self._leveled(linked, record)]

    # -- from notes to traces

    def _note(
        self, examples: Sequence[Any], numbers: Sequence[int], decide: Decide | None, *, careful: bool = False
    ) -> tuple[Notes, dict[Signature, Noted]]:
        """Run the walk on examples: alone, or, once it has asked for a number, in rounds."""
        if not self.decides or decide is None:
            try:
                notes = note(
                    self.walk, examples, numbers, [*self.learnt.cells], self.max_calls, careful=careful
                )
            except Forced as forced:
                if decide is None:
                    expected = (
                        "a walk that reads no numbers, where examples are traced and nothing is computed"
                    )
                    fix = "run, value_and_grad, step and Trainer compute; prepare, plan and export do not"
                    raise DecidingError(forced.what, expected, "one that asks for a number", fix) from None
                refuse_iterators(examples, numbers, "the first walk to ask for a number begins anew")
                self.learnt.decides = True
        if self.decides and decide is not None:
            found: tuple[Notes, dict[Signature, Noted]] = decide(self, examples, numbers, careful=careful)
            return found
        return notes, noted_of(notes.lists, notes.start)

    def _leveled(self, linked: Linked, record: TraceColumns) -> list[Trace]:
        """Return the traces of a record that has no levels yet."""
        cells, size = linked.model.signatures, int(record.offsets[-1])
        record.levels = levels(self.policy, cells, record.calls, record.elements, size, self.arithmetic)
        return Together(record, linked.form).traces()

    def _undo(self) -> Callable[[], None]:
        """Return a function that forgets what is learnt from now on."""
        learnt, before, linked = self.learnt, self.learnt.copy(), self._linked

        def undo() -> None:
            for f in fields(before):
                setattr(learnt, f.name, getattr(before, f.name))
            self._linked = linked

        return undo

    def _owners(
        self, notes: Notes, noted: dict[Signature, Noted], numbers: Sequence[int]
    ) -> tuple[Owners, Reads]:
        """Return which output made each number, and what calls read: values of their own example alone."""
        ends = np.array([notes.start, *notes.ends], np.int64)
        sizes: Index = ends[1:] - ends[:-1]
        owners = Owners(int(sizes.sum()))
        for signature, calls in noted.items():
            owners.add(signature, calls.bases)
        reads = reads_of(noted.values())
        refuse_leaks(reads, np.repeat(np.arange(len(sizes)), sizes), numbers)
        return owners, reads

    def _learn(self, notes: Notes, noted: dict[Signature, Noted], numbers: Sequence[int]) -> list[Any]:
        """Take over what is new in notes; return results as traces hold them, with numbers of the run."""
        owners, reads = self._owners(notes, noted, numbers)
        learnt, grown = self.learnt, False
        new = [s for s, calls in noted.items() if len(calls.rows) and s not in learnt.cells]
        if new:
            grown = True
            learnt.admit(new)
        grown |= owners.learn(learnt, reads)
        kept, result = [], learnt.result
        starts = [notes.start, *notes.ends[:-1]]
        seen: set[int] = set()
        for value, start, number in zip(notes.results, starts, numbers, strict=False):
            held: list[Any] = []
            result = joined_result(result, value, start, held, seen, number)
            kept.append(held)
        sources = owners.among(np.fromiter(seen, np.int64, len(seen)) - notes.start)
        if result != learnt.result or not sources <= learnt.results:
            learnt.result, grown = result, True
            learnt.results = learnt.results | sources
        learnt.version += grown
        return kept

    def _recorded(
        self,
        linked: Linked,
        notes: Notes,
        noted: dict[Signature, Noted],
        results: list[Any],
        look: Look | None,
    ) -> TraceColumns:
        """Return notes as a record for the model, without levels."""
        start, model = notes.start, linked.model
        ends = np.array([start, *notes.ends], np.int64) - start
        new = _renumbering(linked, noted, int(ends[-1]))
        offsets = ends if new is None else new[ends]
        none = noted_of({s: lists_of(s) for s, _ in linked.cells if s not in noted}, start)
        cells = [noted.get(signature) or none[signature] for signature, _ in linked.cells]
        data = [
            [calls.feeds[i] for i in kept.feeds] for calls, (_, kept) in zip(cells, linked.cells, strict=True)
        ]
        if look is not None:
            look(model, data)
        parts = [
            _of_cell(calls, kept, ends, new) for calls, (_, kept) in zip(cells, linked.cells, strict=True)
        ]
        bounds, feeds, labels = linked.bounds, [], []
        for k, (part, calls) in enumerate(zip(parts, cells, strict=True)):
            columns: list[NDArray[Any]] = []
            marks = {i for _, i in model.marks[k]}
            for i, feed in enumerate(model.feeds[k]):
                if i in model.keys[k]:  # as noted, whatever the model leaves out
                    columns.append(calls.bases - np.repeat(ends[:-1], part.counts))
                elif i in marks:
                    visits = np.array(data[k][i], np.int64)
                    visits = (visits if new is None else new[visits]) - np.repeat(offsets[:-1], part.counts)
                    columns.append(_narrow(visits))
                else:
                    columns.append(bare_column(data[k][i], feed, bounds[k][i]))
            feeds.append(tuple(columns))
            labels.append(tuple([[*map(released, calls.labels[n])] for n in range(len(model.labels[k]))]))
        examples = len(notes.ends)
        counts, sizes = [part.counts for part in parts], [size for part in parts for size in part.sizes]
        return TraceColumns(
            tuple([part.calls for part in parts]),
            tuple([part.elements for part in parts]),
            tuple(feeds),
            tuple(labels),
            np.array(counts, np.int64).reshape(len(counts), examples).T.copy(),
            np.array(sizes, np.int64).reshape(len(sizes), examples).T.copy(),
            offsets,
            [
                [relative(held, begin, start, new) for held in result]
                for result, begin in zip(results, offsets[:-1].tolist(), strict=True)
            ],
        )

    # -- from what was learnt to a model

    def linked(self) -> Linked:
        """Return the model of what was learnt, linked again if that has grown."""
        if self._linked.version != self.learnt.version:
            with LOCK:
                if self._linked.version != self.learnt.version:
                    self._linked = self._link()
        return self._linked

    def _link(self) -> Linked:
        return link_learnt(self.learnt, self.asides, self.kept_bytes, self._known)


def link_learnt(
    learnt: Learnt, asides: frozenset[str], kept_bytes: int | None, known: StagedBefore
) -> Linked:
    """Link the cells in an order that does not depend on the order in which they were learnt."""
    cells = sorted(learnt.cells, key=lambda signature: signature.key)
    number = {signature: k for k, signature in enumerate(cells)}
    drafts = [
        signature.drafted(k, name)
        for k, (signature, name) in enumerate(zip(cells, _names([c.name for c in cells]), strict=True))
    ]
    flows = {
        (s, j): flow
        for s, draft in zip(cells, drafts, strict=True)
        for j, flow in enumerate(draft.outputs.values())
    }

    def order(output: Output) -> tuple[int, int]:
        return number[output[0]], output[1]

    for signature, draft in zip(cells, drafts, strict=True):
        for i, (_, wire) in enumerate(draft.operands):
            for source in sorted(learnt.wires.get((signature, i, -1), ()), key=order):
                flows[source].feed(wire)
        for s, (_, members) in enumerate(draft.sequences):
            for m, (_, wire) in enumerate(members):
                for source in sorted(learnt.wires.get((signature, m, s), ()), key=order):
                    flows[source].feed(wire)
        owned(draft, learnt.own)
        if "losses" not in asides:
            draft.losses = []
        if "metrics" not in asides:
            draft.metrics, draft.labels, draft.marks = [], [], []
    results = []
    by_type: dict[TensorType, Flow] = {}
    for source in sorted(learnt.results, key=order):
        type_ = source[0].outputs[source[1]].type
        if type_ not in by_type:
            by_type[type_] = Flow()
            results.append(by_type[type_])
        flows[source].feed(by_type[type_])
    kept = needed(drafts, results)
    left = [each.draft for each in kept.values()]
    model = link(left, learnt.result or VOID, results, list(learnt.parameters), kept_bytes, known)
    own = tuple((cells[old], each) for old, each in kept.items())
    return Linked(learnt.version, model, own, model.form, model.bounds)


@dataclass(frozen=True, slots=True)
class _OfCell:
    """What was noted of a cell; attributes are as in `TraceColumns`, for one cell.

    Attributes:
        counts: ``[examples]``: calls.
        sizes: per list, ``[examples]``: elements.
    """

    calls: NDArray[np.int32]
    elements: tuple[NDArray[np.int32], ...]
    counts: Index
    sizes: list[Index]


def _of_cell(noted: Noted, kept: PrunedDraft, before: Index, new: Index | None) -> _OfCell:
    """Return what was noted of a cell, as far as the model reads it.

    Args:
        noted: what was noted.
        kept: what is left of the cell.
        before: where examples begin and end, by noted numbers.
        new: the new number of each value; None where these are the noted ones.
    """
    rows = noted.rows
    cuts = np.searchsorted(rows[:, 0], before)
    operands = len(noted.signature.operands)
    numbered = 1 + sum(i < operands for i in kept.arguments)
    calls = (
        rows if len(kept.arguments) == rows.shape[1] - 1 else rows[:, [0, *(1 + i for i in kept.arguments)]]
    )
    if new is not None:
        calls = np.concatenate([new[calls[:, :numbered]], calls[:, numbered:]], axis=1)
    sizes, elements = [], []
    for place, i in enumerate(kept.arguments[numbered - 1 :], numbered):
        flat = noted.elements[i - operands]
        sizes.append(_between(np.append(0, np.cumsum(calls[:, place])), cuts))
        elements.append(_narrow(flat if new is None else new[flat]))
    return _OfCell(_narrow(calls), tuple(elements), cuts[1:] - cuts[:-1], sizes)


def _between(sums: Index, cuts: Index) -> Index:
    found = sums[cuts]
    return found[1:] - found[:-1]


def _narrow(numbers: Index) -> NDArray[np.int32]:
    return numbers.astype(np.int32, order="C")


def _renumbering(linked: Linked, noted: dict[Signature, Noted], total: int) -> Index | None:
    """Return the new number of each value, and of what comes after the last one; None where none moves.

    Calls and outputs that the model has not take no numbers.
    """
    left = {signature: kept for signature, kept in linked.cells if signature in noted}
    if len(left) == len(noted) and all(len(k.outputs) == len(s.outputs) for s, k in left.items()):
        return None
    widths = np.zeros(total + 1, np.int64)
    for signature, kept in left.items():
        calls = noted[signature]
        widths[calls.bases] = max(len(kept.outputs), 1)
        for _, feed in signature.draft.marks:  # visits of metrics take numbers, too
            if feed in kept.feeds:
                widths[np.array(calls.feeds[feed], np.int64)] = 1
    numbers = np.cumsum(widths) - widths
    for signature, kept in left.items():
        base = noted[signature].bases
        for old, new in kept.outputs.items():
            numbers[base + old] = numbers[base] + new  # outputs keep their order: where old is 0, so is new
    return numbers


def bare_column(items: list[Any], feed: Feed, bound: int | None) -> NDArray[Any]:
    """Return data as an array; of tensors of PyTorch, their numbers."""
    if items and hasattr(items[0], "detach"):
        items = [item.detach() for item in items]
    return column(items, feed.type, bound, feed.declared)


def _names(stems: Sequence[str]) -> list[str]:
    """Return names that differ: ``leaf``, ``leaf_1``."""
    taken: set[str] = set()
    names = []
    for stem in stems:
        name = next(
            n for n in itertools.chain([stem], (f"{stem}_{i}" for i in itertools.count(1))) if n not in taken
        )
        taken.add(name)
        names.append(name)
    return names
