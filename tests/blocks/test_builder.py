"""What building writes: as few cells as possible, as many as choices demand."""

import numpy as np

import foldbatch as fb
from foldbatch import ops


def cells(block: fb.Block) -> int:
    """Return how many cells a block becomes."""
    return len(fb.compile(block).lowered.cells)


def test_tensor_work_without_a_choice_is_one_cell() -> None:
    """However many blocks it is spread over, and wherever its data comes from."""
    block = fb.Record({"a": fb.Vector(2) >> fb.Linear(3), "b": fb.Scalar("int32") >> fb.Embedding(4, 3)})
    assert cells(block >> fb.Function(lambda a, b: a * b) >> fb.Linear(2, "tanh")) == 1


def test_a_loss_beside_the_result_is_in_the_same_cell() -> None:
    """Sinks wait for the end of their region."""
    block = fb.Vector(2) >> fb.Linear(2) >> fb.AllOf(fb.Identity(), fb.Function(ops.sum) >> fb.Loss()) >> fb.GetItem(0)
    assert cells(block) == 1


def test_cases_and_loops_have_cells_of_their_own() -> None:
    """What happens in some examples only is not computed in others."""
    choice = fb.OneOf(bool, {True: fb.Scalar(), False: fb.Scalar() >> fb.Function(lambda x: -x)})
    assert cells(choice >> fb.Function(ops.tanh)) == 3
    assert cells(fb.Map(fb.Scalar() >> fb.Function(ops.tanh)) >> fb.Function(ops.segment_sum)) == 2


def test_a_value_of_one_cell_may_be_used_by_later_ones_of_its_region() -> None:
    """Computed once, before a choice that reads it; read again after."""
    shared = fb.Vector(2) >> fb.Linear(2, "tanh")
    chosen = fb.OneOf(fb.GetItem(0) >> fb.InputTransform(bool), {True: fb.GetItem(1), False: fb.GetItem(1) >> fb.Linear(2)})
    block = fb.AllOf(fb.GetItem(0), fb.GetItem(1) >> shared) >> fb.AllOf(chosen, fb.GetItem(1)) >> fb.Function(ops.add)
    program = fb.compile(block, debug=True)
    reference = fb.compile(block, backend="reference")
    batch = [(1, [1, 2]), (0, [3, 4])]
    np.testing.assert_allclose(np.array(list(program.run(batch))), np.array(list(reference.run(batch))), rtol=1e-5)
    assert sum("tanh" in kernel.source for cell in program.lowered.cells for kernel in cell.inference.values()) == 1


def test_the_program_reads_like_a_program() -> None:
    """One function per declaration; cases are branches, loops are loops."""
    tree = fb.ForwardDeclaration(output_type="float32", name="tree")
    inner = fb.Map(tree()) >> fb.Function(ops.segment_sum)
    tree.resolve_to(fb.OneOf(lambda x: isinstance(x, list), {True: inner, False: fb.Scalar()}))
    source = fb.compile(tree()).lowered.tracer.source
    assert source.count("def ") == 2
    assert "for " in source
    assert "yield " in source
    assert "if case" in source


def test_errors_name_the_path_to_the_block() -> None:
    """As Python would index it."""
    block = fb.Record({"left": fb.OneOf(len, {2: fb.Map(fb.GetItem("x") >> fb.Scalar())})})
    try:
        fb.compile(block).run([{"left": [{"x": 1}, {}]}])
    except fb.errors.ExampleKeyError as error:
        assert error.where == "model['left'].case(2).map at example 0 ['left'][1]"
    else:
        raise AssertionError
