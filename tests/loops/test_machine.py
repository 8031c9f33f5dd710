"""Machine code is for the processor that is told, and what loading returns can be called."""

import os
import subprocess
import sys

import pytest

from foldbatch.errors import BackendError
from tests.backends import needs_llvm

pytestmark = needs_llvm

PROGRAM = """
import numpy as np
from foldbatch.loops import machine, translation, vector_functions
from tests.engines.llvm.walking import run_native
text = "# f4 f4\\ndef loop(n, x, y, s):\\n    for i in range(n):\\n        y[i] = tanh(x[i])\\n"
x, y = np.linspace(-2, 2, 100, dtype="float32"), np.zeros(100, "float32")
run_native(text, 100, [x, y], [])
np.testing.assert_allclose(y, np.tanh(x), rtol=1e-6)
made = str(machine.optimized(translation.translate("f", text, vector_functions.SCOPE)))
print(machine.processor()[0], "<16 x float>" in made, "<4 x float>" in made)
"""


def test_the_processor_may_be_named() -> None:
    """Of one without AVX vectors are narrower, and functions are as exact."""
    named = {"FOLDBATCH_CPU": "nehalem", "FOLDBATCH_CPU_FEATURES": "", "FOLDBATCH_CACHE": ""}
    command = [sys.executable, "-c", PROGRAM]
    run = subprocess.run(command, env=os.environ | named, check=True, capture_output=True, text=True)
    assert run.stdout.split() == ["nehalem", "False", "True"]


def test_the_identity_tells_name_features_and_versions() -> None:
    import llvmlite  # noqa: PLC0415 - optional

    from foldbatch.loops import machine  # noqa: PLC0415 - it needs llvmlite

    lines = machine.identity().splitlines()
    assert lines[0] == llvmlite.__version__
    assert lines[2:] == list(machine.processor())


def test_features_that_would_end_the_process_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from foldbatch.loops import machine  # noqa: PLC0415 - it needs llvmlite

    for wrong in ("avx2", "+avx2, -avx", "+avx2,,-avx"):
        monkeypatch.setenv("FOLDBATCH_CPU_FEATURES", wrong)
        with pytest.raises(BackendError, match="expected features in LLVM's words, found"):
            machine.processor.__wrapped__()
