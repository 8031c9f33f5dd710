"""The machine is named, and what slows it down is said."""

import json
import os

from foldbatch.bench.machine import FORCED, Blas, Machine, machine


def test_the_machine_line_names_what_figures_depend_on(monkeypatch) -> None:
    """A figure without its machine says nothing."""
    monkeypatch.delenv(FORCED, raising=False)
    found = machine()
    assert found.cores == os.cpu_count()
    assert 1 <= found.usable <= found.cores
    assert found.blas
    assert all(b.threads >= 1 and b.version and b.kernels for b in found.blas)
    assert {"Python", "NumPy"} <= found.versions.keys()
    assert json.loads(json.dumps(found.as_dict()))["processor"] == found.processor
    for part in (found.processor, found.blas[0].kernels, found.versions["NumPy"], "load"):
        assert part in str(found)
    assert "\n" not in str(found)


def test_forced_kernels_are_said(monkeypatch) -> None:
    """In a sentence of its own."""
    monkeypatch.setenv(FORCED, "Prescott")
    assert machine().forced == "Prescott"
    text = str(
        Machine("cpu", 4, 2, 0.5, (Blas("openblas", "1", "Prescott", 4),), {"Python": "3"}, "Prescott")
    )
    line, sentence = text.splitlines()
    assert (
        line
        == "cpu, 4 cores (2 usable), openblas 1 (Prescott kernels, 4 threads), Python 3, load 0.50 at the start"
    )
    assert sentence.startswith("OPENBLAS_CORETYPE=Prescott forces")
    assert "slower than the processor can" in sentence
