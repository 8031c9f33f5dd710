"""The Tree-LSTM over binary constituency trees: words at the leaves, two children elsewhere."""

from __future__ import annotations

from operator import attrgetter

from foldbatch.blocks import AllOf, ForwardDeclaration, GetItem, OneOf, Record, TreeLSTM, Void
from foldbatch.zoo.tasks import AnyBlock, Task, of_example, of_node, scorer
from foldbatch.zoo.words import Words, leaf_vector


def tree_lstm(words: Words, task: Task, *, hidden: int = 150) -> AnyBlock:
    """Return a binary Tree-LSTM: its leaves have a word, its inner nodes two children.

    The scores of a node are ``W h + b`` of its state ``(h, c)``; c is not seen.

    Args:
        words: how the leaves' words become vectors.
        task: what is to be told.
        hidden: extent of h and c.

    Raises:
        ExampleError: when it is run on a node with one child, or with three or more.

    Source: Tai, Socher and Manning 2015, Improved Semantic Representations From Tree-Structured Long Short-
    Term Memory Networks, section 3.2 and 4.1: equations 9 to 14.

    >>> from foldbatch import compile, trees
    >>> words = Words(trees.Vocabulary(["good", "film"]), size=4)
    >>> model = tree_lstm(words, Task("nodes", classes=5), hidden=3)
    >>> tree = trees.parse_brackets("(3 (4 good) (2 film))", labels=int)
    >>> compile(model, "numpy").run([tree])[0].shape
    (5,)
    """
    tree = ForwardDeclaration(output_type=(hidden, hidden), name="tree")
    cell, scores = TreeLSTM(hidden), scorer(task)
    leaf = AllOf(leaf_vector(words), Record(())) >> cell
    node = AllOf(Void(), Record((tree(), tree()))) >> cell
    state = OneOf(attrgetter("is_leaf"), {True: leaf, False: node})
    tree.resolve_to(of_node(state, GetItem(0), scores, task))
    return of_example(tree() >> GetItem(0), scores, task)
