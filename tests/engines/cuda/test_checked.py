"""The engine on a driver that records, guards and delays: training a tree model has no faults, in any order."""

import numpy as np
import pytest

import foldbatch as fb
from tests.engines.cuda.checked import in_every_order, recorder, recording

TREES = [
    fb.trees.parse_brackets(text, labels=int)
    for text in ("(3 (4 good) (2 movie))", "(1 (2 not) (4 good))", "(2 (3 (0 movie) (1 not)) (4 (4 good) (2 movie)))")
]


def classifier():
    words = fb.trees.Vocabulary(["good", "movie", "not"])
    tree = fb.ForwardDeclaration(output_type=(3, 3), name="tree")
    cell, classify = fb.TreeLSTM(3), fb.Linear(5)
    word = fb.GetItem("token") >> fb.InputTransform(lambda w: words[w]) >> fb.Scalar("int32")
    leaf = fb.AllOf(word >> fb.Embedding(len(words), 3), fb.Record(())) >> cell
    node = fb.AllOf(fb.Void(), fb.Record((tree(), tree()))) >> cell
    logits = fb.GetItem(0) >> fb.GetItem(0) >> classify
    loss = fb.AllOf(logits, fb.GetItem(1)) >> fb.Function(fb.ops.cross_entropy) >> fb.Loss()
    states = fb.OneOf(lambda t: t.is_leaf, {True: leaf, False: node})
    labelled = fb.AllOf(states, fb.GetItem("label") >> fb.Scalar("int32"))
    tree.resolve_to(labelled >> fb.AllOf(fb.GetItem(0), loss) >> fb.GetItem(0))
    return fb.compile(tree() >> fb.GetItem(0) >> classify, backend="cuda-on-cpu")


def trained(steps=3):
    """Train, and return losses and parameters."""
    program = classifier()
    optimizer = fb.SGD(lr=0.1)
    losses = []
    for step in range(steps):
        loss, gradients = program.value_and_grad(TREES[step % 2 :])
        optimizer.update(program.params, gradients)
        losses.append(float(loss))
    return losses, {name: np.array(program.params[name]) for name in program.params}


def test_training_has_no_faults_and_the_same_numbers_in_every_order():
    in_every_order(trained, allowed=("touched",))
