"""The case ``compiler`` on a toy batch: tables, data, picture."""

from __future__ import annotations

import json

import pytest

from benchmarks.command import main


def test_command_prints_tables_for_each_size(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    """And writes what it prints."""
    file = tmp_path / "found.json"
    small = ["--batch", "2", "--repeats", "1", "--json", str(file)]
    assert main(["compiler", "--hidden", "4", "8", *small]) == 0
    out = capsys.readouterr().out
    assert out.index("hidden 4") < out.index("hidden 8")
    for title in ("Calls per batch", "Megabytes of buffers", "CPU time of a training step"):
        assert out.count(title) == 2
    assert sum("│ GEMM" in line for line in out.splitlines()) == 2
    found = json.loads(file.read_text())
    assert [size["hidden"] for size in found["sizes"]] == [4, 8]
    counts, seconds = next(iter(found["sizes"][0]["counts"].values()))
    assert counts["levels"] > 0
    assert seconds > 0
