"""LambdaCallback: a function for each moment that is named. No engine runs."""

from __future__ import annotations

import pytest

from foldbatch.errors import UnknownNameError
from foldbatch.train import LambdaCallback
from tests.train.callbacks.tiny import Fake


def test_only_the_moments_named_are_called():
    seen = []
    fake = Fake(LambdaCallback(on_epoch_end=lambda trainer: seen.append(trainer.epoch)))
    fake.run_epoch()
    fake.run_epoch()
    assert seen == [1, 2]


def test_another_moment_is_refused():
    with pytest.raises(UnknownNameError, match="did you mean 'on_epoch_end'"):
        LambdaCallback(on_epoch_ends=print)
