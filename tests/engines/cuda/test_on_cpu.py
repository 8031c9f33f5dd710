"""The engine on a driver that records, guards and delays: training a tree model has no faults, in any order."""

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.engines.cuda.recording.calls import alive, count
from foldbatch.engines.cuda.recording.recorder import Recorder
from foldbatch.engines.cuda.staging import Staging
from foldbatch.errors import ExampleError
from tests.backends import on_gpu_kernels
from tests.engines.cuda.checked import in_every_order, recorder, recording
from tests.engines.cuda.emulated import needs_compiler
from tests.engines.cuda.threaded import Threaded

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


def test_training_has_no_faults_and_the_same_numbers_in_every_order():
    in_every_order(trained)


def without(method):
    """Return a way to send a block that leaves out one of the driver's methods."""
    send = Staging.send

    def sent(self, block, nbytes):
        driver = self.device.driver
        kept = getattr(driver, method)
        setattr(driver, method, lambda *arguments: None)
        try:
            send(self, block, nbytes)
        finally:
            setattr(driver, method, kept)

    return sent


def test_a_mistake_of_the_engine_is_a_fault(monkeypatch):
    monkeypatch.setattr(Staging, "send", without("wait"))
    with pytest.raises(AssertionError, match="race in call"), recording(recorder("at once")):
        trained()


def test_steps_that_are_alike_ask_for_the_same_and_leave_nothing():
    with recording() as recorded:
        program, optimizer = classifier(), fb.SGD(lr=0.1)
        counts, memory, begin = [], [], 0
        for _ in range(6):
            float(step(program, optimizer, 0))
            counts.append(count(recorded.calls[begin:]))
            memory.append(sum(held.nbytes for held in alive(recorded.calls)))
            begin = len(recorded.calls)
        assert counts[3:] == counts[2:-1]
        assert memory[3:] == memory[2:-1]


def test_gradients_are_computed_without_a_wait_for_them():
    with recording() as recorded:
        program = classifier()
        for _ in range(3):
            begin = len(recorded.calls)
            loss, _ = program.value_and_grad(TREES)
            counts = count(recorded.calls[begin:])
        assert counts.copies_in == 1
        assert counts.copies_out == 2  # the status, and which gradients are not finite
        assert counts.synchronizations <= 1  # until the staging block of two batches before has been copied
        begin = len(recorded.calls)
        float(loss)
        looked = count(recorded.calls[begin:])
        assert (looked.launches, looked.products, looked.copies_in) == (0, 0, 0)
        assert looked.copies_out == 0


def test_an_id_out_of_range_is_told_by_a_kernel_that_says_so():
    """The kernel writes to the status of the batch, which it must say it does."""
    with recording(recorder(hides=True)):
        table = fb.Parameter([3, 2], 1.0)
        double = fb.Function(lambda i: fb.ops.gather(table, i * 2))
        program = fb.compile(fb.Scalar("int32") >> double, "cuda-on-cpu")
        with pytest.raises(ExampleError, match="at example 1: expected ids from 0 to 2, found 4"):
            program.run([0, 2])


@pytest.mark.slow
@on_gpu_kernels
@pytest.mark.parametrize("sanitize", ["thread", "address"])
def test_kernels_have_no_race_and_stay_in_bounds_with_real_threads(sanitize):
    with recording(Recorder(Threaded(sanitize, named=True, most=(3, 8, 4)))):
        losses, _ = trained(1)
    with recording():
        np.testing.assert_allclose(losses, trained(1)[0], rtol=1e-5)
