"""Compiling kernels for GPUs that are not here, and what they would take of them."""

import ctypes
import os
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import foldbatch as fb
from benchmarks.zoo_models import MODELS
from foldbatch.engines.cuda.device import Device
from foldbatch.errors import BackendError
from tests.engines.cuda import nvrtc as module
from tests.engines.cuda import on_cpu
from tests.engines.cuda.emulator import Emulator
from tests.engines.cuda.launches.shift_reduce import EXAMPLE, shift_reduce
from tests.engines.cuda.nvrtc import architecture, compiled, nvrtc
from tests.engines.cuda.resources import resources


def has_nvrtc() -> bool:
    try:
        return bool(nvrtc())
    except BackendError:
        return False


needs_nvrtc = pytest.mark.skipif(
    not has_nvrtc(), reason="NVRTC is not installed: pip install nvidia-cuda-nvrtc"
)

STACK = 64  # bytes: what sin and cos of large numbers need

SOME = """
KERNEL bent(i8 n, i8 x, i8 y, i8 scale) {
  SHARED f4 first[64];
  f4* p = (f4*)x;
  f8* q = (f8*)y;
  if (LANE_X < 64) first[LANE_X] = p[LANE_X];
  BARRIER();
  for (i8 i = BLOCK * LANES_X + LANE_X; i < n; i += BLOCKS * LANES_X) {
    p[i] = sigmoid_f4(p[i]) + tanhf(p[i]) * first[i % 64] + logf(p[i]) - F4_INF;
    q[i] = sigmoid_f8(q[i]) + tanh(q[i]) + log1p(q[i]) * as_f8(scale) + (f8)mixed((u8)i) + F8_INF;
  }
  if (CLAIMED(y, 7)) MOST(y, earliest(3, -1)), p[0] = (f4)min_i8(BLOCK, max_i8(LANE_Y, LANES_Y));
}
KERNEL plain(i8 x) { ((i8*)x)[0] = 1; }
KERNEL large(i8 n, i8 x) {
  f4 kept[200];
  for (i8 i = 0; i < 200; i++) kept[i] = ((f4*)x)[i * n];
  for (i8 i = 0; i < n; i++) ((f4*)x)[i] = kept[((i8*)x)[i]];
}
"""


@needs_nvrtc
@pytest.mark.parametrize("where", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_all_that_a_text_may_call_compiles_without_a_warning(where, tmp_path, monkeypatch):
    """And is told what it takes; a second time it comes from the disk, by what it holds."""
    monkeypatch.setenv("FOLDBATCH_CACHE", str(tmp_path))
    taken = resources(SOME, where)
    assert sorted(taken) == ["bent", "large", "plain"]
    assert 16 <= taken["bent"].registers <= 128
    assert (taken["bent"].shared, taken["plain"].shared) == (256, 0)
    assert (taken["bent"].spilled, taken["plain"].stack, taken["large"].stack) == (0, 0, 800)
    first = compiled(SOME, where)
    assert first.code.startswith(b"\x7fELF")
    assert "warning" not in first.log
    with mock.patch.object(module.Nvrtc, "compile", mock.Mock(side_effect=AssertionError("compiled again"))):
        assert compiled(SOME, where) == first
        assert resources(SOME, where) == taken
        with pytest.raises(AssertionError, match="compiled again"):
            compiled(SOME + " ", where)


@needs_nvrtc
def test_a_mistake_is_shown_with_its_line_and_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDBATCH_CACHE", "")
    with pytest.raises(AssertionError) as error:
        compiled("\nKERNEL f(i8 a) {\n  i8 b = a +;\n}\n", "sm_90")
    text = str(error.value)
    assert "NVRTC for sm_90" in text
    assert "kernels(3): error: expected an expression" in text
    assert "  i8 b = a +;\n" in text
    assert " ^" in text


@needs_nvrtc
def test_what_nvrtc_cannot_do_is_an_error_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDBATCH_CACHE", "")
    with pytest.raises(
        BackendError, match="NVRTC's nvrtcCompileProgram to work, found nvrtc: error: invalid value"
    ):
        compiled(SOME, "sm_91")


@needs_nvrtc
def test_it_knows_todays_gpus() -> None:
    assert nvrtc().version[0] in module.MAJORS
    assert {75, 80, 86, 89, 90, 100, 120} <= set(nvrtc().architectures)
    assert nvrtc(nvrtc().version[0]).version == nvrtc().version


def test_an_architecture_is_the_last_that_runs_on_the_gpu() -> None:
    known = [75, 80, 86, 89, 90, 100, 103, 120]
    chosen = {gpu: architecture(gpu, known) for gpu in [(8, 0), (8, 7), (8, 9), (9, 0), (10, 3), (12, 1)]}
    assert list(chosen.values()) == ["sm_80", "sm_86", "sm_89", "sm_90", "sm_103", "sm_120"]
    for old in ((7, 0), (11, 0)):
        with pytest.raises(
            BackendError, match=rf"NVRTC for GPUs of compute capability {old[0]}.0, found one for 7.5, 8.0"
        ):
            architecture(old, known)


def test_it_is_looked_for_where_it_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First what is in use already; then wheels, the toolkits that variables name, and the system."""
    monkeypatch.setenv("CUDA_HOME", "/opt/cuda")
    monkeypatch.delenv("CUDA_PATH", raising=False)
    wheels = ModuleSpec("nvidia", None, is_package=True)
    wheels.submodule_search_locations = ["/site/nvidia"]
    with mock.patch.object(module, "find_spec", lambda name: wheels):
        places = [path for path, _ in module._places((12,))]
    assert places[:6] == [
        "libnvrtc.so.12",
        "/site/nvidia/cu12/lib/libnvrtc.so.12",
        "/site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
        "/opt/cuda/lib64/libnvrtc.so.12",
        "/opt/cuda/lib/libnvrtc.so.12",
        "/usr/local/cuda/lib64/libnvrtc.so.12",
    ]
    assert places[-1] == "libnvrtc.so.12"
    opened: list[Any] = []

    def load(path: str, mode: int = 0) -> Any:
        opened.append((path, mode))
        raise OSError(path)

    with mock.patch.object(module, "find_spec", lambda name: None), mock.patch.object(ctypes, "CDLL", load):
        for major, package in [
            (None, "nvidia-cuda-nvrtc"),
            (13, "nvidia-cuda-nvrtc"),
            (12, "nvidia-cuda-nvrtc-cu12"),
        ]:
            opened.clear()
            with pytest.raises(
                BackendError, match=rf"NVRTC.*, which compiles kernels, found none; pip .* {package}$"
            ):
                nvrtc.__wrapped__(major)
            assert opened[0][1] & os.RTLD_NOLOAD
            assert opened[-1][1] == os.RTLD_NOW


class Listener(Emulator):
    """The emulator, which notes each text that it loads, and how many threads each of its kernels runs with."""

    def __init__(self) -> None:
        self.threads: dict[str, dict[str, int]] = {}
        self.kernels: dict[int, tuple[str, str]] = {}

    def load(self, source: str) -> Any:
        loaded = super().load(source)
        self.threads[source] = {}

        def function(name: str) -> Any:
            made = loaded(name)
            self.kernels[made.address] = source, name
            return made

        return function

    def launch(
        self, function: Any, blocks: int, threads: tuple[int, int], arguments: Any, stream: Any
    ) -> None:
        source, name = self.kernels[function.address]
        self.threads[source][name] = max(threads[0] * threads[1], self.threads[source].get(name, 0))
        super().launch(function, blocks, threads, arguments, stream)


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "model"),
    [("sm_75", "tree over BiLSTM"), ("sm_90", "shift-reduce"), ("sm_120", "BiLSTM tagger")],
)
def test_all_kernels_of_a_training_step_fit_a_gpu(where: str, model: str) -> None:
    """They compile without warnings, keep all in registers, and a block's registers and shared memory suffice."""
    device = Device(Listener())
    tree = fb.trees.parse_brackets("(1 (2 a) (3 (1 bb) (2 ccc)))", labels=int)
    if model == "shift-reduce":
        block, examples = shift_reduce(), [EXAMPLE]
    else:
        block, examples = MODELS[model].block(4, fb.trees.Vocabulary(tree.words())), [tree]
    with mock.patch.object(on_cpu, "device", lambda: device):
        program = fb.compile(block, "cuda-on-cpu")
        _, gradients = program.value_and_grad(examples)
        fb.Adam(lr=0.01).update(program.params, gradients)
    kernels = 0
    for text, threads in device.driver.threads.items():
        assert "warning" not in compiled(text, where).log
        for name, taken in resources(text, where).items():
            assert taken.spilled == 0, name
            assert taken.stack <= STACK, name
            assert taken.shared <= 48 << 10, name
            assert -(-taken.registers // 8) * 8 * threads.get(name, 256) <= 64 << 10, name
            kernels += 1
    assert kernels > 30
