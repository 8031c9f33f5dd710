"""On what laws are checked, and what holds on every backend.

That is NumPy's engine, or the one that the environment names: the CUDA engine on the CPU, in a run of the tests of its own.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

from foldbatch.engines.engine import ENGINES, VARIABLE

ENGINES["cuda-on-cpu"] = ("tests.engines.cuda.on_cpu", "")  # what the CUDA engine runs on a GPU, on the CPU
ENGINES["cuda-on-ptx"] = ("tests.ptx.driver", "")  # the same as NVRTC compiles it, every access checked

TESTED = os.environ.get(VARIABLE) or "numpy"
NUMBA = ("numba",) if TESTED == "numpy" and find_spec("numba") else ()
on_gpu_kernels = pytest.mark.skipif(TESTED != "cuda-on-cpu", reason=f"{VARIABLE} is not cuda-on-cpu")
BACKENDS = tuple(dict.fromkeys((TESTED, "reference", *NUMBA)))
