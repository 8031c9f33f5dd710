"""Plots: files after each epoch. No engine runs."""

from __future__ import annotations

import pytest

from foldbatch.train import Plots
from tests.train.callbacks.tiny import Fake

pytest.importorskip("matplotlib", reason="needs matplotlib")


def test_curves_and_matrices_are_files(tmp_path):
    fake = Fake(Plots(tmp_path / "new", ["bad", "good"], ending="svg"))
    fake.run_epoch(loss=0.5, dev_confusion=[[1, 0], [2, 3]], dev_f1={"good": 1.0})
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["dev_confusion.svg", "history.svg"]
