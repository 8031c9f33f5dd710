"""Cells staged both ways: right in every stage, and as little as possible in each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.params.parameters import Parameter
from foldbatch.static import ops
from foldbatch.static.cell import Cell, stage_cell
from foldbatch.static.cellgraph import CellGraph, Ends, feed_bounds
from foldbatch.static.graph import Graph, Node, input_node, parameter_node, substitute
from foldbatch.static.op import UNBATCHED
from foldbatch.static.routines import Stage, routine_of
from foldbatch.static.sides import cotangents
from foldbatch.static.statements import Binding, Routine, Statement
from foldbatch.types import TensorType
from tests.static.routine_text import text
from tests.static.run_cell import run_cell
from tests.static.run_kernel import TARGET, interpret, random_rows
from tests.strategies import Problem, problems

# -- the law: staged, both ways = interpreted


def _cell_graph(problem: Problem) -> CellGraph:
    """Return a random graph as a cell: what is unbatched becomes a parameter, results get a row per call."""
    graph = problem.graph
    rng = np.random.default_rng(problem.seed)
    weights = {
        x: parameter_node(Parameter(x.type, rng.normal(size=x.shape), f"w{i}"))
        for i, x in enumerate(graph.inputs)
        if x.axis is UNBATCHED
    }
    outputs = [_per_call(node) for node in substitute(graph.outputs, weights)]
    operands = tuple(x for x in graph.inputs if x.axis is not UNBATCHED)
    half = (len(operands) + 1) // 2
    losses = tuple(ops.sum(ops.reshape(ops.tanh(node), -1)) for node in outputs[1:])
    metrics = tuple(ops.square(node) for node in outputs[:1])
    return CellGraph("cell", operands[:half], operands[half:], tuple(dict.fromkeys(outputs)), losses, metrics)


def _per_call(node: Node) -> Node:
    return ops.segment_sum(node) if node.axis.rank == 2 else ops.batched(node)


@given(problems(smooth=True, steps=16), st.data())
@settings(max_examples=27)
def test_stages_compute_what_the_whole_graph_means(problem: Problem, data: st.DataObject) -> None:
    """Whichever ends are recursive, whichever carry gradients, however much may be kept."""
    graph = _cell_graph(problem)
    subset = lambda n: frozenset(data.draw(st.sets(st.integers(0, n - 1)))) if n else frozenset()  # noqa: E731
    ends = Ends(
        subset(len(graph.operands)),
        subset(len(graph.outputs)),
        subset(len(graph.operands)),
        subset(len(graph.outputs)),
    )
    cell = stage_cell(graph, ends, data.draw(st.sampled_from([None, 0, 24])))
    rng = np.random.default_rng(problem.seed)
    whole = Graph(graph.inputs, graph.results)
    rows = random_rows(rng, whole, 3)
    seeds, derived = cotangents(graph, ends)
    given_ = {j: rng.normal(size=(3, *node.shape)) for j, node in seeds.items()}
    backward = Graph((*graph.inputs, *seeds.values()), tuple(node for _, node in derived))
    with np.errstate(all="ignore"):
        values = interpret(whole, rows)
        gradients = interpret(backward, type(rows)(3, (*rows.values, *given_.values()), rows.lengths))
        found = run_cell(cell, rows, given_)
        inferred = run_cell(cell, rows, {}, training=False)
    kinds = [
        (k, i)
        for k, part in zip(("value", "loss", "metric"), _parts(graph), strict=True)
        for i in range(len(part))
    ]
    expected = {
        **dict(zip(kinds, values, strict=True)),
        **dict(zip((what for what, _ in derived), gradients, strict=True)),
    }
    assert set(kinds) == set(inferred) <= set(found) <= set(expected)
    for what, value in expected.items():
        if what not in found:  # simplification found out that nothing depends on it
            assert not value.any()
            continue
        np.testing.assert_allclose(found[what], value, rtol=1e-8, atol=1e-8, err_msg=str(what))
        if what in inferred:
            np.testing.assert_allclose(inferred[what], value, rtol=1e-8, atol=1e-8, err_msg=str(what))


def _parts(graph: CellGraph) -> tuple[tuple[Node, ...], ...]:
    return graph.outputs, graph.losses, graph.metrics


@given(problems(smooth=True, steps=16), st.data())
@settings(max_examples=20)
def test_no_stage_reads_what_is_not_ready(problem: Problem, data: st.DataObject) -> None:
    """*Before* reads no recursive operand or cotangent; parameter gradients are never computed in a *step*."""
    graph = _cell_graph(problem)
    some = lambda n: frozenset(data.draw(st.sets(st.integers(0, n - 1), min_size=1))) if n else frozenset()  # noqa: E731
    operands, outputs = some(len(graph.operands)), some(len(graph.outputs))
    every = frozenset(range(len(graph.operands))), frozenset(range(len(graph.outputs)))
    cell = stage_cell(graph, Ends(operands, outputs, *every))
    for stages, kind, recursive in (
        (cell.training.forward, "operand", operands),
        (cell.training.backward, "cotangent", outputs),
    ):
        early = routine_of(stages["before"], TARGET).slots if "before" in stages else ()
        assert not {slot.binding.key for slot in early if slot.binding.kind == kind} & recursive
    # What is summed over calls stands in no block's graph: only there could the gradient of what is added to the
    # sum lie on the way of a cotangent back into the recursion.
    step = cell.training.backward.get("step")
    if step is not None and all(node.op.axis is None or node.axis.rank for node in problem.graph.nodes):
        assert all(what != "gradient" for (what, _), _ in step.results)


# -- a Tree-LSTM written naively: every node classifies its h and adds a loss

H = 4


def _gates(x: Node, weight: Parameter, bias: Parameter) -> Node:
    return x @ weight + bias


def _sst(*, trainable: bool = True) -> tuple[Cell, dict[str, Parameter]]:
    """Return the cell of an inner node with classifier and loss, and its parameters."""
    shapes: dict[str, list[int | str]] = {"u": [2 * H, 5 * H], "b": [5 * H], "v": [H, 5], "d": [5]}
    weights = {name: Parameter(shape, "normal", name, trainable=trainable) for name, shape in shapes.items()}
    h, c = input_node(TensorType((2, H))), input_node(TensorType((2, H)))
    label = input_node(TensorType((), "int32"))
    gates = _gates(ops.reshape(h, 2 * H), weights["u"], weights["b"])
    i, f, o = ops.sigmoid(gates[:H]), ops.sigmoid(gates[H : 3 * H]), ops.sigmoid(gates[3 * H : 4 * H])
    new_c = i * ops.tanh(gates[4 * H :]) + ops.sum(ops.reshape(f, (2, H)) * c, axis=0)
    new_h = o * ops.tanh(new_c)
    loss = ops.cross_entropy(new_h @ weights["v"] + weights["d"], label)
    graph = CellGraph("node", (h, c), (label,), (new_h, new_c), (loss,))
    both = frozenset((0, 1))
    return stage_cell(graph, Ends(both, both, both, both)), weights


def _routines(stages: Mapping[str, Stage]) -> dict[str, Routine]:
    return {name: routine_of(stage, TARGET) for name, stage in stages.items()}


def _ops(stages: Iterable[Stage]) -> list[str]:
    """Return the names of all statements."""
    return [s.op for stage in stages for s in routine_of(stage, TARGET).statements]


def _is_product(statement: Statement) -> bool:
    return statement.op in ("linear", "matmul", "sum_outer")


def _products(stages: Mapping[str, Stage]) -> dict[str, int]:
    """Return the GEMMs of each stage."""
    return {name: sum(map(_is_product, r.statements)) for name, r in _routines(stages).items()}


def _results(stages: Mapping[str, Stage]) -> dict[str, list[str]]:
    """Return what each stage yields; cotangents that are computed where they belong are ``stored``."""
    found: dict[str, list[str]] = {}
    for name, routine in _routines(stages).items():
        ends = [result.binding for result in routine.results]
        found[name] = [f"{what} {key.name if isinstance(key, Parameter) else key}" for what, key in ends]
        stores = [slot.binding for slot in routine.slots if slot.binding.kind == "store"]
        found[name] += [f"stored {binding.key}" for binding in stores]
    return found


def _kinds(stages: Mapping[str, Stage]) -> list[tuple[str, object]]:
    return [what for stage in stages.values() for what, _ in stage.results]


def test_the_node_of_a_tree_lstm_runs_only_its_gates_per_level() -> None:
    """Classifier and loss come after, once per batch; the step is one GEMM and elementwise work."""
    cell, _ = _sst()
    forward = cell.training.forward
    assert _products(forward) == {"step": 1, "after": 1}
    assert _results(forward) == {"step": ["value 0", "value 1"], "after": ["loss 0"]}
    assert "cross_entropy" in _ops([forward["after"]])
    assert "cross_entropy" not in _ops([forward["step"]])
    assert len(_ops([forward["step"]])) < 20


def test_the_gradient_of_the_loss_initialises_the_cotangents() -> None:
    """Backward, d loss / d h comes first, once per batch; the levels add to it; weights come last."""
    cell, _ = _sst()
    backward = cell.training.backward
    assert _products(backward) == {"before": 2, "step": 1, "after": 1}
    assert _results(backward) == {
        "before": ["gradient v", "gradient d"],
        "step": ["cotangent 0", "stored 1"],
        "after": ["gradient u", "gradient b"],
    }
    assert "softmax" in _ops([backward["before"]])
    assert "softmax" not in _ops([backward["step"]])


def test_the_weights_gradients_are_one_product_each() -> None:
    """x' g over all rows of all levels: for u after the levels, for v, which no level concerns, before."""
    cell, _ = _sst()
    sums = {name: _ops([stage]).count("sum_outer") for name, stage in cell.training.backward.items()}
    assert sums == {"before": 1, "step": 0, "after": 1}


def test_the_steps_are_as_they_have_been_read(golden: Callable[[str, str], None]) -> None:
    """What runs per level, forward and backward."""
    cell, _ = _sst()
    steps = [side["step"] for side in (cell.training.forward, cell.training.backward)]
    golden("tree_lstm_step.txt", "\n".join(text(routine_of(step, TARGET)) for step in steps))


def test_embedding_and_input_projection_come_before_the_levels() -> None:
    """In an RNN's cell: the product with x is taken of all elements at once, that with h level by level."""
    table, w, u = (
        Parameter([7, H], "normal", "table"),
        Parameter([H, H], "normal", "w"),
        Parameter([H, H], "normal", "u"),
    )
    h, word = input_node(TensorType((H,))), input_node(TensorType((), "int32"))
    new = ops.tanh(ops.gather(table, word) @ w + h @ u)
    one = frozenset((0,))
    cell = stage_cell(CellGraph("rnn", (h,), (word,), (new,)), Ends(one, one, one, one))
    assert _products(cell.training.forward) == {"before": 1, "step": 1}
    assert "gather" in _ops([cell.training.forward["before"]])
    assert _products(cell.training.backward) == {"step": 1, "after": 3}  # dw, du, and dx for the table
    assert sorted(_results(cell.training.backward)["after"]) == ["gradient u", "gradient w"]
    (sums,) = cell.sums
    assert (sums.parameter, sums.ids) == (table, Binding("feed", 0))
    assert cell.training.kept[sums.values.key].type.shape == (H,)
    assert cell.sparse == {table}


def test_what_a_sum_of_rows_reads_is_there_when_the_batch_has_run() -> None:
    """A cotangent or a view of it lies in memory that is used again, so a copy is kept."""
    table = Parameter([5, 3], "normal", "table")
    ids = input_node(TensorType((), "int32"))
    one = frozenset((0,))
    graph = CellGraph("cell", (), (ids,), (ops.reshape(ops.gather(table, ids), (3, 1)),))
    cell = stage_cell(graph, Ends(frozenset(), frozenset(), frozenset(), one))
    (sums,) = cell.sums
    assert sums.values.kind == "kept"
    rows = random_rows(np.random.default_rng(0), Graph(graph.inputs, graph.results), 4, below=5)
    g = np.random.default_rng(1).normal(size=(4, 3, 1)).astype("float32")
    expected = np.zeros((5, 3))
    np.add.at(expected, rows.values[0], g[..., 0])
    np.testing.assert_allclose(run_cell(cell, rows, {0: g})["gradient", table], expected, rtol=1e-6)


def test_a_table_that_is_also_multiplied_has_a_dense_gradient_too() -> None:
    """Then it is not sparse: the parts are added up to an array."""
    table = Parameter([5, 3], "normal", "table")
    ids, x = input_node(TensorType((), "int32")), input_node(TensorType((3,)))
    scores = ops.matmul(x * ops.gather(table, ids), ops.transpose(parameter_node(table)))
    cell = stage_cell(CellGraph("cell", (), (ids, x), (), (ops.sum(ops.tanh(scores)),)), Ends())
    assert [sums.parameter for sums in cell.sums] == [table]
    assert ("gradient", table) in _kinds(cell.training.backward)
    assert cell.sparse == frozenset()


def test_feed_bounds_see_through_casts_and_take_the_smallest() -> None:
    """Data used as indices is checked while it is traced, against every table it goes into."""
    ids, free = input_node(TensorType((2,), "int32")), input_node(TensorType((), "int32"))
    wide, narrow = Parameter([9, 2], 0.0), Parameter([5, 2], 0.0)
    cast = ops.cast(ops.reshape(ids, (2, 1)), "int64")
    outputs = (ops.gather(wide, ids), ops.gather(narrow, cast), ops.gather(wide, free + 1))
    graph = CellGraph("cell", (), (ids, free), outputs)
    assert feed_bounds(graph) == {ids: 5}
    stages = stage_cell(graph, Ends()).training.forward
    assert _ops(stages.values()).count("check_range") == 1


# -- training and inference


@pytest.mark.parametrize(("trained", "inferred", "checks"), [(5, 5, 0), (9, 5, 1), (5, 9, 0), (None, 5, 1)])
def test_an_index_that_only_inference_uses_is_checked_in_its_kernel(
    trained: int | None, inferred: int, checks: int
) -> None:
    """Tracing checks feeds against the tables of training; a smaller one in inference needs its own check."""
    x, word = input_node(TensorType((3,))), input_node(TensorType((), "int32"))
    table = lambda n: Parameter([n, 3], "normal", f"table{n}")  # noqa: E731
    first = ops.gather(table(trained), word) if trained else x
    y = x + ops.when_training(first, ops.gather(table(inferred), word))
    cell = stage_cell(CellGraph("cell", (x,), (word,), (y,)), Ends())
    assert _ops(cell.inference.forward.values()).count("check_range") == checks
    assert "check_range" not in _ops(cell.training.forward.values())
