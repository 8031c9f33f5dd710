"""The case ``compiler`` on a toy batch: tables, data, picture."""

from __future__ import annotations

import json

import pytest

from foldbatch.bench import compiler
from foldbatch.bench.command import main
from foldbatch.bench.compiler_tables import CASE, Outcome
from foldbatch.bench.workload import random_trees


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


def test_bars_are_as_high_as_the_step() -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    outcome = Outcome("here", (compiler.run(random_trees(2), 4, 1),))
    (axes,) = CASE.figure(outcome).axes
    tops = {}
    for bar in axes.patches:
        tops[bar.get_x()] = max(tops.get(bar.get_x(), 0.0), bar.get_y() + bar.get_height())
    steps = outcome.sizes[0].steps.values()
    assert sorted(tops.values()) == pytest.approx(sorted(1e3 * sum(spent.values()) for spent in steps))
