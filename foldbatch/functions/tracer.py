"""Tracing a walk: its function is run on each example of a batch, and what it noted becomes arrays.

Which cell feeds which is *learnt*: once a batch is noted, a look-up for each column of arguments tells
whether all wires are known. Where one is new, or a cell, the model is linked again, from all that was learnt.
"""

from __future__ import annotations

import inspect
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from functools import cached_property, partial
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import DecidingError, WalkError
from foldbatch.functions import coded
from foldbatch.functions.cells import Signature
from foldbatch.functions.dependencies import snapshot
from foldbatch.functions.eager import Seen, run
from foldbatch.functions.learnt import Learnt, Output, lengths, remarks
from foldbatch.functions.modules import drop_replaced_methods
from foldbatch.functions.noted import (
    Noted,
    Owners,
    bases_of,
    integers_of,
    joined_result,
    late_error,
    noted_of,
    noting_of,
    reads_of,
    refuse_leaks,
    relative,
)
from foldbatch.functions.notes import LOCK, Forced, Lists, Notes, give_back, line_of, lists_of, note
from foldbatch.functions.readings import Reading
from foldbatch.functions.saving import written
from foldbatch.functions.values import Value, by_hand, released
from foldbatch.model.columns import BadDataError, column
from foldbatch.model.drafts import ASIDES, Flow, PrunedDraft, needed
from foldbatch.model.link import StagedBefore, link
from foldbatch.model.model import Model
from foldbatch.model.tracer import AtOnce, Decide, Look, Written
from foldbatch.params.parameters import Parameter
from foldbatch.scheduler.arithmetic import NUMPY, Arithmetic
from foldbatch.scheduler.noting import Integers, Noting
from foldbatch.scheduler.policies import Policy, levels
from foldbatch.scheduler.record import Together
from foldbatch.scheduler.trace import Form, Trace, batch_trace
from foldbatch.static.printer import unlike
from foldbatch.system.processes import no_garbage
from foldbatch.trees import tree
from foldbatch.types import VOID, TensorType, Type

Index = NDArray[np.int64]


# What was noted of each cell of a model, the same as columns, and results with numbers of the run.
Found: TypeAlias = "tuple[Sequence[Lists | Noted], Integers, list[Any]]"


@dataclass(frozen=True)
class Linked:
    """A model, and how what is noted becomes traces for it."""

    version: int  # that of what was learnt when it was linked
    model: Model
    # per cell of the model, the signature, and what is left of it
    cells: tuple[tuple[Signature, PrunedDraft], ...]
    form: Form  # of traces
    bounds: list[list[int | None]]  # those of the model
    learnt: Learnt  # what it was linked from, as long as that has the same version

    @cached_property
    def noting(self) -> Noting | None:
        """The description of the walk and the model for a compiled function, or None."""
        return noting_of(self.learnt, self.cells)


class FunctionTracer:
    """A walk and the model that was learnt of it; it is a `foldbatch.model.tracer.Tracer`.

    An example may take `max_calls` numbers. The model has the asides, and levels for the policy.
    """

    def __init__(
        self,
        walk: Callable[[Any], Any],
        policy: Policy,
        max_calls: int,
        asides: frozenset[str] = ASIDES,
        arithmetic: Arithmetic = NUMPY,
        learnt: Learnt | None = None,
    ) -> None:
        self.walk = walk
        self.policy = policy
        self.max_calls = min(max_calls, 1 << 60)  # so that numbers are words
        self.asides = asides
        self.arithmetic = arithmetic
        self.learnt = Learnt() if learnt is None else learnt
        if self.learnt.before is None:
            self.learnt.before = snapshot([(self.name, walk)])
            holders = self.learnt.before.dependencies.holders
            if any([drop_replaced_methods(holder) for holder in holders]):  # noqa: C419 - of all
                self.learnt.before = snapshot([(self.name, walk)])
        self.learnt.readings.walk = walk
        self._known = StagedBefore()
        if arithmetic.walks is not None:
            with LOCK:  # no walk runs meanwhile
                coded.hasten(arithmetic.walks)
            tree.hasten(arithmetic.walks)
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
    def parameters(self) -> Sequence[Parameter]:
        return [*self.learnt.parameters]

    @property
    def grows(self) -> bool:
        return True

    @property
    def cells(self) -> Sequence[tuple[Signature, PrunedDraft]]:
        return self.linked().cells

    @property
    def runs_functions(self) -> bool:
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
            self.walk, policy or self.policy, self.max_calls, asides, self.arithmetic, self.learnt
        )

    def place_of(self, example: Any, cell: int, call: int) -> str:
        signature, _ = self.linked().cells[cell]
        with LOCK:
            self.learnt.install()
            return line_of(self.walk, example, signature, call, self.max_calls, self.learnt.accept)

    def remarks(self, calls: Sequence[int]) -> Sequence[str]:
        cells = self.linked().cells
        return [*remarks(self.learnt, {s: n for (s, _), n in zip(cells, calls, strict=True) if n})]

    def lengths(self, fewest: int) -> tuple[str, str] | None:
        return lengths(self.learnt, fewest)

    def debug(self, example: Any, begin: Callable[[Parameter], None]) -> Seen:
        return run(self.walk, example, begin=begin, learnt=self.learnt)

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
        at_once: AtOnce | None = None,
    ) -> list[Trace] | Any:
        """Return traces of examples, whose numbers in the batch name them in errors.

        The walk may read them a second time, see `Readings.read`.
        """

        def work(reading: Reading, careful: bool) -> list[Trace] | Any:  # noqa: FBT001 - see `Readings.read`
            return self._traced(reading, look, decide, at_once, careful=careful)

        with LOCK:
            try:
                return self.learnt.readings.read(examples, numbers, work)
            except BadDataError as error:
                raise error.kind("walk", error.expected, error.found, error.fix) from None

    def _traced(
        self,
        reading: Reading,
        look: Look | None,
        decide: Decide | None,
        at_once: AtOnce | None,
        *,
        careful: bool,
    ) -> list[Trace] | Any:
        """Return the traces of examples; where `careful`, a datum is checked at the call that it is for."""
        runs: list[Notes] = []
        traced, numbers = 0, reading.numbers
        learnt, linked_before, decided, before = self.learnt, self._linked, self.learnt.decides, None
        try:
            while traced < len(numbers):
                with no_garbage():
                    runs.append(self._note(reading.tail(traced), decide, careful=careful))
                traced += len(runs[-1].ends)
            if at_once is not None and len(runs) == 1 and not self.decides and runs[0].noted is None:
                direct_results = at_once(runs[0], numbers)
                if direct_results is not None:
                    return direct_results
            ends = accumulate([len(notes.ends) for notes in runs], initial=0)
            remaining = [numbers[end:] for end, _ in zip(ends, runs, strict=False)]
            linked = self.linked()
            columns = [self._at_once(linked, *run) for run in zip(runs, remaining, strict=True)]
            if not all(columns):
                before = learnt.copy()
                # of all runs: no example is walked twice because a later one brings a cell
                noted = [notes.noted or noted_of(notes.lists, notes.start) for notes in runs]
                results = [self._learn(*run) for run in zip(runs, noted, remaining, strict=True)]
                linked = self.linked()
                columns = [
                    (*self._columns(linked, notes, own), held)
                    for notes, own, held in zip(runs, noted, results, strict=True)
                ]
            records = [
                self._recorded(linked, notes, own, *part, look)
                for notes, own, part in zip(runs, remaining, columns, strict=True)
                if part
            ]
        except BaseException:  # nothing is learnt of these examples
            if before is not None:
                self._forget(before)
            learnt.decides, self._linked = decided, linked_before
            raise
        for notes in runs:
            give_back(notes)
        return [trace for record in records for trace in record.traces()]

    def learn(self, notes: Notes, numbers: Sequence[int]) -> None:
        """Take over what is new in complete notes of some examples, which others have computed."""
        before = self.learnt.copy()
        try:
            self._learn(notes, notes.noted or noted_of(notes.lists, notes.start), numbers)
        except BaseException:
            self._forget(before)
            raise

    def _forget(self, before: Learnt) -> None:
        for f in fields(before):
            setattr(self.learnt, f.name, getattr(before, f.name))

    # -- from notes to traces

    def _note(self, reading: Reading, decide: Decide | None, *, careful: bool = False) -> Notes:
        """Run the walk on examples; where one asks for a number, they go on in rounds."""
        if decide is not None:
            notes: Notes = decide(self, reading, careful=careful)
            return notes
        learnt = self.learnt
        learnt.install()
        signatures, accept = [*learnt.cells], learnt.accept
        try:
            return note(self.walk, reading, signatures, self.max_calls, careful=careful, accept=accept)
        except Forced as forced:
            expected = "a walk that reads no numbers, where examples are traced and nothing is computed"
            fix = "run, value_and_grad, step and Trainer compute; prepare, plan and export do not"
            raise DecidingError(forced.what, expected, "one that asks for a number", fix) from None

    def _learn(self, notes: Notes, noted: dict[Signature, Noted], numbers: Sequence[int]) -> list[Any]:
        """Take over what is new in notes; return results as traces hold them, with numbers of the run."""
        ends = np.array([notes.start, *notes.ends], np.int64)
        sizes: Index = ends[1:] - ends[:-1]
        owners = Owners(int(sizes.sum()))  # which output made each number
        for signature, calls in noted.items():
            owners.add(signature, calls.bases)
        reads = reads_of(noted.values())
        refuse_leaks(reads, np.repeat(np.arange(len(sizes)), sizes), numbers)
        learnt, grown = self.learnt, False
        new = [s for s, calls in noted.items() if len(calls.rows) and s not in learnt.cells]
        if new:
            grown = True
            learnt.admit(new)
        grown |= owners.learn(learnt, reads)
        kept, seen, result = self._results(notes, numbers)
        sources = owners.among(np.fromiter(seen, np.int64, len(seen)) - notes.start)
        if result != learnt.result or not sources <= learnt.results:
            learnt.result, grown = result, True
            learnt.results = learnt.results | sources
        learnt.version += grown
        return kept

    def _at_once(self, linked: Linked, notes: Notes, numbers: Sequence[int]) -> Found | None:
        """Return notes as columns if a compiled function finds nothing new in them, else None."""
        check, learnt, lists = self.arithmetic.noted, self.learnt, notes.lists
        if check is None or len(lists) != len(learnt.cells) or learnt.result is None:
            return None
        noting = linked.noting
        if noting is None:
            return None
        try:
            results, seen, type_ = self._results(notes, numbers)
        except WalkError:  # it is told of after what cells read
            return None
        if type_ != learnt.result:
            return None
        held, start, ends = notes.noted or lists, notes.start, notes.ends
        parts = [(own.rows, *own.elements) for own in held.values()]
        if notes.noted:  # whose numbers count from the beginning of the run
            start, ends, seen = 0, [end - start for end in ends], {number - start for number in seen}
            parts = [tuple([array.ravel() for array in own]) for own in parts]
        integers = noting.columns(check, start, ends, seen, parts)
        return None if integers is None else ([held[s] for s, _ in linked.cells], integers, results)

    def _columns(
        self, linked: Linked, notes: Notes, noted: dict[Signature, Noted]
    ) -> tuple[list[Noted], Integers]:
        """Return the notes of each cell of the model, and the same as columns of integers."""
        start = notes.start
        missing = {s: lists_of(s) for s, _ in linked.cells if s not in noted}
        noted = {**noted, **noted_of(missing, start)} if missing else noted
        ends = np.array([start, *notes.ends], np.int64) - start
        return [noted[s] for s, _ in linked.cells], integers_of(linked.cells, noted, ends)

    def _results(self, notes: Notes, numbers: Sequence[int]) -> tuple[list[Any], set[int], Type | None]:
        """Return results with numbers of the run, the values in them, and their type."""
        seen: set[int] = set()
        result = self.learnt.result
        kept: list[list[Any]] = []
        for value, start, number in zip(notes.results, [notes.start, *notes.ends], numbers, strict=False):
            n = getattr(value, "n", None) if isinstance(value, Value) and value.type is result else None
            if type(n) is int and n >= start:
                seen.add(n)  # as below, in a third of the time
                kept.append([value])
                continue
            values: list[Any] = []
            result = joined_result(result, value, start, values, seen, number)
            kept.append(values)
        if seen and max(seen) >= notes.ends[-1]:
            raise by_hand("walk")
        return kept, seen, result

    def _recorded(
        self,
        linked: Linked,
        notes: Notes,
        numbers: Sequence[int],
        cells: Sequence[Lists | Noted],
        integers: Integers,
        results: list[Any],
        look: Look | None,
    ) -> Together:
        """Return notes as a record for the model."""
        start, model, offsets, new = notes.start, linked.model, integers.offsets, integers.new
        data = [
            [own.feeds[i] for i in kept.feeds] for own, (_, kept) in zip(cells, linked.cells, strict=True)
        ]
        if look is not None:
            look(model, data)
        feeds, labels = [], []
        for k, own in enumerate(cells):
            columns: list[NDArray[Any]] = []
            marks = {i for _, i in model.marks[k]}
            for i, feed in enumerate(model.feeds[k]):
                if i in model.keys[k]:  # as noted, whatever the model leaves out
                    begins = np.array([start, *notes.ends[:-1]], np.int64) - start
                    columns.append(
                        bases_of(own, linked.cells[k][0], start) - np.repeat(begins, integers.counts[:, k])
                    )
                elif i in marks:
                    visits = np.array(data[k][i], np.int64)
                    visits = (visits if new is None else new[visits].astype(np.int64)) - np.repeat(
                        offsets[:-1], integers.counts[:, k]
                    )
                    columns.append(visits.astype(np.int32))
                else:
                    try:
                        columns.append(column(data[k][i], feed.type, linked.bounds[k][i], feed.declared))
                    except BadDataError as error:
                        raise self._refused(notes, numbers, error) from None
            feeds.append(tuple(columns))
            labels.append(tuple([[*map(released, own.labels[n])] for n in range(len(model.labels[k]))]))
        held = [
            [relative(part, begin, start, new) for part in result]
            for result, begin in zip(results, offsets[:-1].tolist(), strict=True)
        ]
        find = partial(levels, self.policy, model.signatures, arithmetic=self.arithmetic)
        parts = integers.calls, integers.elements, (), tuple(feeds), tuple(labels), int(offsets[-1])
        trace = batch_trace(linked.form, find, *parts)
        return Together(trace, integers.counts, integers.lengths, offsets, held)

    def _refused(self, notes: Notes, numbers: Sequence[int], error: BadDataError) -> Exception:
        """Return the error for the first datum that its cell does not read, given that of a column."""

        def number(base: int) -> int:
            return numbers[bisect_right(notes.ends, base + notes.start)]

        return late_error(notes.noted or noted_of(notes.lists, notes.start), number) or error

    # -- from what was learnt to a model

    def linked(self) -> Linked:
        if self._linked.version != self.learnt.version:
            with LOCK:
                if self._linked.version != self.learnt.version:
                    self._linked = self._link()
        return self._linked

    def _link(self) -> Linked:
        with no_garbage():  # a model is many objects, and none of them garbage
            return link_learnt(self.learnt, self.asides, self._known)


def link_learnt(learnt: Learnt, asides: frozenset[str], staged: StagedBefore) -> Linked:
    """Link the cells in an order that does not depend on the order in which they were learnt."""
    cells = sorted(learnt.cells, key=lambda signature: signature.key)
    number = {signature: k for k, signature in enumerate(cells)}
    names: dict[str, None] = {}
    alike = Counter[str]()  # so many have the name
    for signature in cells:
        names[unlike(signature.title, names, alike[signature.title])] = None
        alike[signature.title] += 1
    drafts = [s.drafted(k, name) for k, (s, name) in enumerate(zip(cells, names, strict=True))]
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
    result = VOID if learnt.result is None else learnt.result  # a tuple or a dict of nothing has length 0
    model = link(left, result, results, list(learnt.parameters), staged, learnt.replacements)
    cells_of_model = tuple((cells[old], each) for old, each in kept.items())
    return Linked(learnt.version, model, cells_of_model, model.form, model.bounds, learnt)
