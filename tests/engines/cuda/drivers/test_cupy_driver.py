"""The driver of a GPU, on stand-ins for CuPy and cuBLAS; what needs a card is marked so."""

import gc
import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.communicators.local import LOCAL
from foldbatch.engines import cuda
from foldbatch.engines.cuda import cupy_driver
from foldbatch.engines.cuda.cupy_driver import CupyDriver, load_driver
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.driver import MatrixProduct
from foldbatch.errors import BackendError, DeviceMemoryError
from tests.backends import on_gpu_kernels
from tests.engines.cuda import replayed, stand_in
from tests.engines.cuda.emulated import gpu_answers
from tests.engines.cuda.emulator import Emulator
from tests.programs import drawn
from tests.programs.comparing import assert_same, gradients_of

on_card = [pytest.mark.gpu, pytest.mark.skipif(not gpu_answers(), reason="there is no GPU")]
DRIVERS = [
    pytest.param(lambda: stand_in.driver()[0], id="stand-in"),
    pytest.param(load_driver, id="card", marks=on_card),
]


def wait_for(driver: Any, stream: Any) -> None:
    event = driver.event()
    driver.record(event, stream)
    driver.synchronize(event)


def test_its_clock_tells_seconds_by_events_that_keep_time() -> None:
    made = stand_in.driver()[0]
    stream = made.stream()
    clock = made.clock(stream)
    first, _, last = [clock.mark(stream) for _ in range(3)]
    assert clock.seconds(last) - clock.seconds(first) == pytest.approx(0.002)


@pytest.mark.parametrize("make", DRIVERS)
def test_bytes_go_there_and_back(make: Any) -> None:
    driver = make()
    assert driver.name
    stream, buffer = driver.stream(), driver.allocate(100)
    assert (buffer.nbytes, buffer.pointer % 256) == (100, 0)
    staged = driver.pinned(50)
    assert (staged.shape, staged.dtype, staged.flags.writeable) == ((50,), np.uint8, True)
    staged[:] = np.arange(50)
    driver.fill(buffer.pointer, 7, 100, stream)
    driver.copy_in(buffer.pointer, staged, stream)
    driver.copy(buffer.pointer + 50, buffer.pointer + 10, 20, stream)
    back = driver.pinned(100)
    driver.copy_out(back, buffer.pointer, stream)
    wait_for(driver, stream)
    np.testing.assert_array_equal(back[:50], np.arange(50))
    np.testing.assert_array_equal(back[50:70], np.arange(10, 30))
    assert set(back[70:].tolist()) == {7}
    assert driver.pinned(0).shape == (0,)


def test_what_is_enqueued_names_its_stream() -> None:
    driver, cupy, _ = stand_in.driver()
    first, second = driver.stream(), driver.stream()
    buffer, staged = driver.allocate(8), driver.pinned(8)
    driver.copy_in(buffer.pointer, staged, second)
    driver.copy_out(staged, buffer.pointer, first)
    driver.copy(buffer.pointer, buffer.pointer + 4, 4, second)
    driver.fill(buffer.pointer, 0, 8, second)
    assert cupy.asked_for("copy") == [(8, 1, second.ptr), (8, 2, first.ptr), (4, 3, second.ptr)]
    assert cupy.asked_for("fill") == [(buffer.pointer, 8, second.ptr)]
    event = driver.event()
    driver.record(event, second)
    driver.wait(first, event)
    driver.synchronize(event)
    assert cupy.asked[-3:] == [("record", event, second), ("wait", first, event), ("synchronize", event)]


def test_all_memory_is_for_the_first_stream() -> None:
    """So CuPy gives what was freed only to what comes later on that stream."""
    driver, cupy, _ = stand_in.driver()
    first, _ = driver.stream(), driver.stream()
    assert driver.allocate(8).memory.stream is first
    assert cupy.current is None
    early, _, _ = stand_in.driver()
    assert early.allocate(8).memory.stream is early._first


def launched(cupy: stand_in.StandIn) -> Sequence[Any]:
    return cupy.asked_for("launch")


@pytest.mark.parametrize("arguments", [[], [5], [-1, 1 << 40, *range(14)], [np.int64(3), True]])
def test_a_launch_passes_whole_numbers(arguments: list[int]) -> None:
    driver, cupy, _ = stand_in.driver()
    stream, function = driver.stream(), SimpleNamespace(ptr=99, overlaps=False)
    driver.launch(function, 12, (32, 4), [1] * 16, stream)
    driver.launch(function, 3, (64, 1), arguments, stream)
    assert launched(cupy)[0] == (99, 12, 1, 1, 32, 4, 1, 0, stream.ptr, [1] * 16, 0)
    *head, values, extra = launched(cupy)[1]
    assert head == [99, 3, 1, 1, 64, 1, 1, 0, stream.ptr]
    assert values[: len(arguments)] == arguments
    assert extra == 0


@pytest.mark.parametrize("make", DRIVERS)
def test_a_graph_is_replayed_with_what_lies_in_memory_then(make: Any) -> None:
    assert replayed.run(make()) == replayed.EXPECTED


def test_a_capture_makes_nothing_and_its_graph_is_there_before_it_runs() -> None:
    """What other threads do meanwhile is no matter."""
    driver, cupy, products = stand_in.driver()
    stream, other = driver.stream(), driver.stream()
    driver.begin_capture(other)
    assert products.asked == []
    assert cupy.asked_for("begin capture") == [(other, driver._runtime.streamCaptureModeRelaxed)]
    buffer = replayed_memory(driver, other)
    graph = driver.end_capture(other)
    assert cupy.asked_for("upload") == [(graph, other)]
    assert buffer.tolist() == [0, 0, 0, 0]
    driver.replay(graph, stream)
    assert cupy.asked_for("replay") == [(graph, stream)]
    assert buffer.tolist() == [3, 3, 0, 0]


def replayed_memory(driver: CupyDriver, stream: Any) -> Any:
    """Fill two of four bytes, later."""
    memory = np.zeros(4, np.uint8)
    driver.fill(memory.__array_interface__["data"][0], 3, 2, stream)
    return memory


def test_what_is_asked_of_a_gpu_is_done_there_and_the_current_one_stays() -> None:
    driver, cupy, _ = stand_in.driver()
    stream = driver.stream()
    assert cupy.asked_for("device") == []
    cupy.gpu = 1
    driver.allocate(8)
    driver.fill(0, 0, 0, stream)
    assert cupy.asked_for("device") == [(0,), (1,)] * 2
    cupy.free = 0
    with pytest.raises(BackendError):
        driver.allocate(8)
    assert cupy.gpu == 1


def test_programs_compiled_for_another_gpu_have_a_device_of_their_own() -> None:
    cupy = stand_in.StandIn()
    with (
        mock.patch.object(cuda, "check_card", lambda: cupy),
        mock.patch.object(cuda, "load_driver", lambda precision, number: Emulator()),
    ):
        cuda._device.cache_clear()
        first = cuda.device("fp32")
        cupy.gpu = 1
        second = cuda.device("fp32")
        assert first is not second
        cupy.gpu = 0
        assert cuda.device("fp32") is first
        cuda._device.cache_clear()


def test_each_process_of_a_machine_takes_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the program has chosen one; the current one stays."""
    made = []
    for variable in LOCAL:
        monkeypatch.delenv(variable, raising=False)
    cupy = stand_in.StandIn(devices=4)

    def load(precision: str, number: int) -> CupyDriver:
        made.append(stand_in.driver(precision, cupy, number)[0])
        return made[-1]

    with mock.patch.object(cuda, "check_card", lambda: cupy), mock.patch.object(cuda, "load_driver", load):
        for variable, chosen, expected in (
            ("LOCAL_RANK", 0, 2),
            ("MPI_LOCALRANKID", 0, 2),
            ("LOCAL_RANK", 3, 3),
        ):
            cuda._device.cache_clear()
            monkeypatch.setenv(variable, "2")
            cupy.gpu = chosen
            device = cuda.device("fp32")
            assert (made[-1].number, made[-1].identity) == (
                expected,
                f"{bytes([expected] * 16).hex()} at 0000:0{expected}:00.0",
            )
            device.put(np.ones(3, np.float32))
            assert cupy.gpu == chosen
            monkeypatch.delenv(variable)
        cuda._device.cache_clear()


def test_each_thread_has_arguments_of_its_own() -> None:
    driver, *_ = stand_in.driver()
    driver.stream()
    words = [driver._words()]
    thread = threading.Thread(target=lambda: words.append(driver._words()))
    thread.start()
    thread.join()
    assert words[0] is driver._words()
    assert words[0][1] != words[1][1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
def test_a_forked_process_is_told_so() -> None:
    """A GPU cannot be used in a copy of the process that has begun to."""
    driver, _, _ = stand_in.driver()
    driver.stream()
    with mock.patch.object(cupy_driver.os, "getpid", lambda: -1):
        driver._start()  # as the child does
        for ask in (driver.stream, driver.event, lambda: driver.allocate(8), lambda: driver.load("")):
            with pytest.raises(BackendError, match=r"one forked from it; start processes with .*'spawn'"):
                ask()


def test_too_little_memory_says_how_much_there_is() -> None:
    driver, cupy, _ = stand_in.driver()
    driver.stream()
    cupy.free = 300_000_000
    expected = (
        r"^backend cuda: expected 1\.50 GB more memory on Stand-in, found 0\.30 GB free of 1\.07 GB; "
        r"take smaller batches, or end what else uses the GPU$"
    )
    with pytest.raises(BackendError, match=expected):
        driver.allocate(1_500_000_000)
    assert cupy.current is None
    assert driver.allocate(100).nbytes == 100


def test_pinned_memory_that_is_short_is_asked_for_again_and_then_refused() -> None:
    driver, cupy, _ = stand_in.driver()
    cupy.pinnable = [1000, 0]
    assert driver.pinned(100).nbytes == 100
    assert cupy.freed == 1
    cupy.pinnable = [0, 0]
    said = "expected 1.00 MB of the host's memory pinned for copies to Stand-in, found cudaErrorMemoryAllocation: out"
    with pytest.raises(DeviceMemoryError, match=said):
        driver.pinned(1_000_000)
    assert cupy.freed == 2


@pytest.mark.parametrize("kind", [stand_in.CUDARuntimeError, stand_in.CUDADriverError])
def test_work_that_failed_is_told_in_our_words_at_whatever_call(kind: type[Exception]) -> None:
    """CUDA tells it late; the current GPU is left as it was where that can be."""
    driver, cupy, _ = stand_in.driver()
    event = SimpleNamespace(
        synchronize=mock.Mock(side_effect=kind("cudaErrorIllegalAddress: an illegal access"))
    )
    cupy.gpu = 1
    said = "backend cuda: expected work on Stand-in to succeed, found cudaErrorIllegalAddress: an illegal access; start"
    with pytest.raises(BackendError, match=said) as told:
        driver.synchronize(event)
    assert isinstance(told.value.__cause__, kind)
    assert cupy.gpu == 1
    driver.make_current = mock.Mock(side_effect=kind("cudaErrorIllegalAddress: an illegal access"))
    with pytest.raises(BackendError, match=said):
        driver.synchronize(event)
    driver.current = mock.Mock(side_effect=kind("cudaErrorDevicesUnavailable: busy"))
    with pytest.raises(BackendError, match="cudaErrorDevicesUnavailable: busy"):
        driver.event()


def test_a_graph_without_memory_is_a_shortage_of_memory() -> None:
    driver, _, _ = stand_in.driver()
    stream = SimpleNamespace(
        end_capture=mock.Mock(
            side_effect=stand_in.CUDARuntimeError("cudaErrorMemoryAllocation: out of memory")
        )
    )
    with pytest.raises(
        DeviceMemoryError, match="expected memory on Stand-in for a stream, an event or a graph"
    ):
        driver.end_capture(stream)


def test_a_text_is_compiled_by_cupy_and_a_kernel_holds_its_module() -> None:
    driver, _, _ = stand_in.driver()
    module = driver.load("KERNEL f(i8 x) { *(i8*)x = 5; }")
    function = module("f")
    held = weakref.ref(function.source.module)
    del module
    gc.collect()
    assert held() is not None


def test_an_array_holds_its_buffer_and_waits_for_what_is_computed() -> None:
    driver, cupy, _ = stand_in.driver()
    first = driver.stream()
    buffer = driver.allocate(24)
    shape, dtype, memory, offset = driver.array(buffer, (2, 3), "float32")
    assert (shape, dtype, offset) == ((2, 3), "float32", 0)
    assert (memory.pointer, memory.nbytes, memory.holder, memory.device) == (buffer.pointer, 24, buffer, 0)
    (name, event, stream), (waits, other, same) = cupy.asked[-2:]
    assert (name, waits, stream, same) == ("record", "wait", first, event)
    assert other is not first


def test_cupy_has_what_the_driver_asks_of_it() -> None:
    """What stands in for it here has nothing that CuPy lacks."""
    cupy = pytest.importorskip("cupy")
    ours = stand_in.StandIn()
    for name, value in vars(ours.cuda).items():
        real = getattr(cupy.cuda, name)
        for inner in vars(value) if isinstance(value, SimpleNamespace) else ():
            assert hasattr(real, inner), f"cupy.cuda.{name}.{inner}"
    for name, asked in (
        ("Stream", ["wait_event", "begin_capture", "end_capture"]),
        ("Graph", ["upload", "launch"]),
    ):
        assert [each for each in asked if not hasattr(getattr(cupy.cuda, name), each)] == []
    function = cupy.cuda.driver.launchKernel.__doc__
    assert function.startswith(
        "launchKernel(intptr_t f, unsigned int grid_dim_x, unsigned int grid_dim_y, unsigned int grid_dim_z, unsigned"
        " int block_dim_x, unsigned int block_dim_y, unsigned int block_dim_z, unsigned int shared_mem_bytes, intptr_t"
        " stream, intptr_t kernel_params, intptr_t extra)"
    )


@pytest.fixture
def on_stand_ins() -> Iterator[tuple[stand_in.StandIn, stand_in.Cublas]]:
    """The engine on the driver, on stand-ins, whose memory holds NaN until it is written."""
    driver, cupy, products = stand_in.driver()
    made = Device(driver)
    with (
        mock.patch.object(cuda, "device", lambda precision: made),
        mock.patch.object(cuda, "BACKEND", replace(cuda.BACKEND, check=lambda: None)),
    ):
        yield cupy, products


@pytest.mark.parametrize(
    "seed", [23, pytest.param(24, marks=on_gpu_kernels), pytest.param(112, marks=on_gpu_kernels)]
)  # in 23, a weight multiplies no rows
def test_the_engine_runs_programs_on_it(seed: int, on_stand_ins: Any) -> None:
    """All that the engine asks, the driver passes on to CuPy and cuBLAS, in their terms."""
    program = drawn(seed, 10**6)
    expected = fb.compile(program.block, "numpy", threads=1)
    found = fb.compile(program.block, "cuda", threads=1)
    assert_same(list(found.run(program.examples)), list(expected.run(program.examples)))
    (loss, gradients), (right, others) = (gradients_of(p, program.examples) for p in (found, expected))
    assert_same(np.array(loss), np.array(right))
    assert gradients.keys() == others.keys()
    for name in gradients:
        assert_same(gradients[name], others[name])


def test_a_training_step_multiplies_and_copies_in_the_order_of_streams(on_stand_ins: Any) -> None:
    """The stream that copies batches waits for the other one before each copy, and is waited for after it."""
    cupy, products = on_stand_ins
    block = fb.Map(fb.Vector(3) >> fb.Linear(2) >> fb.Function(lambda h: ops.sum(h * h)) >> fb.Loss())
    program = fb.compile(block, "cuda", threads=1, launch="straight")
    for rows in (1, 3, 2000, 2):
        float(program.value_and_grad([[[1.0, 2.0, 3.0]] * rows])[0])
    assert "gemm" in {name for name, *_ in products.asked}
    assert cupy.asked_for("launch")
    copying = {target: i for i, (kind, *_, target) in enumerate(cupy.asked) if kind == "copy"}
    main, copies = program.engine.device.stream, program.engine.device.copies
    assert {main.ptr, copies.ptr} == copying.keys()
    begun = [i for i, asked in enumerate(cupy.asked) if asked[0] == "copy" and asked[-1] == copies.ptr]
    assert len(begun) == 4
    for i in begun:
        kind, stream, event = cupy.asked[i - 1]
        assert (kind, stream) == ("wait", copies)
        assert ("record", event, main) in cupy.asked[:i]
        (kind, event, stream), (waits, other, same) = cupy.asked[i + 1 : i + 3]
        assert (kind, stream, waits, other, same) == ("record", copies, "wait", main, event)


@pytest.mark.gpu
@pytest.mark.skipif(not gpu_answers(), reason="there is no GPU")
def test_a_card_runs_kernels_in_the_order_of_streams_and_events() -> None:
    text = """
    KERNEL grow(i8 n, i8 x, i8 by) {
      for (i8 i = BLOCK * LANES_X + LANE_X; i < n; i += BLOCKS * LANES_X) ((f8*)x)[i] += as_f8(by);
    }
    KERNEL many(i8 a, i8 b, i8 c, i8 d, i8 e, i8 f, i8 g, i8 h, i8 i, i8 j, i8 k, i8 l, i8 m, i8 n, i8 o, i8 x) {
      if (LANE_X == 0 && BLOCK == 0) ((i8*)x)[0] = a + 2*b + 3*c + 4*d + 5*e + 6*f + 7*g + 8*h + 9*i + 10*j + 11*k
        + 12*l + 13*m + 14*n + 15*o;
    }
    """
    driver = load_driver()
    main, copies = driver.stream(), driver.stream()
    module = driver.load(text)
    n = 1_000_000
    buffer, staged = driver.allocate(8 * n), driver.pinned(8 * n)
    staged.view("f8")[:] = np.arange(n)
    allocated, copied = driver.event(), driver.event()
    driver.record(allocated, main)
    driver.wait(copies, allocated)
    driver.copy_in(buffer.pointer, staged, copies)
    driver.record(copied, copies)
    driver.wait(main, copied)
    bits = int(np.array([0.5]).view("i8")[0])
    for _ in range(10):
        driver.launch(module("grow"), 64, (256, 1), [n, buffer.pointer, bits], main)
    back = driver.pinned(8 * n)
    driver.copy_out(back, buffer.pointer, main)
    driver.launch(module("many"), 1, (32, 1), [*range(15), buffer.pointer], main)
    word = driver.pinned(8)
    driver.copy_out(word, buffer.pointer, main)
    wait_for(driver, main)
    np.testing.assert_array_equal(back.view("f8"), np.arange(n) + 5)
    assert word.view("i8")[0] == sum(i * (i + 1) for i in range(15))
    array = driver.array(buffer, (n,), "float64")
    assert float(array[3]) == 8
    with pytest.raises(BackendError, match="take smaller batches"):
        driver.allocate(1 << 50)
    driver.multiply(MatrixProduct("float32", 0, 3, 3, *[buffer.pointer] * 3, 3, 3, 3), main)
