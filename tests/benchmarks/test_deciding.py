"""The case ``deciding`` measures walks that compute the same as PyTorch's."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from benchmarks import deciding
from benchmarks.command import main


@pytest.mark.skipif(not find_spec("torch"), reason="needs PyTorch: pip install -e '.[torch]'")
def test_ours_and_pytorchs_walks_agree() -> None:
    rows = deciding.run([(3, (4, 5)), 7, ((8, 9), 2)], [8, 12], 1, "numpy")
    names = "decode, 8; decode, 12; beams, 8; halting, 8; halting, 12; adaptive, 8; parse, 8"
    assert "; ".join(row.task for row in rows) == names
    assert all(set(row.agree.values()) == {1.0} for row in rows)
    assert all(row.rounds > 0 for row in rows)


def test_the_command_prints_a_row_a_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deciding", "--batch", "3", "--hidden", "8", "--repeats", "1", "--only", "parse"]) == 0
    assert "parse, 8" in capsys.readouterr().out
