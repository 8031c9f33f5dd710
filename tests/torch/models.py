"""Models that the tests of this folder share."""

import foldbatch as fb
from foldbatch import ops

TREES = [3, (1, 2), ((1, 1), (2, (0, 6))), 4]


def is_pair(node):
    return isinstance(node, tuple)


def squared(h):
    return ops.sum(h * h)


def tree_of(size=4, dtype="float32", dropout=0.0):
    """A recursive model of trees of numbers; its result is a vector."""
    tree = fb.ForwardDeclaration(output_type=fb.types.TensorType((size,), dtype), name="tree")
    word = fb.Scalar("int32") >> fb.Embedding(10, size, "normal", dtype=dtype, name="words")
    pair = fb.Record((tree(), tree())) >> fb.Concat() >> fb.Linear(size, "tanh", name="join")
    tree.resolve_to(
        fb.OneOf(is_pair, {False: word, True: pair >> fb.Dropout(dropout) >> fb.blocks.Collect()})
    )
    return tree()


def loss_of(block):
    return block >> fb.Function(squared) >> fb.Loss()
