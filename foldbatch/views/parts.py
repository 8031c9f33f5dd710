"""The stages of a cell with an engine's routines, from which explanations are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from foldbatch.static.cell import Phase
from foldbatch.static.graph import SOURCES, Graph, Node
from foldbatch.static.memory import Buffers, Scratch
from foldbatch.static.routine_printer import slot_names
from foldbatch.static.routines import PlannedStage, Stage, Target, plan_stage
from foldbatch.static.stages import is_view
from foldbatch.static.statements import Routine, Slot
from foldbatch.types import TensorType

FORWARD, BACKWARD = "forward", "backward"


@dataclass(frozen=True, slots=True)
class StagePart:
    """A stage of a cell."""

    direction: str  # ``forward`` or ``backward``
    when: str  # ``before``, ``step`` or ``after``
    stage: Stage  # its computation, for any engine
    planned: PlannedStage  # the routine that one engine makes of it

    @property
    def name(self) -> str:
        """The name of its routine."""
        return self.stage.name

    @property
    def routine(self) -> Routine:
        """Its statements."""
        return self.planned.routine

    @property
    def graph(self) -> Graph:
        """Its graph: results first, then kept nodes."""
        return self.planned.graph

    @property
    def buffers(self) -> Buffers:
        """The places of computed values."""
        return self.planned.buffers

    @property
    def computed(self) -> tuple[Node, ...]:
        """The nodes that it computes, operands first."""
        return tuple(node for node in self.graph.nodes if node.op not in SOURCES)


StageParts = tuple[StagePart, ...]


def parts_of(phase: Phase, target: Target) -> StageParts:
    """Return the stages of training or of inference, in the order in which they run.

    >>> from foldbatch.static.cell import stage_cell
    >>> from foldbatch.static.cellgraph import CellGraph, Ends
    >>> from foldbatch.static.graph import input_node
    >>> from foldbatch.types import TensorType
    >>> x = input_node(TensorType((3,)))
    >>> cell = stage_cell(CellGraph("c", (x,), (), (x * x,)), Ends())
    >>> [(part.direction, part.when, part.name) for part in parts_of(cell.training, Target())]
    [('forward', 'before', 'forward_before')]
    """
    return tuple(
        StagePart(direction, when, stage, plan_stage(stage, target))
        for direction, stages in ((FORWARD, phase.forward), (BACKWARD, phase.backward))
        for when, stage in stages.items()
    )


@dataclass(frozen=True, slots=True)
class NamedBuffer:
    """Memory for rows that a routine writes."""

    name: str  # its name in the routine
    # scratch (reused within the routine), kept (read by other routines) or store (a cotangent, written where
    # it belongs)
    kind: str
    routine: str  # the name of the routine that writes it
    type: TensorType  # of one row
    axis: str  # ``N`` a row per call, ``1`` one for the batch, else a row per element of a sequence
    nodes: tuple[str, ...]  # the names of the nodes that live in it, in order
    sections: tuple[tuple[str, int, int], ...] = ()  # the nodes computed into a part of it: name, start, stop
    in_place: tuple[tuple[str, str], ...] = ()  # pairs of a node and the operand whose memory it overwrites
    # of a kept buffer, the routines that read it and the nodes they compute from it
    readers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of one row."""
        return self.type.nbytes


@dataclass(frozen=True, slots=True)
class Recomputed:
    """A node that several routines compute, each for itself, instead of one keeping it."""

    name: str
    routines: tuple[str, ...]


def buffers(parts: StageParts, names: Mapping[Node, str]) -> Iterator[NamedBuffer]:
    """Return the buffers that routines write: scratch, then stores, then kept buffers."""
    for kind in ("scratch", "store"):
        for part in parts:
            for name, slot in zip(slot_names(part.routine), part.routine.slots, strict=True):
                if slot.binding.kind == kind:
                    yield _buffer(name, kind, part, slot, _nodes_in(slot, part), names)
    kept = [(number, part, node) for part in parts for node, number in part.stage.kept.items()]
    for number, part, node in sorted(kept, key=itemgetter(0)):
        readers = {
            other.name: tuple(names[reader] for reader in other.graph.nodes if node in reader.inputs)
            for other in parts
            if other is not part and node in other.graph.inputs
        }
        yield _buffer(f"k{number}", "kept", part, node, [node], names, readers)


def _nodes_in(slot: Slot, part: StagePart) -> list[Node]:
    """Return the nodes that live in scratch or in stored cotangents, in the order of computation."""
    kind, number = slot.binding
    if kind == "scratch":
        scratch = Scratch(slot.type, slot.axis, number)
        return [node for node, place in part.buffers.scratch.items() if place == scratch]
    return [node for node, operand in part.stage.stores.items() if operand == number]


def _buffer(
    name: str,
    kind: str,
    part: StagePart,
    rows: Slot | Node,
    held: Sequence[Node],
    names: Mapping[Node, str],
    readers: Mapping[str, tuple[str, ...]] | None = None,
) -> NamedBuffer:
    inside = [(node, section) for node, section in part.buffers.sections.items() if section.whole in held]
    return NamedBuffer(
        name,
        kind,
        part.name,
        rows.type,
        rows.axis.name,
        tuple(names[node] for node in held),
        tuple((names[node], section.start, section.stop) for node, section in inside),
        tuple((names[node], names[x]) for node in held for x in dict.fromkeys(node.inputs) if x in held),
        readers or {},
    )


def recomputed(parts: StageParts, names: Mapping[Node, str]) -> Iterator[Recomputed]:
    """Return the nodes that more than one routine computes."""
    routines: dict[Node, list[str]] = {}
    for part in parts:
        for node in part.computed:
            routines.setdefault(node, []).append(part.name)
    for node, computing in routines.items():
        if len(computing) > 1:
            yield Recomputed(names[node], tuple(computing))


def planned(parts: StageParts) -> dict[str, int]:
    """Return the bytes of one row of every buffer, by axis.

    Routines run in turn, so scratch of the same type is the same memory in all of them.
    """
    scratch = dict.fromkeys(slot for part in parts for slot in part.buffers.slots)
    return _sizes([*scratch, *(node for part in parts for node in _own(part))])


def unplanned(parts: StageParts) -> dict[str, int]:
    """Return the bytes of one row of a buffer for every node but views, by axis."""
    return _sizes(dict.fromkeys(node for part in parts for node in part.computed if not is_view(node)))


def unplaced(parts: StageParts, names: Mapping[Node, str]) -> tuple[str, ...]:
    """Return the nodes that need no memory for rows of their own: the insides of fused loops."""
    return tuple(
        names[node]
        for part in parts
        for node in part.computed
        if not is_view(node)
        and not (node in part.buffers.scratch or node in part.buffers.sections or node in _own(part))
    )


def _own(part: StagePart) -> set[Node]:
    """Return the nodes of a part with buffers of their own, for the whole batch or in an arena."""
    return {*part.stage.kept, *part.stage.stores}


def _sizes(rows: Iterable[Scratch | Node]) -> dict[str, int]:
    """Return the bytes of a row of each, summed by axis; ``N`` comes first, ``1`` last."""
    total: Counter[str] = Counter()
    for row in rows:
        total[row.axis.name] += row.type.nbytes
    return dict(sorted(total.items(), key=lambda entry: (entry[0] != "N", entry[0] == "1")))
