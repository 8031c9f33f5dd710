"""What models tell, alone and together, is what their scores say."""

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.program.predicting import predictions, probabilities
from foldbatch.recipes.building import metrics_of
from foldbatch.recipes.fitting import class_figures, drawing, evaluate, mean_and_deviation
from foldbatch.zoo import Task, Words, tree_lstm
from foldbatch.zoo.tasks import of_example

TREE = fb.trees.parse_brackets("(S (NP good) (VP film))")
WORDS = Words(fb.trees.Vocabulary(["good", "film"]), 3)
NOTES = {"task": "nodes", "classes": ["bad", "good"]}
CLASSES = {"task": "class", "classes": ["a", "b"]}


def test_every_node_of_an_unlabelled_tree_is_told():
    program = fb.compile(tree_lstm(WORDS, Task("nodes", 2), hidden=2))
    first, second = predictions([program], NOTES, [TREE[0].tree, TREE], nodes=True)
    assert first == second
    assert [(node["parent"], node["word"]) for node in first["nodes"]] == [
        (2, "good"),
        (2, "film"),
        (-1, None),
    ]
    root = first["nodes"][-1]
    assert root["label"] == first["label"]
    assert root["probability"] == pytest.approx(first["probabilities"][first["label"]], abs=1e-5)
    drawn = drawing(TREE, first)
    assert drawn.count("\n") == 2 and drawn.splitlines()[0] == f"{root['label']} {root['probability']:.0%}"


def test_several_models_tell_their_mean():
    trees = [fb.compile(tree_lstm(WORDS, Task("nodes", 2), hidden=2), seed=seed) for seed in (0, 1)]
    first, second = (next(predictions([program], NOTES, [TREE], nodes=True)) for program in trees)
    (both,) = predictions(trees, NOTES, [TREE], nodes=True)
    for name in ("bad", "good"):
        mean = (first["probabilities"][name] + second["probabilities"][name]) / 2
        assert both["probabilities"][name] == pytest.approx(mean, abs=1e-5)
    root = both["nodes"][-1]
    assert root["probability"] == pytest.approx(both["probabilities"][both["label"]], abs=1e-5)


def test_nodes_need_a_model_of_nodes():
    program = fb.compile(fb.GetItem(0) >> fb.Vector(2))
    with pytest.raises(fb.errors.ExampleError, match="expected a model that is trained on every node"):
        list(predictions([program], CLASSES, [[1, 2]], nodes=True))


@pytest.mark.parametrize("text", ["(X good)", "(X (X good) (X film))", "(X (X a) (X (X good) (X film)))"])
def test_a_sentence_is_a_tree_that_branches_to_the_right(text):
    """And its answer says so, as a parsed sentence is told better."""
    program = fb.compile(tree_lstm(WORDS, Task("nodes", 2), hidden=2))
    tree = fb.trees.parse_brackets(text)
    right, words = predictions([program], NOTES, [tree, list(tree.words())], nodes=True)
    assert "branches to the right" in words.pop("warning") and words == right


def test_a_sentence_is_a_tree_to_a_model_of_whole_trees_too():
    program = fb.compile(tree_lstm(WORDS, Task("root", 2), hidden=2))
    notes = {"task": "root", "classes": CLASSES["classes"], "configuration": {"model": {"name": "tree_lstm"}}}
    right, words = predictions([program], notes, [fb.trees.parse_brackets("(X (X a) (X b))"), ["a", "b"]])
    assert "branches to the right" in words.pop("warning") and words == right


@pytest.mark.parametrize("words", [[], ["good", 1], ["good"] * 1001])
def test_what_is_no_sentence_is_no_tree(words):
    program = fb.compile(tree_lstm(WORDS, Task("nodes", 2), hidden=2))
    found = "expected a tree, found list of .*; give trees in brackets"
    with pytest.raises(fb.errors.ExampleError, match=found):
        list(predictions([program], NOTES, [words]))


def test_probabilities_of_large_scores():
    np.testing.assert_allclose(probabilities(np.array([[1e4, 0.0], [0.0, 0.0]])), [[1, 0], [0.5, 0.5]])


def shifted(*amounts):
    """Programs whose scores are the example's, plus an amount at the first."""
    rows = [np.array([amount, 0], "float32") for amount in amounts]
    shifts = [fb.Function(lambda x, row=row: x + row) for row in rows]
    return [fb.compile(of_example(fb.Vector(2), shift, Task(classes=2))) for shift in shifts]


def test_mean_and_deviation_of_runs():
    found = mean_and_deviation([{"accuracy": 0.4, "epochs": [1]}, {"accuracy": 0.6, "epochs": []}])
    assert found == {"accuracy": {"mean": pytest.approx(0.5), "deviation": pytest.approx(0.02**0.5)}}
    assert mean_and_deviation([{"loss": 1}])["loss"] == {"mean": 1.0, "deviation": 0.0}


def test_probabilities_are_averaged():
    """Two of three models are wrong, but hardly; the third is sure."""
    programs = shifted(-0.1, -0.1, 9)
    examples = [([0.0, 0.0], 0), ([0.0, 0.0], None), ([0.0, 0.0], -1)]
    metrics = metrics_of("class", ["confusion", "perplexity"])
    assert evaluate(programs[:2], examples, metrics)["accuracy"] == 0.0
    figures = evaluate(programs, examples, metrics)
    assert figures["accuracy"] == 1.0 and figures["confusion"] == [[1, 0], [0, 0]]
    assert figures["vote_accuracy"] == 0.0  # two votes against one
    assert evaluate(shifted(-0.1, 9), examples, metrics)["vote_accuracy"] == 1.0  # one each
    share = np.mean([1 / (1 + np.exp(-amount)) for amount in (-0.1, -0.1, 9)])
    assert figures["perplexity"] == pytest.approx(1 / share, rel=1e-5)
    assert np.isnan(evaluate(programs, examples[1:], metrics)["accuracy"])
    assert evaluate(programs[:1], examples, metrics)["loss"] > 0  # only a single model has a loss


def test_numbers_are_averaged():
    factors = [fb.Function(lambda x, f=f: x * f) for f in (1, 3)]
    programs = [fb.compile(of_example(fb.Scalar(), factor, Task("number", 0))) for factor in factors]
    figures = evaluate(programs, [(1.0, 2.0), (2.0, 3.0)], metrics_of("number", ["mae"]))
    assert figures == {"mse": 0.5, "mae": 0.5}


CONFUSION = [[3, 1, 0], [2, 4, 0], [0, 0, 0]]
REPORTS_CLASSES = ["bad", "good", "never seen"]


def test_precision_is_by_answers_and_recall_by_labels():
    figures = class_figures(CONFUSION, REPORTS_CLASSES)
    assert figures["bad"] == pytest.approx({"examples": 4, "precision": 3 / 5, "recall": 3 / 4, "f1": 2 / 3})
    assert figures["never seen"] == {"examples": 0, "precision": 0.0, "recall": 0.0, "f1": 0.0}


def test_a_program_names_classes_of_its_notes(tmp_path):
    """A model of one's own reads examples as they are; a result that is no score a class is refused."""
    fb.compile(fb.Vector(2)).save(tmp_path / "own", notes={"classes": ["no", "yes"]})
    program = fb.load(tmp_path / "own")
    assert [told["label"] for told in program.predict([[0, 1], [2, 1]])] == ["yes", "no"]
    for classes in (["a"], []):
        program.notes = {"classes": classes}
        with pytest.raises(fb.errors.ModelError, match="expected a result of shape"):
            program.predict([[0, 1]])
    program.notes = {}
    assert program.predict([[0, 1]]) == [{"result": [0, 1]}]
    program.notes = {"task": "class"}
    with pytest.raises(fb.errors.ModelError, match="notes of the classes"):
        program.predict([[0, 1]])
    with pytest.raises(fb.errors.ModelError, match="expected a result of arrays, tuples"):
        fb.compile(fb.Identity()).predict([object()])
    number = fb.compile(fb.Scalar())
    number.notes = {"classes": []}
    assert number.predict([3]) == [{"number": 3.0}]
