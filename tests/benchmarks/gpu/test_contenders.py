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
    told = []
    device = SimpleNamespace(flush=lambda: told.append("flush"))
    program = SimpleNamespace(_runner=SimpleNamespace(engine=SimpleNamespace(device=device)))

    def ours(engine):
        step = lambda examples, count: told.append((engine, examples, count))  # noqa: E731 - a field
        return SimpleNamespace(step=step, program=program)

    engines = "straight", "captured"
    ways = our_ways({engine: ours(engine) for engine in engines}, [["a", "b"], ["c"]], "tf32")
    assert [way.name for way in ways] == [f"foldbatch, {engine}, tf32" for engine in engines]
    for way in ways:
        way.step(0)
        way.step(1)
    each = [[(engine, ["a", "b"], 2), (engine, ["c"], 1), "flush"] for engine in engines]
    assert told == [*each[0], *each[1]]  # the last step is launched, too
