"""Optional libraries: what to install, where one is missing. No engine runs."""

from __future__ import annotations

import sys

import pytest

from foldbatch.errors import BackendError
from foldbatch.train import Plots, Progress, TensorBoardLog


@pytest.mark.parametrize(
    ("module", "extra", "make"),
    [
        ("tensorboardX", "tensorboard", lambda: TensorBoardLog("runs")),
        ("tqdm.auto", "notebook", lambda: Progress("notebook")),
        ("matplotlib.figure", "plot", lambda: Plots("runs")),
    ],
)
def test_what_is_missing_is_named_before_anything_runs(monkeypatch, module, extra, make):
    monkeypatch.setitem(sys.modules, module, None)
    library = module.partition(".")[0]
    with pytest.raises(
        BackendError, match=rf"expected {library} to be installed, .*pip install 'foldbatch\[{extra}\]'"
    ):
        make()
