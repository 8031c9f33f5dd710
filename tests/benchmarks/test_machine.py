"""The machine is named, and what slows it down is said."""

import json
import os

from benchmarks.machine import FORCED, machine


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
