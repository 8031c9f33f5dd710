"""Launchers of real processes, by the library that connects these: the same tests run over each."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT = 120  # seconds


def command(launcher: str, ranks: int = 2) -> list[str] | None:
    """Return what starts Python in several processes; None where it is not installed."""
    if launcher == "mpiexec":
        program = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        return [program, "-n", str(ranks), sys.executable] if program and find_spec("mpi4py") else None
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return torchrun if find_spec("torch") else None


def needed(launcher: str):
    """Return a parameter of a test that is skipped where a launcher is not installed."""
    extra = {"mpiexec": "mpi", "torchrun": "torch"}[launcher]
    lacking = command(launcher) is None
    return pytest.param(
        launcher, marks=pytest.mark.skipif(lacking, reason=f"needs pip install -e '.[{extra}]'")
    )


LAUNCHERS = [needed("mpiexec"), needed("torchrun")]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "FOLDBATCH_BACKEND": "numpy", "OMP_NUM_THREADS": "1"}


def launched(launcher: str, *arguments: str, ranks: int = 2) -> subprocess.CompletedProcess[str]:
    """Run ``python -m`` in several processes."""
    return subprocess.run(
        [*command(launcher, ranks), "-m", *arguments],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
