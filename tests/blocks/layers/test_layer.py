"""Layers own parameters: made once, shared with the layer, named after it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.blocks.layers.layer import ACTIVATIONS, Layer, find_activation, find_initializer
from foldbatch.errors import BlockTypeError, GraphError, UnknownNameError
from foldbatch.params import INITIALIZERS
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


def test_layers_without_names_are_numbered_in_the_order_of_the_blocks():
    block = (
        V
        >> Scale()
        >> fb.Linear(2)
        >> fb.Linear(2)
        >> Scale()
        >> fb.Linear(2, name="top")
        >> fb.Linear(2, name="top")
    )
    assert list(fb.compile(block).params) == [
        "scale.factor",
        "linear.weight",
        "linear.bias",
        "linear_1.weight",
        "linear_1.bias",
        "scale_1.factor",
        "top.weight",
        "top.bias",
        "top_1.weight",
        "top_1.bias",
    ]


def test_two_programs_with_one_layer_share_its_arrays():
    layer = fb.Linear(2)
    one, other = fb.compile(V >> layer), fb.compile(fb.Map(V >> layer) >> fb.Function(ops.segment_sum))
    assert one.params["linear.weight"] is other.params["linear.weight"]
    one.params["linear.weight"] = np.eye(2)
    assert other.run([[[1, 2], [3, 4]]])[0].tolist() == [4.0, 6.0]


def test_the_first_program_draws_the_values_and_its_seed_tells_which():
    values = [fb.compile(V >> fb.Linear(2), seed=seed).params["linear.weight"].tolist() for seed in (0, 0, 1)]
    assert values[0] == values[1] != values[2]
    layer = fb.Linear(2)
    first = fb.compile(V >> layer, seed=0).params["linear.weight"].copy()
    assert (fb.compile(V >> layer, seed=1).params["linear.weight"] == first).all()


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_an_activation_is_found_by_its_name(name):
    x = np.float32([0.5, -1.0])
    found = (V >> fb.Function(find_activation(name, "here"))).eval(x)
    right = {
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
    for wrong in ("gelu", 3, ["tanh"]):
        with pytest.raises(BlockTypeError, match="here: expected an activation of relu"):
            find_activation(wrong, "here")


def test_an_initialiser_is_known_or_given():
    assert all(find_initializer(name, "here") == name for name in INITIALIZERS)
    assert find_initializer(0.5, "here") == 0.5
    for layer in (fb.Linear, fb.TreeLSTM, fb.ChildSumTreeLSTM):
        with pytest.raises(UnknownNameError, match=f"{layer.__name__}: expected an initialiser of zeros"):
            layer(2, init="glorot")
    with pytest.raises(UnknownNameError, match="Embedding"):
        fb.Embedding(2, 2, init="glorot")


def test_a_name_is_a_string():
    with pytest.raises(BlockTypeError, match="Scale: expected a string as name, found int 3"):
        Scale(3)
