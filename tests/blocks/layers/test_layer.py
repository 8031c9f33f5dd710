"""Layers own parameters: made once, shared with the layer, named after it."""

from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.blocks.layers.layer import ACTIVATIONS, Layer, find_activation
from foldbatch.errors import BlockTypeError, GraphError
from foldbatch.static.graph import Node
from foldbatch.types import TensorType

V = fb.Vector(2)


class Scale(Layer):
    """A layer as a user would write one."""

    kind = "scale"

    def apply(self, *xs: Any) -> Node:
        (x,) = xs
        return x * self.parameter("factor", x.type, 2.0)


def test_a_layer_of_ones_own_is_a_block_with_parameters():
    scale = Scale()
    program = fb.compile(V >> scale >> scale >> Scale("other"))
    assert {name: array.tolist() for name, array in program.params.items()} == {
        "scale.factor": [2.0, 2.0],
        "other.factor": [2.0, 2.0],
    }
    assert program.run([[1, 2]])[0].tolist() == [8.0, 16.0]
    assert repr(scale) == "Scale()"


def test_a_parameter_is_made_once_and_keeps_its_type():
    layer = Scale()
    first = layer.parameter("w", TensorType((2,)), 0.5)
    assert layer.parameter("w", TensorType((2,)), 0.9) is first
    assert first.value.tolist() == [0.5, 0.5]
    with pytest.raises(
        GraphError, match=r"Scale\(\): expected a w of float32\[2\], as made before, found float32\[3\]"
    ):
        layer.parameter("w", TensorType((3,)), 0.5)


@pytest.mark.parametrize("layer, name", [(fb.Dropout(0.5), "rate"), (fb.Embedding(3, 2), "trainable")])
def test_what_a_layer_was_made_with_stays(layer, name):
    """A program would go on with what it was, without a word."""
    with pytest.raises(fb.errors.BlockValueError, match=f"{name}: expected what the layer was made with"):
        setattr(layer, name, 0)
    with pytest.raises(
        fb.errors.UnknownNameError, match="Linear: expected no assignment, found one to 'trainable'"
    ):
        fb.Linear(2).trainable = False


def test_an_activation_is_found_by_its_name():
    for name in sorted(ACTIVATIONS):
        x = np.float32([0.5, -1.0])
        found = (V >> fb.Function(find_activation(name, "here"))).eval(x)
        right = {
            "gelu": x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
            "log_sigmoid": -np.log1p(np.exp(-x)),
            "log_softmax": x - np.log(np.exp(x).sum()),
            "relu": np.maximum(x, 0),
            "sigmoid": 1 / (1 + np.exp(-x)),
            "softmax": np.exp(x) / np.exp(x).sum(),
            "softplus": np.log1p(np.exp(x)),
            "tanh": np.tanh(x),
        }
        np.testing.assert_allclose(found, right[name], rtol=1e-6)


def test_an_activation_may_be_a_function_or_none():
    assert find_activation(ops.tanh, "here") is ops.tanh
    assert find_activation(None, "here")(3) == 3
    for wrong in ("swish", 3, ["tanh"]):
        with pytest.raises(BlockTypeError, match="here: expected an activation of gelu"):
            find_activation(wrong, "here")


TABLE = np.zeros((2, 3))


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        (fb.Embedding(2, 3, TABLE), "Embedding(2, 3, init=...)"),
        (fb.Embedding(2, 3, TABLE.tolist()), "Embedding(2, 3, init=...)"),
        (fb.Linear(2, init=lambda rng, shape: TABLE), "Linear(2, init=<lambda>)"),
        (fb.Linear(2, ops.sqrt), "Linear(2, activation=sqrt)"),
    ],
    ids=str,
)
def test_arrays_are_not_printed_and_functions_by_their_names(layer, text):
    assert repr(layer) == text


X, PAIR, STATE = fb.Vector(4), fb.Record((V, V)), fb.Vector(2)
NAMED: list[tuple[fb.Block, dict[str, tuple[int, ...]]]] = [
    (fb.Record((X, fb.Map(X))) >> fb.blocks.Attention(5), {"query": (4, 5), "items": (4, 5), "score": (5,)}),
    (fb.Record((X, fb.Map(X))) >> fb.blocks.Attention(4, "dot"), {}),
    (fb.Record((X, PAIR)) >> fb.LSTMCell(2), {"weight": (4, 8), "recurrent": (2, 8), "bias": (8,)}),
    (
        fb.Record((X, STATE)) >> fb.GRUCell(2, reset_after=False),
        {"weight": (4, 6), "recurrent": (2, 6), "bias": (6,)},
    ),
    (
        fb.Record((X, STATE)) >> fb.GRUCell(2),
        {"weight": (4, 6), "recurrent": (2, 6), "bias": (6,), "recurrent_bias": (2,)},
    ),
    (fb.Record((X, PAIR)) >> fb.blocks.TreeRNN(2), {"recurrent": (4, 2), "weight": (4, 2), "bias": (2,)}),
    (
        fb.Record((X, PAIR)) >> fb.blocks.RNTN(2),
        {"tensor": (4, 4, 2), "recurrent": (4, 2), "weight": (4, 2), "bias": (2,)},
    ),
    (fb.Record((X, PAIR)) >> fb.blocks.TreeGRU(2), {"recurrent": (2, 6), "weight": (4, 6), "bias": (6,)}),
    (
        fb.Record((X, fb.Record((PAIR,) * 3))) >> fb.TreeLSTM(2, arity=3),
        {"weight": (4, 8), "recurrent": (6, 12), "bias": (8,)},
    ),
]


def test_parameters_have_the_names_and_shapes_that_docstrings_give():
    """And only forget gates' biases begin at another number than 0."""
    for block, shapes in NAMED:
        params = {name.partition(".")[2]: value for name, value in fb.compile(block).params.items()}
        assert {name: value.shape for name, value in params.items()} == shapes, block
        starts = [0.0] * 6 + [1.0] * 2 if "LSTM" in repr(block) else [0.0] * 6
        assert "bias" not in params or params["bias"].tolist() == starts[: len(params["bias"])], block
    biased = fb.compile(fb.Record((X, PAIR)) >> fb.LSTMCell(2, forget_bias=2))
    assert biased.params["lstm.bias"].tolist() == [0.0] * 6 + [2.0] * 2
