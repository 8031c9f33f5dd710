"""PyTorch's child-sum Tree-LSTM and tagger compute what our blocks do, and learn alike."""

import numpy as np
import pytest

from benchmarks.gpu.contenders import MODELS, OurModel
from benchmarks.gpu.trees import sst_like_trees


@pytest.mark.parametrize("name", [name for name in MODELS if name != "SST Tree-LSTM"])
def test_loss_and_training_are_those_of_our_block(name):
    pytest.importorskip("torch")
    trees = sst_like_trees(6, seed=1, words=50)
    ours = OurModel(MODELS[name], 5, 50, "numpy")
    examples = [ours.model.example(tree) for tree in trees]
    (make,) = ours.model.peers.values()
    peer = make(5, 50, ours.parameters())
    flat = [ours.flat(example) for example in examples]
    for _ in range(3):
        assert float(ours.step(examples, 6)) / 6 == pytest.approx(peer.step(flat), rel=1e-4)
    assert np.isfinite(peer.infer(flat)).all()
