"""Products merged and split by stage, as text before and after: cases/matmuls.txt, cases/split.txt."""

import pytest

import foldbatch as fb
from foldbatch.params.parameters import Parameter
from foldbatch.static import ops
from foldbatch.static.graph import Graph, input_node
from foldbatch.static.passes.stages import merge_matmuls, split_by_stage
from foldbatch.static.routines import Target, routine_of
from foldbatch.types import TensorType
from tests.static.passes.checks import cases, check_case
from tests.static.passes.staged import staged
from tests.static.text_graph import Case


@pytest.mark.parametrize("case", cases("matmuls"), ids=str)
def test_products_of_one_operand_are_merged(case: Case) -> None:
    check_case(case, staged(merge_matmuls))


@pytest.mark.parametrize("case", cases("split"), ids=str)
def test_a_product_is_split_where_the_recursion_begins(case: Case) -> None:
    check_case(case, staged(split_by_stage))


def test_what_is_trained_is_not_joined_with_what_is_not() -> None:
    x = input_node(TensorType((3,)))
    trained, frozen = Parameter([3, 2]), Parameter([3, 2], trainable=False)
    graph = Graph((x,), (ops.matmul(x, trained), ops.matmul(x, frozen)))
    assert staged(merge_matmuls, recursive=False)(graph) is graph


def products(block: fb.Block) -> dict[str, int]:
    """Count the matrix products of a program's stages by name."""
    found: dict[str, int] = {}
    for cell in fb.compile(block, "numpy").model.cells:
        for stage in (*cell.training.forward.values(), *cell.training.backward.values()):
            statements = routine_of(stage, Target()).statements
            count = sum(s.op in ("linear", "matmul", "sum_outer") for s in statements)
            found[stage.name] = found.get(stage.name, 0) + count
    return found


@pytest.mark.parametrize("joined", [False, True], ids=["a weight for x and one for h", "one for both"])
def test_an_lstm_written_gate_by_gate_is_one_product_a_step(joined):
    size = 4
    gates = {name: fb.Linear(size) for name in "iofu"}
    others = {name: fb.Linear(size, bias=False) for name in "iofu"}

    def step(x, state):
        h, c = state
        both = ops.concat([x, h])
        z = {g: gates[g](both) if joined else gates[g](x) + others[g](h) for g in gates}
        i, o, f = (ops.sigmoid(z[name]) for name in "iof")
        c = i * ops.tanh(z["u"]) + f * c
        h = o * ops.tanh(c)
        return h, (h, c)

    cell = fb.RNN(fb.Function(step), fb.Zeros((size, size)))
    total = fb.GetItem(1) >> fb.GetItem(0) >> fb.Function(ops.sum) >> fb.Loss()
    found = products(fb.Map(fb.Vector(3)) >> cell >> total)
    assert found["forward_step"] == found["backward_step"] == 1
    assert found["forward_before"] == 1  # x, for all steps at once
    assert found["backward_after"] == 2  # both weights' gradients
