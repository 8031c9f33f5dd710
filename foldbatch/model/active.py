"""Where gradients flow: through arenas that depend on something wanted, and on which some source depends."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from foldbatch.static.cellgraph import CellGraph

Arenas = Sequence[Sequence[int]]  # per cell, the arena of each operand, or of each output


@dataclass(frozen=True, slots=True)
class Sources:
    """Where gradients come from: losses, or values of some arenas whose cotangents are given, or both."""

    losses: bool = True
    arenas: frozenset[int] = frozenset()


def acted_on(
    reads: Arenas, writes: Arenas, sources: Sequence[bool], arenas: Collection[int] = ()
) -> set[int]:
    """Return the arenas that hold values on which cells that are `sources`, or values of `arenas`, act.

    With `reads` and `writes` exchanged, these are the arenas that hold values which act on them.

    >>> sorted(acted_on([[], [0], [1]], [[0], [1], [2]], [False, True, False]))
    [1, 2]
    >>> sorted(acted_on([[0], [1], [2]], [[], [0], [1]], [False, False, False], {1}))
    [0, 1]
    """
    reached = set(arenas)
    size = -1
    while size != len(reached):
        size = len(reached)
        for read, written, source in zip(reads, writes, sources, strict=True):
            if source or not reached.isdisjoint(read):
                reached.update(written)
    return reached


def active_ends(
    graphs: Sequence[CellGraph],
    reads: Arenas,
    writes: Arenas,
    wanted: Sequence[bool],
    sources: Sources = Sources(),
) -> list[tuple[frozenset[int], frozenset[int]]]:
    """Return, for each cell, the operands and the outputs (by number) between which gradients must flow."""
    lossy = [sources.losses and bool(graph.losses) for graph in graphs]
    needed = acted_on(reads, writes, wanted)
    reached = acted_on(writes, reads, lossy, sources.arenas)
    ends = []
    for graph, read, written, loss in zip(graphs, reads, writes, lossy, strict=True):
        live = loss or not reached.isdisjoint(written)
        operands = enumerate(zip(read, graph.operands, strict=True))
        outputs = enumerate(zip(written, graph.outputs, strict=True))
        ends.append(
            (
                frozenset(i for i, (arena, x) in operands if live and x.type.is_float and arena in needed),
                frozenset(j for j, (arena, y) in outputs if y.type.is_float and arena in needed & reached),
            )
        )
    return ends
