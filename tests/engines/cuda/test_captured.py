import threading
from types import SimpleNamespace

import pytest

from foldbatch.engines.cuda import captured
from foldbatch.engines.cuda.captured import FIRST, GRAPHS, Captured
from foldbatch.engines.cuda.control import Call, Op, Ops
from foldbatch.engines.cuda.drivers.driver import Span
from foldbatch.engines.cuda.launching import Launched

LEVEL, TILE, NOTE = range(3)
OPS = Ops(
    (Op("level", 32, 2), Op("tile", 256, 2), Op("note_at", 256, 0)), {"level": 0, "tile": 1, "note_at": 2}
)


class _Driver:
    """Writes down launches, of each stream; captures wait until they may go on."""

    multiprocessors = 3

    def __init__(self):
        self.streams = []
        self.may_capture = threading.Event()

    def stream(self):
        self.streams.append([])
        return len(self.streams) - 1

    def load(self, text):
        return SimpleNamespace(function=lambda name: name)

    def launch(self, function, blocks, threads, arguments, stream, touched=None):
        self.streams[stream].append((function, blocks, arguments))

    def begin_capture(self, stream):
        self.may_capture.wait(5)
        self.streams[stream].clear()

    def end_capture(self, stream):
        return list(self.streams[stream])

    def replay(self, graph, stream, touched=None):
        self.streams[stream].append(graph)


def _is_wide(call):
    return call.arguments[0] == 0  # the products of the first level


@pytest.fixture(params=[False])
def launcher(request, monkeypatch):
    monkeypatch.setattr(captured, "source", lambda *texts: "")
    driver = _Driver()
    device = SimpleNamespace(driver=driver, stream=driver.stream())
    task = SimpleNamespace(multiplied=object(), tile="tile")
    wide = {"wide": _is_wide} if request.param else {}
    made = Captured(device, [SimpleNamespace(tasks=[task])], OPS, "", **wide)
    yield made
    driver.may_capture.set()


def _calls(levels):
    """Return calls of both directions: a kernel and a product a level."""
    forward = [
        Call(op, (level, 7), 10, f"step of {level}") for level in range(levels) for op in (LEVEL, TILE)
    ]
    return forward, [*forward[::-1], Call(NOTE, (), 1)]


def _launched(table=4096, update=None, straight=lambda step: None):
    return Launched(Span(table, 8), 0, update, straight, lambda: None)


def _learned(launcher, levels=3):
    assert launcher.arranged(*_calls(levels)) is None
    launcher.learn()


def test_slots_that_a_batch_does_not_fill_have_records_of_no_op(launcher):
    _learned(launcher)
    records = launcher.arranged(*_calls(2)).records
    assert records[:, 0].tolist() == [0, 1, 0, 1, -1, -1, -1, -1, 1, 0, 1, 0, 2]
    assert records[:, 1].tolist() == [0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0]
    assert launcher.arranged(*_calls(4)) is None
    assert launcher.captures().hit_rate == 0.5


def test_kernels_are_launched_one_by_one_until_the_graph_is_there(launcher):
    _learned(launcher)
    driver, arranged = launcher.device.driver, launcher.arranged(*_calls(2))
    assert launcher.launch(arranged, _launched()) == 9  # no empty slots
    one_by_one = list(driver.streams[0])
    assert one_by_one[0] == ("at_level", 10, (4096, 0))
    assert one_by_one[1] == ("at_tile", 6, (4096, 1))  # two on each of three multiprocessors
    assert one_by_one[-1] == ("at_note_at", 1, (4096, 12))
    driver.may_capture.set()
    launcher.wait()
    assert launcher.launch(arranged, _launched()) == 1
    graph = driver.streams[0][-1]
    assert len(graph) == 13
    assert [node for node in graph if node in one_by_one] == one_by_one
    assert len(launcher.milliseconds) == 1


def test_each_block_of_staging_and_each_kind_of_update_has_a_graph(launcher):
    class _Update:
        key = "adam"

        def launches(self, first):
            return [("fault_at", 1, (256, 1), (first,)), ("update_all", 9, (256, 1), (first + 1, first + 3))]

    _learned(launcher)
    driver, arranged = launcher.device.driver, launcher.arranged(*_calls(3))
    driver.may_capture.set()
    for _ in range(2):
        for table, update in ((4096, None), (8192, None), (4096, _Update())):
            launcher.launch(arranged, _launched(table, update))
            launcher.wait()
    assert len(launcher.milliseconds) == 3
    without, other, updating = driver.streams[0][-3:]
    assert len(without) == len(other) == 13
    assert {arguments[0] for _, _, arguments in other} == {8192}
    assert updating[:13] == without
    assert updating[13:] == [("fault_at", 1, (4096, 13)), ("update_all", 9, (4096, 14, 16))]


def test_classes_are_learned_from_the_first_batches_and_again_from_those_that_miss(launcher):
    for _ in range(FIRST):
        assert launcher.arranged(*_calls(3)) is None
    (first,) = launcher.classes
    assert launcher.arranged(*_calls(3)).chosen is first
    for _ in range(2 * FIRST):
        assert first in launcher.classes
        assert launcher.arranged(*_calls(9)) is None
    assert launcher.arranged(*_calls(9)) is not None
    assert launcher.arranged(*_calls(3)).chosen is first  # its graphs serve on
    assert launcher.misses == {
        "no class is learned yet": FIRST,
        "it has more calls than any class": 2 * FIRST,
    }


def test_graphs_that_were_not_used_for_long_are_given_up(launcher):
    _learned(launcher)
    launcher.device.driver.may_capture.set()
    arranged = launcher.arranged(*_calls(3))
    for table in range(GRAPHS + 1):
        launcher.launch(arranged, _launched(table))
        launcher.wait()
    launcher.device.driver.may_capture.clear()
    assert launcher.launch(arranged, _launched(GRAPHS)) == 1
    assert launcher.launch(arranged, _launched(0)) == 13


def test_where_a_capture_fails_kernels_are_launched_one_by_one_and_it_is_told(launcher):
    _learned(launcher)
    driver, arranged = launcher.device.driver, launcher.arranged(*_calls(3))
    driver.end_capture = lambda stream: 1 // 0
    launcher.launch(arranged, _launched())
    driver.may_capture.set()
    launcher.wait()
    assert launcher.launch(arranged, _launched()) > 1
    assert launcher.launch(arranged, _launched(512)) > 1
    (reason,) = launcher.captures().reasons
    assert (
        reason == "no graph is captured, as one failed: ZeroDivisionError: integer division or modulo by zero"
    )


@pytest.mark.parametrize("launcher", [True], indirect=True)
def test_wide_products_run_straight_between_graphs(launcher):
    _learned(launcher)
    driver = launcher.device.driver
    launched = _launched(straight=driver.streams[0].append)
    few, none = launcher.arranged(*_calls(2)), launcher.arranged([], [Call(NOTE, (), 1)])
    assert launcher.launch(few, launched) == 9
    assert driver.streams[0].count("step of 0") == 2
    driver.streams[0].clear()
    driver.may_capture.set()
    launcher.wait()
    assert launcher.launch(few, launched) == 5
    first, step, second, again, third = driver.streams[0]
    assert step == again == "step of 0"
    assert [len(graph) for graph in (first, second, third)] == [1, 8, 2]
    assert launcher.launch(none, launched) == 3  # a batch without them
