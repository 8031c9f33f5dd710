"""Small runs of cases that no test of their own runs: each prints its rows."""

import json
from pathlib import Path

import pytest

from benchmarks import functions
from benchmarks.command import main

FEW = "--repeats 1 --backend numpy"
RUNS = {
    "planning": (f"--cells 1 --batch 2 --hidden 2 {FEW}", 4),
    "schedule": (f"--batch 4 --hidden 3 --nodes 20 {FEW}", 3),
    "functions": ("--trees 4 --hidden 3 --batch 2 --repeats 1", 2),
}


@pytest.mark.parametrize("case", RUNS)
def test_a_small_run_writes_its_rows(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "CELLS", 10)  # of the model whose compiling is timed
    file = tmp_path / "rows.json"
    assert main([case, *RUNS[case][0].split(), "--json", str(file)]) == 0
    assert len(json.loads(file.read_text())["rows"]) >= RUNS[case][1]
