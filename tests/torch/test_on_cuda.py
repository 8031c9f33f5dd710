"""The checks of `tests.torch.on_cuda`: on the card that the CPU stands for, and, where there is one, on a GPU."""

from __future__ import annotations

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[torch]'")

import foldbatch as fb  # noqa: E402
from foldbatch.engines.engine import LAUNCH_VARIABLE  # noqa: E402
from foldbatch.errors import DeviceMemoryError  # noqa: E402
from tests.engines.cuda.emulated import gpu_answers, needs_compiler  # noqa: E402
from tests.torch.card import on_card  # noqa: E402
from tests.torch.models import loss_of, tree_of  # noqa: E402
from tests.torch.on_cuda import CHECKS, EXAMPLES, pair_on  # noqa: E402

pytestmark = pytest.mark.one_form
CUDA = bool(torch.cuda.is_available() and gpu_answers())
on_gpu = [pytest.mark.gpu, pytest.mark.skipif(not CUDA, reason="there is no GPU that PyTorch and CuPy see")]
PROCESSES = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    "place", [pytest.param("cpu", marks=needs_compiler), pytest.param("cuda", marks=on_gpu)]
)
def test_a_card(place, check):
    if place == "cuda":
        check("cuda")
    else:
        with on_card() as card:
            check("cpu")
            assert card.card.driver.calls


@needs_compiler
@pytest.mark.slow
def test_two_processes_train_on_the_card_that_the_cpu_stands_for():
    assert_ranks_are_equal("cpu")


def assert_ranks_are_equal(place):
    done = subprocess.run(
        [*PROCESSES, "-m", "tests.torch.on_cuda", place],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("equal") == 2


@pytest.mark.gpu
@pytest.mark.skipif(not CUDA, reason="there is no GPU that PyTorch and CuPy see")
class TestOnAGpu:
    def test_a_step_copies_no_tensor_and_waits_for_nothing(self):
        found = []
        for size in (16, 256):
            module = fb.torch.Module(loss_of(tree_of(size))).cuda()
            optimizer = torch.optim.Adam(module.parameters(), 0.01, fused=True)

            def step(module=module, optimizer=optimizer):
                optimizer.zero_grad()
                module.loss(EXAMPLES).backward()
                optimizer.step()

            for _ in range(4):
                step()
            torch.cuda.synchronize()
            torch.cuda.set_sync_debug_mode("error")  # of PyTorch's own calls
            try:
                with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
                    step()
            finally:
                torch.cuda.set_sync_debug_mode("default")
            names = [event.name for event in profile.events()]
            found.append(
                (sum("Memcpy HtoD" in name for name in names), sum("Memcpy DtoH" in name for name in names))
            )
        assert found[0] == found[1]
        assert found[0][1] <= 1

    def test_work_follows_pytorchs_stream(self):
        plain, module = pair_on("cuda", lambda: tree_of(64))
        stream, busy = torch.cuda.Stream(), torch.randn(4096, 4096, device="cuda")
        with torch.no_grad():
            module(EXAMPLES)
            with torch.cuda.stream(stream):
                for _ in range(20):
                    busy = busy @ busy / 4096
                for (
                    parameter
                ) in module.parameters():  # after all that: a call on another stream would not see it
                    parameter.mul_(0.5)
                results = module(EXAMPLES)
            for parameter in plain.parameters():
                parameter.mul_(0.5)
            stream.synchronize()
            torch.testing.assert_close(results.cpu(), plain(EXAMPLES), rtol=1e-4, atol=1e-5)

    def test_memory_that_is_short_is_told(self):
        module = fb.torch.Module(tree_of(64)).cuda()
        module(EXAMPLES)
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 2**20) / total)
        try:
            with pytest.raises(DeviceMemoryError, match="more memory on"):
                module(EXAMPLES * 20_000)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        assert free
        (module(EXAMPLES) ** 2).sum().backward()

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_captured_graphs_compute_the_same(self, check, monkeypatch):
        monkeypatch.setenv(LAUNCH_VARIABLE, "captured")
        check("cuda")

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_autocast_rounds_factors(self, dtype):
        module = fb.torch.Module(fb.Vector(512) >> fb.Linear(512, name="wide")).cuda()
        x = fb.torch.rows(torch.randn(512, 512, device="cuda"))
        with torch.no_grad():
            exact = module(x)
            with torch.autocast("cuda", dtype):
                rounded = module(x)
        difference = (rounded - exact).abs().max() / exact.abs().max()
        assert 1e-6 < difference < 3e-2

    @pytest.mark.slow
    def test_two_processes_share_a_card(self):
        assert_ranks_are_equal("cuda:0")
