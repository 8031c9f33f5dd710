"""ReduceOnPlateau: the rates of torch's, and the same after training was cut off. No engine runs."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.errors import TrainingError
from foldbatch.train import ReduceOnPlateau
from tests.train.callbacks.tiny import Fake, through_json

VALUES = np.random.default_rng(4).integers(0, 40, 60) / 8 + np.linspace(9, 0, 60)


def rates(callback, values):
    fake = Fake(callback)
    made = []
    for value in values:
        fake.run_epoch(dev_loss=float(value))
        made.append(fake.optimizer.lr)
    return made


def test_the_rate_falls_after_patience():
    callback = ReduceOnPlateau("dev_loss", "min", factor=0.5, patience=1, min_lr=0.03)
    assert rates(callback, [1, 1, 1, 0.5, 0.6, 0.6, 0.6, 0.6]) == [0.1] * 2 + [0.05] * 3 + [0.03] * 3


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("cooldown", [0, 2])
def test_rates_are_torchs(mode, cooldown):
    torch = pytest.importorskip("torch", reason="needs torch")
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
    options = {"factor": 0.5, "patience": 2, "cooldown": cooldown, "min_lr": 1e-3}
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode, threshold=0.5, threshold_mode="abs", eps=0, **options
    )
    expected = []
    for value in VALUES:
        theirs.step(value)
        expected.append(optimizer.param_groups[0]["lr"])
    assert rates(ReduceOnPlateau("dev_loss", mode, min_delta=0.5, **options), VALUES) == expected
    assert len(set(expected)) > 3


@pytest.mark.parametrize("cut", [1, 5, 11])
def test_a_resumed_run_is_the_unbroken_one(cut):
    def make():
        return ReduceOnPlateau("dev_loss", "min", patience=1, cooldown=2)

    whole, first, second = Fake(make()), Fake(make()), Fake(make())
    for value in VALUES[:20]:
        whole.run_epoch(dev_loss=value)
    for value in VALUES[:cut]:
        first.run_epoch(dev_loss=value)
    second.optimizer.lr = first.optimizer.lr
    second.callback.load_state(through_json(first.callback.state()))
    for value in VALUES[cut:20]:
        second.run_epoch(dev_loss=value)
    assert second.optimizer.lr == whole.optimizer.lr < 0.1
    assert second.callback.state() == whole.callback.state()


def test_settings_are_checked():
    with pytest.raises(TrainingError, match="a number between 0 and 1, found 2"):
        ReduceOnPlateau("loss", "min", factor=2)
