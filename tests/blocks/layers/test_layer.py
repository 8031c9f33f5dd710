"""What all layers share: parameters made once, and shared by sharing the layer."""

import pytest

import foldbatch as fb
from foldbatch.blocks.layers.layer import ACTIVATIONS, find_activation
from foldbatch.errors import BlockTypeError
from foldbatch.types import TensorType


def test_parameters_are_made_at_the_first_use_and_kept() -> None:
    """Every program that holds the layer sees the same array."""
    layer = fb.Linear(2)
    assert layer.parameters == {}
    one = fb.compile(fb.Vector(3) >> layer)
    other = fb.compile(fb.Vector(3) >> layer)
    assert one.params["linear.weight"] is other.params["linear.weight"]


def test_a_layer_serves_inputs_of_one_size() -> None:
    """Another one is a mistake, found when compiled."""
    layer = fb.Linear(2)
    with pytest.raises(BlockTypeError, match=r"float32\[3,2\], as made before, found float32\[4,2\]"):
        fb.compile(fb.Record((fb.Vector(3) >> layer, fb.Vector(4) >> layer)))
    assert layer.parameter("bias", TensorType((2,)), "zeros") is layer.parameters["bias"]


def test_names_are_given_or_made_unique() -> None:
    """linear, linear_1, or what the user says."""
    program = fb.compile(fb.Vector(2) >> fb.Linear(2) >> fb.Linear(2) >> fb.Linear(2, name="last"))
    stems = {name.partition(".")[0] for name in program.params}
    assert stems == {"linear", "linear_1", "last"}
    with pytest.raises(BlockTypeError, match="a string"):
        fb.Linear(2, name=3)


def test_activations_are_found_by_name_or_are_functions() -> None:
    """None is the identity."""
    assert find_activation("tanh", "here") is ACTIVATIONS["tanh"]
    assert find_activation(len, "here") is len
    assert find_activation(None, "here")(5) == 5
