"""Layers own parameters: made once, shared with the layer, named after it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.blocks.layers.layer import (
    ACTIVATIONS,
    Layer,
    find_activation,
    flat,
    hidden,
    pair,
    single,
    vector,
)
from foldbatch.errors import BlockTypeError, GraphError
from foldbatch.static.graph import Node, input_node
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


class Power(Layer):
    """A layer whose constructor has arguments of every kind."""

    kind = "power"

    def __init__(self, exponent: float, lost: int, *, bias: bool = True, name: str | None = None):
        super().__init__(name)
        self.exponent = exponent
        self.bias = bias


TABLE = np.zeros((2, 3))


LAYER_PRINTS = [
    (fb.Linear(3), "Linear(3)"),
    (fb.Linear(3, "tanh"), "Linear(3, activation='tanh')"),
    (fb.Linear(3, ops.sigmoid, bias=False), "Linear(3, activation='sigmoid', bias=False)"),
    (fb.Linear(np.int64(3), init=0.5, name="top"), "Linear(3, init=0.5, name='top')"),
    (fb.Linear(3, init="ones", name="linear"), "Linear(3, init='ones', name='linear')"),
    (fb.Embedding(2, 3), "Embedding(2, 3)"),
    (
        fb.Embedding(2, 3, "ones", trainable=False, dtype="float64"),
        "Embedding(2, 3, init='ones', trainable=False, dtype='float64')",
    ),
    (fb.TreeLSTM(2), "TreeLSTM(2)"),
    (fb.TreeLSTM(2, 3, init="he_normal"), "TreeLSTM(2, arity=3, init='he_normal')"),
    (fb.ChildSumTreeLSTM(2, name="tree"), "ChildSumTreeLSTM(2, name='tree')"),
    (fb.blocks.TreeRNN(2, activation=None), "TreeRNN(2, activation=None)"),
    (fb.blocks.TreeRNN(2, 1, "relu"), "TreeRNN(2, arity=1, activation='relu')"),
    (fb.blocks.RNTN(2, init="uniform"), "RNTN(2, init='uniform')"),
    (fb.blocks.TreeGRU(2), "TreeGRU(2)"),
    (fb.LSTMCell(2), "LSTMCell(2)"),
    (fb.LSTMCell(2, forget_bias=0), "LSTMCell(2, forget_bias=0.0)"),
    (fb.GRUCell(2, reset_after=False), "GRUCell(2, reset_after=False)"),
    (fb.blocks.LayerNorm(), "LayerNorm()"),
    (fb.blocks.LayerNorm(0.001), "LayerNorm(epsilon=0.001)"),
    (fb.blocks.Attention(2), "Attention(size=2)"),
    (fb.blocks.Attention(score="dot"), "Attention(score='dot')"),
    (Power(2.5, ..., bias=False), "Power(2.5, ..., bias=False)"),
]


def test_a_layer_prints_as_the_expression_that_builds_it():
    for layer, text in LAYER_PRINTS:
        assert repr(layer) == text
        assert repr(eval(text, {**vars(fb.blocks), "Power": Power})) == text


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


def test_what_a_layer_takes_is_checked_by_name():
    scale, x = Scale(), input_node(TensorType((3,)))
    kinds = ((2, 3), "float32"), ((), "float32"), ((3,), "int32"), ((3,), "bool")
    matrix, number, ids, flags = (input_node(TensorType(*kind)) for kind in kinds)
    assert single(scale, (x,)) is vector(scale, x) is flat(scale, x) is hidden(scale, x, 3) is x
    assert vector(scale, matrix) is matrix
    assert pair(scale, (x, None), "(x, h)") == (x, None)
    for call, expected in (
        (lambda: single(scale, (x, x)), r"one tensor, found \(float32\[3\], float32\[3\]\)"),
        (lambda: vector(scale, number, "query"), "a float vector as query, found float32; .*Vector"),
        (lambda: vector(scale, ids), r"a float vector as input, found int32\[3\]; cast"),
        (lambda: vector(scale, flags), r"a float vector as input, found bool\[3\]; .*Vector\(3\)"),
        (lambda: flat(scale, matrix, "query"), r"a float vector as query, found float32\[2,3\]; flatten"),
        (lambda: flat(scale, None), "a float vector as input, found void"),
        (lambda: pair(scale, (x,), "(x, h)"), r"a pair \(x, h\), found float32\[3\]"),
        (lambda: pair(scale, (), "(x, h)"), r"a pair \(x, h\), found \(\)"),
        (lambda: hidden(scale, x, 2), r"a state of one vector of 2, found float32\[3\]"),
        (lambda: hidden(scale, (x, x), 3), "a state of one vector of 3, found"),
    ):
        with pytest.raises(GraphError, match=rf"Scale\(\): expected {expected}"):
            call()
