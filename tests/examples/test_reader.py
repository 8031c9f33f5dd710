"""The reader of trees for exported graphs tells the labels that the program does."""

import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs ONNX: pip install -e '.[onnx]'")
pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install -e '.[onnx]'")

import foldbatch as fb  # noqa: E402
from foldbatch import trees  # noqa: E402
from foldbatch.exporting import to_onnx  # noqa: E402
from foldbatch.zoo.models import MODELS  # noqa: E402
from foldbatch.zoo.tasks import Task  # noqa: E402
from foldbatch.zoo.words import Words  # noqa: E402

TEXTS = [
    "(3 (4 good) (2 film))",
    "(2 film)",
    "(1 (2 (2 a) (1 (1 bad) (2 film))) (2 (2 or) (4 (4 good) (2 film))))",
]
CLASSES = ["awful", "bad", "fair", "good", "great"]


@pytest.fixture
def exported(tmp_path):
    """A function that exports a model of the zoo: the program, and the path of the file."""

    def export(name, kind):
        words = trees.Vocabulary(["good", "film", "bad"])
        block = MODELS[name](Words(words, size=4, spread=1.0), Task(kind, classes=5, dropout=0.5), hidden=3)
        program, rng = fb.compile(block, "numpy"), np.random.default_rng(3)
        for array in program.params.values():
            array[:] = rng.normal(0, 2, array.shape) if array.ndim > 1 else 0  # so that labels differ
        texts = {"classes": json.dumps(CLASSES), "vocabulary": json.dumps(list(words))}
        onnx.save(to_onnx(program, texts), tmp_path / "model.onnx")
        return program, str(tmp_path / "model.onnx")

    return export


@pytest.mark.parametrize(("name", "kind"), [("tree_lstm", "nodes"), ("rntn", "root")])
def test_labels_are_those_of_the_program(load, exported, capsys, name, kind):
    program, path = exported(name, kind)
    load("onnx/reader").main(path, [*TEXTS, "", *TEXTS * 30])
    told = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    results = program.run([trees.parse_brackets(text, labels=int) for text in TEXTS], metrics=True)
    roots = [CLASSES[scores.argmax()] for scores in results]
    nodes = [""] * 3
    if kind == "nodes":
        metric = results.metrics["node"]
        nodes = [
            " ".join(CLASSES[i] for i in metric.values[metric.examples == n].argmax(1)) for n in range(3)
        ]
    assert told == [list(pair) for pair in zip(roots, nodes, strict=True)] * 31
    assert len({*roots}) > 1


def test_another_model_is_refused_in_one_line(load, exported):
    _, path = exported("child_sum", "root")
    with pytest.raises(SystemExit, match="expected a model of binary trees, found one that takes"):
        load("onnx/reader").main(path, TEXTS)


def test_the_reader_needs_no_foldbatch(load):
    assert "foldbatch" not in vars(load("onnx/reader"))


def test_no_other_file_is_read_as_numbers_of_a_graph(load, exported, tmp_path):
    _, path = exported("tree_lstm", "nodes")
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="numbers", size_threshold=0)
    assert (tmp_path / "numbers").stat().st_size > 100
    with pytest.raises(SystemExit, match="expected an ONNX model that stands alone"):
        load("onnx/reader").main(path, TEXTS)
