"""The engine on PTX computes what NumPy's computes: well-known models, every op, random programs.

Where FOLDBATCH_BACKEND is cuda-on-ptx there are more: 300 random programs, every model for every architecture.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any
from unittest import mock

import numpy as np
import pytest

import foldbatch as fb
from benchmarks.workload import tree_lstm
from benchmarks.zoo_models import MODELS
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.fixed_kernels import TEXT
from foldbatch.trees import Vocabulary
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
from tests.knobs import knobs
from tests.ptx import NAME, driver
from tests.ptx.decode import decoded, taken_apart
from tests.ptx.driver import ARCHITECTURE, ARCHITECTURES, PtxDriver, loaded, ptx_of
from tests.ptx.machine import PtxFaultError
from tests.ptx.needed import needs_ptx
from tests.static import run_kernel

pytestmark = [needs_ptx, pytest.mark.slow]
MANY = TESTED == NAME
WORDS = Vocabulary(["not", "very", "good"])
TREES = [
    fb.trees.parse_brackets(text, labels=int)
    for text in (
        "(1 (2 not) (3 (2 very) (4 good)))",
        "(4 good)",
        "(3 (2 (2 very) (2 (1 not) (2 very))) (0 (4 good) (1 not)))",
    )
]
BLOCKS = {"SST Tree-LSTM": (lambda: tree_lstm(8, WORDS), lambda tree: tree)} | {
    name: (lambda model=model: model.block(5, WORDS), model.example) for name, model in MODELS.items()
}


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


def trained(
    block: fb.Block, backend: str, examples: list[Any], **options: Any
) -> tuple[list[Any], dict[str, Any]]:
    """Return losses and gradients of two steps of training, and results; and the parameters after them."""
    program, optimizer = fb.compile(block, backend, seed=3, threads=1, **knobs(options)), fb.Adam(lr=0.01)
    found: list[Any] = []
    for batch in (examples, examples[1:]):
        loss, gradients = program.value_and_grad(batch)
        found += [
            float(loss),
            *(np.array(g.dense() if isinstance(g, fb.params.SparseRows) else g) for g in gradients.values()),
        ]
        optimizer.update(program.params, gradients)
    found += [np.array(result) for result in program.run(examples)]
    return found, {name: np.array(value) for name, value in program.params.items()}


def test_the_order_of_blocks_and_warps_changes_no_bit() -> None:
    block, example = BLOCKS["tree over BiLSTM"]
    examples = [example(tree) for tree in TREES]
    results = []
    for seed in range(3):
        with on(ARCHITECTURE, seed):
            results.append(trained(block(), NAME, examples))
    np.testing.assert_equal(results[1], results[0])
    np.testing.assert_equal(results[2], results[0])


@pytest.mark.parametrize("name", ["SST Tree-LSTM", "BiLSTM tagger"])
def test_without_barriers_kernels_of_the_engine_race(name: str) -> None:
    block, example = BLOCKS[name]

    def without(source: str, architecture: str = ARCHITECTURE) -> Any:
        return loaded(source.replace("BARRIER();", ""), architecture)

    with (
        mock.patch.object(driver, "loaded", without),
        on(ARCHITECTURE),
        pytest.raises(PtxFaultError, match="race"),
    ):
        trained(block(), NAME, [example(tree) for tree in TREES])


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
