"""The exporter: from a program to a graph, tables and results."""

import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs ONNX: pip install -e '.[onnx]'")

import foldbatch as fb  # noqa: E402
from foldbatch.errors import BlockTypeError, BlockValueError, ExampleError, ModelError  # noqa: E402
from foldbatch.exporting import exporter  # noqa: E402
from foldbatch.exporting.exporter import Exporter, to_onnx  # noqa: E402
from foldbatch.exporting.operators import TRANSLATIONS, OnnxWriter  # noqa: E402
from foldbatch.static import ops  # noqa: E402


def test_equal_constants_have_one_name_also_in_a_body():
    writer = OnnxWriter()
    name = writer.constant([1.0, 2.0], "float32")
    assert writer.body().constant(np.array([1, 2], "float32")) == name
    assert writer.constant([1.0, 2.0], "float64") != name != writer.constant([[1.0, 2.0]], "float32")
    assert len(writer.constants) == 3


def test_a_recursion_is_one_loop_whatever_the_trees(program_of):
    proto = to_onnx(program_of("tree_lstm"), {"language": "en"})
    assert [node.op_type for node in proto.graph.node].count("Loop") == 1
    assert [x.name for x in proto.graph.output] == ["results", "metrics.node", "metrics.root"]
    shapes = {
        x.name: [d.dim_param or d.dim_value for d in x.type.tensor_type.shape.dim] for x in proto.graph.input
    }
    assert shapes["cell1.operand0"] == ["calls1", 2] and shapes["cell1.starts"] == ["ends3"]
    texts = {x.key: x.value for x in proto.metadata_props}
    assert texts["language"] == "en"
    cells = json.loads(texts["foldbatch.tables"])["cells"]
    assert [cell["cell"] for cell in cells] == [0, 1, 2, 3] and [cell["recursive"] for cell in cells][1]
    onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True, data_prop=True)


@pytest.mark.parametrize("opset", [17, 24, 21.0])
def test_opsets_that_lack_an_op_or_are_not_tried_are_refused(program_of, opset):
    with pytest.raises(BlockTypeError, match="a mapping of texts, found str .*; to write a file: onnx.save"):
        to_onnx(program_of("rntn"), "model.onnx")
    with pytest.raises(BlockTypeError, match="a mapping of texts, found dict"):
        to_onnx(program_of("rntn"), {"epoch": 1})
    with pytest.raises(BlockTypeError, match=r"a program, found Sum; give what fb.compile\(block\) returns"):
        to_onnx(fb.Sum())
    with pytest.raises(BlockValueError, match=f"opset: expected a version from 18 to 23, found {opset}"):
        to_onnx(program_of("rntn"), opset=opset)


def test_a_model_that_fits_into_no_file_is_refused(program_of, monkeypatch):
    monkeypatch.setattr(exporter, "MAX_CONSTANT_BYTES", 100)
    with pytest.raises(ModelError, match="export: expected parameters of less than"):
        to_onnx(program_of("rntn"))


def test_random_numbers_are_refused_with_the_cell_that_draws_them():
    noise = fb.Vector(2) >> fb.Function(lambda x: x + ops.random((2,)))
    with pytest.raises(
        ModelError, match=r"expected ops that ONNX has, found random in model.* \(it draws random numbers\)"
    ):
        Exporter(fb.compile(noise, "numpy"))


def test_an_op_that_nobody_translated_is_refused_with_where_to_do_so(monkeypatch):
    monkeypatch.delitem(TRANSLATIONS, "tanh")
    with pytest.raises(ModelError, match=r"found tanh in tanh \(`exporting.operators` has no translation"):
        Exporter(fb.compile(fb.Vector(2) >> fb.Function(ops.tanh), "numpy"))


def test_words_come_first_then_phrases_by_height(program_of, forest):
    exporter = Exporter(program_of("tree_lstm"))
    tables = exporter.tables(forest)
    inputs = {name: table.tolist() for name, table in tables.inputs.items()}
    assert inputs["cell0.feed0"] == [1, 2, 2, 0, 3, 2, 0, 1, 2]  # good film, film, a bad film or good film
    # phrases: good film (9), bad film (10), good film (11), a ... film (12), or ... film (13), the whole (14)
    assert inputs["cell1.operand0"] == [[0, 1], [4, 5], [7, 8], [3, 10], [6, 11], [12, 13]]
    assert inputs["cell1.operand0"] == inputs["cell1.operand1"]
    assert inputs["cell1.starts"] == [0, 3, 5, 6]
    assert inputs["cell2.operand0"] == [0, 1, 9, 2, 3, 4, 5, 10, 12, 6, 7, 8, 11, 13, 14]
    assert inputs["results.rows"] == [0, 1, 2]
    assert tables.examples["node"].tolist() == [0] * 3 + [1] + [2] * 11
    with pytest.raises(
        ModelError, match="expected the output 'metrics.node', found results; give those of all"
    ):
        exporter.results(tables, {"results": np.zeros((3, 5))})


def test_elements_are_cut_level_by_level(program_of, forest):
    inputs = Exporter(program_of("child_sum")).tables(forest[2:]).inputs
    cell = next(name.split(".")[0] for name in inputs if name.endswith(".owner0"))
    assert inputs[f"{cell}.owner0"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert inputs[f"{cell}.starts"].tolist() == [0, 2, 4, 5]
    assert inputs[f"{cell}.begins0"].tolist() == [0, 4, 8, 10]


def test_the_vocabulary_is_at_hand(program_of):
    assert [list(words) for words in Exporter(program_of("tree_lstm")).vocabularies()] == [
        ["<unk>", "good", "film", "bad"]
    ]


def test_an_example_that_does_not_fit_is_refused(program_of):
    with pytest.raises(ExampleError, match="example 0"):
        Exporter(program_of("tree_lstm")).tables([5])
