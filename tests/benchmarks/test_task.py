"""A task comes back from its file as it went in."""

from __future__ import annotations

import numpy as np

from benchmarks.task import Task, load_task
from tests.benchmarks.flat_trees import random_parameters, random_trees


def test_a_task_survives_its_file(tmp_path) -> None:
    """Batches, trees and parameters; dtypes too."""
    trees = random_trees(0, [3, 1, 5])
    parameters = random_parameters(1, 2, 9, "float32")
    task = Task(2, parameters, [trees, trees[1:2], [trees[2], trees[0]]])
    task.save(tmp_path / "task.npz")
    found = load_task(tmp_path / "task.npz")
    assert (found.hidden, found.vocabulary_size) == (2, 9)
    assert found.parameters.keys() == parameters.keys()
    for name, array in parameters.items():
        np.testing.assert_array_equal(found.parameters[name], array)
        assert found.parameters[name].dtype == array.dtype
    assert [len(batch) for batch in found.batches] == [3, 1, 2]
    for mine, theirs in zip(task.batches, found.batches, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            for name in ("parents", "labels", "words"):
                np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
