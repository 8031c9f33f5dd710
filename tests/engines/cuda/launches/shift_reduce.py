"""A shift-reduce model with a tracker (SPINN), whose kernels need more registers than those of other models.

Source: Bowman et al. 2016 (A Fast Unified Model for Parsing and Sentence Understanding).
"""

from typing import Any

import foldbatch as fb
from foldbatch import ops
from foldbatch.types import OBJECT, TupleType, as_type

SIZE = 4
WORDS = 64
STATE = as_type((SIZE, SIZE))

# A leaf is (word, None, None), an inner node (the word that follows it, left, right).
EXAMPLE = (0, (1, None, None), (0, (2, None, None), (3, None, None)))


def shift_reduce() -> fb.Block:
    """Return the model of a nested example like `EXAMPLE`; it classifies the tracker's state at each node.

    The stack is the recursion's own: the block of a subtree reads the two topmost entries and the tracker's
    state, and yields the state of the subtree and of the tracker.
    """
    tracker, compose = fb.LSTMCell(SIZE, name="tracker"), fb.TreeLSTM(SIZE, name="compose")
    reads = TupleType((OBJECT, STATE, STATE, STATE))  # example, tracker, top of the stack, entry below it
    run = fb.ForwardDeclaration(reads, TupleType((STATE, STATE)), name="transitions")
    word = fb.Scalar("int32") >> fb.Embedding(WORDS, SIZE, name="word")
    predict = fb.Linear(5, name="transition") >> fb.Function(lambda x: ops.cross_entropy(x, 0)) >> fb.Loss()
    top_two = fb.Function(lambda top, below, word: ops.concat([top[0], below[0], word]))

    shift = fb.Composition("shift")
    with shift.scope():
        vector = word.reads(shift.input[0][0])
        tracked = tracker.reads(top_two.reads(shift.input[2], shift.input[3], vector), shift.input[1])[1]
        predict.reads(tracked[0])
        shift.output.reads(fb.Function(lambda x: (x, ops.tanh(x))).reads(vector), tracked)

    reduce = fb.Composition("reduce")
    with reduce.scope():
        example, before, top, below = (reduce.input[i] for i in range(4))
        left = run().reads(example[1], before, top, below)
        right = run().reads(example[2], left[1], left[0], top)
        read = top_two.reads(right[0], left[0], word.reads(example[0]))
        tracked = tracker.reads(read, right[1])[1]
        predict.reads(tracked[0])
        reduce.output.reads(compose.reads(tracked[0], (left[0], right[0])), tracked)

    is_leaf: Any = fb.GetItem(0) >> fb.InputTransform(lambda example: example[1] is None)
    run.resolve_to(fb.OneOf(is_leaf, {True: shift, False: reduce}))
    start = fb.Zeros((SIZE, SIZE))
    return fb.AllOf(fb.Identity(), start, start, start) >> run() >> fb.GetItem(0) >> fb.GetItem(0)
