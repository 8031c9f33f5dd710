"""The law of ops: forward mode, reverse mode and differences agree on every sample, and so do their derivatives."""

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.static.op import OPS
from tests.static.derivatives import check_sample

CONSTANT = "stop_gradient"  # is told to have no derivative where its differences have one


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.samples and name != CONSTANT])
def test_derivatives_agree_with_each_other_and_with_differences(name: str) -> None:
    for sample in OPS[name].samples:
        check_sample(OPS[name], sample)


def test_what_stops_gradients_is_a_constant_in_both_modes() -> None:
    w = fb.Parameter([], init=3.0, name="w")
    stopped = fb.Function(lambda x: w * fb.ops.stop_gradient(w) * x + fb.ops.stop_gradient(w * w))
    program = fb.compile(fb.Scalar() >> stopped >> fb.Loss())
    loss, gradients = program.value_and_grad([1.0, 2.0])
    assert (loss, gradients["w"]) == (3 * 3 * 3 + 2 * 9, 3 * 3)
    assert program.jvp([1.0, 2.0], {"w": np.float32(2)}) == (loss, 18)
