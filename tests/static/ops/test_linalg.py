"""Products: derivatives on every sample, NumPy's meaning of @, and which product becomes a GEMM."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, apply, input_node
from foldbatch.static.op import CALL, UNBATCHED, Axis, Op, Sample, ragged
from foldbatch.static.ops import linalg
from foldbatch.types import TensorType
from tests.static.derivatives import check_sample, name_of, samples_of

SHAPES = [
    ((3,), (3,)),
    ((3,), (3, 2)),
    ((4, 3), (3,)),
    ((4, 3), (3, 2)),
    ((1, 1), (1, 1)),
    ((0,), (0, 2)),
    ((2, 0), (0, 3)),
    ((3,), (3, 0)),
]


@pytest.mark.parametrize("case", samples_of(linalg), ids=name_of)
def test_derivatives_agree_with_each_other_and_with_differences(case: tuple[Op, Sample]) -> None:
    check_sample(*case)


@pytest.mark.parametrize("axes", [(CALL, CALL), (CALL, UNBATCHED), (UNBATCHED, CALL), (UNBATCHED, UNBATCHED)])
@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_a_product_is_what_numpy_says_whichever_side_is_batched(
    left: tuple[int, ...], right: tuple[int, ...], axes: tuple[Axis, Axis]
) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=left), rng.normal(size=right)
    x, y = (input_node(TensorType(v.shape, "float64"), axis) for v, axis in zip((a, b), axes, strict=True))
    product = x @ y
    (found,) = evaluate(Graph((x, y), (product,)), [a, b])
    np.testing.assert_allclose(found, a @ b, rtol=1e-12)
    assert product.shape == (a @ b).shape
    assert product.axis is (CALL if CALL in axes else UNBATCHED)


def test_a_tensor_of_three_axes_times_a_weight_is_one_gemm() -> None:
    x, w = input_node(TensorType((2, 4, 3))), input_node(TensorType((3, 5)), UNBATCHED)
    assert (x @ w).op.name == "linear"
    assert (x @ w).shape == (2, 4, 5)


def test_a_weight_on_the_left_of_a_vector_is_one_gemm_as_well() -> None:
    x, w = input_node(TensorType((3,))), input_node(TensorType((5, 3)), UNBATCHED)
    assert (w @ x).op.name == "linear"


def test_a_weight_per_call_is_a_product_per_call() -> None:
    x, w = input_node(TensorType((4, 3))), input_node(TensorType((3, 5)))
    assert (x @ w).op.name == "matmul"


def test_a_weights_gradient_is_one_sum_of_outer_products_over_all_rows() -> None:
    """The rows of a call and the elements of its sequences count alike."""
    rng = np.random.default_rng(0)
    elements = ragged()
    x, g = input_node(TensorType((2, 3)), elements), input_node(TensorType((2, 4)), elements)
    xs, gs = rng.normal(size=(5, 2, 3)), rng.normal(size=(5, 2, 4))
    total = apply("sum_outer", x, g)
    assert total.axis is UNBATCHED
    (found,) = evaluate(Graph((x, g), (total,)), [list(xs), list(gs)])
    np.testing.assert_allclose(found, np.einsum("nik,nij->kj", xs, gs))
