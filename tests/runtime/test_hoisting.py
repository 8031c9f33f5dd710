"""Products taken out of a recursion change nothing but the time, whatever is known before it starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.params import Parameter
from foldbatch.engines.batch import schedule_batch
from foldbatch.engines.executor import Execution
from foldbatch.engines.moves import moves_for
from foldbatch.engines.reference import Reference
from foldbatch.engines.workspace import Workspace
from foldbatch.scheduler import hoisting
from foldbatch.scheduler.layout import LAYOUTS
from foldbatch.scheduler.policies import POLICIES
from foldbatch.scheduler.trace import CellSignature, Operand, Trace
from foldbatch.static import hoisting as static_hoisting
from foldbatch.static import ops
from foldbatch.static.backends import BACKENDS
from foldbatch.static.cell import compile_cell
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import apply, input_node, parameter_node
from foldbatch.types import TensorType
from tests.scheduler.random_traces import leveled

pytestmark = [
    pytest.mark.numba,
    pytest.mark.skipif("numba" not in BACKENDS, reason="numba is not installed"),
]
Tree = Any  # a word, or a pair of trees
trees: st.SearchStrategy[Tree] = st.recursive(
    st.integers(0, 4), lambda inner: st.tuples(inner, inner), max_leaves=9
)


@pytest.fixture(autouse=True)
def _small_ones_too() -> Iterator[None]:
    everything = mock.patch.multiple(hoisting, FEWEST=1, LEAST=0.0)
    with everything, mock.patch.object(static_hoisting, "SMALLEST", 1):
        yield


def model(*, everywhere: bool, again: bool, size: int = 5) -> fb.Block:
    """A tree's state is made of its children's; its loss is that of all nodes, or of the root.

    What is multiplied may be read `again`.
    """
    gates = fb.Linear(2 * size, name="gates")

    def node(left: Any, right: Any) -> Any:
        a, b = ops.split(gates(ops.concat([left, right])), 2)
        gate = ops.sigmoid(b)
        return ops.tanh(a) * gate + (left - 0.5 * right) * (1 - gate) if again else ops.tanh(a) * gate

    tree = fb.ForwardDeclaration(output_type=size)
    word = fb.Scalar("int32") >> fb.Embedding(5, size, name="words") >> fb.Function(ops.tanh)
    inner = fb.Record((tree(), tree())) >> fb.Function(node)
    state = fb.OneOf(lambda t: isinstance(t, tuple), {True: inner, False: word})
    loss = fb.Function(lambda h: ops.sum(ops.square(h - 0.3))) >> fb.Loss()
    tree.resolve_to(state >> fb.AllOf(fb.Identity(), loss) >> fb.GetItem(0) if everywhere else state)
    return tree() >> fb.AllOf(fb.Identity(), loss) >> fb.GetItem(0)


PROGRAMS: dict[tuple[bool, bool, str], tuple[fb.Program, fb.Program]] = {}


def programs(everywhere: bool, again: bool, layout: str) -> tuple[fb.Program, fb.Program]:
    """Return a program that hoists, and the reference with the same parameters."""
    if (everywhere, again, layout) not in PROGRAMS:
        block = model(everywhere=everywhere, again=again)
        program = fb.compile(block, "numba", layout=layout, threads=1, debug=True)
        PROGRAMS[everywhere, again, layout] = program, fb.compile(block, "reference")
    return PROGRAMS[everywhere, again, layout]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(trees, min_size=1, max_size=6), st.booleans(), st.booleans(), st.sampled_from(sorted(LAYOUTS))
)
def test_results_and_gradients_are_the_references(
    batch: list[Tree], everywhere: bool, again: bool, layout: str
) -> None:
    program, reference = programs(everywhere, again, layout)
    assert any(
        cell.hoisted is not None and cell.hoisted.cotangent is not None for cell in program.model.cells
    )
    loss, gradients = program.value_and_grad(batch)
    right, expected = reference.value_and_grad(batch)
    assert np.isclose(loss, right, rtol=1e-5)
    assert set(gradients) == set(expected)
    for name, g in gradients.items():
        found, wanted = (x.dense() if isinstance(x, fb.params.SparseRows) else x for x in (g, expected[name]))
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5, err_msg=name)
    for found, wanted in zip(program.run(batch), reference.run(batch), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


def test_what_is_hoisted_is_not_computed_by_kernels_too() -> None:
    """Neither forward nor backward, nor for the weight's gradient, run the kernels that multiply."""
    program, _ = programs(everywhere=True, again=False, layout="consumer")
    batch = [((0, 1), (2, (0, 1))), (3, 4)]
    ran: list[str] = []
    run = Execution._run

    def noted(self: Execution, kernel: Any, step: Any) -> None:
        ran.append(kernel.source)
        run(self, kernel, step)

    with mock.patch.object(Execution, "_run", noted):
        program.value_and_grad(batch)
    size = program.params["gates.weight"].shape
    cell = next(cell for cell in program.model.cells if cell.hoisted is not None)
    assert size == (10, 10)
    assert cell.forward["step"].source not in ran
    assert cell.backward["after"].source not in ran
    with mock.patch.object(hoisting, "FEWEST", 99), mock.patch.object(Execution, "_run", noted):
        program.value_and_grad(batch)
    assert cell.backward["after"].source in ran


def test_a_recursion_without_gradients_is_not_run_backward() -> None:
    """All its parameters being frozen, forward hoists and backward has nothing to do."""
    block = model(everywhere=False, again=False) >> fb.Linear(2, name="top")
    block = block >> fb.Function(lambda y: ops.sum(ops.square(y - 0.3))) >> fb.Loss()
    for name, parameter in fb.compile(block, "numba").params.parameters.items():
        parameter.trainable = name.startswith("top")
    program, reference = fb.compile(block, "numba", threads=1), fb.compile(block, "reference")
    assert any(cell.hoisted is not None for cell in program.model.cells)
    batch = [((0, 1), (2, (0, 1))), (3, 4)]
    (loss, found), (right, wanted) = program.value_and_grad(batch), reference.value_and_grad(batch)
    assert np.isclose(loss, right, rtol=1e-5)
    assert set(found) == {"top.weight", "top.bias"} == set(wanted)
    np.testing.assert_allclose(found["top.weight"], wanted["top.weight"], rtol=1e-4, atol=1e-6)


def test_a_schedule_for_another_operand_is_not_used() -> None:
    """Training and inference may hoist products of different ones; a schedule splits one."""
    program, _ = programs(everywhere=True, again=False, layout="consumer")
    cells = [
        replace(cell, hoisted_inference=cell.hoisted_inference and replace(cell.hoisted_inference, operand=7))
        for cell in program.model.cells
    ]
    other = fb.Program(replace(program.lowered, cells=tuple(cells)), program.options, program.seed)
    batch = [((0, 1), (2, (0, 1))), (3, 4)]
    ran: list[Any] = []
    run_levels = Execution._run_levels

    def noted(self: Execution, levels: Any, steps: Any) -> None:
        ran.append(levels)
        run_levels(self, levels, steps)

    hoists = [cell.hoisted_inference.steps[0] for cell in program.model.cells if cell.hoisted_inference]
    for each, uses in ((program, True), (other, False)):
        ran.clear()
        with mock.patch.object(Execution, "_run_levels", noted):
            each.run(batch)
        assert any(levels is found for levels in ran for found in hoists) == uses


@pytest.mark.parametrize("policy", ["by_component", "by_depth"])
def test_values_with_several_readers_get_the_sum_of_their_cotangents(policy: str) -> None:
    """A leaf read by two nodes and twice by one, a node read twice by another; weights of 64 bits."""
    rng = np.random.default_rng(0)
    weight = Parameter(TensorType((6, 3), "float64"), rng.normal(size=(6, 3)), "w")
    vector = TensorType((3,), "float64")
    word = input_node(TensorType((), "int64"))
    table = Parameter(TensorType((4, 3), "float64"), rng.normal(size=(4, 3)), "table")
    pair = input_node(TensorType((2, 3), "float64"))
    h = ops.tanh(apply("reshape", pair, shape=(6,)) @ parameter_node(weight)) * 0.9
    graphs = (
        CellGraph("leaf", (), (word,), (ops.tanh(ops.gather(parameter_node(table), word)),)),
        CellGraph("node", (pair,), (), (h,), (ops.sum(h * h),)),
    )
    everything = frozenset({0})
    ends = Ends(active_outputs=everything), Ends(everything, everything, everything, everything)
    cells = tuple(
        compile_cell(graph, end, BACKENDS["numba"]) for graph, end in zip(graphs, ends, strict=True)
    )
    assert cells[1].hoisted is not None
    signatures = (
        CellSignature("leaf", 0, False, (), (0,), 0),
        CellSignature("node", 1, True, (Operand(0, (0, 1), differentiable=True),), (0,), 2, hoisted=0),
    )
    calls = np.array([[0], [1]], np.int32), np.array([[2, 0, 1], [3, 0, 0], [4, 2, 2], [5, 4, 3]], np.int32)
    trace = Trace(calls, ((), ()), (), ((np.array([1, 3]),), ()), ((), ()), 6)
    chosen = POLICIES[policy]
    batch = schedule_batch(
        [leveled(trace, signatures, chosen)] * 2, signatures, chosen, LAYOUTS["consumer"], 1
    )
    assert (batch.schedule.cells[1].hoisted is not None) == (policy == "by_component")
    assert batch.schedule.cells[1].operands[0].repeats
    moves = BACKENDS["numba"].called_by(moves_for(["float64"]))
    workspace = Workspace(poisoned=True)
    run = Execution(cells, signatures, (vector,), workspace, batch.schedule, batch.feeds, True, moves)
    run.forward()
    gradients = run.backward()
    oracle = Reference(cells, signatures, batch.merged.trace)
    oracle.forward()
    expected = oracle.backward()
    assert np.isclose(sum(float(x.sum()) for x in run.losses.values()), oracle.losses, rtol=1e-12)
    for parameter in (weight, table):
        found = gradients[parameter]
        dense = found.dense() if isinstance(found, fb.params.SparseRows) else found
        np.testing.assert_allclose(dense, expected[parameter], rtol=1e-9, atol=1e-12)
