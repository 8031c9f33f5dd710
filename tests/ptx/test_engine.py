"""The engine on PTX computes what NumPy's computes: well-known models, every op, random programs.

Where FOLDBATCH_BACKEND is cuda-on-ptx there are more: 300 random programs, every model for every architecture.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any
from unittest import mock

import numpy as np
import pytest

from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.fixed_kernels import TEXT
from tests.backends import TESTED
from tests.engines.cuda import test_parts as parts
from tests.engines.cuda import walking
from tests.engines.cuda.test_parts import (  # noqa: F401 - the same tests
    test_an_op_on_all_rows_is_the_op_on_each,
    test_an_op_that_takes_integers_computes_them_exactly,
    test_many_axes_that_do_not_follow_each_other,
    test_operands_along_different_axes_meet,
    test_operands_may_lie_anyhow,
    test_products_of_nothing_are_zero,
    test_products_over_axes_that_do_not_follow_each_other,
    test_sums_over_no_rows_are_zero,
)
from tests.engines.numpy import launching
from tests.ptx import NAME, driver
from tests.ptx.decode import decoded, taken_apart
from tests.ptx.driver import ARCHITECTURE, ARCHITECTURES, PtxDriver, loaded, ptx_of
from tests.ptx.machine import PtxFaultError
from tests.ptx.needed import needs_ptx
from tests.static import run_kernel
from tests.test_laws import trained

pytestmark = [needs_ptx, pytest.mark.slow]
MANY = TESTED == NAME


@cache
def together() -> walking.Together:
    return walking.Together(PtxDriver())


@pytest.fixture(autouse=True)
def _by_ptx() -> Iterator[None]:
    """Let launches of single routines be run by PTX."""
    with (
        mock.patch.object(walking, "together", together),
        mock.patch.object(run_kernel, "TARGET", walking.OP_BY_OP),
        mock.patch.object(launching, "run_table", together().run),
    ):
        yield


def on(architecture: str, seed: int = 0) -> Any:
    """Return what lets programs be compiled for an architecture, with blocks and warps in an order of a seed."""
    device = cache(lambda: Device(PtxDriver(architecture, seed)))
    return mock.patch.object(driver, "device", device)


def test_the_order_of_blocks_and_warps_changes_no_bit() -> None:
    results = []
    for seed in range(3):
        with on(ARCHITECTURE, seed):
            results.append(trained("tree over BiLSTM", NAME))
    np.testing.assert_equal(results[1], results[0])
    np.testing.assert_equal(results[2], results[0])


@pytest.mark.parametrize("name", ["SST Tree-LSTM", "BiLSTM tagger"])
def test_without_barriers_kernels_of_the_engine_race(name: str) -> None:
    def without(source: str, architecture: str = ARCHITECTURE) -> Any:
        return loaded(source.replace("BARRIER();", ""), architecture)

    with (
        mock.patch.object(driver, "loaded", without),
        on(ARCHITECTURE),
        pytest.raises(PtxFaultError, match="race"),
    ):
        trained(name, NAME)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_that_every_program_needs_are_known(architecture: str) -> None:
    """Each instruction of them; and of all ops."""
    text = taken_apart(ptx_of(TEXT, architecture))
    for name in text.kernels:
        assert len(decoded(text, name, dict.fromkeys(text.variables, 0)).code)
    graphs = [graph for graph, *_ in (parts.CASES if MANY else dict(list(parts.CASES.items())[::5])).values()]
    made = [
        walking.kernel_of_routine(run_kernel.routine_of_graph(graph, (), walking.FUSED)) for graph in graphs
    ]
    texts = dict.fromkeys(kernel.text for kernel in made)
    names = [task.name for kernel in made for task in kernel.tasks if task.name]
    module = loaded("\n".join(texts), architecture)
    for name in dict.fromkeys(names):
        function = module(name)
        assert len(function.ptx.kernel(function.name).code)
