"""Tracing a walk: its function is run on each example of a batch, and the notes of its calls become arrays.

The wires between cells are *learnt*: once a batch is noted, a loop goes through all that its calls read, and
finds whether all wires are known. If a wire or a cell is new, the model is linked again, from all that was
learnt.
"""

from __future__ import annotations

import inspect
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from functools import cached_property, partial
from itertools import accumulate
from types import FrameType
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import DecidingError, WalkError
from foldbatch.functions import coded
from foldbatch.functions.cells import Signature
from foldbatch.functions.dependencies import snapshot
from foldbatch.functions.eager import Seen, run
from foldbatch.functions.learnt import Learnt, Output, lengths, remarks
from foldbatch.functions.loose import RECORDER
from foldbatch.functions.modules import drop_replaced_methods
from foldbatch.functions.noted import (
    Noted,
    bases_of,
    joined_result,
    late_error,
    leak,
    learn_wire,
    noting_of,
    outputs_of,
    relative,
)
from foldbatch.functions.notes import LOCK, Forced, Notes, give_back, line_of, lists_of, note, watch_calls
from foldbatch.functions.readings import Reading
from foldbatch.functions.saving import written
from foldbatch.functions.values import Value, by_hand, released
from foldbatch.loops.closures import can_close
from foldbatch.model.columns import BadDataError, column
from foldbatch.model.drafts import ASIDES, Flow, PrunedDraft, needed
from foldbatch.model.labels import tell_apart
from foldbatch.model.link import StagedBefore, link
from foldbatch.model.model import Model
from foldbatch.model.reading_paths import ReadingPath, ReadingPaths, identity_of, parts_of
from foldbatch.model.tracer import Decide, Look, RunSmall, Written
from foldbatch.params.parameters import Array, Parameter
from foldbatch.planning.compiled import loops
from foldbatch.planning.noting import Calls, Integers, Noting
from foldbatch.planning.policies import Policy, levels
from foldbatch.recorder.lists import CallLists, numbers_of
from foldbatch.scheduler.record import BatchRecord
from foldbatch.scheduler.trace import Form, Trace, batch_trace
from foldbatch.system.processes import no_garbage
from foldbatch.trees import tree
from foldbatch.trees.tree import TreeNode
from foldbatch.types import VOID, TensorType, Type

Index = NDArray[np.int64]
R = TypeVar("R")


# The notes of each cell of a model, the same as columns, and results with numbers of the run.
NotedColumns: TypeAlias = "tuple[Sequence[CallLists | Noted], Integers, list[list[object]]]"


@dataclass(frozen=True)
class Linked:
    """A model that was linked for a walk, with its cells, and the form of traces for it."""

    version: int  # `learnt.version` when it was linked
    model: Model
    # per cell of the model, its signature, and its draft without the parts that are not needed
    cells: tuple[tuple[Signature, PrunedDraft], ...]
    form: Form  # the form of traces
    bounds: list[list[int | None]]  # `Model.bounds`
    learnt: Learnt  # the knowledge that it was linked from; it may have grown since

    @cached_property
    def noting(self) -> Noting:
        """The walk and the model as tables for a compiled function that makes columns."""
        learnt = self.learnt
        return noting_of([*learnt.cells], learnt.wires, self.cells, learnt.results)

    @cached_property
    def visits(self) -> list[tuple[Signature, int]]:
        """The feeds of the model with the numbers that visits of metrics have taken."""
        return [(cell, i) for cell, kept in self.cells for _, i in cell.draft.marks if i in kept.feeds]


class FunctionTracer:
    """A `foldbatch.model.tracer.Tracer` of a walk: it runs the walk, and learns a model from the calls.

    Args:
        walk: the user's function of an example.
        policy: the policy that the levels of traces are for.
        max_calls: the limit of the numbers that an example may take.
        asides: the kinds of side outputs that the model has.
        learnt: the knowledge of the walk, where another variant has it already.
    """

    def __init__(
        self,
        walk: Callable[[Any], object],
        policy: Policy,
        max_calls: int,
        asides: frozenset[str] = ASIDES,
        learnt: Learnt | None = None,
    ) -> None:
        self.walk = walk
        self.policy = policy
        self.max_calls = min(max_calls, 1 << 60)  # so that numbers are words
        self.asides = asides
        self.learnt = Learnt() if learnt is None else learnt
        if self.learnt.before is None:
            self.learnt.before = snapshot([(self.name, walk)])
            holders = self.learnt.before.dependencies.holders
            if any([drop_replaced_methods(holder) for holder in holders]):  # noqa: C419 - of all
                self.learnt.before = snapshot([(self.name, walk)])
        self.learnt.readings.walk = walk
        self._staged = StagedBefore()
        if can_close():
            with LOCK:  # no walk runs meanwhile
                coded.hasten()
            tree.hasten()
        self._linked = self._link()

    # -- the attributes of a tracer

    @property
    def origin(self) -> object:
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
    def reached(self) -> Iterable[object]:
        return [self.walk]

    def lock(self) -> AbstractContextManager[object]:
        return LOCK

    def variant(self, asides: frozenset[str], policy: Policy | None = None) -> FunctionTracer:
        return FunctionTracer(self.walk, policy or self.policy, self.max_calls, asides, self.learnt)

    def place_of(self, example: object, cell: int, call: int) -> str:
        signature, _ = self.linked().cells[cell]
        with LOCK:
            self.learnt.install()
            return line_of(self.walk, example, signature, call, self.max_calls, RECORDER, self.learnt.accept)

    def paths_of(self, example: object) -> ReadingPaths:
        """Return, for each call, the innermost part of the example that a variable of the walk holds then."""
        parts = parts_of(example)
        numbers = {id(signature): k for k, (signature, _) in enumerate(self.linked().cells)}
        signatures = [signature for signature, _ in self.linked().cells]
        paths: dict[tuple[int, int], list[ReadingPath]] = {(k, -1): [] for k in numbers.values()}

        def seen(signature: Signature, frame: FrameType | None) -> None:
            paths[numbers[id(signature)], -1].append(_part_in(frame, parts))

        with LOCK:
            self.learnt.install()
            watch_calls(self.walk, example, signatures, seen, self.max_calls, RECORDER, self.learnt.accept)
        for k, feeds in enumerate(self.linked().model.feeds):
            paths |= {(k, i): paths[k, -1] for i in range(len(feeds))}
        return paths

    def remarks(self, calls: Sequence[int]) -> Sequence[str]:
        cells = self.linked().cells
        return [*remarks(self.learnt, {s: n for (s, _), n in zip(cells, calls, strict=True) if n})]

    def lengths(self, fewest: int) -> tuple[str, str] | None:
        return lengths(self.learnt, fewest)

    def debug(self, example: object, begin: Callable[[Parameter], None]) -> Seen:
        return run(self.walk, example, begin=begin, learnt=self.learnt)

    def written(self, parameters: Mapping[str, Parameter]) -> Written:
        return written(self.walk, self.learnt, parameters)

    @property
    def decides(self) -> bool:
        return self.learnt.decides

    def trace_all(
        self,
        examples: Sequence[object],
        numbers: Sequence[int],
        look: Look | None = None,
        decide: Decide | None = None,
        run_small: RunSmall[R] | None = None,
    ) -> list[Trace] | R:
        """Return traces of examples, whose numbers in the batch name them in errors.

        The walk may read them a second time, see `Readings.read`.
        """

        def work(reading: Reading, careful: bool) -> list[Trace] | R:  # noqa: FBT001 - see `Readings.read`
            return self._traced(reading, look, decide, run_small, careful=careful)

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
        run_small: RunSmall[R] | None,
        *,
        careful: bool,
    ) -> list[Trace] | R:
        """Return the traces of the examples of a reading, or their results if `run_small` computes them.

        Examples are noted in one run, or in several where a run ends early. If they bring new cells or wires,
        these are learnt, and the model is linked again; an error leaves everything as it was. With `careful`,
        each datum is checked at its call. The other arguments are those of `trace_all`.
        """
        runs: list[Notes] = []
        traced = 0
        numbers = reading.numbers
        learnt = self.learnt
        linked_before, decided, before = self._linked, learnt.decides, None
        try:
            while traced < len(numbers):
                with no_garbage():
                    runs.append(self._note(reading.tail(traced), decide, careful=careful))
                traced += len(runs[-1].ends)
            if run_small is not None and len(runs) == 1 and runs[0].noted is None:  # all, and not of rounds
                results_of_small = run_small(runs[0], numbers)
                if results_of_small is not None:
                    return results_of_small
            ends = accumulate([len(notes.ends) for notes in runs], initial=0)
            remaining = [numbers[end:] for end, _ in zip(ends, runs, strict=False)]
            linked = self.linked()
            columns = [self._at_once(linked, *run) for run in zip(runs, remaining, strict=True)]
            if not all(columns):
                before = learnt.copy()
                # of all runs: no example is walked twice because a later one brings a cell
                results = [self._learn(*run) for run in zip(runs, remaining, strict=True)]
                linked = self.linked()
                columns = [
                    self._columns(linked, notes, *values) for notes, values in zip(runs, results, strict=True)
                ]
                assert all(columns), "all wires are known now"
            records = [
                self._recorded(linked, notes, run_numbers, *part, look)
                for notes, run_numbers, part in zip(runs, remaining, columns, strict=True)
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

    def _forget(self, before: Learnt) -> None:
        """Restore the knowledge of the walk from a copy."""
        for f in fields(before):
            setattr(self.learnt, f.name, getattr(before, f.name))

    # -- from notes to traces

    def _note(self, reading: Reading, decide: Decide | None, *, careful: bool = False) -> Notes:
        """Run the walk on the examples of a reading, and return its notes.

        With `decide`, walks that ask for numbers run in rounds; without, they are refused. With `careful`,
        each datum is checked at its call.
        """
        if decide is not None:
            notes = decide(self, reading, careful=careful)
            assert isinstance(notes, Notes), "it runs walks"
            return notes
        learnt = self.learnt
        learnt.install()
        signatures, accept = [*learnt.cells], learnt.accept
        try:
            arguments = self.walk, reading, signatures, self.max_calls, RECORDER
            return note(*arguments, careful=careful, accept=accept)
        except Forced as forced:
            expected = "a walk that reads no numbers, where examples are traced and nothing is computed"
            fix = "run, value_and_grad, step and Trainer compute; prepare, plan and export do not"
            raise DecidingError(forced.reader, expected, "one that asks for a number", fix) from None

    def _learn(self, notes: Notes, numbers: Sequence[int]) -> tuple[list[list[object]], set[int]]:
        """Learn the new cells and wires in notes, and return the results of their examples for traces.

        Args:
            notes: the notes of a run.
            numbers: the numbers of the examples in the batch, for errors.

        Returns:
            The values in the result of each example, and their numbers in the run.
        """
        learnt, by_cell = self.learnt, notes.noted or notes.lists
        new = [s for s, calls in by_cell.items() if len(calls.rows) and s not in learnt.cells]
        called = [*learnt.cells, *new]
        new_wires = noting_of(called, learnt.wires).new_wires(loops().learn, _calls(notes, called))
        if new_wires.refused is not None:
            cell, number = new_wires.refused
            raise leak(called[cell].title, numbers[bisect_right(notes.ends, number + notes.start)])
        if new:
            learnt.admit(new)
        outputs = outputs_of(called)
        for cell, slot, sequence, source in new_wires.wires:
            learn_wire(learnt, (called[cell], slot, sequence), outputs[source])
        kept, seen, result = self._results(notes, numbers)
        of_seen = new_wires.outputs[np.fromiter(seen, np.int64, len(seen)) - notes.start]
        if of_seen.min(initial=0) < 0:
            raise by_hand("walk")
        sources = {outputs[source] for source in np.unique(of_seen).tolist()}
        grown = bool(new or new_wires.wires)
        if result != learnt.result or not sources <= learnt.results:
            learnt.result, grown = result, True
            learnt.results = learnt.results | sources
        learnt.version += grown
        return kept, seen

    def _at_once(self, linked: Linked, notes: Notes, numbers: Sequence[int]) -> NotedColumns | None:
        """Return notes as columns of the model; None where they have a new cell or wire.

        It is the fast way, as most batches have nothing to be learnt. None also where a result is refused.
        """
        learnt = self.learnt
        if len(notes.lists) != len(learnt.cells) or learnt.result is None:
            return None
        try:
            results, seen, type_ = self._results(notes, numbers)
        except WalkError:  # refused after the operands of cells, by `_learn`
            return None
        return None if type_ != learnt.result else self._columns(linked, notes, results, seen)

    def _columns(
        self, linked: Linked, notes: Notes, results: list[list[object]], seen: set[int]
    ) -> NotedColumns | None:
        """Return notes as columns of the model; None where they have a new wire.

        Args:
            linked: the model.
            notes: the notes of a run.
            results: the values in the result of each example.
            seen: their numbers in the run.
        """
        by_cell, calls = notes.noted or notes.lists, _calls(notes, [*linked.learnt.cells])
        visits = [n for s, i in linked.visits if s in by_cell for n in numbers_of(by_cell[s].feeds[i])]
        relative_seen = {number - notes.start + calls.start for number in seen}
        integers = linked.noting.columns(loops().noted, calls, relative_seen, visits)
        if integers is None:
            return None
        return [by_cell.get(s) or lists_of(s) for s, _ in linked.cells], integers, results

    def _results(
        self, notes: Notes, numbers: Sequence[int]
    ) -> tuple[list[list[object]], set[int], Type | None]:
        """Return the values in each example's result, their numbers in the run, and the type of results."""
        seen: set[int] = set()
        result = self.learnt.result
        kept: list[list[object]] = []
        for value, start, number in zip(notes.results, [notes.start, *notes.ends], numbers, strict=False):
            n = getattr(value, "n", None) if isinstance(value, Value) and value.type is result else None
            if type(n) is int and n >= start:
                seen.add(n)  # as below, in a third of the time
                kept.append([value])
                continue
            values: list[object] = []
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
        cells: Sequence[CallLists | Noted],
        integers: Integers,
        results: list[list[object]],
        look: Look | None,
    ) -> BatchRecord:
        """Return the notes of a run as a record for the model: integers, data as columns, labels and results.

        Args:
            linked: the model.
            notes: the notes of the run.
            numbers: the numbers of its examples in the batch, for errors.
            cells: the notes of each cell of the model.
            integers: the same as columns.
            results: the values in the result of each example, by their numbers in the run.
            look: is given the data of each cell before these become columns, and may replace some.

        Raises:
            ExampleError: when a datum cannot be read.
        """
        start, model, offsets, new = notes.start, linked.model, integers.offsets, integers.new
        data = [
            [calls.feeds[i] for i in kept.feeds] for calls, (_, kept) in zip(cells, linked.cells, strict=True)
        ]
        if look is not None:
            look(model, data)
        feeds, labels = [], []
        for k, calls in enumerate(cells):
            columns: list[Array] = []
            marks = {i for _, i in model.marks[k]}
            for i, feed in enumerate(model.feeds[k]):
                if i in model.keys[k]:  # as noted, whatever the model leaves out
                    begins = np.array([start, *notes.ends[:-1]], np.int64) - start
                    columns.append(
                        bases_of(calls, linked.cells[k][0], start) - np.repeat(begins, integers.counts[:, k])
                    )
                elif i in marks:
                    first = start if isinstance(calls, CallLists) else 0
                    visits = np.array(data[k][i], np.int64) - first
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
            labels.append(tuple([[*map(released, calls.labels[n])] for n in range(len(model.labels[k]))]))
        values = [
            [relative(part, begin, start, new) for part in result]
            for result, begin in zip(results, offsets[:-1].tolist(), strict=True)
        ]
        find = partial(levels, self.policy, model.signatures)
        parts = integers.calls, integers.elements, (), tuple(feeds), tuple(labels), int(offsets[-1])
        trace = batch_trace(linked.form, find, *parts)
        return BatchRecord(trace, integers.counts, integers.lengths, offsets, values)

    def _refused(self, notes: Notes, numbers: Sequence[int], error: BadDataError) -> Exception:
        """Return the error for the first datum of a run that its cell cannot read.

        Args:
            notes: the notes of the run.
            numbers: the numbers of its examples in the batch.
            error: the error of a column, for the case that no such datum is found.
        """

        def number(base: int) -> int:
            return numbers[bisect_right(notes.ends, base + notes.start)]

        return late_error(notes.noted or notes.lists, notes.start, number) or error

    # -- from cells and wires to a model

    def linked(self) -> Linked:
        if self._linked.version != self.learnt.version:
            with LOCK:
                if self._linked.version != self.learnt.version:
                    self._linked = self._link()
        return self._linked

    def _link(self) -> Linked:
        with no_garbage():  # a model is many objects, and none of them garbage
            return link_learnt(self.learnt, self.asides, self._staged)


def _calls(notes: Notes, called: Sequence[Signature]) -> Calls:
    """Return the calls of cells in notes, with empty lists for those without."""
    by_cell = notes.noted or notes.lists
    lists = [by_cell.get(signature) or lists_of(signature) for signature in called]
    parts = [(calls.rows, *calls.elements) for calls in lists]
    if not notes.noted:
        return Calls(notes.start, notes.ends, parts)
    # numbers in these count from the beginning of the run
    flat = [tuple([np.ravel(part) for part in cell_parts]) for cell_parts in parts]
    return Calls(0, [end - notes.start for end in notes.ends], flat)


def _labels(cells: Sequence[Signature]) -> list[str]:
    """Return a label for each cell: its title, with the arguments that tell it from others of the title."""
    texts: dict[str, dict[str, set[str]]] = {}  # by title and argument, the structures of cells
    for signature in cells:
        of_title = texts.setdefault(signature.title, {})
        for name, text in signature.structures.items():
            of_title.setdefault(name, set()).add(text)
    differing = {
        title: [name for name, structures in of_title.items() if len(structures) > 1]
        for title, of_title in texts.items()
    }
    return tell_apart((s.title, s.title_with(differing[s.title])) for s in cells)


def link_learnt(learnt: Learnt, asides: frozenset[str], staged: StagedBefore) -> Linked:
    """Return the model of the cells and wires that a walk has shown, with some kinds of side outputs.

    Cells have an order in it that does not depend on the order in which they were learnt, so that equal
    knowledge gives equal models. `staged` keeps cells that an earlier link has built.
    """
    cells = sorted(learnt.cells, key=lambda signature: signature.key)
    number = {signature: k for k, signature in enumerate(cells)}
    drafts = [s.drafted(k, label) for k, (s, label) in enumerate(zip(cells, _labels(cells), strict=True))]
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
    needed_drafts = [pruned.draft for pruned in kept.values()]
    result = VOID if learnt.result is None else learnt.result  # a tuple or a dict of nothing has length 0
    model = link(needed_drafts, result, results, list(learnt.parameters), staged, learnt.replacements)
    cells_of_model = tuple((cells[old], pruned) for old, pruned in kept.items())
    return Linked(learnt.version, model, cells_of_model, model.form, model.bounds, learnt)


def _part_in(frame: FrameType | None, parts: Mapping[object, str]) -> ReadingPath:
    """Return the path of the innermost part of an example that a variable holds, in a frame or in one around.

    Of several parts in a frame, the deepest one counts.
    """
    while frame is not None:
        candidates = [value for value in frame.f_locals.values() if identity_of(value) in parts]
        if candidates:
            part = max(candidates, key=lambda value: len(parts[identity_of(value)]))
            return ReadingPath(parts[identity_of(part)], node=part if isinstance(part, TreeNode) else None)
        frame = frame.f_back
    return ReadingPath("")
