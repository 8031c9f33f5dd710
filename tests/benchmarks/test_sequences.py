"""The case ``sequences`` at toy size."""

from __future__ import annotations

import pytest

from benchmarks import sequences
from benchmarks.workload import random_trees
from foldbatch.errors import FoldbatchError
from tests.benchmarks.wrong_peer import wrong_peer


def test_a_wrong_peer_is_refused_and_an_absent_one_is_named(tmp_path) -> None:
    script = wrong_peer(tmp_path)
    options = {"kinds": ["gru"], "hidden": [3], "batches": [2], "repeats": 1, "backend": "numpy"}
    with pytest.raises(FoldbatchError, match="benchmarks, PyTorch 1 x: expected a loss of"):
        sequences.run(random_trees(3), "here", **options, python=str(script))
    outcome = sequences.run(random_trees(3), "here", **options, python="/no/such/python")
    assert outcome.absent["PyTorch, gru"].startswith("not installed: PyTorch peer: expected an interpreter")
    assert len(outcome.found) == 1
