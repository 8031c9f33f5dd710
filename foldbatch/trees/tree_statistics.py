"""Figures of a data set of trees: how many, how large, how high, with which labels and words."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from foldbatch.errors import counted
from foldbatch.trees.text import shorten
from foldbatch.trees.tree import Label, Tree

SHOWN = 10  # labels, arities and words that are printed
WORDS = 100  # most frequent words that are kept


@dataclass(frozen=True, slots=True)
class NumberSpread:
    """How a number is spread over the trees; zeros where there are none.

    >>> print(NumberSpread(1, 2.0, 3.5, 9))
    1 to 9, median 2, mean 3.5
    """

    minimum: int
    median: float
    mean: float
    maximum: int

    def __str__(self) -> str:
        return f"{self.minimum:,} to {self.maximum:,}, median {self.median:,g}, mean {self.mean:,.4g}"


@dataclass(frozen=True, slots=True)
class TreeStatistics:
    """Figures of a data set of trees; `str` prints them."""

    trees: int  # how many trees
    nodes: int  # how many nodes, of all trees
    leaves: int  # how many of them have no children
    sizes: NumberSpread  # nodes a tree
    heights: NumberSpread  # levels below the root of a tree
    # numbers of children of inner nodes, with how many nodes have so many; ascending
    arities: tuple[tuple[int, int], ...]
    labels: tuple[tuple[Label, int], ...]  # labels with how many nodes have them, the most frequent first
    tokens: int  # nodes with a word
    words: int  # distinct words
    most_frequent: tuple[tuple[str, int], ...]  # the 100 most frequent words with their counts

    def to_plain(self) -> dict[str, Any]:
        """Return the figures as data of JSON."""
        return asdict(self)

    def __str__(self) -> str:
        kinds = [
            f"{counted(self.trees, 'tree')} of {counted(self.nodes, 'node')}, {self.leaves:,} of them leaves",
            f"nodes a tree: {self.sizes}",
            f"height: {self.heights}",
            "children of an inner node: " + _listed(self.arities),
            f"{counted(len(self.labels), 'label')}: " + _listed(self.labels),
            f"{counted(self.tokens, 'token')}, {counted(self.words, 'distinct word')}: "
            + _listed(self.most_frequent, self.words),
        ]
        return "\n".join(line.removesuffix(": ") for line in kinds)


def tree_statistics(trees: Iterable[Tree]) -> TreeStatistics:
    """Return the figures of a data set of trees, which may come from a reader one by one.

    >>> print(tree_statistics([Tree.from_nested(("S", ("NP", "I"), ("VP", ("V", "slept"))))]))
    1 tree of 4 nodes, 2 of them leaves
    nodes a tree: 4 to 4, median 4, mean 4
    height: 2 to 2, median 2, mean 2
    children of an inner node: 1 (1), 2 (1)
    4 labels: 'NP' (1), 'V' (1), 'VP' (1), 'S' (1)
    2 tokens, 2 distinct words: 'I' (1), 'slept' (1)
    """
    sizes: Counter[int] = Counter()
    heights: Counter[int] = Counter()
    arities: Counter[int] = Counter()
    labels: Counter[Label] = Counter()
    words: Counter[str] = Counter()
    for tree in trees:
        sizes[tree.size] += 1
        heights[tree.height] += 1
        arities.update(np.diff(tree.csr[0]).tolist())
        labels.update(tree.labels)
        words.update(token for token in tree.tokens if token is not None)
    leaves = arities.pop(0, 0)
    return TreeStatistics(
        trees=sizes.total(),
        nodes=sum(size * times for size, times in sizes.items()),
        leaves=leaves,
        sizes=_spread(sizes),
        heights=_spread(heights),
        arities=tuple(sorted(arities.items())),
        labels=tuple(labels.most_common()),
        tokens=words.total(),
        words=len(words),
        most_frequent=tuple(words.most_common(WORDS)),
    )


def _spread(counts: Mapping[int, int]) -> NumberSpread:
    if not counts:
        return NumberSpread(0, 0.0, 0.0, 0)
    values = np.array(sorted(counts))
    times = np.array([counts[value] for value in values.tolist()])
    ends = np.cumsum(times)
    total = int(ends[-1])
    middle = values[np.searchsorted(ends, [(total - 1) // 2, total // 2], side="right")]
    mean = float(values @ times) / total
    return NumberSpread(int(values[0]), float(middle.mean()), mean, int(values[-1]))


def _listed(pairs: tuple[tuple[Label, int], ...], count: int | None = None) -> str:
    shown = [
        f"{shorten(value) if isinstance(value, str) else value} ({times:,})" for value, times in pairs[:SHOWN]
    ]
    more = (len(pairs) if count is None else count) - SHOWN
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")
