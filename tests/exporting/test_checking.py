"""onnxruntime computes what a program does, on models of every kind and examples of every shape."""

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs ONNX: pip install -e '.[onnx]'")
pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install -e '.[onnx]'")

import foldbatch as fb
from foldbatch import trees
from foldbatch.errors import ModelError
from foldbatch.exporting.exporter import Exporter, largest_difference, run, session_of
from foldbatch.zoo.models import MODELS
from foldbatch.zoo.tasks import Task
from foldbatch.zoo.words import Words
from tests.programs import CHOICES, drawn
from tests.programs.comparing import metrics_of


def both(program, examples):
    """What the program computes, and what onnxruntime does."""
    exporter = Exporter(program)
    session = session_of(exporter.proto().SerializeToString(), threads=1)
    return program.run(examples, metrics=True), run(exporter, session, examples)


def check(program, examples):
    ours, theirs = both(program, examples)
    assert len(ours) == len(theirs) == len(examples)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)
    assert list(ours.metrics) == list(theirs.metrics)
    for name, a in ours.metrics.items():
        b = theirs.metrics[name]
        np.testing.assert_allclose(b.values, a.values, rtol=1e-5, atol=1e-6)
        assert b.examples.tolist() == a.examples.tolist() and b.nodes.tolist() == a.nodes.tolist()


@pytest.mark.parametrize("name", ["tree_lstm", "rntn", "child_sum"])
def test_models_of_trees_tell_the_same_of_every_node(program_of, forest, name):
    program = program_of(name)
    check(program, forest)
    check(program, forest[1:2])  # a tree of one word: the loop has no level
    check(program, forest[::-1] * 3)


@pytest.mark.parametrize("opset", [18, 23])
def test_other_opsets(program_of, forest, opset):
    program = program_of("child_sum")
    exporter = Exporter(program)
    proto = exporter.proto(opset=opset)
    assert proto.opset_import[0].version == opset
    assert largest_difference(program, exporter, proto.SerializeToString(), forest) < 1e-6


def test_features_counted_over_the_tree(program_of, forest):
    check(program_of("child_sum", counts=True), forest)


def test_a_metric_inside_a_recursion_keeps_the_order_of_visits():
    total = fb.ForwardDeclaration(output_type=1, name="total")
    pair = (
        fb.Record((total(), total()))
        >> fb.Function(lambda a, b: fb.ops.tanh(a * 2 + b))
        >> fb.AllOf(fb.Identity(), fb.Metric("seen"))
    )
    leaf = fb.Vector(1) >> fb.AllOf(fb.Identity(), fb.Metric("seen"))
    total.resolve_to(
        fb.OneOf(lambda x: isinstance(x, tuple), {True: pair >> fb.GetItem(0), False: leaf >> fb.GetItem(0)})
    )
    check(fb.compile(total(), "numpy"), [(([1], [2]), ([3], ([4], [5]))), [6], ([7], [8])])


@pytest.mark.parametrize("seed", [9, 53, 368, 449])
def test_random_programs(seed):
    random = drawn(seed, CHOICES, dropout=True)
    program = fb.compile(random.block, "numpy")
    exporter = Exporter(program)
    data = exporter.proto().SerializeToString()
    assert largest_difference(program, exporter, data, random.examples) < 1e-9  # all is float64
    session = session_of(data, threads=1)
    for examples in (random.examples, []):
        ours = metrics_of(program.run(examples, metrics=True))
        theirs = metrics_of(run(exporter, session, examples))
        assert {name: rest for name, (_, *rest) in ours.items()} == {
            name: rest for name, (_, *rest) in theirs.items()
        }


def test_a_walk_that_has_learnt_more_is_exported_anew():
    half = fb.cell(lambda x: x * 0.5)

    def walk(x):
        return half(fb.tensor(x)) if x < 2 else half(half(fb.tensor(x)))

    program = fb.compile(walk, "numpy")
    program.run([1.0])
    exporter = Exporter(program)
    for _ in range(2):
        with pytest.raises(ModelError, match="has learnt others since; call program.warm"):
            exporter.tables([4.0])
    check(program, [1.0, 4.0])


def test_a_difference_is_found(program_of, forest):
    program = program_of("tree_lstm")
    exporter = Exporter(program)
    data = exporter.proto().SerializeToString()
    assert largest_difference(program, exporter, data, forest) < 1e-6
    name = next(name for name in program.params if name.endswith("bias"))
    program.params[name] = program.params[name] + 1
    assert largest_difference(program, exporter, data, forest) > 1e-3


def test_a_thousand_trees_of_the_treebank(sst_dir):
    examples = list(trees.read_brackets(sst_dir / "dev.txt", labels=int))[:1000]
    words = Words(trees.Vocabulary.count(w for tree in examples for w in tree.words()), size=20, spread=1.0)
    program = fb.compile(MODELS["tree_lstm"](words, Task("nodes", classes=5), hidden=20), "numpy")
    exporter = Exporter(program)
    assert len(examples) == 1000
    assert largest_difference(program, exporter, exporter.proto().SerializeToString(), examples) < 1e-5
