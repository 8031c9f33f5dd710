"""Room for batches of fixed shape: where each level's rows lie, and a batch's row numbers in that room.

A level has room for the most rows that it has in any batch. Rows to spare read a spare word and
write to a row that nobody reads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.flat import LevelOrder
from benchmarks.jax_peer import Shape
from benchmarks.peers import Array


@dataclass(frozen=True, slots=True)
class Room:
    """Where rows lie: levels from the deepest to the roots, then a row that nobody reads.

    Attributes:
        levels: per level with inner nodes, the slice of these, and the slice of rows that are their children.
        starts: per level, its first row.
        inner: per level, its first inner node.
        leaves: of all levels together; `words` distinct ones, `rows` without the last, `roots` of these.
    """

    levels: tuple[tuple[slice, slice], ...]
    starts: tuple[int, ...]
    inner: tuple[int, ...]
    leaves: int
    words: int
    rows: int
    roots: int

    @property
    def nodes(self) -> int:
        """Inner nodes of all levels together."""
        return self.inner[-1]

    @property
    def sizes(self) -> dict[str, int]:
        """How many numbers a batch has of each kind, in the order in which they are copied."""
        return {
            "words": self.words,
            "word_of_leaf": self.leaves,
            "leaf_rows": self.leaves,
            "inner_rows": self.nodes,
            "labels": self.rows + 1,
        }


def room_for(shape: Shape, roots: int) -> Room:
    """Return where rows lie in batches of a shape.

    >>> room_for(Shape((0, 2, 1), (4, 1, 0), 3), 1).levels
    ((slice(0, 2, None), slice(0, 4, None)), (slice(2, 3, None), slice(4, 6, None)))
    """
    sizes = [*(2 * inner for inner in shape.inner[1:]), roots]
    starts = np.cumsum([0, *sizes]).tolist()
    inner = np.cumsum([0, *shape.inner]).tolist()
    levels = tuple(
        (slice(inner[k], inner[k + 1]), slice(starts[k - 1], starts[k]))
        for k in range(1, len(sizes))
        if inner[k + 1] > inner[k]
    )
    return Room(levels, tuple(starts), tuple(inner), sum(shape.leaves), shape.words, starts[-1], roots)


def packed(order: LevelOrder, room: Room, spare_word: int) -> Array:
    """Return a batch's row numbers, one kind after the other as in `Room.sizes`: ``[*] int64``."""
    depth = len(room.starts) - 1
    first = depth - len(order.sizes)
    begins = np.cumsum([0, *order.sizes[:-1]])
    moved = np.arange(len(order.labels)) + np.repeat(np.array(room.starts[first:depth]) - begins, order.sizes)
    inner = np.subtract(order.sizes, order.leaves)
    ranks = np.arange(inner.sum()) + np.repeat(
        np.array(room.inner[first:depth]) - np.cumsum(inner) + inner, inner
    )
    found = {name: np.full(size, room.rows) for name, size in room.sizes.items()}
    found["words"][:] = spare_word
    found["words"][: len(order.words)] = order.words
    found["word_of_leaf"][:] = 0
    found["word_of_leaf"][: len(order.word_of_leaf)] = order.word_of_leaf
    found["leaf_rows"][: len(order.leaf_rows)] = moved[order.leaf_rows]
    found["inner_rows"][ranks] = moved[order.inner_rows]
    found["labels"][:] = -1
    found["labels"][moved] = order.labels
    return np.concatenate(list(found.values()))
