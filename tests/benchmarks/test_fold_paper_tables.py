"""What the case ``fold-paper`` shows: tables, pictures, plain data, and its options."""

from __future__ import annotations

from benchmarks import fold_paper_tables
from tests.benchmarks.test_fold_paper import _outcome


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
