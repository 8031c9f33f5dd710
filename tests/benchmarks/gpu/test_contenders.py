"""A peer that computes something else is found out before anything is timed."""

from __future__ import annotations

from benchmarks.gpu.contenders import Contender
from benchmarks.gpu.times import differs


def contender(losses):
    told = iter(losses)
    return Contender("a", lambda k: next(told), lambda k: None, lambda k: None)


def test_losses_must_agree_before_and_after_a_training_step():
    assert differs(contender([2.0, 1.5]), 2.0, 1.5, 1e-4) == ""
    assert "before a training step" in differs(contender([2.1]), 2.0, 1.5, 1e-4)
    assert "after a training step" in differs(contender([2.0, 1.6]), 2.0, 1.5, 1e-4)
    assert "before" in differs(contender([float("nan")]), 2.0, 1.5, 1e-4)


def test_a_peer_that_raises_is_told_of():
    assert differs(contender([]), 2.0, 1.5, 1e-4).startswith("StopIteration")
