"""Votes: what a tree holds, wherever it stands, adds numbers to the scores that a deep model gives it.

Source: Cheng et al. 2016, Wide and Deep Learning for Recommender Systems.
"""

from __future__ import annotations

import numpy as np

from foldbatch.blocks import AllOf, Dropout, Embedding, FromTensor, Function, InputTransform, Map, Scalar, Sum
from foldbatch.static import ops
from foldbatch.trees.node import TreeNode
from foldbatch.trees.vocabulary import Vocabulary
from foldbatch.zoo.tasks import AnyBlock, Task, only_element
from foldbatch.zoo.words import name_of, subwords


def features_of(node: TreeNode) -> list[str]:
    """Return the distinct features of a tree: kinds of nodes, kinds below kinds, and words of tokens.

    >>> from foldbatch.trees import Tree
    >>> features_of(Tree([1, -1], ["Name", "Return"], ["readLine", None]))
    ['kind Name', 'kind Return', 'pair Return Name', 'word line', 'word read']
    """
    tree = node.tree
    names = list(map(name_of, tree.labels))
    found = {f"kind {name}" for name in names}
    for name, parent in zip(names, tree.parents.tolist(), strict=True):
        if parent >= 0:
            found.add(f"pair {names[parent]} {name}")
    found.update(f"word {word}" for token in tree.tokens for word in subwords(token))
    return sorted(found)


def votes(features: Vocabulary, task: Task, dropout: float) -> AnyBlock:
    """Return a block from a tree to the sum of the votes of its features; all votes start as zeros.

    Args:
        features: those that have votes; all others together have one row.
        task: says how many numbers a vote has.
        dropout: the share of features that is dropped while training, each as a whole.
    """
    vote: AnyBlock = Scalar("int32") >> Embedding(len(features), max(task.classes, 1), "zeros", name="votes")
    if dropout:
        kept = FromTensor(np.ones(1, np.float32)) >> Dropout(dropout)
        vote = AllOf(vote, kept) >> Function(ops.multiply)
    each: AnyBlock = InputTransform(features_of) >> Map(InputTransform(features.__getitem__) >> vote)
    total = each >> Sum()
    return total >> Function(only_element) if task.kind == "number" else total
