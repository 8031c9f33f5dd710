"""Trees drawn with the statistics of the Stanford Sentiment Treebank, for machines that do not have it.

The treebank's 8,544 training trees have 37.3 nodes and a height of 9.8 in the mean, one in a hundred is
higher than 20; 256 of them have 23.3 levels, 4,900 leaves and 1,875 distinct words in the mean; there are
18,280 words. Trees of `sst_like_trees` differ from that by a few percent. Of those of
`benchmarks.workload.random_trees` 256 have only 13 levels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from benchmarks.workload import CLASSES
from foldbatch.trees import Tree

WORDS = 18_280  # distinct ones of the treebank
LONGEST = 52  # words of a sentence
ZIPF = 1.04, 2  # a word's share is 1 / (rank + 2) ** 1.04, ranks from 0


def sst_like_trees(count: int, seed: int = 0, words: int = WORDS) -> list[Tree]:
    """Return labelled binary trees that are as large, as high and as varied in words as the treebank's.

    A span is cut after its first word, with a chance that is drawn for each tree, or at any place.

    >>> [tree.size for tree in sst_like_trees(3)], sst_like_trees(3) == sst_like_trees(3)
    ([37, 27, 7], True)
    """
    rng = np.random.default_rng(seed)
    power, offset = ZIPF
    shares = (np.arange(words) + float(offset)) ** -power
    sums = np.cumsum(shares / shares.sum())
    trees = []
    for _ in range(count):
        leaves = min(LONGEST, max(2, round(float(rng.gamma(4.4, 4.35)))))
        parents, is_leaf = _shape(leaves, rng)
        drawn = iter(np.minimum(np.searchsorted(sums, rng.random(leaves)), words - 1).tolist())
        labels = rng.integers(CLASSES, size=len(parents)).tolist()
        trees.append(Tree(parents, labels, [f"w{next(drawn)}" if leaf else None for leaf in is_leaf]))
    return trees


def numbered_words(trees: Sequence[Tree]) -> tuple[list[Tree], int]:
    """Return trees with their words called w0, w1, ... instead, the most frequent first; and their number.

    >>> trees, words = numbered_words([Tree.from_nested((1, (0, "film"), (2, "film")))])
    >>> list(trees[0].words()), words
    (['w0', 'w0'], 1)
    """
    counts = Counter(word for tree in trees for word in tree.words())
    names = {word: f"w{number}" for number, (word, _) in enumerate(counts.most_common())}
    renamed = [
        Tree(tree.parents, tree.labels, [None if word is None else names[word] for word in tree.tokens])
        for tree in trees
    ]
    return renamed, len(names)


def _shape(leaves: int, rng: np.random.Generator) -> tuple[list[int], list[bool]]:
    """Return a tree's parents in post-order, and which nodes are leaves."""
    chance = rng.uniform(0.3, 0.7)
    parents: list[int] = []
    is_leaf: list[bool] = []
    todo = [(leaves, -1)]
    while todo:  # a node, then what lies right of it: post-order from its end
        count, parent = todo.pop()
        if count > 1:
            first = 1 if rng.random() < chance else int(rng.integers(1, count))
            todo += [(first, len(parents)), (count - first, len(parents))]
        is_leaf.append(count == 1)
        parents.append(parent)
    last = len(parents) - 1
    return [last - p if p >= 0 else -1 for p in reversed(parents)], is_leaf[::-1]
