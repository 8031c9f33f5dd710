"""What is not collected: modules that need what is missing, tests that have passed. Ctrl-C as in a shell."""

import os
import signal
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import foldbatch as fb
import tests.backends  # noqa: F401 - enters the engine that runs the GPU's kernels on the CPU
from tests.ptx import needed

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so begins a shell's background job, and tests send it
    signal.signal(signal.SIGINT, signal.default_int_handler)

collect_ignore_glob = [] if find_spec("llvmlite") else ["foldbatch/engines/llvm/*", "tests/engines/llvm/*"]
if needed.lacking():  # NVRTC, or a C compiler: CI's second part has both, and a machine with a GPU
    for part in ("foldbatch/engines/cuda", "benchmarks/gpu"):
        collect_ignore_glob += [f"{part}/*", f"tests/{part.removeprefix('foldbatch/')}/*"]
    collect_ignore_glob.append("tests/ptx/*")
# Rooms around the model, by what they import; their tests say why they are skipped.
AROUND = {
    "torch": [
        "benchmarks/deciding_torch.py",
        "benchmarks/gpu/host_torch.py",
        "benchmarks/inside_torch.py",
        "benchmarks/jobs/recurrent.py",
        "foldbatch/contest/padded.py",
        "foldbatch/communicators/distributed.py",
        "foldbatch/torch/*",
        "tests/communicators/grouped.py",
        "tests/torch/card.py",
        "tests/torch/launchers/wrapped.py",
        "tests/torch/on_cuda.py",
    ],
    "mpi4py": ["foldbatch/communicators/mpi.py"],
    "onnx": ["foldbatch/exporting/*"],
    "starlette": ["foldbatch/serve/*"],
    "sympy": ["benchmarks/jobs/polynomials.py"],
    "pyarrow": ["foldbatch/trees/arrow.py"],
    "scipy": ["benchmarks/records.py", "benchmarks/records_baselines.py"],
    "sklearn": [
        "foldbatch/contest/tables.py",
        "foldbatch/estimators.py",
        "foldbatch/train/libraries.py",
        "tests/test_estimators.py",
    ],
    "torchmetrics": ["foldbatch/train/libraries.py"],
}
for library, rooms in AROUND.items():
    if not find_spec(library):
        collect_ignore_glob += rooms


@pytest.fixture(autouse=True)
def _names(doctest_namespace: dict[str, object]) -> None:
    """Examples in docstrings call the package `fb`, and NumPy `np`."""
    doctest_namespace.update(fb=fb, np=np)


# CI runs README's tests in a small environment, and with every extra those that did not pass there. The first
# run notes the tests that pass in a file that one variable names; the second run reads the other variable's.
WRITTEN, READ = "FOLDBATCH_TESTS_PASSED", "FOLDBATCH_TESTS_LEFT_OUT"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a test that has passed, where a run after this one leaves it out."""
    path = os.environ.get(WRITTEN)
    if path and "PYTEST_XDIST_WORKER" not in os.environ and report.when == "call" and report.passed:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{report.nodeid}\n")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that a run before this one has passed; without such a run, slow ones of all."""
    path, is_whole = os.environ.get(READ), config.args == config.getini("testpaths")
    if path:
        passed = set(Path(path).read_text(encoding="utf-8").splitlines())
        out = [item for item in items if item.nodeid in passed]
    elif is_whole and not config.getoption("markexpr"):
        out = [item for item in items if item.get_closest_marker("slow")]
    else:
        return
    config.hook.pytest_deselected(items=out)
    left_out = set(out)
    items[:] = [item for item in items if item not in left_out]
