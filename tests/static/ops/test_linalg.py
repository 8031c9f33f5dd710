"""Products: derivatives on every sample, NumPy's meaning of @, and which product becomes a GEMM."""

from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import ExampleError
from foldbatch.params.parameters import dense
from foldbatch.static import ops
from foldbatch.static.graph import Graph, Node, input_node, reachable
from foldbatch.static.op import CALL, UNBATCHED, Axis, ragged
from foldbatch.types import TensorType
from tests.backends import BACKENDS
from tests.static.run_kernel import random_rows, run_graph


def _table(n: int = 4) -> Node:
    return input_node(TensorType((n, 3, 5)), UNBATCHED)


def _ids(axis: Axis = CALL) -> Node:
    return input_node(TensorType((), "int32"), axis)


def _vector(size: int, axis: Axis = CALL) -> Node:
    return input_node(TensorType((size,)), axis)


ELEMENTS = ragged()
CHOSEN = {
    "a vector": lambda table: _vector(3) @ ops.gather(table, _ids()),
    "a matrix": lambda table: input_node(TensorType((2, 3))) @ ops.gather(table, _ids()),
    "a vector on the right": lambda table: ops.gather(table, _ids()) @ _vector(5),
    "a vector that is the same for all rows": lambda table: _vector(3, UNBATCHED) @ ops.gather(table, _ids()),
    "elements by the call's id": lambda table: _vector(3, ELEMENTS) @ ops.gather(table, _ids()),
    "the call's vector by elements' ids": lambda table: _vector(3) @ ops.gather(table, _ids(ELEMENTS)),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_a_matrix_that_an_id_chooses_is_not_gathered(name: str) -> None:
    """The product is what NumPy says, for each row."""
    table = _table()
    product = CHOSEN[name](table)
    inputs = [node for node in reachable([product]) if node.op.name == "input"]
    graph = Graph(tuple(inputs), (product,))
    assert "gather" not in {node.op.name for node in graph.nodes}
    rows = random_rows(np.random.default_rng(0), graph, 3, below=4, lengths=[2, 0, 1])
    (found,) = run_graph(graph, rows)
    values = dict(zip(inputs, rows.values, strict=True))
    ids, x = (
        next(x for x in inputs if x is not table and x.type.is_float is is_float)
        for is_float in (False, True)
    )
    axis = product.axis

    def spread(node: Node) -> np.ndarray:
        value = values[node]
        if node.axis is UNBATCHED:
            return np.stack([value] * 3)
        return np.repeat(value, [2, 0, 1], axis=0) if node.axis is CALL and axis is ELEMENTS else value

    matrices = values[table][spread(ids)]
    if x.shape == (5,):
        matrices = matrices.transpose(0, 2, 1)
    np.testing.assert_allclose(
        found, np.einsum("r...k,rkm->r...m", spread(x), matrices), rtol=1e-5, atol=1e-6
    )


def test_of_a_table_of_many_matrices_only_those_that_are_read_have_gradients() -> None:
    """So the product stays one of gathered matrices, whose gradient is sparse."""
    few, many = (_vector(3) @ ops.gather(_table(n), _ids()) for n in (256, 257))
    assert few.op.name == "linear_by"
    assert "gather" in {node.op.name for node in reachable([many])}


HIDDEN, LABELS = 5, 4
CHAINS = [[0, 1, 1, 3], [2], [], [3, 3, 0, 1, 2, 2, 1]]


def _nested(labels: list[int]) -> tuple[int, Any] | None:
    chain = None
    for label in labels:
        chain = (label, chain)
    return chain


def _layers() -> fb.Block:
    chain = fb.ForwardDeclaration(output_type=HIDDEN, name="chain")
    cases = {
        k: fb.GetItem(1) >> chain() >> fb.Linear(HIDDEN, "tanh", name=f"layer{k}") for k in range(LABELS)
    }
    first = fb.FromTensor(np.linspace(-1, 1, HIDDEN, dtype="float32"))
    chain.resolve_to(fb.OneOf(lambda x: -1 if x is None else x[0], {-1: first, **cases}))
    return chain() >> fb.Function(lambda h: ops.sum(h * h * h)) >> fb.Loss()


def _one_table(shift: int = 0) -> fb.Block:
    w, b = fb.Parameter([LABELS, HIDDEN, HIDDEN], name="w"), fb.Parameter([LABELS, HIDDEN], name="b")
    chain = fb.ForwardDeclaration(output_type=HIDDEN, name="chain")
    layer = fb.Function(lambda h, k: ops.tanh(h @ ops.gather(w, k + shift) + ops.gather(b, k)))
    step = fb.AllOf(fb.GetItem(1) >> chain(), fb.GetItem(0) >> fb.Scalar("int32")) >> layer
    first = fb.FromTensor(np.linspace(-1, 1, HIDDEN, dtype="float32"))
    chain.resolve_to(fb.OneOf(lambda x: x is None, {True: first, False: step}))
    return chain() >> fb.Function(lambda h: ops.sum(h * h * h)) >> fb.Loss()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_table_of_weights_is_one_layer_for_each_label(backend: str) -> None:
    """In losses and gradients; in one batch, and one example at a time."""
    layers, table = fb.compile(_layers(), backend), fb.compile(_one_table(), backend)
    for k in range(LABELS):
        table.params["w"][k] = layers.params[f"layer{k}.weight"]
        layers.params[f"layer{k}.bias"][...] = table.params["b"][k] = np.linspace(-k, 1, HIDDEN)
    chains = [_nested(labels) for labels in CHAINS]
    loss, expected = layers.value_and_grad(chains)
    found_loss, found = table.value_and_grad(chains)
    assert found_loss == pytest.approx(loss, rel=1e-5)
    for k in range(LABELS):
        for name, kind in (("w", "weight"), ("b", "bias")):
            np.testing.assert_allclose(
                dense(found[name])[k], expected[f"layer{k}.{kind}"], rtol=1e-4, atol=1e-5
            )
    one_by_one = [table.value_and_grad([chain])[1]["w"] for chain in chains]
    np.testing.assert_allclose(np.sum(one_by_one, 0), found["w"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_id_of_no_matrix_is_refused(backend: str) -> None:
    """Read from the example, or computed."""
    with pytest.raises(ExampleError, match=r"example 1.* from 0 to 3, found (int )?4"):
        float(fb.compile(_one_table(), backend).value_and_grad([_nested([1]), _nested([0, 4])])[0])
    with pytest.raises(ExampleError, match=r"example 1.* from 0 to 3, found (int )?4"):
        float(fb.compile(_one_table(1), backend).value_and_grad([_nested([1]), _nested([0, 3])])[0])
