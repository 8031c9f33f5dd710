"""What is missing is told in one sentence, with what to do; stand-ins play what may be missing."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from foldbatch.engines.cuda.drivers import card, cupy_driver
from foldbatch.engines.cuda.drivers.cupy_driver import CupyDriver, load_driver
from foldbatch.errors import BackendError
from tests.engines.cuda.stand_in import CUDARuntimeError, StandIn


class Libcuda:
    """NVIDIA's driver, as far as `card` asks it."""

    def __init__(self, version: int = 13000, devices: int = 1, status: int = 0) -> None:
        self.version, self.devices, self.status = version, devices, status

    def cuInit(self, flags: int) -> int:
        return self.status

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = self.devices
        return 0

    def cuDriverGetVersion(self, version: Any) -> int:
        version._obj.value = self.version
        return 0

    def cuGetErrorString(self, status: int, text: Any) -> int:
        text._obj.value = b"the driver is out of order"
        return 0


@contextmanager
def machine(
    libcuda: Libcuda | None = None, cupy: Any = None, *, libraries: dict[str, Any] | None = None
) -> Iterator[None]:
    """A machine with a driver, CuPy and other libraries, or without."""

    def load(name: str, mode: int = 0) -> Any:
        there = {card.DRIVER: libcuda, **(libraries or {})}
        if there.get(name) is None:
            raise OSError(f"{name}: cannot open shared object file")
        return there[name]

    runtime = None if cupy is None else SimpleNamespace(**vars(cupy.cuda.runtime))
    if runtime is not None:
        runtime.is_hip = cupy.is_hip
    modules = {"cupy": cupy, "cupy_backends.cuda.api.runtime": runtime}
    with (
        mock.patch.object(card, "find_spec", lambda name: cupy),
        mock.patch.object(ctypes, "CDLL", load),
        mock.patch.dict(sys.modules, modules),
    ):
        yield


def test_where_all_is_there_it_is_cupy() -> None:
    cupy = StandIn()
    with machine(Libcuda(), cupy):
        assert card.check() is cupy


def without_gpu(monkeypatch: pytest.MonkeyPatch, visible: str | None) -> None:
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)


@pytest.mark.parametrize(
    ("libcuda", "cupy", "visible", "expected"),
    [
        (
            Libcuda(),
            None,
            None,
            "expected CuPy to be installed, found none; pip install 'foldbatch[cuda13]', or take the backend numba",
        ),
        (
            Libcuda(12040),
            None,
            None,
            "expected CuPy to be installed, found none; pip install 'foldbatch[cuda12]', or take the backend numba",
        ),
        (
            None,
            None,
            None,
            "expected CuPy to be installed, found none; pip install 'foldbatch[cuda13]', or take the backend numba",
        ),
        (
            None,
            StandIn(),
            None,
            "expected NVIDIA's driver, found no libcuda.so.1; install the driver, or take the backend numba",
        ),
        (
            Libcuda(devices=0),
            StandIn(),
            None,
            "expected a GPU, found none; see whether nvidia-smi lists one, or take the backend numba",
        ),
        (
            Libcuda(devices=0, status=100),
            StandIn(),
            "",
            (
                "expected a GPU, found none, with CUDA_VISIBLE_DEVICES=''; set CUDA_VISIBLE_DEVICES to 0, or take the"
                " backend numba"
            ),
        ),
        (
            Libcuda(devices=0, status=803),
            StandIn(),
            None,
            (
                "expected NVIDIA's driver to start, found 'the driver is out of order' (error 803); run nvidia-smi and"
                " mend what it says, or take the backend numba"
            ),
        ),
        (
            Libcuda(12040),
            StandIn(13000),
            None,
            (
                "expected a driver for CUDA 13 (580 or later), which CuPy is made for, found one for CUDA 12.4; update the"
                " driver, or pip uninstall the CuPy there is, then pip install 'foldbatch[cuda12]'"
            ),
        ),
        (
            Libcuda(11080),
            StandIn(12090),
            None,
            (
                "expected a driver for CUDA 12 (525.60 or later), which CuPy is made for, found one for CUDA 11.8; update the"
                " driver, or pip uninstall the CuPy there is, then pip install 'foldbatch[cuda13]'"
            ),
        ),
    ],
)
def test_what_is_missing_is_told(
    monkeypatch: pytest.MonkeyPatch, libcuda: Libcuda | None, cupy: Any, visible: str | None, expected: str
) -> None:
    without_gpu(monkeypatch, visible)
    with machine(libcuda, cupy), pytest.raises(BackendError) as error:
        load_driver()
    assert str(error.value) == f"backend cuda: {expected}"


def test_a_gpu_of_another_make_is_told() -> None:
    cupy = StandIn()
    cupy.is_hip = True
    with (
        machine(Libcuda(), cupy),
        pytest.raises(BackendError, match="expected CuPy for CUDA, found CuPy for ROCm"),
    ):
        card.check()


def test_what_cupy_says_is_told() -> None:
    cupy = StandIn()
    cupy.cuda.runtime.getDeviceCount = mock.Mock(side_effect=CUDARuntimeError("cudaErrorNotPermitted: no"))
    with (
        machine(Libcuda(), cupy),
        pytest.raises(
            BackendError, match="CuPy to reach the GPU, found cudaErrorNotPermitted: no; run nvidia-smi"
        ),
    ):
        card.check()


def test_a_broken_cupy_is_told() -> None:
    broken = mock.patch.object(
        card, "import_module", mock.Mock(side_effect=ImportError("libcudart is missing\nsee"))
    )
    with (
        machine(Libcuda(), StandIn()),
        broken,
        pytest.raises(
            BackendError, match="expected CuPy to work, found libcudart is missing; install CuPy anew: pip"
        ),
    ):
        card.check()


def test_cublas_comes_with_cupy_or_is_told_of() -> None:
    library = object()
    with (
        mock.patch.object(card, "import_module", mock.Mock()),
        machine(None, StandIn(), libraries={"libcublas.so.12": library}),
    ):
        assert card.cublas(12) is library
        with pytest.raises(
            BackendError, match=r"cuBLAS of CUDA 13, found libcublas.so.13: .* 'foldbatch\[cuda13\]'"
        ):
            card.cublas(13)
    with (
        mock.patch.object(card, "import_module", mock.Mock(side_effect=ImportError("no cublasLt\nin /"))),
        pytest.raises(
            BackendError, match=r"cuBLAS of CUDA 12, found no cublasLt; pip install 'foldbatch\[cuda12\]'$"
        ),
    ):
        card.cublas(12)


def test_no_compiler_and_no_products_are_told_when_a_driver_is_made() -> None:
    cupy = StandIn(12090)
    missing = BackendError("backend cuda", "NVRTC", "none", "pip install it")
    with (
        mock.patch.object(card, "import_module", mock.Mock(side_effect=ImportError("no libnvrtc\nin /"))),
        pytest.raises(
            BackendError, match=r"NVRTC of CUDA 12, found no libnvrtc; pip install 'foldbatch\[cuda12\]'$"
        ),
    ):
        CupyDriver(cupy, "fp32")
    with (
        mock.patch.object(cupy_driver, "check_compiler", lambda major: None),
        mock.patch.object(cupy_driver, "cublas", mock.Mock(side_effect=missing)) as cublas,
    ):
        with pytest.raises(BackendError):
            CupyDriver(cupy, "fp32")
        cublas.assert_called_once_with(12)
