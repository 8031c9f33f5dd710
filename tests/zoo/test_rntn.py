"""The tensor network against Socher et al. 2013, section 4.3, node by node."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.zoo import Task, Words, rntn
from tests.zoo.checks import TREE, WORDS, compiled, cross_entropy


def vector(node, p):
    if node.is_leaf:
        x = p["words.weight"][WORDS[node.token]]
        return np.tanh(x @ p["rntn.weight"] + p["rntn.bias"]) if "rntn.weight" in p else x
    z = np.concatenate([vector(child, p) for child in node])
    bilinear = np.array([z @ p["rntn.tensor"][:, :, k] @ z for k in range(len(z) // 2)])
    return np.tanh(bilinear + z @ p["rntn.recurrent"] + p["rntn.bias"])


@pytest.mark.parametrize("hidden", [None, 2])
def test_scores_and_losses_are_those_of_the_equations(hidden):
    program, p = compiled(rntn(Words(WORDS, 3), Task("nodes", 5), hidden=hidden))
    results = program.run([TREE], losses=True)
    nodes = [TREE[0], TREE[1][0], TREE[1][1], TREE[1], TREE]
    scores = [vector(node, p) @ p["classify.weight"] + p["classify.bias"] for node in nodes]
    np.testing.assert_allclose(results[0], scores[-1], rtol=1e-4)
    expected = sum(cross_entropy(s, node.label) for s, node in zip(scores, nodes, strict=True))
    assert results.loss == pytest.approx(expected, rel=1e-5)
