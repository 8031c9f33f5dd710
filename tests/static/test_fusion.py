"""Which ops share a loop, and in what order the loops run."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foldbatch.engines.llvm.loop_texts import TARGET as FUSED
from foldbatch.params.parameters import Parameter
from foldbatch.static import ops
from foldbatch.static.fusion import MAX_LOOP_OPS, Group, Unit, groups
from foldbatch.static.graph import SOURCES, Graph, Node, apply, constant, input_node, is_view
from foldbatch.static.memory import sections_of
from foldbatch.static.routines import PlannedStage, plan_stage
from foldbatch.types import TensorType
from tests.engines.numpy import launching
from tests.static import run_kernel
from tests.static.run_kernel import TARGET, check_kernel, interpret, random_rows, run_graph, stage_of_graph
from tests.strategies import Problem, problems

V = TensorType((3,), "float64")


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let kernels have fused loops, of compiled code."""
    pytest.importorskip("llvmlite", reason="llvmlite is not installed")
    from tests.engines.llvm.walking import run_table  # noqa: PLC0415 - it needs that

    monkeypatch.setattr(launching, "run_table", run_table)
    monkeypatch.setattr(run_kernel, "TARGET", FUSED)


def _units(*results: Node, inputs: tuple[Node, ...]) -> list[Unit]:
    graph = Graph(inputs, results)
    nodes = [node for node in graph.nodes if node.op not in SOURCES]
    whole_of = {part: section.concat for part, section in sections_of(nodes, results).items()}
    return groups(nodes, results, whole_of, FUSED.takes)


def _planned(graph: Graph, kept: tuple[Node, ...] = ()) -> tuple[PlannedStage, PlannedStage]:
    fused, plain = (plan_stage(stage_of_graph(graph, kept), target) for target in (FUSED, TARGET))
    return fused, plain


def _text(*results: Node, inputs: tuple[Node, ...]) -> str:
    """Units as text: a line each; sweeps are parted by bars, what others read has a star."""
    lines = []
    for unit in _units(*results, inputs=inputs):
        if isinstance(unit, Group):
            sweeps = (
                " ".join(node.op.name + "*" * (node in unit.written) for node in sweep)
                for sweep in unit.sweeps
            )
            lines.append(" | ".join(sweeps))
        else:
            lines.append(f"({unit.op.name})")
    return "\n".join(lines)


def test_groups_that_would_wait_for_each_other_stay_apart() -> None:
    r"""Two chains that read each other through products.

    a -> tanh -> linear -> add    each tanh comes before the other chain's add: were both chains
                X                 one loop each, either would have to come first
    b -> tanh -> linear -> add
    """
    a, b = input_node(V), input_node(V)
    w = Parameter(TensorType((3, 3), "float64"), 1.0)
    first, second = ops.tanh(a) * 2.0, ops.tanh(b) * 3.0
    left, right = first + second @ w, second + first @ w
    units = _units(left, right, inputs=(a, b))
    seen: set[Node] = {a, b}
    for unit in units:
        nodes = unit.nodes if isinstance(unit, Group) else (unit,)
        for node in nodes:
            assert all(x in seen or x in nodes or x.op in SOURCES for x in node.inputs)
        seen.update(nodes)
    assert _text(left, right, inputs=(a, b)).count("(linear)") == 2


def test_a_view_that_is_a_result_is_made() -> None:
    """And what it looks at is written for all rows."""
    x = input_node(TensorType((6,)))
    y = ops.tanh(x) * 2.0
    assert _text(y[:3], y[:3] + 1.0, inputs=(x,)) == "tanh multiply* | add*\n(slice)"


def test_parts_of_a_concatenation_are_joined_in_the_loop() -> None:
    """Unless one of them is computed by another op."""
    x = input_node(TensorType((3,)))
    a, b = ops.tanh(x), ops.sigmoid(x)
    both = ops.concat([a, b])
    assert _text(both * both, inputs=(x,)) == "tanh sigmoid | multiply*"
    mixed = ops.concat([a, ops.softmax(x)])
    assert _text(mixed * mixed * 2.0, inputs=(x,)) == "(tanh)\n(softmax)\n(concat)\nmultiply multiply*"


def test_one_op_stays_alone() -> None:
    """A sum of three terms and more has a loop."""
    x = input_node(V)
    assert _text(ops.tanh(x), inputs=(x,)) == "(tanh)"
    assert _text(ops.add(x, x, x), inputs=(x,)) == "add*"


def test_a_long_chain_is_cut() -> None:
    """Or its compilation would take minutes."""
    x = input_node(V)
    y = x
    for _ in range(3 * MAX_LOOP_OPS):
        y = apply("tanh", y)
    assert [len(unit.nodes) for unit in _units(y, inputs=(x,)) if isinstance(unit, Group)] == [
        MAX_LOOP_OPS
    ] * 3


@given(problems(smooth=False, gradients=True))
@settings(max_examples=35)
def test_units_run_after_what_they_read(problem: Problem) -> None:
    """Each node is in one unit, and a group computes elementwise ops of one axis only."""
    graph = problem.graph
    seen = set(graph.inputs)
    units = _units(*graph.outputs, inputs=graph.inputs)
    for unit in units:
        nodes = unit.nodes if isinstance(unit, Group) else (unit,)
        for node in nodes:
            for x in node.inputs:
                while is_view(x):
                    x = x.inputs[0]
                assert x in seen or x in nodes or x.op in SOURCES
        assert not seen.intersection(nodes)
        assert len({node.axis for node in nodes}) == 1
        seen.update(nodes)
    owned = {node for node in graph.nodes if not is_view(node) and node.op not in SOURCES}
    assert owned <= seen


@given(problems(smooth=False, gradients=True), st.randoms(use_true_random=False))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_fused_kernels_compute_their_graphs(fused: None, problem: Problem, random: object) -> None:
    """In buffers full of NaN, whatever other kernels read of them."""
    check_kernel(problem, random)


def test_the_textbook_case_is_one_loop_without_scratch() -> None:
    """d = a b + 1: NumPy takes two passes; where d belongs to others, it needs no memory but d's."""
    a, b = input_node(V), input_node(V)
    d = a * b + 1.0
    graph = Graph((a, b), (d,))
    fused, plain = _planned(graph, (d,))
    assert (len(fused.routine.statements), len(plain.routine.statements)) == (1, 2)
    assert (len(fused.buffers.slots), len(plain.buffers.slots)) == (0, 1)
    fused, plain = _planned(graph)
    assert (len(fused.buffers.slots), len(plain.buffers.slots), plain.buffers.in_place) == (1, 1, 1)


@pytest.mark.parametrize("read_later", [False, True])
def test_a_loop_writes_over_operands_that_are_dead(fused: None, read_later: bool) -> None:
    """Never over one that is read in another order by a later sweep."""
    x = input_node(TensorType((2, 2), "float64"))
    y = x @ constant(np.eye(2) * 2.0)
    z = y * 2.0 + 1.0
    result = (z + ops.transpose(y), z) if read_later else (z,)
    graph = Graph((x,), result)
    rows = random_rows(np.random.default_rng(0), graph, 3)
    fused, _ = _planned(graph)
    assert fused.buffers.in_place == (not read_later)
    for found, expected in zip(run_graph(graph, rows), interpret(graph, rows), strict=True):
        np.testing.assert_allclose(found, expected)
