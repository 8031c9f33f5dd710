"""The engine: kernels made once and when they are needed, memory that batches share, text for people."""

from __future__ import annotations

from typing import Any

import numpy as np

import foldbatch as fb
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.engine import CudaEngine
from tests.engines.cuda.emulated import needs_compiler
from tests.engines.cuda.emulator import Emulator
from tests.engines.cuda.trees import TREES, model, program

pytestmark = needs_compiler


class Loading(Emulator):
    """An emulator that writes down the texts that it compiles, and what it allocates."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.allocated = 0

    def load(self, source: str) -> Any:
        self.texts.append(source)
        return super().load(source)

    def allocate(self, nbytes: int) -> Any:
        self.allocated += 1
        return super().allocate(nbytes)


def test_kernels_are_compiled_once_a_phase_when_they_are_needed() -> None:
    driver = Loading()
    made = fb.compile(model(), "numpy", threads=1)
    engine = CudaEngine("cuda-on-cpu", made.model, Device(driver))
    batch = fb.program.schedule(made, TREES)
    assert driver.texts == []
    for training, texts in [(True, 1), (True, 1), (False, 2)]:
        engine.ready(batch, training=training)
        assert len(driver.texts) == texts
    text = engine.source(range(len(made.model.cells)))
    assert "KERNEL k0_0(i8 table, i8 launch, i8 level)" in text
    assert engine.source([]) == ""
    assert len(driver.texts) == 2


def test_memory_settles() -> None:
    """Buffers are kept from batch to batch; what a batch yields is new, and its own."""
    driver = Loading()
    made = program("numpy")
    engine = CudaEngine("cuda-on-cpu", made.model, Device(driver), debug=True)
    memory, batch = engine.memory(), fb.program.schedule(made, TREES)
    ready = engine.ready(batch, training=True)
    counts, runs = [], []
    for _ in range(5):
        before = driver.allocated
        run = engine.forward(ready, batch.feeds, memory)
        runs.append((run, run.backward()))
        counts.append(driver.allocated - before)
    assert counts[-1] == counts[-2] < counts[0]
    first, last = ({p.name: g for p, g in found.items()} for _, found in (runs[0], runs[-1]))
    for name, gradient in first.items():
        a, b = (np.asarray(getattr(g, "values", g)) for g in (gradient, last[name]))
        np.testing.assert_array_equal(a, b)


def test_both_phases_share_the_way_to_the_device() -> None:
    made = program()
    engine = made.engine
    memory, batch = engine.memory(), fb.program.schedule(made, TREES)
    values = []
    for training in (True, False, True):
        run = engine.forward(engine.ready(batch, training=training), batch.feeds, memory)
        values.append(run.fetch([0]))
    np.testing.assert_array_equal(values[0], values[1])
    assert sorted(memory.buffers) == [False, True]


def test_the_bytes_of_a_batch_are_those_of_its_buffers() -> None:
    made = program()
    engine = made.engine
    small, large = (engine.ready(fb.program.schedule(made, TREES * n), training=True) for n in (1, 10))
    assert 0 < engine.nbytes(small) < engine.nbytes(large)
    tables = small.tables
    assert (small.heights >= tables.forward.heights).all()
    assert (small.heights >= tables.backward.heights).all()


def test_a_batch_is_reported() -> None:
    made = program()
    engine = made.engine
    launched = engine.launched(engine.ready(fb.program.schedule(made, TREES), training=True))
    assert {row.direction for row in launched} == {"forward", "backward"}
