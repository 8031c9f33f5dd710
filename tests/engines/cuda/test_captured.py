"""Graphs: captured from the second batch of a class on, tried again, given up, and told of."""

from types import SimpleNamespace
from typing import Any

import pytest

import foldbatch as fb
from foldbatch.engines.cuda.captured import CAPTURE_TRIES, FIRST_LEARNED, GRAPHS, MAX_STEPS, Captured, Key
from foldbatch.engines.cuda.device import Device
from foldbatch.planning.facts import flat_of
from tests.engines.cuda.checked import Asked, driven
from tests.engines.cuda.emulated import needs_compiler
from tests.engines.cuda.emulator import Emulator

pytestmark = needs_compiler


@pytest.fixture
def captured() -> Captured:
    model: Any = SimpleNamespace(signatures=[], arenas=[])
    return Captured(Device(Asked(Emulator())), SimpleNamespace(model=model), [])  # type: ignore[arg-type]


def key(table: int = 0, update: str = "") -> Key:
    return Key(ROOMS, table, b"", update)


ROOMS: Any = object()


def asked(captured: Captured) -> list[str]:
    """Return what the driver was asked for since the last time."""
    driver: Any = captured.device.driver
    names = [name for name, _ in driver.calls if name in ("begin_capture", "end_capture", "replay", "fill")]
    driver.calls.clear()
    return names


def enqueue(captured: Captured) -> Any:
    buffer = captured.device.allocate(8)
    asked(captured)
    return lambda: captured.device.driver.fill(buffer.pointer, 0, 8, captured.device.stream)


def test_a_graph_is_captured_after_the_first_batch_and_then_replayed(captured: Captured) -> None:
    do = enqueue(captured)
    assert not captured.run(key(), do)
    assert asked(captured) == ["fill"]
    assert captured.run(key(), do)
    assert asked(captured) == ["begin_capture", "end_capture", "replay"]
    assert captured.run(key(), do)
    assert asked(captured) == ["replay"]
    assert len(captured.milliseconds) == 1


def test_each_table_has_a_graph_and_each_kind_of_update_begins_straight(captured: Captured) -> None:
    do = enqueue(captured)
    assert [captured.run(key(table), do) for table in (1, 2, 1)] == [False, True, True]
    assert [captured.run(key(1, "other"), do) for _ in range(2)] == [False, True]


def test_graphs_that_were_not_used_for_long_are_given_up(captured: Captured) -> None:
    do = enqueue(captured)
    for table in range(GRAPHS + 2):
        captured.run(key(table), do)
    asked(captured)
    captured.run(key(1), do)
    assert asked(captured)[0] == "begin_capture"
    captured.run(key(GRAPHS + 1), do)
    assert asked(captured) == ["replay"]


@pytest.mark.parametrize("at", ["begin_capture", "end_capture"])
def test_a_capture_that_fails_is_tried_again_and_others_go_on(captured: Captured, at: str) -> None:
    do, driver = enqueue(captured), captured.device.driver.driver  # type: ignore[attr-defined]
    right, told = getattr(driver, at), []

    def refuse(stream: Any) -> None:
        told.append(at)
        if at == "end_capture":
            right(stream)
        raise RuntimeError("no graphs now")

    captured.run(key(), do)
    assert captured.run(key(7), do)
    setattr(driver, at, refuse)
    for _ in range(CAPTURE_TRIES + 2):
        assert not captured.run(key(), do)
    assert told.count(at) >= CAPTURE_TRIES
    assert captured.run(key(7), do)  # one that is there
    setattr(driver, at, right)
    assert captured.run(key(8), do)
    assert captured.captures().reasons == ("a graph was not captured: RuntimeError: no graphs now",)


def test_no_garbage_is_collected_while_a_graph_is_captured(captured: Captured) -> None:
    import gc  # noqa: PLC0415 - of this test alone

    seen = []
    captured.run(key(), lambda: None)
    captured.run(key(), lambda: seen.append(gc.isenabled()))
    assert seen == [False]
    assert gc.isenabled()


def test_classes_are_learned_from_the_first_batches() -> None:
    block = fb.Map(fb.Vector(2) >> fb.Linear(3)) >> fb.Sum() >> fb.Function(fb.ops.sum) >> fb.Loss()
    program = fb.compile(block, "cuda-on-cpu", launch="captured", threads=1)
    examples = [[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]]]
    for _ in range(FIRST_LEARNED + 2):
        float(program.value_and_grad(examples)[0])
    launcher = program.engine.launcher(training=True)
    assert (launcher.hits, dict(launcher.misses)) == (2, {"no class is learned yet": FIRST_LEARNED})
    assert launcher.captures().milliseconds
    before = launcher.classes
    launcher.learn()
    assert launcher.classes == before  # which have graphs


def test_a_batch_of_very_many_steps_has_no_class() -> None:
    """Its graph would take long to make, and a class of it long to learn."""
    block = (
        fb.Map(fb.Vector(1)) >> fb.RNN(fb.GRUCell(1)) >> fb.GetItem(1) >> fb.Function(fb.ops.sum) >> fb.Loss()
    )
    program = fb.compile(block, "cuda-on-cpu", launch="captured", threads=1)
    schedule = fb.program.schedule(program, [[[1.0]] * (MAX_STEPS + 1)]).schedule
    launcher = program.engine.launcher(training=True)
    for _ in range(FIRST_LEARNED + 1):
        assert launcher.arranged(flat_of(schedule), {}) is None
    assert dict(launcher.misses) == {f"it has more than {MAX_STEPS:,} steps": FIRST_LEARNED + 1}
    assert launcher.classes == []


@pytest.mark.parametrize("training", [True, False])
def test_planned_batches_that_come_again_become_graphs(training: bool) -> None:
    """However few they are: each is made ready once, and yet each run of it teaches classes."""
    with driven() as driver:
        block = fb.Map(fb.Vector(2) >> fb.Linear(3)) >> fb.Sum() >> fb.Function(fb.ops.sum)
        block = block >> fb.AllOf(fb.Identity(), fb.Loss()) >> fb.GetItem(0)
        program = fb.compile(block, "cuda-on-cpu", launch="captured", threads=1)
        planned = program.plan([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]]])

        def run() -> None:
            if training:
                float(program.value_and_grad(planned)[0])
            else:
                list(program.run(planned))

        for _ in range(FIRST_LEARNED + 4):  # then a class, a straight run, and a capture for each block
            run()
        begin = len(driver.calls)
        run()
        assert driver.enqueued(begin).count("replay") == 1
