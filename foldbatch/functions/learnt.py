"""The knowledge of a walk: its cells, the wires between them, and the parameters that they read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NoReturn

from foldbatch.errors import WalkError, shortened
from foldbatch.functions.cells import CellFunction, InForce, Signature, Stale
from foldbatch.functions.dependencies import Snapshot, dependencies_of
from foldbatch.functions.readings import Readings
from foldbatch.functions.specs import DataSpec, Path, leaves
from foldbatch.model.drafts import components
from foldbatch.model.replacing import Replacements
from foldbatch.params.parameters import Parameter
from foldbatch.types import TensorType, Type

Output = tuple[Signature, int]  # a cell, and the number of one of its outputs
# a cell with the number of an operand and -1, or the number of a member of a list and that of the list
Slot = tuple[Signature, int, int]


@dataclass(slots=True)
class Learnt:
    """The cells, wires, results and parameters that runs of a walk have shown; it only grows."""

    cells: dict[Signature, None] = field(default_factory=dict)  # the signatures that were called
    # for each operand and member of a list, the outputs that were read there
    wires: dict[Slot, set[Output]] = field(default_factory=dict)
    results: set[Output] = field(default_factory=set)  # the outputs that were part of results
    result: Type | None = None  # the structure of results, None before the first
    # the parameters, in the order in which cells were first called
    parameters: dict[Parameter, None] = field(default_factory=dict)
    version: int = 0  # how often it grew
    # for parameters of layers that the walk calls, those that the program has in their place
    replacements: Replacements = field(default_factory=Replacements)
    decides: bool = False  # whether the walk has asked for a number
    readings: Readings = field(default_factory=Readings)  # whether its examples can be read twice
    # the signatures whose calls a program may note: all of one state of the user's model
    accepted: dict[Signature, None] = field(default_factory=dict)
    before: Snapshot | None = None  # the objects that the walk and its cells read, at compilation
    # the run in which these were last compared with the present ones, and the objects that have been replaced
    compared: tuple[int, list[tuple[str, object]]] = (-1, [])
    installed: int = -1  # the value of `InForce.changes` at the last `install`

    def copy(self) -> Learnt:
        """Return a copy that stays as it is while the original grows, to restore that after an error.

        The copy has the same `replacements`: values that are computed already have read these.
        """
        cells, accepted, wires = dict(self.cells), dict(self.accepted), dict(self.wires)
        parameters = dict(self.parameters)
        return replace(self, cells=cells, accepted=accepted, wires=wires, parameters=parameters, installed=-1)

    def admit(self, signatures: Sequence[Signature]) -> None:
        """Add cells, and their parameters in the order in which these were made.

        Raises:
            WalkError: when a metric has another shape than an earlier one of its name.
        """
        self.cells |= dict.fromkeys(signatures)
        self.accepted |= dict.fromkeys(signatures)
        shapes: dict[str, tuple[int, ...]] = {}
        for name, node in chain.from_iterable(signature.draft.metrics for signature in self.cells):
            if shapes.setdefault(name, shape := node.type.shape) != shape:
                expected = f"shape {shapes[name]}, as elsewhere under this name"
                raise WalkError(f"fb.metric {name!r}", expected, f"shape {shape}", "use another name")
        parameters = [self.replacements.of(p) for signature in signatures for p in signature.parameters]
        self.parameters |= dict.fromkeys(sorted(parameters, key=lambda parameter: parameter.order))

    def install(self) -> None:
        """Make the accepted signatures those that calls of their cells find; called before each run.

        Runs of another program may have put others in their places. Where no model of the process has
        changed, this compares a single number.
        """
        if self.installed == InForce.changes:
            return
        missing: dict[Any, list[Signature]] = {}
        for signature in self.accepted:
            if not signature.cell.has(signature):
                missing.setdefault(signature.cell, []).append(signature)
        for cell, signatures in missing.items():
            cell.reinstate(signatures)
        self.installed = InForce.changes

    def accept(self, signature: Signature) -> None:
        """Add a signature that a run calls for the first time to the accepted ones, if it is up to date.

        If the program has called the cell with other structures before, these must be up to date too: a
        program never computes with parts of a model from different times.

        Raises:
            Stale: when another signature is to be made, of the model as it is now.
            WalkError: when the program knows the cell from a model that has changed since.
        """
        if signature in self.accepted:
            return
        cell = signature.cell
        if signature not in InForce.fresh and not cell.is_current(signature):
            cell.retire(signature)
            raise Stale
        alike = [peer for peer in self.accepted if peer.cell.subject is cell.subject]
        changed = self._changed(signature)
        if changed or not all(peer.cell.is_current(peer) for peer in {*alike[:1], *alike[-1:]}):
            _refuse_changed(cell.name, changed)
        self.accepted[signature] = None

    def _changed(self, signature: Signature) -> list[str]:
        """Return the names of the objects of a signature that have changed since compilation."""
        if self.before is None:
            return []
        if self.compared[0] != InForce.runs:  # at most one comparison a run
            self.compared = InForce.runs, self.before.replaced()
        replaced, cell = self.compared[1], signature.cell
        if not replaced:
            return []
        parts = [part for part in (*signature.parameters, *cell.parts) if part is not None]
        changed = [where for where, present in replaced if any(present is part for part in parts)]
        within = [] if cell.is_pure else self.before.changed(dependencies_of([(cell.name, cell.read)]))
        return [*dict.fromkeys([*changed, *within])]


def _refuse_changed(where: str, changed: Sequence[str]) -> NoReturn:
    """Refuse a new structure at a cell, since the user's model has changed by the objects of some names.

    Raises:
        WalkError: always.
    """
    expected = "a function that reads what it read when the program was compiled"
    actual = f"other things in {shortened(changed)}" if changed else "one that computes something else by now"
    fix = "compile the walk again, which reads the model as it is now; what varies is an argument of the cell"
    raise WalkError(where, expected, actual, fix)


# -- arrays of many lengths: each length is a structure, and so has a cell


SHORT = "call program.warm(examples) once, pad them to a few lengths, or give their rows as a list: "


@dataclass(frozen=True, slots=True)
class Series:
    """The arrays at one argument that are alike in all but their length."""

    cell: CellFunction | None  # None: the arrays that `fb.tensor` is given
    path: Path
    row: TensorType  # the type of their rows

    @property
    def where(self) -> str:
        return "fb.tensor" if self.cell is None else f"{self.cell.name}({self.path})"

    @property
    def as_list(self) -> str:
        """Code that gives their rows as a list, for advice."""
        if self.cell is None or self.path not in self.cell.parameters:
            return f"[fb.tensor(row) for row in {self.path or 'array'}]"
        return f"def {self.cell.name}({self.path}: list['{self.row}'])"


def series_of(signature: Signature) -> Iterator[tuple[Series, int]]:
    """Yield the arrays that a cell reads, each with its length."""
    cell = signature.cell
    if not isinstance(cell, CellFunction):  # a cell of a block reads no series
        return
    for name, spec in signature.specs.items():
        for path, leaf in leaves(spec):
            if not isinstance(leaf, DataSpec) or not leaf.type.shape:
                continue
            row = TensorType(leaf.type.shape[1:], leaf.type.dtype)
            if cell.origin is not None and cell.origin[0] == "tensor":
                yield Series(None, "", row), leaf.type.shape[0]
            elif leaf.form is not None:
                yield Series(cell, name + path, row), leaf.type.shape[0]


def lengths(learnt: Learnt, fewest: int) -> tuple[str, str] | None:
    """Return, for a warning, the arrays with most lengths, and how to make do with a single cell.

    None where no argument has as many lengths as `fewest`.
    """
    lengths_of: dict[Series, set[int]] = {}
    for series, length in chain.from_iterable(map(series_of, learnt.cells)):
        lengths_of.setdefault(series, set()).add(length)
    longest = max(lengths_of, key=lambda series: len(lengths_of[series]), default=None)
    if longest is None or len(lengths_of[longest]) < fewest:
        return None
    arrays = f"arrays of {len(lengths_of[longest])} lengths at {longest.where}"
    return f"{arrays}, each a cell that is made and kept", SHORT + longest.as_list


SHOWN = 8  # names of a group
GROUPS = 3  # groups in a report, those with most calls first


# -- cells that always run together: the lines of a report on loose cells that one cell could replace


def together(learnt: Learnt, calls: Mapping[Signature, int]) -> list[list[Signature]]:
    """Return groups of cells that could each be a single cell, the group with most calls first, for a report.

    The cells of a group ran equally often, on values of each other, and one of them is loose. No value goes
    from a group to a cell outside and back into the group.

    Args:
        learnt: the cells and wires of the walk.
        calls: how often each cell ran in a batch.
    """
    sources: dict[Signature, set[Signature]] = {}
    group = {signature: signature for signature in calls}

    def head(signature: Signature) -> Signature:
        while group[signature] is not signature:
            signature = group[signature]
        return signature

    for (reader, _, at), outputs in learnt.wires.items():
        writers = {writer for writer, _ in outputs}
        sources.setdefault(reader, set()).update(writers)
        if len(writers) == 1 and at == -1 and reader in calls:
            (writer,) = writers
            loose = not (reader.cell.is_decorated and writer.cell.is_decorated)
            if loose and writer is not reader and calls.get(writer) == calls[reader]:
                group[head(writer)] = head(reader)
    members: dict[Signature, list[Signature]] = {}
    for signature in calls:
        members.setdefault(head(signature), []).append(signature)
    edges: dict[object, list[object]] = {h: [] for h in members}
    for reader, writers in sources.items():
        for writer in writers:
            if reader in calls and writer in calls and head(writer) is not head(reader):
                edges[head(writer)].append(head(reader))
    component = components([*members], edges)
    numbers = list(component.values())
    groups = [m for h, m in members.items() if len(m) > 1 and numbers.count(component[h]) == 1]
    return sorted(groups, key=lambda cells: -calls[cells[0]] * len(cells))


def remarks(learnt: Learnt, calls: Mapping[Signature, int]) -> Iterator[str]:
    """Yield the lines of a report about a walk, given the calls of each cell in its batch."""
    wires = sum(map(len, learnt.wires.values()))
    times = "once" if learnt.version == 1 else f"{learnt.version} times"
    counts = f"{len(learnt.cells)} cells and {wires} wires are known"
    yield f"linked {times}, as batches brought new cells or wires; {counts}"
    if learnt.decides:
        yield "calls that only decide run in rounds; the counts are of what results, losses and metrics need"
    for group in together(learnt, calls)[:GROUPS]:
        names = _listed([signature.title for signature in group])
        calls_of_each = f"{calls[group[0]]:,} calls each"
        yield f"{names} always ran together, {calls_of_each}: they could be one function with @fb.cell"


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:SHOWN])
    last = [f"{len(names) - SHOWN} more"] if len(names) > SHOWN else [shown.pop()]
    return f"{', '.join(shown)} and {last[0]}"
