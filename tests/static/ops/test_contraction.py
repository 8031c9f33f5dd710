"""`einsum` means what NumPy's does, instance by instance, and has its gradients."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch import ops
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, input_node
from foldbatch.static.op import CALL, UNBATCHED
from foldbatch.types import TensorType
from tests.strategies import Draw

EXTENT = {"i": 2, "j": 3, "k": 4, "l": 1, "m": 2}
CASES = [
    "i,i->", "i,j->ij", "ij,jk->ik", "ij,kj->ki", "i,ijk,j->k", "ij->ji", "ij->", "ijk->k", "ij,ij->i",
    "ij,ij->ij", "ijk,jk->i", "i,j,k->", "ij,jk,km->im", "ij,jk", "ji", "l,li->i",
]  # fmt: skip


def agree(subscripts: str, axes: list[object], dtype: str = "float64") -> None:
    spec = subscripts.split("->", maxsplit=1)[0].split(",")
    shapes = [tuple(EXTENT[x] for x in letters) for letters in spec]
    rng = np.random.default_rng(0)
    values = [rng.normal(size=shape) for shape in shapes]
    nodes = [input_node(TensorType(s, dtype), axis) for s, axis in zip(shapes, axes, strict=True)]
    result = ops.einsum(subscripts, *nodes)
    (found,) = evaluate(Graph(tuple(nodes), (result,)), values)
    np.testing.assert_allclose(found, np.einsum(subscripts, *values), rtol=1e-12, atol=1e-12)
    assert result.shape == np.einsum(subscripts, *values).shape


@pytest.mark.parametrize(
    "batched", [(CALL, CALL, CALL), (UNBATCHED, CALL, UNBATCHED), (CALL, UNBATCHED, CALL)]
)
def test_it_means_what_numpys_does(batched):
    for subscripts in CASES:
        agree(subscripts, list(batched[: subscripts.split("->")[0].count(",") + 1]))


@st.composite
def contractions(draw: Draw) -> str:
    spec = [
        "".join(draw(st.permutations("ijkm"))[: draw(st.integers(0, 3))])
        for _ in range(draw(st.integers(1, 3)))
    ]
    letters = sorted(set("".join(spec)))
    right = draw(st.permutations(letters))[: draw(st.integers(0, len(letters)))]
    return f"{','.join(spec)}->{''.join(right)}"


@settings(max_examples=40, deadline=None)
@given(contractions(), st.lists(st.sampled_from([CALL, UNBATCHED]), min_size=3, max_size=3))
def test_random_contractions_mean_what_numpys_do(subscripts, axes):
    agree(subscripts, axes[: subscripts.split("->")[0].count(",") + 1])


def test_a_weight_makes_one_product_for_the_whole_batch():
    x, weight = input_node(TensorType((3,))), fb.Parameter([3, 3, 4])
    first = ops.einsum("ijk,i->jk", weight, x)
    assert [node.op.name for node in Graph((x,), (first,)).nodes if node.op.name in ("linear", "matmul")] == [
        "linear"
    ]


def test_the_bilinear_form_of_a_tensor_network_and_its_gradient():
    weight = fb.Parameter([3, 3, 2], init=np.random.default_rng(1).normal(size=(3, 3, 2)), name="w")
    form = fb.Function(lambda a, b: ops.sum(ops.einsum("i,ijk,j->k", a, weight, b)))
    program = fb.compile(fb.Record((fb.Vector(3), fb.Vector(3))) >> form >> fb.Loss())
    a, b = np.array([1.0, 2, 3]), np.array([0.5, -1, 2])
    loss, gradients = program.value_and_grad([(a, b), (b, a)])
    assert loss == pytest.approx(
        np.einsum("i,ijk,j->", a, weight.value, b) + np.einsum("i,ijk,j->", b, weight.value, a), rel=1e-5
    )
    right = np.multiply.outer(np.outer(a, b) + np.outer(b, a), np.ones(2))
    np.testing.assert_allclose(gradients["w"], right, rtol=1e-6)
