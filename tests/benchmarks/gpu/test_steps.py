"""What a step asks of a card is counted, and how that grows with a tree's levels."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from benchmarks.gpu.contenders import MODELS, SST, OurModel
from benchmarks.gpu.steps import device_seconds, launch_model
from benchmarks.gpu.trees import sst_like_trees


@pytest.fixture(scope="module")
def trees():
    return sst_like_trees(8, seed=2, words=50)


def test_launches_are_a_fixed_number_and_so_many_a_level(trees):
    ours = OurModel(MODELS[SST], 20, 50, "cuda-on-cpu")
    model = launch_model(ours, trees)
    forward, backward = model["forward"], model["backward"]
    for direction in (forward, backward):
        asked = direction["launches"][1] + direction["products"][1]
        assert asked == int(asked) and 2 <= asked <= 6
    assert forward["copies_in"] == (1, 0) and backward["copies_in"] == (0, 0)


def test_device_seconds_are_those_between_two_events_behind_other_work():
    told = []
    stream, buffer = object(), SimpleNamespace(pointer=0)
    driver = SimpleNamespace(allocate=lambda nbytes: buffer, fill=lambda *arguments: told.append("fill"))

    class Event:
        def record(self, stream):
            told.append("event")

        def synchronize(self):
            told.append("wait")

    cupy = SimpleNamespace(cuda=SimpleNamespace(Event=Event, get_elapsed_time=lambda first, last: 1500.0))
    device = SimpleNamespace(driver=driver, stream=stream)
    assert device_seconds(cupy, device, lambda: told.append("task")) == 1.5
    assert list(dict.fromkeys(told)) == ["fill", "event", "task", "wait"]
    assert told[-3:] == ["task", "event", "wait"]
