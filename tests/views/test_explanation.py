"""`fb.explain` takes programs, blocks and cells, and gives text, data and pictures."""

from importlib.util import find_spec

import pytest

import foldbatch as fb
from foldbatch.errors import ExampleError, UnknownNameError

NODE = "{http://www.w3.org/2000/svg}g[@class='node']"


def tree() -> fb.Block:
    """Sums over trees of numbers, with a weight and a loss."""
    total = fb.ForwardDeclaration(output_type=[2], name="tree")
    pair = fb.Record((total(), total())) >> fb.Concat() >> fb.Linear(2, "tanh", name="pair")
    total.resolve_to(fb.OneOf(lambda x: isinstance(x, tuple), {False: fb.Vector(2), True: pair}))
    return total() >> fb.Function(lambda h: fb.ops.sum(h * h)) >> fb.Loss()


@pytest.fixture
def program() -> fb.Program:
    return fb.compile(tree(), backend="numpy")


def test_a_program_is_explained_cell_by_cell(program):
    found = fb.explain(program)
    assert [cell.cell for cell in found.cells] == list(program.model.cells)
    assert str(found) == found.whole() == "\n\n".join([f"tracing: {found.tracing}", *map(str, found.cells)])
    names = "tree.case(False), tree.case(True), model"
    assert repr(found) == f"Explanation(3 cells: {names}; print it to read it)"
    assert repr(found.cells[0]).startswith("CellExplanation('tree.case(False)', ")


def test_of_many_cells_there_is_a_line_each():
    """And the last line says how to see them."""
    cases = {k: fb.Vector(2) >> fb.Linear(2) for k in range(20)}
    program = fb.compile(fb.OneOf(len, cases), "numpy")
    found = fb.explain(program)
    _, _, title, header, *rows, last = str(found).splitlines()
    assert title == "20 cells"
    assert header.split("  ")[0] == "cell"
    assert [row.split()[0] for row in rows] == [cell.name for cell in program.model.cells]
    assert last.startswith("explain(program, name) shows the cells whose names contain it")
    assert found.whole().count("graph as built") == 20
    assert repr(found).endswith("model.case(2), ...; print it to read it)")
    assert found._repr_html_().count("graph as built") == 20


@pytest.mark.llvm
@pytest.mark.skipif(find_spec("llvmlite") is None, reason="llvmlite is not installed")
def test_how_examples_are_traced_is_told():
    """With what keeps trees from being traced at once: the block, and its function."""
    label = fb.GetItem("label") >> fb.Scalar()
    assert "visit by visit. What keeps trees" in fb.explain(fb.compile(label, "numpy")).tracing
    program = fb.compile(recursive(len, label), "llvm")
    assert str(fb.explain(program)).startswith("tracing: trees at once, by compiled code; other examples by")
    with pytest.raises(ExampleError):
        program.run([fb.trees.Tree.leaf("one")])
    assert (
        "The last that were not: tree.case(0) Scalar('float32'): there is a datum"
        in fb.explain(program).tracing
    )
    kept = fb.explain(fb.compile(recursive(lambda t: t.parent is None, label), "llvm")).tracing
    assert "tree OneOf: " in kept
    assert "reads parent" in kept
    assert fb.explain(program.model.cells[0]).tracing == ""


def recursive(key_fn, leaf):
    tree = fb.ForwardDeclaration(output_type=[], name="tree")
    tree.resolve_to(fb.OneOf(key_fn, (leaf, fb.GetItem(0) >> tree())))
    return tree()


def test_a_whole_name_chooses_one_cell_alone():
    """Though it is a part of others."""
    program = fb.compile(fb.OneOf(len, {k: fb.Vector(2) for k in (1, 2)}) >> fb.Linear(2), "numpy")
    assert [cell.name for cell in fb.explain(program, "model").cells] == ["model"]
    assert len(fb.explain(program, "mode").cells) == 3


def test_a_part_of_the_name_chooses_cells(program):
    found = fb.explain(program, "case(True)")
    assert [cell.name for cell in found.cells] == ["tree.case(True)"]
    assert str(found).startswith("cell tree.case(True) (recursive: x0, output 0)\n")


@pytest.mark.parametrize("name", ["case(Maybe)", "TREE", 7, None])
def test_a_name_that_no_cell_has_is_refused_with_those_there_are(program, name):
    with pytest.raises(UnknownNameError) as caught:
        fb.explain(program, name)
    names = ", ".join(cell.name for cell in program.model.cells)
    assert str(caught.value) == f"explain: expected a part of the name of a cell ({names}), found {name!r}"


def test_a_block_is_compiled_first_and_a_cell_stands_for_itself(program):
    block, cells = fb.explain(tree()), fb.explain(program)
    assert [cell.name for cell in block.cells] == [cell.name for cell in cells.cells]
    (one,) = fb.explain(program.model.cells[0]).cells
    assert one.cell is program.model.cells[0]
    with pytest.raises(UnknownNameError):
        fb.explain(program.model.cells[0], "elsewhere")


def test_parameters_have_the_programs_names():
    """Two layers of one name are told apart as in `program.params`."""
    layers = fb.Vector(2) >> fb.Linear(2, name="a") >> fb.Linear(2, name="a")
    program = fb.compile(layers, backend="numpy")
    (cell,) = fb.explain(program).cells
    listed = str(cell).partition("  parameters\n")[2].partition("  routines")[0].splitlines()
    assert [line.split(":")[0].strip() for line in listed] == list(program.params)
