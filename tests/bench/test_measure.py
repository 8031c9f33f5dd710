"""Tasks run in turn."""

from foldbatch.bench.measure import interleave


def test_tasks_take_turns_and_warm_up_runs_do_not_count() -> None:
    """a b a b ..., so that a drift of the machine's speed meets both alike."""
    order: list[str] = []
    timings = interleave(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")}, repeats=3, warmup=1
    )
    assert order == ["a", "b"] * 4
    assert timings["a"].runs == 3
    assert timings["a"].low <= timings["a"].median <= timings["a"].high
