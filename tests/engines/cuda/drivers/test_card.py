"""Whether there is a card, and a driver for it."""

import ctypes
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from foldbatch.engines.cuda import cupy_driver
from foldbatch.engines.cuda.cupy_driver import CupyDriver, load_driver
from foldbatch.engines.cuda.driver import Driver, MatrixProduct
from foldbatch.errors import BackendError
from tests.engines.cuda.emulator import Emulator
from tests.engines.cuda.late import Late
from tests.engines.cuda.stand_in import CUDARuntimeError, StandIn

ANEW = "pip install -e '.[cuda13]' in the checkout, or the extra cuda12 where the driver is older than 580"
NO_DEVICE = "cudaErrorNoDevice: no CUDA-capable device is detected"
OR = "or take the backend llvm"
MEND = f"run nvidia-smi and mend what it says, {OR}"


@contextmanager
def machine(cupy: Any = None, *, libraries: dict[str, Any] | None = None) -> Iterator[None]:
    """A machine with CuPy and libraries, or without."""

    def load(name: str, mode: int = 0) -> Any:
        if name not in (libraries or {}):
            raise OSError(f"{name}: cannot open shared object file")
        return libraries[name]  # type: ignore[index]

    runtime = None if cupy is None else SimpleNamespace(**vars(cupy.cuda.runtime))
    if runtime is not None:
        runtime.is_hip = cupy.is_hip
    modules = {"cupy": cupy, "cupy_backends.cuda.api.runtime": runtime}
    with (
        mock.patch.object(cupy_driver, "find_spec", lambda name: cupy),
        mock.patch.object(ctypes, "CDLL", load),
        mock.patch.dict(sys.modules, modules),
    ):
        yield


def unable(why: str) -> Any:
    """Let modules that the driver imports be broken."""
    return mock.patch.object(cupy_driver, "import_module", mock.Mock(side_effect=ImportError(why)))


def without_gpu() -> StandIn:
    cupy = StandIn()
    cupy.cuda.runtime.getDeviceCount = mock.Mock(side_effect=CUDARuntimeError(NO_DEVICE))
    return cupy


def test_where_all_is_there_it_is_cupy() -> None:
    cupy = StandIn()
    with machine(cupy):
        assert cupy_driver.check() is cupy


@pytest.mark.parametrize(
    ("cupy", "visible", "expected"),
    [
        (None, None, f"expected CuPy to be installed, found none; {ANEW}; {OR}"),
        (StandIn(driver=0), None, f"expected NVIDIA's driver, found none; install the driver, {OR}"),
        (without_gpu(), None, f"expected a GPU, found {NO_DEVICE}; {MEND}"),
        (without_gpu(), "", f"expected a GPU, found {NO_DEVICE}, with CUDA_VISIBLE_DEVICES=''; {MEND}"),
        (
            StandIn(13000, 12040),
            None,
            (
                "expected a driver for CUDA 13 (580 or later), which CuPy is made for, found one for CUDA 12.4; update the"
                f" driver, or pip uninstall the CuPy there is, then {ANEW}"
            ),
        ),
        (
            StandIn(12090, 11080),
            None,
            (
                "expected a driver for CUDA 12 (525.60 or later), which CuPy is made for, found one for CUDA 11.8; update the"
                f" driver, or pip uninstall the CuPy there is, then {ANEW}"
            ),
        ),
    ],
)
def test_what_is_missing_is_told(monkeypatch, cupy, visible, expected):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with machine(cupy), pytest.raises(BackendError) as error:
        load_driver()
    assert str(error.value) == f"backend cuda: {expected}"


def test_a_gpu_of_another_make_is_told() -> None:
    cupy = StandIn()
    cupy.is_hip = True
    with machine(cupy), pytest.raises(BackendError, match="expected CuPy for CUDA, found CuPy for ROCm"):
        cupy_driver.check()


def test_a_broken_cupy_is_told() -> None:
    said = "expected CuPy to work, found libcudart is missing; install CuPy anew: pip"
    with machine(StandIn()), unable("libcudart is missing\nsee"), pytest.raises(BackendError, match=said):
        cupy_driver.check()


def test_cublas_comes_with_cupy_or_is_told_of() -> None:
    library = object()
    with (
        mock.patch.object(cupy_driver, "import_module", mock.Mock()),
        machine(StandIn(), libraries={"libcublas.so.12": library}),
    ):
        assert cupy_driver.cublas(12) is library
        with pytest.raises(BackendError, match=r"cuBLAS of CUDA 13, found libcublas.so.13: .* '.\[cuda13\]'"):
            cupy_driver.cublas(13)
    said = r"cuBLAS of CUDA 12, found no cublasLt; pip install -e '.\[cuda12\]' in the checkout$"
    with unable("no cublasLt\nin /"), pytest.raises(BackendError, match=said):
        cupy_driver.cublas(12)


def test_no_compiler_and_no_products_are_told_when_a_driver_is_made() -> None:
    cupy = StandIn(12090)
    missing = BackendError("backend cuda", "NVRTC", "none", "pip install it")
    said = r"NVRTC of CUDA 12, found no libnvrtc; pip install -e '.\[cuda12\]' in the checkout$"
    with unable("no libnvrtc\nin /"), pytest.raises(BackendError, match=said):
        CupyDriver(cupy, "fp32")
    with (
        mock.patch.object(cupy_driver, "check_compiler", lambda major: None),
        mock.patch.object(cupy_driver, "cublas", mock.Mock(side_effect=missing)) as cublas,
    ):
        with pytest.raises(BackendError):
            CupyDriver(cupy, "fp32")
        cublas.assert_called_once_with(12)


ASKED = [
    name for name, value in vars(Driver).items() if inspect.isfunction(value) and not name.startswith("_")
]


@pytest.mark.parametrize("kind", [CupyDriver, Emulator, Late])
def test_every_driver_answers_what_the_engine_asks(kind):
    assert len(ASKED) > 10
    for name in ASKED:
        wanted, found = (inspect.signature(getattr(one, name)).parameters for one in (Driver, kind))
        assert list(found) == list(wanted), name


def test_a_product_is_plain_data():
    product = MatrixProduct("float32", 2, 3, 4, 256, 512, 768, 4, 3, 3)
    assert (product.a_across, product.b_across, product.adds, product.count) == (False, False, False, 1)
    assert product == MatrixProduct("float32", 2, 3, 4, 256, 512, 768, 4, 3, 3)
