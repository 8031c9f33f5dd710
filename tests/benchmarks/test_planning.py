"""Planning of many cells, on a few chains: every plan is timed, and costs follow from the figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import planning
from benchmarks.command import main
from benchmarks.planning import PLANS


def test_planning_prints_a_row_for_each_plan_and_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "180")
    file = tmp_path / "planning.json"
    small = ["--cells", "1", "3", "--batch", "2", "--hidden", "2", "--repeats", "1", "--backend", "numpy"]
    assert main(["planning", *small, "--json", str(file)]) == 0
    out = capsys.readouterr().out
    assert [line.split("│")[3].strip() for line in out.splitlines() if "│" in line] == [*PLANS] * 2
    assert "costs: a step" in out
    written = json.loads(file.read_text())
    assert [row["cells"] for row in written["rows"]] == [1] * 4 + [3] * 4
    assert planning.CASE.name == written["case"]
