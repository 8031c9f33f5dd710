"""The persistent kernel against kernels launched one by one, in real threads too, and what barriers are for."""

import os
from itertools import pairwise

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.engines.cuda import persistent
from foldbatch.engines.cuda.recording.calls import count
from foldbatch.engines.cuda.recording.recorder import Recorder
from tests.engines.cuda.checked import in_every_order, recording
from tests.engines.cuda.one_by_one import OneByOne
from tests.engines.cuda.threaded import Threaded, run_threaded

pytestmark = pytest.mark.skipif(
    os.environ.get("FOLDBATCH_BACKEND") != "cuda-on-cpu", reason="runs with FOLDBATCH_BACKEND=cuda-on-cpu"
)
EXAMPLES = [[1, 2, 3], [4], [1, 5], [2, 2, 2, 2]]
ROUNDS = """
KERNEL_TOGETHER rounds(i8 numbers, i8 words, i8 count) {
  i8* x = (i8*)numbers;
  for (i8 round = 1; round <= count; round++) {
    // each block reads what all wrote in the round before
    i8 sum = 0;
    for (i8 k = 0; k < BLOCKS; k++) sum += x[(round - 1) * BLOCKS + k];
    if (LANE_X == 0) x[round * BLOCKS + BLOCK] = sum + BLOCK;
    WAIT
  }
}
"""


def _rounds(barrier):
    blocks, count = 4, 6
    numbers, words = np.zeros((count + 1, blocks), np.int64), np.zeros(2, np.int64)
    pointers = numbers.ctypes.data, words.ctypes.data
    source = ROUNDS.replace("WAIT", barrier)
    run_threaded(source, "rounds", blocks, (3, 1), (*pointers, count), [numbers, words], "thread")
    return numbers, words


def test_blocks_meet_at_the_barrier_of_the_grid():
    numbers, words = _rounds("GRID_BARRIER((i8*)words);")
    for before, after in pairwise(numbers):
        assert after.tolist() == (before.sum() + np.arange(4)).tolist()
    assert words.tolist() == [24, 0]


def test_without_the_barrier_threads_race():
    with pytest.raises(AssertionError, match="data race"):
        _rounds("BARRIER();")


def _block(hidden=40):
    words = fb.Map(fb.Scalar("int32") >> fb.Embedding(9, 33))
    return words >> fb.RNN(fb.GRUCell(hidden)) >> fb.GetItem(1) >> fb.Function(fb.ops.sum) >> fb.Loss()


def _trained(program, dtype="float32"):
    optimizer, losses = fb.AdaGrad(lr=0.1), []
    for examples in (EXAMPLES, EXAMPLES[:2], EXAMPLES):
        loss, gradients = program.value_and_grad(examples)
        optimizer.update(program.params, gradients)
        losses.append(loss)
    losses += program.run(EXAMPLES, losses=True).losses.values()
    return [float(loss) for loss in losses], {name: np.array(value) for name, value in program.params.items()}


def test_training_is_that_of_kernels_launched_one_by_one():
    losses, parameters = _trained(fb.compile(_block(), "cuda-on-cpu", engine="straight"))
    found, changed = _trained(fb.compile(_block(), "cuda-on-cpu", engine="persistent"))
    np.testing.assert_allclose(found, losses, rtol=1e-5)
    for name, value in parameters.items():
        np.testing.assert_allclose(changed[name], value, rtol=1e-4, atol=1e-5)


def test_training_is_alike_in_every_order_of_the_device():
    in_every_order(lambda: _trained(fb.compile(_block(), "cuda-on-cpu", engine="persistent")))


def test_a_step_with_its_update_is_few_launches_and_one_copy():
    with recording() as recorded:
        program, optimizer = fb.compile(_block(), "cuda-on-cpu", engine="persistent"), fb.AdaGrad(lr=0.1)

        def step():
            _, gradients = program.value_and_grad(EXAMPLES)
            optimizer.update(program.params, gradients)
            program.engine.device.flush()

        step()
        step()
        before = len(recorded.calls)
        step()
        counts = count(recorded.calls[before:])
    assert counts.launches <= 12
    assert (counts.products, counts.copies_in, counts.fills, counts.copies) == (0, 1, 0, 0)


def test_steps_that_are_due_are_alike_in_every_order_of_the_device():
    def train():
        due = fb.compile(_block(), "cuda-on-cpu", engine="straight", share=None, seed=3)
        due.engine.launchers[True] = OneByOne(due.engine)
        return _trained(due)

    in_every_order(train)


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [1, 3])
def test_a_whole_step_has_no_race_with_real_threads_in_several_blocks(blocks):
    def train():
        program, optimizer = (
            fb.compile(_block(12), "cuda-on-cpu", engine="persistent", seed=3),
            fb.AdaGrad(lr=0.1),
        )
        losses = []
        for _ in range(2):
            loss, gradients = program.value_and_grad(EXAMPLES[:3])
            optimizer.update(program.params, gradients)
            losses.append(float(loss))
        return losses, [np.array(value) for value in program.params.values()]

    with recording(Recorder(Threaded("thread", named=True, most=(blocks, 8, 1)))):
        losses, values = train()
    wanted, others = train()
    np.testing.assert_allclose(losses, wanted, rtol=1e-5)
    for value, other in zip(values, others, strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_step_without_barriers_between_its_calls_races(monkeypatch):
    monkeypatch.setattr(persistent, "waits", lambda calls, *others: [False] * len(calls))
    with (
        pytest.raises(AssertionError, match="data race"),
        recording(Recorder(Threaded("thread", named=True, most=(3, 8, 1)))),
    ):
        program = fb.compile(_block(12), "cuda-on-cpu", engine="persistent", seed=3)
        float(program.value_and_grad(EXAMPLES[:3])[0])
