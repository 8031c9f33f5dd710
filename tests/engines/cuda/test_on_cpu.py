"""The backend "cuda-on-cpu" trains and infers as the others do."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.engines.cuda import on_cpu
from tests.engines.cuda.emulated import needs_compiler
from tests.engines.cuda.trees import TREES, program

pytestmark = needs_compiler


def test_all_programs_share_a_device() -> None:
    assert on_cpu.device() is on_cpu.device()
    assert program()._runner.engine.device is on_cpu.device()


def test_a_step_is_that_of_numpy() -> None:
    right, found = (program(backend).step(TREES) for backend in ("numpy", "cuda-on-cpu"))
    assert float(found.loss) == pytest.approx(float(right.loss), rel=1e-12)
    for a, b in zip(found.results, right.results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_memory_is_poisoned_for_debugging() -> None:
    model = program().model
    assert on_cpu.load(model, debug=True).debug is True
    assert on_cpu.load(model).debug is False
    assert on_cpu.load(model).name == "cuda-on-cpu"
