"""Products by tiles of our own against those of a library, on the rows of real batches; and in real threads."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.engines.cuda import walk
from foldbatch.engines.cuda.common import PRELUDE
from foldbatch.engines.cuda.drivers.emulator import Emulator
from foldbatch.engines.cuda.drivers.nvrtc import resources
from foldbatch.engines.cuda.drivers.spans import array_at
from foldbatch.engines.cuda.texts.functions import THREAD
from foldbatch.engines.cuda.texts.tile_bodies import BODIES, SHARED, SIDE
from foldbatch.engines.cuda.tiles import tile_kernels
from foldbatch.types import TensorType
from tests.engines.cuda.drivers.test_nvrtc import needs_nvrtc
from tests.engines.cuda.threaded import run_threaded

pytestmark = pytest.mark.skipif(
    os.environ.get("FOLDBATCH_BACKEND") != "cuda-on-cpu", reason="runs with FOLDBATCH_BACKEND=cuda-on-cpu"
)
RANDOM = np.random.default_rng(0)
TYPES = {"f4": np.float32, "f8": np.float64}


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


def _text(kind, size):
    """Return a kernel of one product, whose extents and strides are arguments."""
    side = SIDE * size
    strides = "i8 a_row, i8 a_column, i8 b_row, i8 b_column, i8 c_lead"
    return "\n".join(
        [
            THREAD,
            BODIES[kind, size],
            f"KERNEL product(i8 a, i8 b, i8 c, {strides}, i8 adds, i8 m, i8 n, i8 length) {{",
            f"  SHARED {kind} shared[{SHARED}];",
            f"  const i8 tiles = (m + {side - 1}) / {side} * ((n + {side - 1}) / {side});",
            "  for (i8 tile = BLOCK; tile < tiles; tile += BLOCKS)",
            f"    tile_{kind}_{size}(shared, (const {kind}*)a, a_row, a_column, (const {kind}*)b, b_row, b_column,",
            f"                     ({kind}*)c, c_lead, (i4)adds, m, n, length, tile);",
            "}",
        ]
    )


def _check(run, kind, extents, across, gaps, adds):
    """Run a product of random numbers; what lies between the rows of the result stays as it is."""
    (m, n, length), dtype = extents, TYPES[kind]
    a, b = (
        RANDOM.normal(size=(rows, columns + gap)).astype(dtype)
        for (rows, columns), gap in zip(
            [(length, m) if across[0] else (m, length), (n, length) if across[1] else (length, n)],
            gaps,
            strict=False,
        )
    )
    c = RANDOM.normal(size=(m, n + gaps[2])).astype(dtype)
    left = a[:, :m].T if across[0] else a[:, :length]
    right = b[:, :length].T if across[1] else b[:, :n]
    expected = c.astype(np.float64)
    expected[:, :n] = left.astype(np.float64) @ right + (expected[:, :n] if adds else 0)
    strides = [step // a.itemsize for matrix in (left, right) for step in matrix.strides]
    pointers = [matrix.ctypes.data for matrix in (a, b, c)]
    run([*pointers, *strides, n + gaps[2], int(adds), m, n, length], [a, b, c])
    bits = np.finfo(dtype).eps * (4 + length)
    np.testing.assert_allclose(c, expected, rtol=0, atol=bits * max(1, np.abs(expected).max(initial=0)))
    assert (c[:, n:] == expected[:, n:]).all()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    kind=st.sampled_from(["f4", "f8"]),
    size=st.sampled_from([2, 4]),
    extents=st.tuples(st.integers(0, 70), st.integers(1, 70), st.integers(0, 50)),
    across=st.tuples(st.booleans(), st.booleans()),
    gaps=st.tuples(*[st.integers(0, 3)] * 3),
    adds=st.booleans(),
    blocks=st.integers(1, 5),
)
def test_products_of_any_extents_and_strides(kind, size, extents, across, gaps, adds, blocks):
    driver = Emulator()
    function = driver.load(_text(kind, size)).function("product")
    _check(lambda a, _: driver.launch(function, blocks, (256, 1), a, 0), kind, extents, across, gaps, adds)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("threads", [(8, 1), (96, 1)])
def test_threads_of_a_block_share_a_tile(size, threads):
    """Several tiles a block, several chunks, and more little squares than threads."""

    def run(arguments, buffers):
        run_threaded(_text("f4", size), "product", 2, threads, arguments, buffers, "thread")

    _check(run, "f4", (70, 130, 37), (True, False), (1, 0, 2), adds=True)


@needs_nvrtc
@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_two_blocks_of_tiles_fit_a_multiprocessor(kind, size, architecture):
    taken = resources(_text(kind, size), architecture)["product"]
    assert taken.registers <= 128
    assert taken.spilled == 0
    assert taken.shared <= 48 * 1024
