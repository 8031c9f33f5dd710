"""Tracing a walk: its function is run on each example of a batch, and what it noted becomes arrays.

Which cell feeds which is *learnt*: once a batch is noted, a look-up for each column of arguments tells
whether all wires are known. Where one is new, or a cell, the model is linked again, from all that was learnt.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import DecidingError, ExampleError, WalkError
from foldbatch.functions.cells import Signature
from foldbatch.functions.eager import Seen, run
from foldbatch.functions.learnt import Learnt, Output, Slot, owned
from foldbatch.functions.notes import LOCK, Forced, Lists, Notes, line_of, note, refuse_iterators
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
from foldbatch.scheduler.record import Batched, Together, TraceColumns
from foldbatch.scheduler.trace import Form, Trace
from foldbatch.system.garbage import no_garbage
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
    """

    version: int
    model: Model
    cells: tuple[tuple[Signature, PrunedDraft], ...]
    form: Form


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
                parts, done = [], 0
                while done < len(examples):
                    left = numbers[done:]
                    with no_garbage():
                        notes, arrays = self._note(examples[done:], left, decide)
                    parts.append((notes, arrays, self._learn(notes, arrays, left)))
                    done += len(notes.ends)
                # of all parts: no example is walked twice because a later one brings a cell
                linked = self.linked()
                batches = [self._batched(linked, *part, look) for part in parts]
            except (BadDataError, ExampleError) as error:
                undo()
                raise self._blamed(error, examples, numbers, decide) from None
            except BaseException:
                undo()
                raise
            return [trace for batched in batches for trace in self._leveled(linked, batched)]

    # -- from notes to traces

    def _note(
        self, examples: Sequence[Any], numbers: Sequence[int], decide: Decide | None, *, careful: bool = False
    ) -> tuple[Notes, dict[Signature, Index]]:
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
            notes = decide(self, examples, numbers, careful=careful)
        return notes, {
            signature: _rows(signature, lists, notes.start) for signature, lists in notes.lists.items()
        }

    def _leveled(self, linked: Linked, batched: Batched) -> list[Trace]:
        """Return the traces of a batch that has no levels yet."""
        cells, size = linked.model.signatures, int(batched.offsets[-1])
        height = levels(self.policy, cells, batched.calls, batched.elements, size, self.arithmetic)
        whole = Batched(
            batched.record,
            batched.calls,
            batched.elements,
            height,
            batched.ends,
            batched.element_ends,
            batched.offsets,
        )
        return Together(whole, linked.form).traces()

    def _undo(self) -> Callable[[], None]:
        """Return a function that forgets what is learnt from now on."""
        learnt, linked = self.learnt, self._linked
        before = {f.name: copy(getattr(learnt, f.name)) for f in fields(learnt)}

        def undo() -> None:
            for name, value in before.items():
                setattr(learnt, name, value)
            self._linked = linked

        return undo

    def _blamed(
        self, error: Exception, examples: Sequence[Any], numbers: Sequence[int], decide: Decide | None
    ) -> Exception:
        """Run examples again with every datum checked: the error comes from the call that it is for."""
        for example, number in zip(examples, numbers, strict=True):
            try:
                notes, arrays = self._note([example], [number], decide, careful=True)
                self._owners(notes, arrays, [number])
            except ExampleError as found:
                return found
        if isinstance(error, BadDataError):
            return error.kind("walk", error.expected, error.found, error.fix)
        return error

    def _owners(
        self, notes: Notes, arrays: dict[Signature, Index], numbers: Sequence[int]
    ) -> tuple[NDArray[np.int32], list[Output]]:
        """Return which output made each number; refuse calls that read values of other examples or runs."""
        total = (notes.ends[-1] if notes.ends else notes.start) - notes.start
        owner = np.full(total, -1, np.int32)
        outputs: list[Output] = []
        for signature, rows in arrays.items():
            for j in range(len(signature.outputs)):
                owner[rows[:, 0] + j] = len(outputs)
                outputs.append((signature, j))
        starts = np.array([notes.start, *notes.ends[:-1]], np.int64) - notes.start
        for signature, rows in arrays.items():
            base = rows[:, 0]
            if not len(base):
                continue
            example = np.searchsorted(starts, base, "right") - 1
            first = starts[example]
            columns = [rows[:, 1 + i] for i in range(len(signature.operands))]
            places = [(base, first, example)] * len(columns)
            for i, (_, _, members) in enumerate(signature.sequences):
                lengths = rows[:, 1 + len(signature.operands) + i]
                flat = _elements(notes.lists[signature].elements[i], len(members), notes.start)
                spread = np.repeat(base, lengths), np.repeat(first, lengths), np.repeat(example, lengths)
                columns += [flat[:, m] for m in range(len(members))]
                places += [spread] * len(members)
            for read, (own, low, of) in zip(columns, places, strict=True):
                wrong = (read < low) | (read >= own)
                if wrong.any():
                    number = numbers[int(of[int(wrong.argmax())])]
                    expected, found = "values of the same example", "one kept from another example or run"
                    fix = "compute it in the walk of each example that uses it"
                    raise WalkError(f"{signature.name} at example {number}", expected, found, fix)
        return owner, outputs

    def _learn(
        self, notes: Notes, arrays: dict[Signature, Index], numbers: Sequence[int]
    ) -> tuple[list[Any], NDArray[np.int32], list[Output]]:
        """Take over what is new in notes; return results as traces hold them, with numbers of the run."""
        owner, outputs = self._owners(notes, arrays, numbers)
        learnt, grown = self.learnt, False
        new = [s for s, rows in arrays.items() if len(rows) and s not in learnt.cells]
        if new:
            grown = True
            learnt.admit(new)
        for signature, rows in arrays.items():
            for i in range(len(signature.operands)):
                single = signature.operands[i][1].type
                grown |= learn_wire(learnt, (signature, i, -1), owner[rows[:, 1 + i]], outputs, single)
            for s, (_, _, members) in enumerate(signature.sequences):
                flat = _elements(notes.lists[signature].elements[s], len(members), notes.start)
                for m in range(len(members)):
                    member = members[m][1].type
                    grown |= learn_wire(learnt, (signature, m, s), owner[flat[:, m]], outputs, member)
        kept, result = [], learnt.result
        starts = [notes.start, *notes.ends[:-1]]
        seen: set[int] = set()
        for value, start, number in zip(notes.results, starts, numbers, strict=False):
            held: list[Any] = []
            result = joined_result(result, value, start, held, seen, number)
            kept.append(held)
        sources = (
            {outputs[o] for o in np.unique(owner[np.array([*seen], np.int64) - notes.start])}
            if seen
            else set()
        )
        if result != learnt.result or not sources <= learnt.results:
            learnt.result, grown = result, True
            learnt.results = learnt.results | sources
        learnt.version += grown
        return kept, owner, outputs

    def _batched(
        self,
        linked: Linked,
        notes: Notes,
        arrays: dict[Signature, Index],
        learnt: tuple[list[Any], NDArray[np.int32], list[Output]],
        look: Look | None,
    ) -> Batched:
        """Return notes as a batch for the model, without levels."""
        results, _, _ = learnt
        start, model = notes.start, linked.model
        noted = np.array([start, *notes.ends], np.int64) - start
        new = _renumbering(linked, arrays, notes)
        offsets = noted if new is None else new[noted]
        lists = [notes.lists.get(signature) for signature, _ in linked.cells]
        data = [
            [[] if own is None else own.feeds[i] for i in kept.feeds]
            for own, (_, kept) in zip(lists, linked.cells, strict=True)
        ]
        if look is not None:
            look(model, data)
        parts = [
            _of_cell(signature, kept, arrays.get(signature), own, (noted, offsets), start, new)
            for own, (signature, kept) in zip(lists, linked.cells, strict=True)
        ]
        bounds, feeds, labels = model.bounds, [], []
        for k, (part, own) in enumerate(zip(parts, lists, strict=True)):
            columns: list[NDArray[Any]] = []
            marks = {i for _, i in model.marks[k]}
            for i, feed in enumerate(model.feeds[k]):
                if i in model.keys[k]:
                    columns.append(part.keys)
                elif i in marks:
                    visits = integers(data[k][i]) - start
                    visits = (visits if new is None else new[visits]) - np.repeat(offsets[:-1], part.counts)
                    columns.append(_narrow(visits))
                else:
                    columns.append(bare_column(data[k][i], feed, bounds[k][i]))
            feeds.append(tuple(columns))
            labels.append(
                tuple(
                    [
                        [] if own is None else [*map(released, own.labels[n])]
                        for n in range(len(model.labels[k]))
                    ]
                )
            )
        examples = len(notes.ends)
        counts, sizes = [part.counts for part in parts], [size for part in parts for size in part.sizes]
        record = TraceColumns(
            tuple([part.relative for part in parts]),
            tuple([part.relative_elements for part in parts]),
            tuple(feeds),
            tuple(labels),
            np.array(counts, np.int64).reshape(len(counts), examples).T.copy(),
            np.array(sizes, np.int64).reshape(len(sizes), examples).T.copy(),
            np.diff(offsets),
            [
                [relative(held, begin, start, new) for held in result]
                for result, begin in zip(results, offsets[:-1].tolist(), strict=True)
            ],
        )
        return Batched(
            record,
            tuple([part.calls for part in parts]),
            tuple([part.elements for part in parts]),
            (),
            [[0, *column.cumsum().tolist()] for column in counts],
            [[0, *column.cumsum().tolist()] for column in sizes],
            offsets,
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


def learn_wire(
    learnt: Learnt, slot: Slot, owners: NDArray[np.int32], outputs: list[Output], type_: TensorType
) -> bool:
    """Take over the wires to a slot; return whether one is new."""
    known = learnt.wires.get(slot, set())
    found = {outputs[o] for o in np.flatnonzero(np.bincount(owners)).tolist()} - known
    for signature, j in found:
        if signature.outputs[j].type != type_:
            expected, given = f"elements of {type_}", f"one of {signature.outputs[j].type}"
            raise WalkError(slot[0].name, expected, given, "elements of a list have one shape and dtype")
    if found:
        learnt.wires[slot] = known | found  # a new set: the old one may come back
    return bool(found)


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
    return Linked(learnt.version, model, tuple((cells[old], each) for old, each in kept.items()), model.form)


def _rows(signature: Signature, lists: Lists, start: int) -> Index:
    """Return the rows of calls, with numbers that count from the beginning of the run."""
    rows = integers(lists.rows).reshape(-1, signature.arguments)
    rows[:, : 1 + len(signature.operands)] -= start
    return rows


def _elements(numbers: list[int], width: int, start: int) -> Index:
    return integers(numbers).reshape(-1, max(width, 1)) - start


def integers(numbers: list[int] | Index) -> Index:
    """Return integers as an array; one that is an array already may be changed then."""
    return numbers if isinstance(numbers, np.ndarray) else np.fromiter(numbers, np.int64, len(numbers))


@dataclass(frozen=True, slots=True)
class _OfCell:
    """What was noted of a cell; attributes are as in `Batched` and `TraceColumns`, for one cell.

    Attributes:
        relative, relative_elements: with value numbers that count from 0 in each example.
        keys: ``[calls]``: the numbers of calls as noted, whatever the model leaves out.
        counts: ``[examples]``: calls.
        sizes: per list, ``[examples]``: elements.
    """

    calls: NDArray[np.int32]
    elements: tuple[NDArray[np.int32], ...]
    relative: NDArray[np.int32]
    relative_elements: tuple[NDArray[np.int32], ...]
    keys: Index
    counts: Index
    sizes: list[Index]


def _of_cell(
    signature: Signature,
    kept: PrunedDraft,
    noted: Index | None,
    lists: Lists | None,
    ends: tuple[Index, Index],
    start: int,
    new: Index | None,
) -> _OfCell:
    """Return what was noted of a cell, as far as the model reads it.

    Args:
        signature: the cell.
        kept: what is left of it.
        noted: the rows of calls; None where there are none.
        lists: what was noted beside them.
        ends: where examples begin and end, by noted and by new numbers.
        start: the first number of the run.
        new: the new number of each value; None where these are the noted ones.
    """
    rows = np.zeros((0, signature.arguments), np.int64) if noted is None else noted
    before, offsets = ends
    cuts = np.searchsorted(rows[:, 0], before)
    counts = np.diff(cuts)
    operands = len(signature.operands)
    numbers = rows[:, [0, *(1 + i for i in kept.arguments if i < operands)]]
    lengths = rows[:, [1 + i for i in kept.arguments if i >= operands]]
    keys = numbers[:, 0] - np.repeat(before[:-1], counts)
    numbers = numbers if new is None else new[numbers]
    shift = np.repeat(offsets[:-1], counts)[:, None]
    sizes, elements, relative = [], [], []
    for number, s in enumerate(i - operands for i in kept.arguments if i >= operands):
        width = len(signature.sequences[s][2])
        flat = _elements([] if lists is None else lists.elements[s], width, start)
        flat = flat if new is None else new[flat]
        sizes.append(np.diff(np.append(0, np.cumsum(lengths[:, number]))[cuts]))
        elements.append(_narrow(flat))
        relative.append(_narrow(flat - np.repeat(offsets[:-1], sizes[-1])[:, None]))
    return _OfCell(
        _narrow(np.concatenate([numbers, lengths], axis=1)),
        tuple(elements),
        _narrow(np.concatenate([numbers - shift, lengths], axis=1)),
        tuple(relative),
        keys,
        counts,
        sizes,
    )


def _narrow(numbers: Index) -> NDArray[np.int32]:
    return numbers.astype(np.int32, order="C")


def _renumbering(linked: Linked, arrays: dict[Signature, Index], notes: Notes) -> Index | None:
    """Return the new number of each value, and of what comes after the last one; None where none moves.

    Calls and outputs that the model has not take no numbers.
    """
    left = {signature: kept for signature, kept in linked.cells if signature in arrays}
    if len(left) == len(arrays) and all(len(k.outputs) == len(s.outputs) for s, k in left.items()):
        return None
    widths = np.zeros((notes.ends[-1] if notes.ends else notes.start) - notes.start + 1, np.int64)
    for signature, kept in left.items():
        widths[arrays[signature][:, 0]] = max(len(kept.outputs), 1)
        for _, feed in signature.draft.marks:  # visits of metrics take numbers, too
            if feed in kept.feeds:
                widths[integers(notes.lists[signature].feeds[feed]) - notes.start] = 1
    numbers = np.cumsum(widths) - widths
    for signature, kept in left.items():
        base = arrays[signature][:, 0]
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
