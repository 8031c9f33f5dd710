"""LayerNorm is (x - mean) / sqrt(variance + epsilon), then weight and bias, over the last axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from tests.blocks.layers.checks import check_layer

RNG = np.random.default_rng(0)


def normalized(x: Any, p: Any, epsilon: float) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)
    return scaled * p["layer_norm.weight"] + p["layer_norm.bias"]


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("epsilon", [1e-5, 0.5])
def test_layer_norm_is_its_equations_over_the_last_axis(shape: tuple[int, ...], epsilon: float) -> None:
    before = fb.Linear(3, name="before", bias=False)  # its gradient has passed through the layer
    examples = [RNG.normal(size=shape).tolist() for _ in range(4)]
    block = fb.Tensor(shape, "float64") >> before >> fb.blocks.LayerNorm(epsilon)
    check_layer(block, lambda x, p: normalized(np.asarray(x) @ p["before.weight"], p, epsilon), examples)


def test_layer_norm_starts_from_weight_1_and_bias_0_and_bears_equal_elements() -> None:
    program = fb.compile(fb.Vector(3) >> fb.blocks.LayerNorm())
    assert program.params["layer_norm.weight"].tolist() == [1, 1, 1]
    assert program.params["layer_norm.bias"].tolist() == [0, 0, 0]
    assert program.run([[7, 7, 7]])[0].tolist() == [0, 0, 0]
