"""What is not collected: modules that import what is not installed; and Ctrl-C, as in a terminal."""

import signal
from importlib.util import find_spec

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
        "benchmarks/inside_torch.py",
        "foldbatch/communicators/distributed.py",
        "foldbatch/torch/*",
    ],
    "mpi4py": ["foldbatch/communicators/mpi.py"],
    "onnx": ["foldbatch/exporting/*"],
    "starlette": ["foldbatch/serve/*"],
    "pyarrow": ["foldbatch/trees/arrow.py"],
    "sklearn": ["foldbatch/estimators.py", "foldbatch/train/libraries.py", "tests/test_estimators.py"],
    "torchmetrics": ["foldbatch/train/libraries.py"],
}
for library, rooms in AROUND.items():
    if not find_spec(library):
        collect_ignore_glob += rooms


@pytest.fixture(autouse=True)
def _names(doctest_namespace: dict[str, object]) -> None:
    """Examples in docstrings call the package `fb`, and NumPy `np`."""
    doctest_namespace.update(fb=fb, np=np)
