"""PyTorch's program by hand for Fold's model computes what NumPy's does."""

import numpy as np
import pytest

from benchmarks.fold_model import fold_model, random_tree
from benchmarks.gpu.torch_fold import TorchFold
from benchmarks.manual import Manual, shape_of
from foldbatch import compile
from foldbatch.params.parameters import SparseRows


@pytest.mark.parametrize("by_node", [False, True])
@pytest.mark.parametrize("captured", [False, True])
def test_loss_gradients_and_roots_are_those_by_hand_in_numpy(by_node, captured):
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    program = compile(fold_model(5, 7), "numpy")
    parameters = dict(program.params.items())
    shape = shape_of(random_tree(rng, 7))
    words = rng.integers(7, size=(3, 7))
    model = TorchFold(shape, 3, parameters, by_node=by_node, captured=captured)
    by_hand = Manual(shape, 3, parameters)
    for _ in range(2):
        loss, gradients = model.value_and_grad(words)
        expected, others = by_hand.value_and_grad(words)
        assert float(loss) == pytest.approx(expected, rel=1e-5)
        for name, gradient in gradients.items():
            other = others[name]
            other = other.dense() if isinstance(other, SparseRows) else other
            np.testing.assert_allclose(gradient, other, rtol=1e-4, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(model.run(words), by_hand.run(words), rtol=1e-5)
