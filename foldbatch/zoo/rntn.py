"""The recursive neural tensor network: word vectors, and a bilinear form of two children."""

from __future__ import annotations

from operator import attrgetter

from foldbatch.blocks import RNTN, AllOf, ForwardDeclaration, Identity, OneOf, Record, Void
from foldbatch.zoo.tasks import AnyBlock, Task, of_example, of_node, scorer
from foldbatch.zoo.words import Words, leaf_vector


def rntn(words: Words, task: Task, *, hidden: int | None = None) -> AnyBlock:
    """Return a recursive neural tensor network over binary trees.

    A leaf is its word's vector x, as in the paper; where `hidden` is another size than that of the vectors,
    it is ``tanh(W x + b)``. Unlike the paper, inner nodes add a bias to the bilinear form.

    Args:
        words: how the leaves' words become vectors; the paper has 25 to 35 numbers a word.
        task: what is to be told.
        hidden: extent of a node's vector; by default that of the words'.

    Raises:
        ExampleError: when it is run on a node with one child, or with three or more.

    Source: Socher et al. 2013, Recursive Deep Models for Semantic Compositionality Over a Sentiment Treebank,
    section 4.3.

    >>> from foldbatch import compile, trees
    >>> model = rntn(Words(trees.Vocabulary(["good", "film"]), size=4), Task("nodes", classes=5))
    >>> tree = trees.parse_brackets("(3 (4 good) (2 film))", labels=int)
    >>> compile(model, "numpy").run([tree])[0].shape
    (5,)
    """
    size = words.size if hidden is None else hidden
    tree = ForwardDeclaration(output_type=size, name="tree")
    cell, scores = RNTN(size), scorer(task)
    leaf = leaf_vector(words)
    if size != words.size:
        leaf = leaf >> cell
    node = AllOf(Void(), Record((tree(), tree()))) >> cell
    state = OneOf(attrgetter("is_leaf"), {True: leaf, False: node})
    tree.resolve_to(of_node(state, Identity(), scores, task))
    return of_example(tree(), scores, task)
