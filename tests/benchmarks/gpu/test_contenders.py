"""A peer that computes something else is found out before anything is timed."""

from __future__ import annotations

from types import SimpleNamespace

from benchmarks.gpu.contenders import Contender, our_ways
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


def test_we_take_part_once_for_each_way_to_launch():
    def make(engine):
        return SimpleNamespace(step=lambda examples, count: (engine, examples, count))

    ways = our_ways(make, [["a", "b"]], "tf32")
    names = [f"foldbatch, {engine}, tf32" for engine in ("straight", "captured", "persistent")]
    assert [way.name for way in ways] == names
    assert [way.step(0) for way in ways] == [(name.split(", ")[1], ["a", "b"], 2) for name in names]
