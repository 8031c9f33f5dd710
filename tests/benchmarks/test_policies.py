"""The case ``policies`` counts what policies do, on models by hand and compiled."""

from __future__ import annotations

import pytest

from benchmarks.command import main


def test_policies_prints_a_row_for_each_model_by_hand_and_compiled(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On random trees where there is no treebank, or on the one that is named."""
    assert main(["policies", "--batch", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum("traces │" in line for line in lines) == sum("blocks │" in line for line in lines) == 7
    (header,) = (line for line in lines if "model" in line and "bound" in line)
    assert header.index("depth") < header.index("agenda") < header.index("component")
