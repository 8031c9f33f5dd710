"""Products by tiles against NumPy, of any extents and strides, in each precision; in real threads; and on no card."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from benchmarks.workload import tree_lstm
from foldbatch.engines.cuda.drivers.emulator import Emulator
from foldbatch.engines.cuda.drivers.nvrtc import compiled, resources
from foldbatch.engines.cuda.interpreter import source
from foldbatch.engines.cuda.texts.functions import THREAD
from foldbatch.engines.cuda.texts.tile_bodies import SHARED, SIDE, SIZES, TYPES, bodies
from foldbatch.engines.cuda.tiles import tile_kernels
from foldbatch.trees import Vocabulary
from tests.engines.cuda.drivers.test_nvrtc import needs_nvrtc
from tests.engines.cuda.threaded import run_threaded

pytestmark = pytest.mark.skipif(
    os.environ.get("FOLDBATCH_BACKEND") != "cuda-on-cpu", reason="runs with FOLDBATCH_BACKEND=cuda-on-cpu"
)
RANDOM = np.random.default_rng(0)
NUMBERS = {"f4": np.float32, "f8": np.float64}
DROPPED = {"tf32": 13, "bf16": 16}  # bits behind the point
ARCHITECTURES = ["sm_80", "sm_90", "sm_100"]


def _text(name, size, wide=(1, 1)):
    """Return a kernel of products side by side, whose extents and strides are words in memory."""
    k, side = TYPES[name], SIDE * size
    return "\n".join(
        [
            THREAD,
            bodies({name}),
            "KERNEL product(i8 a, i8 b, i8 c, i8 words) {",
            f"  SHARED {k} shared[{SHARED}];",
            "  const i8* w = (const i8*)words;",
            f"  const i8 each = (w[6] + {side - 1}) / {side} * ((w[7] + {side - 1}) / {side});",
            "  for (i8 tile = BLOCK; tile < each * w[9]; tile += BLOCKS) {",
            "    const i8 one = tile / each;",
            f"    tile_{name}_{size}(shared, (const {k}*)a + one * w[10], w[0], w[1], (const {k}*)b + one * w[11],",
            f"      w[2], w[3], ({k}*)c + one * w[12], w[4], (i4)w[5], w[6], w[7], w[8], tile % each,",
            f"      {wide[0]}, {wide[1]});",
            "  }",
            "}",
        ]
    )


def _rounded(x, name):
    """Return numbers as matrix units read them, in float64."""
    if name not in DROPPED:
        return x.astype(np.float64)
    dropped = DROPPED[name]
    bits = x.view(np.uint32).astype(np.int64)
    half = 1 << dropped - 1
    bits += half if name == "tf32" else half - 1 + (bits >> dropped & 1)
    return (bits >> dropped << dropped).astype(np.uint32).view(np.float32).astype(np.float64)


def _matrices(count, rows, columns, lead, shift, dtype):
    """Return memory of NaN, and matrices in it that begin `shift` numbers after an address that is a multiple of 64."""
    step = rows * lead + 4
    memory = np.empty(count * step + 16 + shift, dtype)
    start = -memory.ctypes.data // memory.itemsize % (64 // memory.itemsize) + shift
    memory[...] = np.nan
    strides = [n * memory.itemsize for n in (step, lead, 1)]
    matrices = np.lib.stride_tricks.as_strided(memory[start:], (count, rows, columns), strides)
    matrices[...] = RANDOM.normal(size=matrices.shape)
    return memory, matrices


def _check(run, name, extents, across, gaps, adds, count=1, shift=0):
    """Run products of random numbers; what lies between the rows of the results stays as it is."""
    (m, n, length), dtype = extents, NUMBERS[TYPES[name]]
    shapes = [(length, m) if across[0] else (m, length), (n, length) if across[1] else (length, n), (m, n)]
    made = [
        _matrices(count, rows, columns, max(1, columns) + gap, shift, dtype)
        for (rows, columns), gap in zip(shapes, gaps, strict=True)
    ]
    memories, (a, b, c) = [memory for memory, _ in made], [matrix for _, matrix in made]
    expected = memories[2].astype(np.float64)
    left = a.transpose(0, 2, 1) if across[0] else a
    right = b.transpose(0, 2, 1) if across[1] else b
    result = _rounded(np.ascontiguousarray(left), name) @ _rounded(np.ascontiguousarray(right), name)
    start = (c.ctypes.data - memories[2].ctypes.data) // c.itemsize
    whole = np.lib.stride_tricks.as_strided(
        expected[start:], c.shape, [step // c.itemsize * expected.itemsize for step in c.strides]
    )
    whole[...] = result + (whole if adds else 0)
    steps = [step // a.itemsize for matrix in (left, right) for step in matrix.strides[1:]]
    lead, firsts = c.strides[1] // c.itemsize, [x.strides[0] // x.itemsize for x in (a, b, c)]
    words = np.array([*steps, lead, int(adds), m, n, length, count, *firsts], np.int64)
    run([*(x.ctypes.data for x in (a, b, c)), words.ctypes.data], [*memories, words])
    error = np.finfo(dtype).eps * (4 + length) * max(1, np.abs(whole).max(initial=0))
    np.testing.assert_allclose(memories[2], expected, rtol=0, atol=error)
    kept = np.ones(expected.size, dtype=bool)
    np.lib.stride_tricks.as_strided(kept[start:], c.shape, [step // c.itemsize for step in c.strides])[
        ...
    ] = 0
    assert np.isnan(memories[2][kept]).all()


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(list(TYPES)),
    size=st.sampled_from(SIZES),
    extents=st.tuples(st.integers(0, 70), st.integers(1, 70), st.integers(0, 50)),
    across=st.tuples(st.booleans(), st.booleans()),
    gaps=st.tuples(*[st.integers(0, 3)] * 3),
    adds=st.booleans(),
    count=st.integers(1, 3),
    blocks=st.integers(1, 5),
)
def test_products_of_any_extents_and_strides(name, size, extents, across, gaps, adds, count, blocks):
    driver = Emulator()
    function = driver.load(_text(name, size)).function("product")
    _check(
        lambda a, _: driver.launch(function, blocks, (256, 1), a, 0), name, extents, across, gaps, adds, count
    )


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(["f4", "f8"]),
    fours=st.tuples(*[st.integers(1, 12)] * 3),
    short=st.integers(0, 3),
    across=st.tuples(st.booleans(), st.booleans()),
    shift=st.integers(0, 3),
)
def test_wide_copies_stop_where_rows_do(name, fours, short, across, shift):
    """Rows end before the last copy of them does; what lies behind is not a number."""
    driver, wide = Emulator(), 16 // np.dtype(NUMBERS[name]).itemsize
    function = driver.load(_text(name, 2, (wide, wide))).function("product")
    extents = [max(1, 4 * n - short) for n in fours]
    m, n, length = extents
    gaps = [-(m if across[0] else length) % 4, -(length if across[1] else n) % 4, 0]
    _check(
        lambda a, _: driver.launch(function, 2, (256, 1), a, 0), name, extents, across, gaps, True, 1, shift
    )


@pytest.mark.parametrize(("name", "size"), [("f4", 2), ("f4", 4), ("tf32", 2), ("bf16", 4)])
@pytest.mark.parametrize("threads", [(8, 1), (64, 1)])
def test_threads_of_a_block_share_a_tile(name, size, threads):
    """Several tiles a block, several chunks, and more little squares than threads."""

    def run(arguments, buffers):
        run_threaded(_text(name, size, (1, 4)), "product", 2, threads, arguments, buffers, "thread")

    _check(run, name, (70, 130, 37), (True, False), (1, 2, 2), adds=True)


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", TYPES)
def test_two_blocks_of_tiles_fit_a_multiprocessor(name, architecture):
    for size in SIZES:
        taken = resources(_text(name, size, (2, 2)), architecture)["product"]
        assert taken.registers <= 128
        assert taken.spilled == 0
        assert taken.shared <= 48 * 1024


@needs_nvrtc
@pytest.mark.parametrize(
    ("precision", "architecture"),
    [*(("fp32", each) for each in ARCHITECTURES), ("tf32", "sm_90"), ("bf16", "sm_90")],  # each takes seconds
)
def test_the_kernel_that_walks_a_tree_lstm_spills_nothing(precision, architecture):
    block = tree_lstm(150, Vocabulary([f"word{i}" for i in range(100)]))
    phase = fb.compile(block, "cuda-on-cpu", engine="straight").engine.training
    text = source(phase.kernels, phase.ops, tile_kernels(phase.kernels, precision), walks=True)
    taken = resources(text, architecture)["walk"]
    assert taken.spilled == 0
    assert taken.registers <= 255
    assert taken.shared <= 48 * 1024
    assert "warning" not in compiled(text, architecture).log
