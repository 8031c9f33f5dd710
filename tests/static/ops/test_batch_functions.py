"""Functions of calls and sequences, as compositions: what they mean for sequences of any length."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from foldbatch.errors import GraphError
from foldbatch.params.parameters import Parameter
from foldbatch.static import ops
from foldbatch.static.graph import Node, input_node
from foldbatch.static.op import CALL
from foldbatch.types import TensorType


@pytest.mark.parametrize("name", ["sum", "max", "min", "mean", "softmax"])
def test_only_elements_of_a_sequence_are_reduced(name: str) -> None:
    function: Callable[[Node], Node] = getattr(ops, f"segment_{name}")
    with pytest.raises(GraphError, match=r"ops.segment_\w+: expected a tensor of a sequence's elements"):
        function(input_node(TensorType((3,))))


def test_batched_gives_a_row_per_call_once() -> None:
    parameter = Parameter(TensorType((3,)))
    x = ops.batched(parameter)
    assert (x.op.name, x.axis) == ("batch", CALL)
    assert ops.batched(x) is x
