"""Gradients of several batches, added for one update, are those of one large batch."""

from itertools import islice

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.communicators import Alone
from foldbatch.errors import ExampleError, TrainingError
from foldbatch.params.parameters import SparseRows
from foldbatch.train import DataParallel, LambdaCallback, Sampler, Trainer
from foldbatch.train.samplers import joined
from tests.backends import needs_llvm
from tests.communicators.threads import in_threads
from tests.engines.cuda.emulated import needs_compiler
from tests.train.small import DEV, EXAMPLES, assert_same, figures, model, trainer

backends = pytest.mark.parametrize(
    "backend",
    ["numpy", pytest.param("llvm", marks=needs_llvm), pytest.param("cuda-on-cpu", marks=needs_compiler)],
)


class InGroups(Sampler):
    """Batches of another sampler, in groups of some that make one large batch."""

    def __init__(self, sampler, count):
        super().__init__(sampler.costs, sampler.limit, keys=sampler.keys, seed=sampler.seed)
        self.count = count

    def epoch(self, number):
        return joined(super().epoch(number), self.count)


def assert_close(made, large):
    for name, array in large.program.params.items():
        np.testing.assert_allclose(made.program.params[name], array, rtol=1e-5, atol=1e-6)
    assert made.steps == large.steps
    assert made.program.steps_drawn == large.program.steps_drawn
    for left, right in zip(figures(made), figures(large), strict=True):
        assert left == pytest.approx(right, rel=1e-5)


@backends
@pytest.mark.parametrize("count", [2, 3, 50])
def test_an_update_is_that_of_a_batch_as_large_as_all(count, backend):
    """With dropout, metrics, and a last group that is smaller."""
    small = trainer(backend=backend, batch_size=3, accumulate=count)
    large = trainer(
        backend=backend, sampler=InGroups(Sampler(np.ones(20, int), 3, seed=3), count), batch_size=None
    )
    for made in (small, large):
        made.fit(EXAMPLES, DEV, epochs=3)
    assert_close(small, large)


@backends
def test_sparse_gradients_of_parts_are_added_by_rows(backend):
    words = fb.Map(fb.Scalar("int32") >> fb.Embedding(9, 2, name="words")) >> fb.Sum()
    scaled = words >> fb.Function(fb.ops.sum) >> fb.Loss()
    examples = [[i % 9, 3, (2 * i) % 5] for i in range(30)]
    large, small = (Trainer(fb.compile(scaled, backend), fb.Adam(0.1), accumulate=k) for k in (1, 7))
    for made in (large, small):
        made.step(examples)
    gradients = [made.batch.gradients["words.weight"] for made in (large, small)]
    assert all(isinstance(gradient, SparseRows) for gradient in gradients)
    np.testing.assert_array_equal(gradients[1].rows, gradients[0].rows)
    np.testing.assert_array_equal(gradients[1].values, gradients[0].values)  # whole numbers are exact


def test_a_step_of_ones_own_is_cut_into_parts():
    small, large = trainer(accumulate=4), trainer()
    assert small.step(EXAMPLES) == pytest.approx(large.step(EXAMPLES), rel=1e-6)
    assert_close(small, large)
    assert small.step(EXAMPLES[:2]) == pytest.approx(large.step(EXAMPLES[:2]), rel=1e-6)  # fewer than parts
    assert_close(small, large)


def test_each_part_runs_alone_and_callbacks_see_the_whole(monkeypatch):
    sizes, seen = [], []
    made = trainer(
        batch_size=4,
        accumulate=2,
        callbacks=[LambdaCallback(on_gradients=lambda t: seen.append(len(t.batch.examples)))],
    )
    run = made.program.value_and_grad
    monkeypatch.setattr(made.program, "value_and_grad", lambda x, **kw: sizes.append(len(x)) or run(x, **kw))
    made.fit(EXAMPLES, DEV, epochs=1)
    assert (sizes, seen) == ([4, 4, 4, 4, 2, 2], [8, 8, 4])


def test_a_training_that_accumulates_goes_on_to_the_same_bits(tmp_path):
    whole = trainer(tmp_path / "whole", accumulate=2)
    whole.fit(EXAMPLES, DEV, epochs=3)

    class EnoughError(Exception):
        pass

    steps = iter(range(7))

    def stop(_):
        if next(islice(steps, 1), None) is None:
            raise EnoughError

    with pytest.raises(EnoughError):
        trainer(tmp_path / "part", every=1, accumulate=2, callbacks=[LambdaCallback(on_step_start=stop)]).fit(
            EXAMPLES, DEV, epochs=3
        )
    resumed = trainer(tmp_path / "part", every=1, accumulate=2)
    resumed.fit(EXAMPLES, DEV, epochs=3, resume=True)
    assert_same(whole, resumed)
    with pytest.raises(TrainingError, match="batches of an update 2 in the checkpoint, 1 here"):
        trainer(tmp_path / "part", every=1).fit(EXAMPLES, DEV, epochs=4, resume=True)


def test_processes_that_accumulate_are_one_process_that_does():
    def work(communicator):
        program = DataParallel(fb.compile(model(), "numpy", threads=1), communicator)
        made = trainer(program=program, accumulate=2)
        made.fit(EXAMPLES, DEV, epochs=2)
        return made

    alone = work(Alone())
    for made in in_threads(work, 2):
        assert_close(made, alone)


def test_a_head_that_one_part_uses_is_used():
    heads = {name: fb.GetItem(1) >> fb.Vector(2) >> fb.Linear(1, name=name) for name in ("a", "b", "c")}
    either = fb.compile(fb.OneOf(fb.GetItem(0), heads) >> fb.Function(fb.ops.sum) >> fb.Loss(), "numpy")
    made = Trainer(either, fb.SGD(0.1), accumulate=2)
    made.step([("a", [1, 2]), ("b", [3, 4])])
    assert made.batch.gradients.unused == {"c.weight", "c.bias"}
    np.testing.assert_array_equal(made.batch.gradients["a.weight"].ravel(), [1, 2])


def test_an_example_in_a_later_part_is_named():
    bad = [*EXAMPLES[:15], ([1.0, 2.0], 0), *EXAMPLES[16:]]
    made = trainer(batch_size=4, accumulate=5)
    with pytest.raises(ExampleError) as caught:
        made.fit(bad, epochs=1)
    numbers = [int(x) for x in caught.value.__notes__[-1].partition("[")[2].rstrip("]").split(",")]
    place = int(str(caught.value).partition("at example ")[2].split()[0].rstrip(":"))
    assert numbers[place] == 15


@pytest.mark.parametrize("count", [0, 1.5, True, "4"])
def test_what_is_no_count_is_refused(count):
    with pytest.raises(TrainingError, match="^Trainer accumulate: expected a whole number of 1 or more"):
        trainer(accumulate=count)
