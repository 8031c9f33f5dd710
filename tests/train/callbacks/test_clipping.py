"""ClipGradients: limits hold for the gradients of the mean loss."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.errors import BackendError, TrainingError
from foldbatch.params import Remote, SparseRows
from foldbatch.train import Callback, ClipGradients
from foldbatch.train.shares import Batch
from tests.train.callbacks.tiny import EXAMPLES, trainer


class Norms(Callback):
    def __init__(self):
        self.norms = []

    def on_gradients(self, trainer):
        count, gradients = len(trainer.batch.examples), trainer.batch.gradients.values()
        self.norms.append(np.sqrt(sum(np.sum(np.square(np.asarray(g) / count)) for g in gradients)))


def test_the_norm_of_the_mean_is_limited():
    before, after = Norms(), Norms()
    trainer(before, ClipGradients(0.3), after).fit(EXAMPLES, epochs=1)
    np.testing.assert_allclose(after.norms, np.minimum(before.norms, 0.3), rtol=1e-6)
    assert min(before.norms) < 0.3 < max(before.norms)


def clipped(callback, **gradients):
    class Stands:
        batch = Batch([0, 1], ["a", "b"], 0.0, gradients)

    callback.on_gradients(Stands)
    return Stands.batch.gradients


def test_entries_are_limited_before_the_norm():
    rows = SparseRows(np.array([1]), np.array([[-9.0, 1.0]]), (3, 2))
    made = clipped(ClipGradients(max_value=2), w=np.array([1.0, 7.0]), table=rows)
    assert made["w"].tolist() == [1, 4]  # 2 for the mean of two examples
    assert made["table"].dense().tolist() == [[0, 0], [-4, 1], [0, 0]]
    assert clipped(ClipGradients(1, max_value=2), w=np.array([9.0]))["w"].tolist() == [2]


def test_entries_of_a_device_are_not_limited():
    with pytest.raises(BackendError, match="clip by max_norm"):
        clipped(ClipGradients(max_value=2), w=Remote())


@pytest.mark.parametrize("limits", [{}, {"max_norm": 0}, {"max_value": -1}, {"max_norm": float("nan")}])
def test_limits_are_checked(limits):
    with pytest.raises(TrainingError, match="ClipGradients: expected a limit above 0"):
        ClipGradients(**limits)
