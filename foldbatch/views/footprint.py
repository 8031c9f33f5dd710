"""What a cell's kernels need memory for: buffers and what lives in each, and what is made anew instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from foldbatch.static.cell import Part
from foldbatch.static.graph import SOURCES, Node
from foldbatch.static.memory import Slot
from foldbatch.static.op import Axis
from foldbatch.static.stages import is_view
from foldbatch.types import TensorType

Parts = Mapping[str, Part]


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory for rows that a kernel writes.

    Attributes:
        name: what the kernel calls it.
        kind: scratch (reused within the kernel), kept (read by other kernels) or store (a cotangent,
            written where it belongs).
        kernel: the function that writes it.
        type: of one row.
        axis: ``N`` a row per call, ``1`` one for the batch, else a row per element of a sequence.
        nodes: the names of the nodes that live in it, in order.
        sections: of those, the ones computed into a part of it: name, start, stop.
        in_place: pairs of a node and the operand whose memory it overwrites.
        readers: of a kept one, the functions that read it and the nodes they compute from it.
    """

    name: str
    kind: str
    kernel: str
    type: TensorType
    axis: str
    nodes: tuple[str, ...]
    sections: tuple[tuple[str, int, int], ...] = ()
    in_place: tuple[tuple[str, str], ...] = ()
    readers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of one row."""
        return self.type.nbytes


@dataclass(frozen=True, slots=True)
class Recomputed:
    """A node that several kernels make, each for itself, instead of one keeping it."""

    name: str
    kernels: tuple[str, ...]


def buffers(parts: Parts, names: Mapping[Node, str]) -> Iterator[Buffer]:
    """Return the buffers that kernels write: scratch, then stores, then what is kept."""
    for kernel, part in parts.items():
        for i, slot in enumerate(part.plan.slots):
            held = [node for node, its in part.plan.scratch.items() if its == slot]
            yield _buffer(f"s{i}", "scratch", kernel, slot.type, slot.axis, held, part, names)
    for kernel, part in parts.items():
        for node, argument in part.buffers.items():
            if argument.kind == "store":
                yield _buffer(f"d{argument.key}", "store", kernel, node.type, node.axis, [node], part, names)
    kept = [
        (argument.key, kernel, node)
        for kernel, part in parts.items()
        for node, argument in part.buffers.items()
        if argument.kind == "kept"
    ]
    for number, kernel, node in sorted(kept, key=lambda entry: entry[0]):
        readers = {
            other: tuple(names[n] for n in theirs.graph.nodes if node in n.inputs)
            for other, theirs in parts.items()
            if other != kernel and node in theirs.graph.inputs
        }
        yield _buffer(
            f"k{number}", "kept", kernel, node.type, node.axis, [node], parts[kernel], names, readers
        )


def _buffer(
    name: str,
    kind: str,
    kernel: str,
    type_: TensorType,
    axis: Axis,
    held: Sequence[Node],
    part: Part,
    names: Mapping[Node, str],
    readers: Mapping[str, tuple[str, ...]] | None = None,
) -> Buffer:
    inside = [(node, section) for node, section in part.plan.sections.items() if section.whole in held]
    return Buffer(
        name,
        kind,
        kernel,
        type_,
        axis.name,
        tuple(names[node] for node in held),
        tuple((names[node], section.start, section.stop) for node, section in inside),
        tuple((names[node], names[x]) for node in held for x in dict.fromkeys(node.inputs) if x in held),
        readers or {},
    )


def recomputed(parts: Parts, names: Mapping[Node, str]) -> Iterator[Recomputed]:
    """Return what more than one kernel computes."""
    made: dict[Node, list[str]] = {}
    for kernel, part in parts.items():
        for node in part.graph.nodes:
            if node.op not in SOURCES:
                made.setdefault(node, []).append(kernel)
    for node, kernels in made.items():
        if len(kernels) > 1:
            yield Recomputed(names[node], tuple(kernels))


def planned(parts: Parts) -> dict[str, int]:
    """Return the bytes of one row of every buffer, by axis.

    Kernels run in turn, so scratch of the same type is the same memory in all of them.
    """
    slots = dict.fromkeys(slot for part in parts.values() for slot in part.plan.slots)
    return _sizes([*slots, *(node for part in parts.values() for node in part.buffers)])


def unplanned(parts: Parts) -> dict[str, int]:
    """Return the bytes of one row of a buffer for every node, by axis.

    Views share their operand's in any case, and the sparse rows of a gradient need none.
    """
    nodes = dict.fromkeys(
        node
        for part in parts.values()
        for node in part.graph.nodes
        if node.op not in SOURCES
        and not is_view(node)
        and (node.op.name != "sum_rows" or _has_place(node, part))
    )
    return _sizes(nodes)


def unplaced(parts: Parts, names: Mapping[Node, str]) -> tuple[str, ...]:
    """Return the nodes that need no memory for rows of their own: sparse gradients, the insides of loops."""
    return tuple(
        names[node]
        for part in parts.values()
        for node in part.graph.nodes
        if node.op not in SOURCES and not is_view(node) and not _has_place(node, part)
    )


def _has_place(node: Node, part: Part) -> bool:
    return node in part.plan.scratch or node in part.plan.sections or node in part.buffers


def _sizes(found: Iterable[Slot | Node]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for buffer in found:
        total[buffer.axis.name] += buffer.type.nbytes
    return dict(sorted(total.items(), key=lambda entry: (entry[0] != "N", entry[0] == "1")))
