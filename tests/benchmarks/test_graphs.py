"""The graph network of ``benchmarks.graphs`` computes what PyTorch's does."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from benchmarks import graphs


@pytest.mark.skipif(not find_spec("torch"), reason="needs PyTorch: pip install -e '.[torch]'")
def test_ours_and_pytorchs_network_begin_with_the_same_loss() -> None:
    assert set(graphs.compared(8, 3, 1, "numpy")) == {"new", "ready"}
