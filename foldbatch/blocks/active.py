"""Where gradients flow: through arenas that some source acts on, and that act on some loss.

Arenas are what cells exchange values through, so this is decided for a whole arena at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from foldbatch.static.cellgraph import CellGraph

Arenas = Sequence[Sequence[int]]  # per cell, the arena of each operand, or of each output


def acted_on(reads: Arenas, writes: Arenas, sources: Sequence[bool]) -> set[int]:
    """Return the arenas that hold values on which cells that are `sources` act.

    >>> sorted(acted_on([[], [0], [1]], [[0], [1], [2]], [False, True, False]))
    [1, 2]
    """
    return _closed(reads, writes, sources)


def acting_on(reads: Arenas, writes: Arenas, targets: Sequence[bool]) -> set[int]:
    """Return the arenas that hold values which act on cells that are `targets`.

    >>> sorted(acting_on([[], [0], [1]], [[0], [1], [2]], [False, True, False]))
    [0]
    """
    return _closed(writes, reads, targets)


def _closed(sides: Arenas, others: Arenas, seeds: Sequence[bool]) -> set[int]:
    found: set[int] = set()
    size = -1
    while size != len(found):
        size = len(found)
        for side, other, seed in zip(sides, others, seeds, strict=True):
            if seed or not found.isdisjoint(side):
                found.update(other)
    return found


def active_ends(
    graphs: Sequence[CellGraph], reads: Arenas, writes: Arenas, sources: Sequence[bool]
) -> list[tuple[frozenset[int], frozenset[int]]]:
    """Return, for each cell, the operands and the outputs (by number) between which gradients must flow.

    Args:
        graphs: the cells; those with losses are where gradients come from.
        reads: the arena of each operand.
        writes: the arena of each output.
        sources: which cells hold what gradients are wanted of, such as parameters.
    """
    needed = acted_on(reads, writes, sources)
    reached = acting_on(reads, writes, [bool(graph.losses) for graph in graphs])
    ends = []
    for graph, read, written in zip(graphs, reads, writes, strict=True):
        live = bool(graph.losses) or not reached.isdisjoint(written)
        operands = enumerate(zip(read, graph.operands, strict=True))
        outputs = enumerate(zip(written, graph.outputs, strict=True))
        ends.append(
            (
                frozenset(i for i, (arena, x) in operands if live and x.type.is_float and arena in needed),
                frozenset(j for j, (arena, y) in outputs if y.type.is_float and arena in needed & reached),
            )
        )
    return ends
