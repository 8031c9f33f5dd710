"""Checks in processes of their own, each with a time limit: a crash or a hang there is a failure here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from benchmarks.gpu.record import Check
from foldbatch.engines.engine import LAUNCH_VARIABLE
from foldbatch.types import BackendName

ROOT = Path(__file__).resolve().parents[2]
TOOLS = "memcheck", "racecheck", "initcheck"
FOUND_ERRORS = 86  # the exit status that compute-sanitizer is asked for
NO_TESTS = 5  # pytest's exit status where there are none
LAST = 300  # characters of output that are kept


def law(backend: BackendName, seconds: float, way: str = "auto") -> Check:
    """Check random programs for some seconds, launched in a way: values and gradients against the oracle."""
    name = "random programs" if way == "auto" else f"random programs, {way}"
    if not (ROOT / "tests" / "programs").is_dir():
        return Check(name, "skipped", "there is no directory tests")
    command = [sys.executable, "-m", "tests.programs", "--seconds", f"{seconds:.0f}", "--engine", backend]
    return ran(name, command, seconds + 60, variables={LAUNCH_VARIABLE: way})


def card_tests(seconds: float) -> Check:
    """Run the tests that need a card, with pytest."""
    name = "tests marked gpu"
    if find_spec("pytest") is None:
        return Check(name, "skipped", "pytest is not installed")
    tests = sorted(
        str(p) for p in (ROOT / "tests").glob("**/test_*.py") if "mark.gpu" in p.read_text("utf-8")
    )
    if not tests:
        return Check(name, "skipped", "there are none")
    check = ran(name, [sys.executable, "-m", "pytest", "-m", "gpu", *tests], seconds, skipped=(NO_TESTS,))
    return (
        replace(check, state="skipped") if check.state == "passed" and " passed" not in check.found else check
    )


def module_tests(seconds: float) -> Check:
    """Run the tests of a module of PyTorch on a card, with pytest."""
    name = "a module of PyTorch"
    if find_spec("pytest") is None or find_spec("torch") is None:
        return Check(name, "skipped", "pytest or PyTorch is not installed")
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "tests/torch/test_on_cuda.py"]
    return ran(name, command, seconds, skipped=(NO_TESTS,))


def sanitized(backend: BackendName, tool: str, seconds: float) -> Check:
    """Run a training step of a small model under a tool of compute-sanitizer."""
    name = f"compute-sanitizer {tool}"
    command = sanitizer()
    if command is None:
        return Check(name, "skipped", "compute-sanitizer is not installed")
    small = [sys.executable, "-m", "benchmarks.gpu.small", "--backend", backend]
    asked = [command, "--tool", tool, "--error-exitcode", str(FOUND_ERRORS), *small]
    check = ran(name, asked, seconds)
    refused = "not supported" in check.found or "ran longer" in check.found
    return Check(name, "skipped", check.found) if check.state == "failed" and refused else check


def sanitizer() -> str | None:
    """Return the command compute-sanitizer, from the path or beside CUDA's compiler; else None."""
    compiler = shutil.which("nvcc")
    beside = Path(compiler).resolve().parent / "compute-sanitizer" if compiler else None
    return shutil.which("compute-sanitizer") or (str(beside) if beside and beside.exists() else None)


def ran(
    name: str,
    command: Sequence[str],
    seconds: float,
    skipped: Sequence[int] = (),
    variables: Mapping[str, str] | None = None,
) -> Check:
    """Run a command; the check fails when its exit status is not 0, or it runs longer than allowed.

    Args:
        name: of the check.
        command: and its arguments.
        seconds: that it may take.
        skipped: exit statuses that mean that there was nothing to check.
        variables: of the environment, beside those there are.

    >>> ran("nothing", [sys.executable, "-c", "print('fine')"], 20)
    Check(name='nothing', state='passed', found='fine')
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | dict(variables or {})
    process = subprocess.Popen(  # noqa: S603 - our own commands
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)  # with the processes that it started
        process.communicate()
        return Check(name, "failed", f"ran longer than {seconds:.0f} s")
    last = " ".join(output.split())[-LAST:]
    if process.returncode in skipped:
        return Check(name, "skipped", last)
    state = "passed" if process.returncode == 0 else "failed"
    return Check(name, state, last if state == "passed" else f"exit status {process.returncode}: {last}")
