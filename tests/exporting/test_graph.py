"""The graph: what the file says of itself, and what is refused."""

from __future__ import annotations

import json

import pytest

onnx = pytest.importorskip("onnx", reason="needs ONNX: pip install 'foldbatch[onnx]'")

import foldbatch as fb  # noqa: E402
from foldbatch.errors import BlockValueError, ModelError  # noqa: E402
from foldbatch.exporting import graph  # noqa: E402
from foldbatch.exporting.exporter import to_onnx  # noqa: E402


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


@pytest.mark.parametrize("opset", [17, 24])
def test_opsets_that_lack_an_op_or_are_not_tried_are_refused(program_of, opset):
    with pytest.raises(BlockValueError, match=f"opset: expected a version from 18 to 23, found {opset}"):
        to_onnx(program_of("rntn"), opset=opset)


def test_a_model_without_tensors_is_refused():
    with pytest.raises(ModelError, match="export: expected a model that computes tensors"):
        to_onnx(fb.compile(fb.GetItem("name"), "numpy"))


def test_a_model_that_fits_into_no_file_is_refused(program_of, monkeypatch):
    monkeypatch.setattr(graph, "LARGEST", 100)
    with pytest.raises(ModelError, match="export: expected parameters of less than"):
        to_onnx(program_of("rntn"))
