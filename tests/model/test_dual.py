"""Dual programs: pairs where parameters act, nowhere else, in the traces of the program itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch import ops
from foldbatch.model.dual import LOSS, dual, dual_graph
from foldbatch.model.model import Model
from foldbatch.params.parameters import Parameter
from foldbatch.static.autodiff import trainable
from foldbatch.static.cellgraph import CellGraph
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, input_node
from foldbatch.static.verify import verify
from foldbatch.types import VOID, TensorType
from tests.engines.random_cells import runnables
from tests.strategies import random_value

V = fb.Vector(2)


def dual_of(block: fb.Block) -> tuple[Model, Model]:
    found = fb.compile(block, "numpy").model
    tangents = {p: Parameter(p.type, 0.0, trainable=False) for p in found.parameters if p.trainable}
    return found, dual(found, tangents)


def a_tree(leaf: fb.Block) -> fb.Block:
    tree = fb.ForwardDeclaration(output_type=2, name="tree")
    pair = fb.Record((tree(), tree())) >> fb.Concat() >> fb.Linear(2, "tanh")
    tree.resolve_to(fb.OneOf(lambda x: isinstance(x, tuple), {False: leaf, True: pair}))
    return tree() >> fb.Function(ops.sum) >> fb.Loss("sum")


def test_traces_and_schedules_of_a_program_fit_its_dual():
    plain, twice = dual_of(a_tree(V))
    assert twice.form == plain.form
    assert (twice.feeds, twice.keys, twice.parameters) == (plain.feeds, plain.keys, plain.parameters)
    assert [s.component for s in twice.signatures] == [s.component for s in plain.signatures]
    assert [[o.columns for o in s.operands] for s in twice.signatures] == [
        [o.columns for o in s.operands] for s in plain.signatures
    ]
    assert [cell.ends.recursive_operands for cell in twice.cells] == [
        cell.ends.recursive_operands for cell in plain.cells
    ]


def test_what_parameters_act_on_comes_in_pairs_and_nothing_else():
    read = fb.OneOf(len, {2: V, 3: fb.GetItem(slice(0, 2)) >> V})  # a choice cuts the cells
    layer = fb.ForwardDeclaration(2, 2, "layer")
    layer.resolve_to(fb.Linear(2))
    counted = fb.ForwardDeclaration(2, fb.types.TensorType((), "int64"), "counted")
    counted.resolve_to(fb.Function(lambda x: ops.argmax(x, 0)))
    plain, twice = dual_of(read >> layer() >> fb.AllOf(counted(), fb.Function(ops.sum) >> fb.Loss()))
    by_name = {s.name: s for s in plain.signatures}
    (number,) = by_name["counted"].outputs
    (moved,) = by_name["layer"].outputs
    (data,) = {o.arena for o in by_name["layer"].operands}
    assert twice.arenas[moved] == TensorType((2, 2))
    assert twice.arenas[data] == plain.arenas[data] == TensorType((2,))
    assert twice.arenas[number] == TensorType((), "int64")


def test_the_dual_yields_losses_as_metrics_and_their_tangents_as_losses():
    weighted = fb.Linear(1) >> fb.Function(ops.sum) >> fb.Loss("a")
    model = V >> fb.AllOf(weighted, fb.Function(ops.sum) >> fb.Loss("no parameter"), fb.Metric("seen"))
    _, twice = dual_of(model)
    assert twice.result is VOID
    assert twice.metrics == ((LOSS, LOSS),)
    assert len(twice.cells[0].graph.losses) == 1


def test_draws_of_a_dual_are_those_of_training_even_in_its_inference():
    _, twice = dual_of(V >> fb.Linear(2) >> fb.Dropout(0.5) >> fb.Function(ops.sum) >> fb.Loss())
    (cell,) = twice.cells
    assert cell.inference.graph.results == cell.training.graph.results
    assert any(n.op.name == "random" for n in Graph(cell.graph.inputs, cell.graph.results).nodes)
    assert not any(n.op.name == "when_training" for n in Graph(cell.graph.inputs, cell.graph.results).nodes)


def test_what_comes_packed_is_paired_behind_the_axis_it_is_packed_along():
    operand = input_node(TensorType((3, 2), "float64"))
    graph = CellGraph("cell", (operand,), (), (ops.sum(operand * operand, 0),))
    found = dual_graph(graph, {0: 1}, {0}, {})
    assert found.operands[0].shape == (3, 2, 2)
    assert found.outputs[0].shape == (2, 2)
    value, tangent = np.arange(6.0).reshape(3, 2), np.ones((3, 2))
    (pair,) = evaluate(Graph(found.inputs, found.outputs), [np.stack([value, tangent], 1)])
    assert pair.tolist() == [(value**2).sum(0).tolist(), (2 * value).sum(0).tolist()]


def test_an_output_that_stands_still_is_paired_with_zeros():
    x = input_node(TensorType((2,)))
    found = dual_graph(CellGraph("cell", (), (x,), (x * 2,)), {}, {0}, {})
    (pair,) = evaluate(Graph(found.inputs, found.outputs), [[1.0, 3.0]])
    assert pair.tolist() == [[2.0, 6.0], [0.0, 0.0]]


@settings(max_examples=15)
@given(runnables(), st.integers(0, 2**32 - 1))
def test_the_dual_of_any_cell_computes_values_and_their_tangents(runnable, seed):
    rng = np.random.default_rng(seed)
    for cell in runnable.model.cells:
        _check_dual(cell.graph, rng)


def _check_dual(graph: CellGraph, rng: np.random.Generator) -> None:
    weights = trainable(graph.outputs + graph.losses)
    moved = [w.attrs["parameter"] for w in weights]
    tangents = {p: Parameter(p.type, rng.normal(size=p.type.shape), trainable=False) for p in moved}
    every = dict.fromkeys(range(len(graph.operands)), 0)
    found = dual_graph(graph, every, set(range(len(graph.outputs))), tangents)
    verify(Graph(found.inputs, found.results))
    feeds = [rng.integers(3) for _ in graph.feeds]
    lengths = {axis: int(rng.integers(3)) for axis in graph.axes}
    operands, speeds = (
        [random_value(rng, x, length=lengths.get(x.axis, 0)) for x in graph.operands] for _ in range(2)
    )

    def paired(x: Any, dx: Any) -> Any:
        return [np.stack(p) for p in zip(x, dx, strict=True)] if isinstance(x, list) else np.stack([x, dx])

    pairs = [paired(x, dx) for x, dx in zip(operands, speeds, strict=True)]
    results = evaluate(Graph(found.inputs, found.results), [*pairs, *feeds])
    origin = {p: p.value.copy() for p in moved}

    def at(step: float) -> list[Any]:
        for p in moved:
            p.assign(origin[p] + step * tangents[p].value)
        inputs = [
            [x + step * dx for x, dx in zip(a, b, strict=True)] if isinstance(a, list) else a + step * b
            for a, b in zip(operands, speeds, strict=True)
        ]
        return evaluate(Graph(graph.inputs, graph.outputs + graph.losses), [*inputs, *feeds])

    values, slopes = at(0.0), [(up - down) / 2e-5 for up, down in zip(at(1e-5), at(-1e-5), strict=True)]
    at(0.0)
    outputs = len(graph.outputs)
    for pair, y, dy in zip(results[:outputs], values[:outputs], slopes[:outputs], strict=True):
        np.testing.assert_allclose(pair[0], y, rtol=1e-12)
        np.testing.assert_allclose(pair[1], dy, rtol=1e-5, atol=1e-7)
    for loss, metric in zip(values[outputs:], results[len(results) - len(graph.losses) :], strict=True):
        assert metric == pytest.approx(float(loss))
    along = sum(float(x) for x in results[outputs : outputs + len(found.losses)])
    assert along == pytest.approx(sum(float(x) for x in slopes[outputs:]), rel=1e-5, abs=1e-7)
