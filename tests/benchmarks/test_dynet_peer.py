"""DyNet computes the benchmark's model, where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.dynet_peer import DynetAutobatch, dynet_version
from tests.benchmarks.flat_trees import batch_loss, node_logits, random_parameters, random_trees


@pytest.mark.parametrize("sizes", [[5, 1, 2, 9, 7], [1], [6]], ids=str)
def test_loss_and_scores_are_those_of_plain_recursion_and_it_learns(sizes) -> None:
    pytest.importorskip("dynet_config", reason="needs DyNet")
    assert dynet_version()
    trees, parameters = random_trees(0, sizes), random_parameters(1, 3, 9, "float32")
    model = DynetAutobatch(3, parameters)
    loss = batch_loss(trees, parameters, 3)
    assert model.loss(trees) == pytest.approx(loss, rel=1e-5)
    roots = [node_logits(tree, parameters, 3)[-1] for tree in trees]
    np.testing.assert_allclose(model.infer(trees), roots, atol=1e-5)
    assert model.step(trees) == pytest.approx(loss, rel=1e-5)
    assert model.loss(trees) < loss
