"""Linear, Embedding, LayerNorm and attention are their equations."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.errors import ExampleError
from tests.blocks.layers.checks import check_layer
from tests.knobs import knobs

WEIGHT = np.random.default_rng(0).normal(size=(3, 2))


def test_linear_may_do_without_a_bias_and_begins_at_none():
    assert list(fb.compile(fb.Vector(3) >> fb.Linear(2, bias=False)).params) == ["linear.weight"]
    assert fb.compile(fb.Vector(3) >> fb.Linear(2)).params["linear.bias"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("init", "right"),
    [
        ("ones", np.ones((3, 2))),
        (0.5, np.full((3, 2), 0.5)),
        (WEIGHT, WEIGHT),
        (lambda rng, shape: np.full(shape, 2.0), np.full((3, 2), 2.0)),
    ],
)
def test_the_weight_begins_as_it_is_told(init, right):
    program = fb.compile(fb.Vector(3, "float64") >> fb.Linear(2, init=init))
    np.testing.assert_array_equal(program.params["linear.weight"], right)


def test_a_frozen_embedding_has_no_gradient():
    table = fb.Embedding(5, 2, trainable=False)
    block = fb.Scalar("int32") >> table >> fb.Linear(1) >> fb.Function(ops.sum) >> fb.Loss()
    _, gradients = fb.compile(block).value_and_grad([1, 2])
    assert list(gradients) == ["linear.weight", "linear.bias"]


@pytest.mark.parametrize("wrong", [-1, 4, 100, -(2**31)])
def test_an_id_out_of_range_is_an_error_and_never_another_row(wrong):
    for options in [{}, {"backend": "reference"}, {"batched": False}]:
        program = fb.compile(fb.Scalar("int32") >> fb.Embedding(4, 2), **knobs(options))
        with pytest.raises(
            ExampleError, match=f"at example 1: expected int32 from 0 to 3, found int {wrong}"
        ):
            program.run([0, wrong])


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


QUERY, ITEM, SIZE = 3, 4, 5


def attended(query: Any, items: Any, p: Any, score: str) -> Any:
    """The equations, item by item."""
    query, items = np.asarray(query), [np.asarray(item) for item in items]
    if not items:
        return np.zeros(ITEM)
    if score == "dot":
        scores = np.array([query @ item / np.sqrt(len(query)) for item in items])
    else:
        hidden = [np.tanh(query @ p["attention.query"] + item @ p["attention.items"]) for item in items]
        scores = np.array([h @ p["attention.score"] for h in hidden])
    weights = np.exp(scores) / np.exp(scores).sum()
    return sum(weight * item for weight, item in zip(weights, items, strict=True))


def layers(score: str) -> tuple[fb.Block, fb.Block]:
    """The attention, and a layer that makes its query and whose gradient passes through it."""
    attention = fb.blocks.Attention(SIZE) if score == "additive" else fb.blocks.Attention(score="dot")
    return attention, fb.Linear(ITEM if score == "dot" else QUERY, bias=False, name="asked")


def examples(*lengths: int) -> list[Any]:
    return [[RNG.normal(size=QUERY).tolist(), RNG.normal(size=(n, ITEM)).tolist()] for n in lengths]


def check_over(score: str, many: Callable[[fb.Block], fb.Block], *lengths: int) -> None:
    """Check attention over what `many` makes of the block of one item."""
    attention, asked = layers(score)
    one = fb.Vector(ITEM, "float64") >> fb.Linear(ITEM, bias=False, name="offered")
    block = fb.Record((fb.Vector(QUERY, "float64") >> asked, many(one))) >> attention

    def reference(example: Any, p: Any) -> Any:
        items = [np.asarray(item) @ p["offered.weight"] for item in example[1]]
        return attended(np.asarray(example[0]) @ p["asked.weight"], items, p, score)

    check_layer(block, reference, examples(*lengths))


@pytest.mark.parametrize("score", ["additive", "dot"])
def test_over_a_sequence_of_any_length_none_included(score: str) -> None:
    check_over(score, fb.Map, 3, 0, 1, 5, 0)


@pytest.mark.parametrize("score", ["additive", "dot"])
@pytest.mark.parametrize("count", [1, 3])
def test_over_a_tuple(score: str, count: int) -> None:
    check_over(score, lambda one: fb.Record((one,) * count), count, count)
