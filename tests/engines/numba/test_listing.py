"""Kernels as people read them."""

from __future__ import annotations

from foldbatch.engines.numba.listing import listing, loop_name
from foldbatch.engines.numba.loop_texts import TARGET, spell
from foldbatch.static import ops
from foldbatch.static.graph import Graph, input_node
from foldbatch.types import TensorType
from tests.static.run_kernel import routine_of_graph


def test_a_listing_names_slots_statements_results_and_loops() -> None:
    x = input_node(TensorType((2, 3)))
    routine = routine_of_graph(
        Graph((x,), (ops.softmax(ops.tanh(x[0] * 2.0)), ops.sum(x[:, 1:], 1))), target=TARGET
    )
    text = listing("cell forward_step", routine)
    lines = text.splitlines()
    loop = next(statement.loop for statement in routine.statements if statement.loop is not None)
    name = loop_name(spell(loop))
    assert lines[0] == "# cell forward_step"
    assert any(line.startswith("operand") and line.endswith("float32[2,3] N") for line in lines)
    assert any(line.startswith(f"{name}(n, ") for line in lines)
    assert f"def {name}(n, a0, " in text
    assert any("softmax(" in line and "axis=0" in line for line in lines)
    assert any("sum(operand" in line and "[1; 2x2; 3 1]" in line for line in lines)
    assert [line.split(" = ")[0] for line in lines if line.startswith("value")] == ["value 0", "value 1"]


def test_loops_are_named_by_their_texts() -> None:
    assert loop_name("a") == loop_name("a") != loop_name("b")
