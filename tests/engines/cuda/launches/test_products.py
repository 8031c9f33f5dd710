"""Products by tiles of our own against those of a library, on the rows of real batches."""

import os

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.engines.cuda import walk
from foldbatch.engines.cuda.common import PRELUDE
from foldbatch.engines.cuda.texts.functions import THREAD
from foldbatch.engines.cuda.tiles import tile_kernels
from foldbatch.types import TensorType
from tests.engines.cuda.spans import array_at

pytestmark = pytest.mark.skipif(
    os.environ.get("FOLDBATCH_BACKEND") != "cuda-on-cpu", reason="runs with FOLDBATCH_BACKEND=cuda-on-cpu"
)
RANDOM = np.random.default_rng(0)


def _lists():
    """Products by weights and by their transposes, and sums over rows."""
    words = fb.Map(fb.Scalar("int32") >> fb.Embedding(9, 33))
    block = words >> fb.RNN(fb.GRUCell(40)) >> fb.GetItem(1) >> fb.Function(fb.ops.sum) >> fb.Loss()
    return block, [[1, 2, 3], [4], [1, 5], [2] * 40]


def _each():
    """A product a call, by an operand across."""
    block = fb.Function(lambda x: fb.ops.sum(fb.ops.matmul(x, fb.ops.transpose(x)) ** 2))
    return fb.Tensor((40, 66)) >> block >> fb.Loss(), list(RANDOM.normal(size=(3, 40, 66)))


def _gaps():
    """Several products with steps, and sums that add to those before."""
    v = fb.Parameter([70, 66], name="v")
    block = fb.Function(lambda x: fb.ops.sum((x[:, 1:3, :] @ v) ** 2))
    return fb.Tensor((3, 4, 70)) >> block >> fb.Loss(), list(RANDOM.normal(size=(5, 3, 4, 70)))


def _doubles():
    w = fb.Parameter(TensorType((70, 71), "float64"), name="w")
    block = fb.Function(lambda x: fb.ops.sum((x @ w) ** 2))
    return fb.Tensor((70,), "float64") >> block >> fb.Loss(), list(RANDOM.normal(size=(37, 70)))


def _by_both(kinds):
    """Return a `Walker.run` that runs each product by the library and by tiles, and notes its kind."""
    run = walk.Walker.run

    def by_both(self, steps, table, memory, status):
        driver, stream = self._device.driver, self._device.stream
        module = driver.load("\n".join([PRELUDE, THREAD, tile_kernels(self._kernels)]))
        for step in steps:
            if step.task.multiplied is None:
                run(self, [step], table, memory, status)
                continue
            p = walk._product(step, memory.addresses.tolist())
            strides = tuple(np.dtype(p.dtype).itemsize * n for n in (p.c_step, p.c_lead, 1))
            c = array_at(p.c, (p.count, p.m, p.n), strides, p.dtype)
            before = c.copy()
            driver.multiply(p, stream)
            expected = c.copy()
            for blocks in (1, 40):  # large tiles, and small ones
                c[...] = before
                arguments = table.pointer, *step.arguments
                driver.launch(module.function(step.task.tile), blocks, (256, 1), arguments, stream)
                error = (1e-12 if p.dtype == "float64" else 1e-5) * max(1, np.abs(expected).max())
                np.testing.assert_allclose(c, expected, rtol=0, atol=error)
            kinds.add(step.task.multiplied.by + "+" * p.adds)

    return by_both


@pytest.mark.parametrize(
    ("model", "kinds"),
    [(_lists, {"m", "k"}), (_each, {"count"}), (_gaps, {"m", "k", "k+"}), (_doubles, {"m", "k"})],
)
def test_tiles_multiply_as_a_library_does(model, kinds, monkeypatch):
    block, examples = model()
    program, seen = fb.compile(block, "cuda-on-cpu", engine="straight"), set()
    monkeypatch.setattr(walk.Walker, "run", _by_both(seen))
    program.value_and_grad(examples)
    assert seen == kinds
