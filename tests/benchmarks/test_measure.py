"""Tasks run in turn."""

from benchmarks.measure import interleave, timing


def test_tasks_take_turns_and_warm_up_runs_do_not_count() -> None:
    """a b a b ..., so that a drift of the machine's speed meets both alike."""
    order: list[str] = []
    timings = interleave(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")}, repeats=3, warmup=1
    )
    assert order == ["a", "b"] * 4
    assert timings["a"].runs == 3
    assert timings["a"].low <= timings["a"].median <= timings["a"].high


def test_a_timing_is_of_one_part() -> None:
    """The quartiles' distance is its spread."""
    found = timing([1.0, 2.0, 3.0, 4.0, 5.0], parts=2)
    assert (found.median, found.runs) == (1.5, 5)
    assert found.low < found.median < found.high
    assert found.spread == (found.high - found.low) / 2 / 1.5
    assert timing([4.0], 4).spread == 0
