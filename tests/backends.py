"""On what laws are checked, and what holds on every backend.

`LAWFUL` are the engines that the laws bind: those that FOLDBATCH_LAWS of the environment names, by default NumPy's and
LLVM's, or the one that FOLDBATCH_BACKEND names. All else is tested on NumPy's, or that one.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from unittest import mock

import pytest

from foldbatch.engines import threads
from foldbatch.engines.cuda import few_rows, kernels, matrices, row_texts, trials
from foldbatch.engines.engine import ENGINES, LAUNCH_VARIABLE, VARIABLE, check_precision, choose_engine
from foldbatch.errors import BackendError

ENGINES["cuda-on-cpu"] = ("tests.engines.cuda.on_cpu", "")  # what the CUDA engine runs on a GPU, on the CPU
ENGINES["cuda-on-ptx"] = ("tests.ptx.driver", "")  # the same as NVRTC compiles it, every access checked
UNFUSED = {"unfused": ("tests.engines.unfused", "llvmlite")}  # LLVM's, with nothing to compile for a model

TESTED = os.environ.get(VARIABLE) or "numpy"
LLVM = ("llvm",) if TESTED == "numpy" and find_spec("llvmlite") else ()
on_gpu_kernels = pytest.mark.skipif(TESTED != "cuda-on-cpu", reason=f"{VARIABLE} is not cuda-on-cpu")
BACKENDS = tuple(dict.fromkeys((TESTED, "reference", *LLVM)))
LAWFUL = tuple((os.environ.get("FOLDBATCH_LAWS") or " ".join((TESTED, *LLVM))).split())
assert set(LAWFUL) <= {*ENGINES, *UNFUSED}, LAWFUL


def lacking(engine: str) -> str:
    """Return what an engine needs and is not there; nothing where everything is."""
    if engine in ("llvm", "unfused") and not find_spec("llvmlite"):
        return "llvmlite is not installed"
    if engine == "cuda":
        from tests.engines.cuda.emulated import gpu_answers  # noqa: PLC0415 - it asks the driver

        return "" if gpu_answers() else "there is no GPU"
    if engine == "cuda-on-cpu" and shutil.which("gcc") is None:
        return "there is no C compiler"
    if engine == "cuda-on-ptx":
        from tests.ptx import needed  # noqa: PLC0415 - it looks for NVRTC

        return needed.lacking()
    return ""


def lacking_bf16() -> str:
    """Return what LLVM's engine lacks here to compute in bfloat16; nothing where it does."""
    try:
        check_precision("bf16", choose_engine("llvm"))
    except BackendError as error:
        return str(error)
    return ""


needs_llvm = [pytest.mark.llvm, pytest.mark.skipif(bool(lacking("llvm")), reason=lacking("llvm"))]
lawful = pytest.mark.parametrize(
    "engine",
    [
        pytest.param(
            name,
            marks=[pytest.mark.skipif(bool(lacking(name)), reason=lacking(name))]
            + [pytest.mark.llvm] * (name == "llvm"),
        )
        for name in LAWFUL
    ],
)


@contextmanager
def running(engine: str, number: int) -> Iterator[str]:
    """Let an engine run small batches in the ways of large ones, by turns; yield the name to compile for.

    Work is cut for threads however little it is; the LLVM engine multiplies known rows before a recursion however few
    they are, and fuses no loops in each fourth program; each second one is a captured graph on the CUDA engine, or
    all or none where FOLDBATCH_LAUNCH says so, two of four multiply small weights as it does large ones, and one of
    three has all kernels on trial. Of 64 programs on PTX 8 are compiled as for GPUs, in all these ways, and the others
    in a third of the time.
    """
    with ExitStack() as stack:
        stack.enter_context(mock.patch.multiple(threads, CALLS_PER_PART=1, MULTIPLICATIONS_PER_PART=1))
        if engine == "llvm" and number % 4 == 3:
            stack.enter_context(mock.patch.dict(ENGINES, UNFUSED))
            engine = "unfused"
        if engine in ("llvm", "unfused") and number % 2:
            stack.enter_context(always_known())
        way = os.environ.get(LAUNCH_VARIABLE, "captured" if number % 2 else "straight")
        if (
            engine == "cuda"
        ):  # of two ways sums differ in their last bits: cuBLAS multiplies all the room of a class
            stack.enter_context(mock.patch.dict(os.environ, {LAUNCH_VARIABLE: way}))
        if engine.startswith("cuda") and (way == "captured" or (way == "auto" and number % 2)):
            from tests.engines.cuda.on_cpu import always_captured  # noqa: PLC0415 - others do not need it

            stack.enter_context(mock.patch.dict(os.environ, {LAUNCH_VARIABLE: "captured"}))
            stack.enter_context(always_captured())
        if engine.startswith("cuda") and number % 4 > 1:
            stack.enter_context(mock.patch.object(matrices, "SMALL_WEIGHT", 0))
            stack.enter_context(mock.patch.object(kernels, "LARGE", 1))
            if number % 8 > 5:
                stack.enter_context(mock.patch.object(few_rows, "is_small_product", lambda *product: False))
        if engine.startswith("cuda") and number % 3 > 1:
            stack.enter_context(mock.patch.dict(os.environ, {trials.VARIABLE: ",".join(trials.TRIALS)}))
            stack.enter_context(mock.patch.object(row_texts, "SUM_READERS", 2))
        if engine == "cuda-on-ptx" and number // 8 % 8:
            from tests.ptx.driver import compiled_quickly  # noqa: PLC0415 - others do not need it

            stack.enter_context(compiled_quickly())
        yield engine


@contextmanager
def always_known() -> Iterator[None]:
    """Let the LLVM engine multiply known rows before a recursion, however few there are."""
    from foldbatch.engines.llvm import known  # noqa: PLC0415 - they need llvmlite

    always = mock.patch.multiple(known, FEWEST=1, MIN_SHARE=0.0)
    with always, mock.patch.object(known, "SMALLEST", 1):
        yield
