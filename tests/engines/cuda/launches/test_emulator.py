"""Kernels run on the CPU: by one thread; and by a thread for each lane, which finds races and stray accesses."""

import struct
import subprocess
import sys
import threading
from contextlib import nullcontext
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from foldbatch.engines.cuda.drivers.driver import MatrixProduct
from foldbatch.errors import BackendError
from foldbatch.system.cache import CacheWarning
from tests.engines.cuda import emulator, replayed
from tests.engines.cuda.emulated import needs_compiler
from tests.engines.cuda.emulator import OPTIONS, Emulator, parameters
from tests.engines.cuda.spans import span_of

pytestmark = needs_compiler

GPU = Emulator()
TEXT = """
KERNEL scaled(i8 x_, i8 y_, i8 count, i8 factor) {
  const f8* x = (const f8*)x_;
  f8* y = (f8*)y_;
  for (i8 at = BLOCK * LANES_X + LANE_X; at < count; at += BLOCKS * LANES_X) y[at] = x[at] * as_f8(factor);
}

KERNEL numbered(i8 seen, i8 word) {
  if (LANE_X == 0 && LANE_Y == 0) ((i8*)seen)[BLOCK] = BLOCKS * 100 + BLOCK + FIRST_OF(word) * 1000;
}

KERNEL of_sixteen(i8 target, i8 b, i8 c, i8 d, i8 e, i8 f, i8 g, i8 h, i8 i, i8 j, i8 k, i8 l, i8 m, i8 n, i8 o, i8 p) {
  *(i8*)target = b + 2 * c + 4 * d + 8 * (e + f + g + h + i + j + k + l + m + n) + 1024 * o + 4096 * p;
}

KERNEL functions(i8 y_) {
  f4* y = (f4*)y_;
  y[0] = expf(1.0f) + tanhf(0.5f) + logf(2.0f) + sqrtf(2.0f) + powf(2.0f, 3.0f) + floorf(2.5f) + fmaxf(1.0f, 2.0f);
  y[1] = isnan(NAN) + 2 * isinf(F4_INF) + 4 * isfinite(1.0f) + 8 * signbit(-1.0f);
  y[2] = sigmoid_f4(-200.0f) + sigmoid_f8(200.0);
}
"""


@pytest.fixture(scope="module")
def kernels():
    return GPU.load(TEXT)


def address_of(array):
    """Return the address of an array's first element."""
    return span_of(array).pointer


def test_a_kernel_computes_on_memory(kernels):
    x, y = np.arange(5.0), np.zeros(6)
    factor = struct.unpack("q", struct.pack("d", -2.5))[0]
    GPU.launch(kernels("scaled"), 3, (32, 2), (address_of(x), address_of(y), 5, factor), 0)
    assert y.tolist() == [0, -2.5, -5, -7.5, -10, 0]


def test_blocks_know_their_number_and_the_first_of_them_wins(kernels):
    seen, word = np.zeros(4, np.int64), np.zeros(1, np.int64)
    GPU.launch(kernels("numbered"), 3, (1, 1), [address_of(seen), address_of(word)], 0)
    assert seen.tolist() == [1300, 301, 302, 0]
    assert word == 1


def test_a_kernel_takes_up_to_sixteen_arguments(kernels):
    target = np.zeros(1, np.int64)
    GPU.launch(kernels("of_sixteen"), 1, (1, 1), [address_of(target), *range(1, 16)], 0)
    assert target == 1 + 4 + 12 + 8 * sum(range(4, 14)) + 1024 * 14 + 4096 * 15


def test_the_functions_of_kernels_are_those_of_the_c_library(kernels):
    y = np.zeros(3, np.float32)
    GPU.launch(kernels("functions"), 1, (1, 1), [address_of(y)], 0)
    first = np.exp(1) + np.tanh(0.5) + np.log(2) + np.sqrt(2) + 8 + 2 + 2
    np.testing.assert_allclose(y, [first, 15, 1], rtol=1e-6)


@pytest.mark.parametrize("arguments", [(), (0,), (0, 0, 0), (0, 2**63), (0, 0.5)])
def test_wrong_arguments_are_refused(kernels, arguments):
    with pytest.raises(struct.error):
        GPU.launch(kernels("numbered"), 1, (1, 1), arguments, 0)


@pytest.mark.parametrize(("blocks", "threads"), [(0, (1, 1)), (1, (0, 1)), (1, (128, 3))])
def test_a_launch_that_a_gpu_refuses_is_refused(kernels, blocks, threads):
    with pytest.raises(AssertionError, match="a GPU refuses"):
        GPU.launch(kernels("numbered"), blocks, threads, (0, 0), 0)


def test_a_wide_kernel_runs_more_threads():
    wide = GPU.load("KERNEL_WIDE wide(i8 x) {}")("wide")
    GPU.launch(wide, 1, (512, 2), (0,), 0)
    with pytest.raises(AssertionError, match="a GPU refuses"):
        GPU.launch(wide, 1, (512, 3), (0,), 0)


def test_parameters_are_counted_over_lines():
    assert parameters("KERNEL a(i8 x,\n  i8 y) {}\nKERNEL_WIDE b( ) {}\nvoid c(i8 x) {}") == {"a": 2, "b": 0}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_read_and_write_every_arrangement(dtype):
    rng = np.random.default_rng(0)
    for a_across, b_across, adds, count in product((False, True), (False, True), (False, True), (1, 3)):
        m, n, k = 2, 3, 4
        a = rng.standard_normal((count, 5, 6)).astype(dtype)
        b = rng.standard_normal((1, 7, 8)).astype(dtype)
        c = rng.standard_normal((count, 3, 5)).astype(dtype)
        left = a[:, :k, :m].transpose(0, 2, 1) if a_across else a[:, :m, :k]
        right = b[:, :n, :k].transpose(0, 2, 1) if b_across else b[:, :k, :n]
        expected = c.copy()
        expected[:, :m, :n] = left @ right + (c[:, :m, :n] if adds else 0)
        leads = {"a_lead": 6, "b_lead": 8, "c_lead": 5, "a_step": 30, "b_step": 0, "c_step": 15}
        places = {"a": address_of(a), "b": address_of(b), "c": address_of(c)}
        ways = {"a_across": a_across, "b_across": b_across, "adds": adds, "count": count}
        GPU.multiply(MatrixProduct(dtype=dtype, m=m, n=n, k=k, **places, **leads, **ways), 0)
        np.testing.assert_allclose(c, expected, rtol=1e-5)


def test_products_of_nothing_are_zero():
    a, c = np.ones(1), np.ones((2, 2))
    empty = MatrixProduct("float64", 2, 2, 0, address_of(a), address_of(a), address_of(c), 1, 2, 2)
    GPU.multiply(replace(empty, adds=True), 0)
    assert (c == 1).all()
    GPU.multiply(replace(empty, m=0), 0)
    assert (c == 1).all()
    GPU.multiply(empty, 0)
    assert (c == 0).all()


def test_products_of_what_is_no_number_do_not_warn():
    a, b, c = np.full((1, 1), np.inf), np.zeros((1, 1)), np.zeros((1, 1))
    GPU.multiply(MatrixProduct("float64", 1, 1, 1, address_of(a), address_of(b), address_of(c), 1, 1, 1), 0)
    assert np.isnan(c)


def test_a_graph_is_run_again_and_again():
    assert replayed.run(GPU) == replayed.EXPECTED


def test_what_is_enqueued_on_a_captured_stream_is_kept_and_other_streams_go_on():
    one, two, x = GPU.stream(), GPU.stream(), np.zeros(8, np.uint8)
    GPU.begin_capture(one)
    GPU.fill(address_of(x), 1, 4, one)
    GPU.copy(address_of(x) + 4, address_of(x), 2, one)
    GPU.fill(address_of(x) + 7, 9, 1, two)
    with pytest.raises(AssertionError, match="captured already"):
        GPU.begin_capture(one)
    graph = GPU.end_capture(one)
    assert x.tolist() == [0] * 7 + [9]
    GPU.begin_capture(one)
    GPU.replay(graph, one)  # a graph within a graph
    outer = GPU.end_capture(one)
    assert x.tolist() == [0] * 7 + [9]
    GPU.replay(outer, two)
    assert x.tolist() == [1, 1, 1, 1, 1, 1, 0, 9]


def test_memory_is_copied_and_filled():
    buffer, source, target = GPU.allocate(24), np.arange(24, dtype=np.uint8), GPU.pinned(8)
    assert buffer.pointer % 256 == 0
    GPU.copy_in(buffer.pointer, source, 0)
    GPU.copy(buffer.pointer + 16, buffer.pointer, 8, 0)
    GPU.fill(buffer.pointer, 7, 4, 0)
    GPU.copy_out(target, buffer.pointer, 0)
    assert target.tolist() == [7, 7, 7, 7, 4, 5, 6, 7]
    seen = GPU.array(buffer, (3,), "int64")
    del buffer
    assert seen.view(np.uint8).tolist() == [7, 7, 7, 7, *range(4, 16), *range(8)]


def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("FOLDBATCH_CACHE", str(tmp_path))
    return lambda: sorted(path.name.partition(".")[2] for path in tmp_path.iterdir())


def once(name):
    """Return a text that no test has compiled in this process."""
    return f"KERNEL {name}(i8 a) {{ *(i8*)a = 7; }}"


def seven(name):
    target = np.zeros(1, np.int64)
    GPU.launch(GPU.load(once(name))(name), 1, (1, 1), [address_of(target)], 0)
    return target.item()


def test_what_was_compiled_is_kept_on_disk(tmp_path, monkeypatch):
    files = kept(tmp_path, monkeypatch)
    assert seven("first") == 7
    assert files() == ["so"]
    emulator._load.cache_clear()
    monkeypatch.setattr(emulator, "_compile", None)
    assert seven("first") == 7


def test_a_damaged_file_is_compiled_again(tmp_path, monkeypatch):
    kept(tmp_path, monkeypatch)
    assert seven("damaged") == 7
    (path,) = tmp_path.iterdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    files = kept(elsewhere, monkeypatch)
    (elsewhere / path.name).write_bytes(b"no library")
    emulator._load.cache_clear()
    assert seven("damaged") == 7
    assert files() == ["so"]
    assert (elsewhere / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("directory", ["", "/dev/null/nowhere"])
def test_kernels_run_where_nothing_can_be_kept(monkeypatch, directory):
    monkeypatch.setenv("FOLDBATCH_CACHE", directory)
    with pytest.warns(CacheWarning) if directory else nullcontext():
        assert seven(f"nowhere_{len(directory)}") == 7


def test_threads_and_processes_may_compile_one_text_at_once(tmp_path, monkeypatch):
    files = kept(tmp_path, monkeypatch)
    text = once("at_once")
    code = f"from tests.engines.cuda.emulator import Emulator; Emulator().load({text!r})('at_once')"
    process = subprocess.Popen([sys.executable, "-c", code])
    results = []
    threads = [threading.Thread(target=lambda: results.append(seven("at_once"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert process.wait() == 0
    assert results == [7] * 3
    assert files() == ["so"]


def test_without_a_compiler_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setenv("FOLDBATCH_CACHE", "")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BackendError, match="expected a C compiler, found none; install gcc"):
        GPU.load(once("uncompiled"))


@pytest.mark.parametrize("body", ["*(i8*)a = ;", "*(f4*)a = no_function(1.0f);", "*(f4*)a = erfcinvf(1.0f);"])
def test_an_error_of_the_compiler_shows_the_text(tmp_path, monkeypatch, body):
    files = kept(tmp_path, monkeypatch)
    with pytest.raises(AssertionError, match="error: ") as raised:
        GPU.load(f"KERNEL wrong(i8 a) {{ {body} }}")
    assert body in str(raised.value)
    assert files() == []


def test_options_forbid_what_changes_sums():
    assert "-ffp-contract=off" in OPTIONS
    assert not {"-Ofast", "-ffast-math"} & set(OPTIONS)
