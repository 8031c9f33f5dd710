"""Figures of a data set of trees: how many, how large, how high, with which labels and words."""

from collections import Counter
from collections.abc import Iterable
from statistics import fmean, median
from typing import Any

from foldbatch.trees.tree import Label, Tree, kids_of

FREQUENT_WORDS = 100  # most frequent words that are kept


def tree_statistics(trees: Iterable[Tree]) -> dict[str, Any]:
    """Return the figures of a data set of trees, which may come from a reader one by one.

    ``sizes`` are numbers of nodes, ``heights`` levels below the root, ``arities`` how many inner nodes have
    so many children; labels and the 100 most frequent words have their counts, the most frequent first.

    >>> figures = tree_statistics([Tree.from_nested(("S", ("NP", "I"), ("VP", ("V", "slept"))))])
    >>> figures["nodes"], figures["heights"], figures["arities"]
    (4, {'minimum': 2, 'median': 2, 'mean': 2.0, 'maximum': 2}, {1: 1, 2: 1})
    """
    sizes: list[int] = []
    heights: list[int] = []
    arities: Counter[int] = Counter()
    labels: Counter[Label] = Counter()
    words: Counter[str] = Counter()
    for tree in trees:
        sizes.append(tree.size)
        heights.append(tree.height)
        arities.update(map(len, kids_of(tree)))
        labels.update(tree.labels)
        words.update(token for token in tree.tokens if token is not None)
    return {
        "trees": len(sizes),
        "nodes": sum(sizes),
        "leaves": arities.pop(0, 0),
        "sizes": _spread(sizes),
        "heights": _spread(heights),
        "arities": dict(sorted(arities.items())),
        "labels": dict(labels.most_common()),
        "tokens": words.total(),
        "words": len(words),
        "most_frequent": dict(words.most_common(FREQUENT_WORDS)),
    }


def _spread(values: list[int]) -> dict[str, float]:
    if not values:
        return {}
    return {"minimum": min(values), "median": median(values), "mean": fmean(values), "maximum": max(values)}
