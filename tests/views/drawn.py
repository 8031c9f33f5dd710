"""Batches to draw: trees of vectors, and trees of words whose parts repeat."""

import foldbatch as fb

A, B = [1.0, 2.0], [[1.0, 2.0], [3.0, 4.0]]
TREES = [[[A, A], A], B, A]
WORDS = [((1, 2), ((1, 2), 3)), (1, 2), ((3, 1), (1, 2))]


def tree_model() -> fb.Block:
    tree = fb.ForwardDeclaration(output_type=2, name="tree", memo=False)
    leaf, node = fb.Vector(2) >> fb.Linear(2), fb.Record((tree(), tree())) >> fb.Concat() >> fb.Linear(2)
    tree.resolve_to(fb.OneOf(lambda t: isinstance(t[0], list), (leaf, node)))
    return tree()


def word_tree() -> fb.Block:
    """Layers over pairs of words, which are numbers: trees whose parts can repeat."""
    tree = fb.ForwardDeclaration(output_type=[2], name="tree", memo=False)
    word, pair = fb.Scalar("int32") >> fb.Embedding(9, 2), fb.Record((tree(), tree())) >> fb.Concat()
    tree.resolve_to(fb.OneOf(lambda x: isinstance(x, tuple), {True: pair >> fb.Linear(2), False: word}))
    return tree()
