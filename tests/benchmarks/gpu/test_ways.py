"""A model is made ready for each way to launch; ways that the engine does not take are named, with the reason."""

from __future__ import annotations

from types import SimpleNamespace

from benchmarks.gpu.record import Record
from benchmarks.gpu.ways import WARMED, asked, ways_of
from foldbatch.engines.cuda.device import Device
from foldbatch.errors import BackendError
from tests.engines.cuda.emulator import Emulator

BATCHES = [["a", "b"], ["c", "d"]]


class Ours:
    """In the place of a model: a step fills memory, and copies a word to the device."""

    def __init__(self, engine, *, loss=2.0, launchers=None):
        self.engine, self.told, self.device = engine, [], Device(Emulator())
        made = launchers or {}
        runs = SimpleNamespace(device=self.device, launcher=lambda *, training: made.get(training))
        self.program = SimpleNamespace(_runner=SimpleNamespace(engine=runs))
        if engine == "captured":
            self.program.warm = lambda *given: self.told.append(given)
        self.loss = lambda batch: loss

    def step(self, examples, count):
        self.told.append(examples)
        driver, stream = self.device.driver, self.device.stream
        memory = driver.allocate(8)
        driver.fill(memory.pointer, 0, 8, stream)
        driver.copy_in(memory.pointer, driver.pinned(8), stream)


def launchers():
    captures = SimpleNamespace(hit_rate=0.9, milliseconds=(3.0, 5.0))
    return {True: SimpleNamespace(captures=lambda: captures)}


def test_each_way_is_made_ready_and_counted():
    made = {
        "straight": Ours("straight"),
        "captured": Ours("captured", loss=2.1, launchers=launchers()),
    }
    record = Record()
    assert ways_of(made.__getitem__, BATCHES, record, "m") == {
        way: made[way] for way in ("straight", "captured")
    }
    assert made["captured"].told[0] == (["a", "b", "c", "d"], 2)
    assert made["captured"].told[1:] == BATCHES * (WARMED + 1)
    straight, captured = record.ways
    assert (straight["where"], straight["way"], straight["launches"], straight["bytes in"]) == (
        "m",
        "straight",
        1,
        8,
    )
    assert (captured["hit rate"], captured["graphs"], captured["capture ms"]) == (0.9, 2, 5.0)
    assert "hit rate" not in straight
    assert [(check.name, check.state) for check in record.checks] == [
        ("m, captured: trains as straight does", "failed")
    ]
    made["captured"] = Ours("captured")
    ways_of(made.__getitem__, BATCHES, record, "m")
    assert record.left_out == {"m, captured": "batches run straight"}


def test_what_an_engine_refuses_is_told():
    def make(way):
        raise BackendError("engine", "a card", "none", "get one")

    record = Record()
    assert ways_of(make, BATCHES, record, "m") == {}
    assert record.left_out["m, captured"] == "BackendError: engine: expected a card, found none; get one"


def test_without_a_device_nothing_is_asked():
    program = SimpleNamespace(_runner=SimpleNamespace(engine=SimpleNamespace()))
    assert asked(SimpleNamespace(program=program), BATCHES) == {}
