"""What the case ``fold-paper`` shows: tables, pictures, plain data, and its options."""

from __future__ import annotations

import argparse
import json

import pytest

from foldbatch.bench import fold_paper_tables
from foldbatch.errors import FoldbatchError
from tests.bench.test_fold_paper import _outcome


def _cells(table) -> list[list[str]]:
    return [list(row) for row in zip(*(column.cells for column in table.columns), strict=True)]


def test_tables_stand_beside_fold_s_own_figures():
    """Its cost at 64 trees of one shape was 1.76 / 1.64, its speed-up 0.52 s over 1.78 / 64 s."""
    times, ratios, *_ = map(_cells, fold_paper_tables.tables(_outcome()))
    assert [row[0] for row in times] == ["1", "64", "1024"]
    assert times[2][1] == "too many"
    assert times[1][1:6] == ["6.4e+04", "1.6e+04", "2.4e+04", "3.2e+04", "3.2e+04 to 3.2e+04"]
    assert times[1][6:] == ["500", "0.0%", "1.6%"]
    assert ratios[1] == ["64", "1.50", "2.00", "0.38", "1.07", "4.0x", "8.0x", "18.7x"]


def test_outcomes_survive_json():
    found = json.loads(json.dumps(fold_paper_tables.as_dict(_outcome())))
    assert found["left_out"] == {"1024": "too many"}
    assert found["rows"][1]["ratios"]["train"]["cost_different"] == 2.0
    assert found["rows"][1]["seconds"]["train different"] == {
        "median": 32.0,
        "low": 32.0,
        "high": 32.0,
        "runs": 3,
    }
    assert found["fold_cpu_seconds"]["1024"] == [14.62, 18.68, 18.37]


def _parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    fold_paper_tables.add_arguments(parser)
    return parser.parse_args(arguments)


def test_options_reach_the_run(monkeypatch):
    """Quick sizes give way to those that are named."""
    found = []
    monkeypatch.setattr(fold_paper_tables, "run", lambda *arguments: found.append(arguments))
    fold_paper_tables.run_options(_parsed())
    fold_paper_tables.run_options(
        _parsed("--quick", "--batches", "1", "2", "--backend", "numpy", "--repeats", "3")
    )
    assert found == [
        (128, 1024, (1, 4, 16, 64, 256, 1024), 11, 60.0, "auto"),
        (32, 256, [1, 2], 3, 5.0, "numpy"),
    ]


@pytest.mark.parametrize(
    ("option", "value"), [("leaves", "1"), ("size", "0"), ("batches", "0"), ("repeats", "1")]
)
def test_sizes_that_cannot_be_are_refused(option, value):
    with pytest.raises(FoldbatchError, match=f"--{option}: expected . or more, found {value}"):
        fold_paper_tables.run_options(_parsed(f"--{option}", value))


def test_the_figure_has_a_line_for_each_side(tmp_path):
    pytest.importorskip("matplotlib")
    figure = fold_paper_tables.figure(_outcome())
    times, costs = figure.axes
    assert [len(line.get_xdata()) for line in times.lines] == [2] * 8
    assert costs.lines[1].get_ydata().tolist() == [2.0, 2.0]
    figure.savefig(tmp_path / "figure.png")
