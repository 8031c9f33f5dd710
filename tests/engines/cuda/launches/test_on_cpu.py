"""The engine on a driver that is late: training a tree model has the same numbers, in any order."""

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import ExampleError
from tests.engines.cuda.checked import driven, in_every_order
from tests.engines.cuda.emulated import needs_compiler

pytestmark = needs_compiler

TREES = [
    fb.trees.parse_brackets(text, labels=int)
    for text in (
        "(3 (4 good) (2 movie))",
        "(1 (2 not) (4 good))",
        "(2 (3 (0 movie) (1 not)) (4 (4 good) (2 movie)))",
    )
]


def classifier():
    """Return a program that classifies trees of words, and learns from every node."""
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


def step(program, optimizer, turn):
    loss, gradients = program.value_and_grad(TREES[turn % 2 :])
    optimizer.update(program.params, gradients)
    return loss


def trained(steps=4):
    """Train without a look at anything in between, and return losses and parameters."""
    program, optimizer = classifier(), fb.SGD(lr=0.1)
    losses = [step(program, optimizer, turn) for turn in range(steps)]
    return [float(loss) for loss in losses], {name: np.array(value) for name, value in program.params.items()}


def test_training_has_the_same_numbers_in_every_order():
    in_every_order(trained)


def test_steps_that_are_alike_ask_for_the_same():
    with driven() as driver:
        program, optimizer = classifier(), fb.SGD(lr=0.1)
        counts, begin = [], 0
        for _ in range(6):
            float(step(program, optimizer, 0))
            counts.append([name for name, _ in driver.calls[begin:]])
            begin = len(driver.calls)
    assert counts[3:] == counts[2:-1]


def test_gradients_are_computed_without_a_wait_for_them():
    with driven() as driver:
        program = classifier()
        for _ in range(3):
            begin = len(driver.calls)
            loss, gradients = program.value_and_grad(TREES)
            program.engine.device.flush()
            names = [name for name, _ in driver.calls[begin:]]
        assert names.count("copy_in") == 1
        assert names.count("copy_out") == 1  # the status, and which gradients are not finite
        assert names.count("synchronize") <= 1  # until the block of two batches before has been copied
        begin = len(driver.calls)
        float(loss)
        assert driver.enqueued(begin) == []
        del gradients


def test_an_id_out_of_range_is_told():
    table = fb.Parameter([3, 2], 1.0)
    double = fb.Function(lambda i: fb.ops.gather(table, i * 2))
    program = fb.compile(fb.Scalar("int32") >> double, "cuda-on-cpu")
    with pytest.raises(ExampleError, match="at example 1: expected ids from 0 to 2, found 4"):
        program.run([0, 2])
