"""What models are to tell: which labels have losses, how much these count, what metrics see."""

import math

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.zoo import Task, Words, tree_lstm
from foldbatch.zoo.tasks import of_example, scorer
from tests.zoo.checks import TREE, WORDS, cross_entropy


def over_nodes(task: Task, trees: list[fb.trees.Tree]) -> fb.program.program.Results:
    return fb.compile(tree_lstm(Words(WORDS, 3), task, hidden=2)).run(trees, losses=True, metrics=True)


def relabelled(labels: list[int | None]) -> fb.trees.Tree:
    return fb.trees.Tree(TREE.parents, labels, TREE.tokens)


@pytest.mark.parametrize("labels", [[2, -1, 4, 3, -1], [2, None, 4, 3, None]])
def test_nodes_without_a_label_have_no_loss_and_still_scores(labels):
    results = over_nodes(Task("nodes", 5), [relabelled(labels)])
    node, root = results.metrics["node"], results.metrics["root"]
    assert node.labels == [2, None, 4, 3, None] and root.labels == [None]
    assert node.nodes.tolist() == list(range(5))  # in the order of the tree's arrays
    expected = sum(cross_entropy(node.values[i], labels[i]) for i in (0, 2, 3))
    assert results.loss == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(root.values[0], node.values[-1], rtol=1e-5)


def model(task: Task) -> fb.Block:
    return of_example(fb.Vector(2), scorer(task), task)


def test_classes_have_weights():
    program = fb.compile(model(Task(classes=2, weights=(1.0, 5.0))))
    results = program.run([([1, 2], 1), ([1, 2], 0), ([3, 4], None), ([3, 4], -1)], losses=True, metrics=True)
    expected = 5 * cross_entropy(results[0], 1) + cross_entropy(results[1], 0)
    assert results.loss == pytest.approx(expected, rel=1e-5)
    assert results.metrics["root"].labels == [1, 0, None, None]


@pytest.mark.parametrize("weights", [(), (1.0, 5.0)])
def test_labels_are_smoothed_as_of_pytorch(weights):
    torch = pytest.importorskip("torch")
    program = fb.compile(model(Task(classes=2, weights=weights, smoothing=0.2)))
    results = program.run([([1, 2], 1), ([3, 1], 0), ([3, 4], None)], losses=True)
    scores, labels = torch.tensor(np.array(results[:2])), torch.tensor([1, 0])
    weight = torch.tensor(weights) if weights else None
    loss = torch.nn.functional.cross_entropy(scores, labels, weight, reduction="sum", label_smoothing=0.2)
    assert results.loss == pytest.approx(float(loss), rel=1e-5)
    with pytest.raises(fb.errors.BlockValueError, match=r"Task smoothing: expected 0 to 1, found -0.1"):
        Task(smoothing=-0.1)


def test_classes_that_are_no_answers_have_losses_only():
    program = fb.compile(model(Task(classes=3, answers=2)))
    results = program.run([([1, 2], 1), ([3, 4], 2)], losses=True, metrics=True)
    assert results[0].shape == (2,)
    assert results.metrics["root"].labels == [1, None]
    weight, bias = program.params["classify.weight"], program.params["classify.bias"]
    scores = [np.array(x, "float32") @ weight + bias for x in ([1, 2], [3, 4])]
    expected = cross_entropy(scores[0], 1) + cross_entropy(scores[1], 2)
    assert results.loss == pytest.approx(expected, rel=1e-5)
    with pytest.raises(fb.errors.BlockValueError, match="expected 0 to 3 answers, found 4"):
        Task(classes=3, answers=4)


def test_a_number_has_the_squared_error():
    program = fb.compile(model(Task("number")))
    examples = [([1, 2], -1), ([1, 2], 4.5), ([3, 4], None)]
    results = program.run(examples, losses=True, metrics=True)
    assert results.loss == pytest.approx((results[0] + 1) ** 2 + (results[1] - 4.5) ** 2, rel=1e-5)
    _, gradients = program.value_and_grad([examples[2]])
    assert not any(np.any(gradient) for gradient in gradients.values())
    assert results.metrics["root"].labels == [-1, 4.5, None]


def test_a_number_is_learnt_in_scales_above_a_center_and_told_as_it_is():
    task = Task("number", center=1000.0, scale=50.0)
    examples = [([1, 2], 900), ([3, 4], 1.1e3), ([5, 6], None)]
    plain, scaled = fb.compile(model(Task("number"))), fb.compile(model(task))
    scaled.params = dict(plain.params)
    told, results = plain.run(examples), scaled.run(examples, losses=True, metrics=True)
    assert list(results) == pytest.approx([x * 50 + 1000 for x in told])
    assert results.loss == pytest.approx((told[0] + 2) ** 2 + (told[1] - 2) ** 2, rel=1e-5)
    assert results.metrics["root"].values == pytest.approx(np.array(list(results)))
    with pytest.raises(fb.errors.BlockValueError, match="a scale above 0, found 0.0"):
        Task("number", center=1.0, scale=0.0)
    for wrong in ({"scale": "3"}, {"center": math.inf}, {"weights": 3}, {"dropout": None}, {"classes": 2.5}):
        with pytest.raises(fb.errors.BlockValueError, match=f"Task.*, found .*{next(iter(wrong.values()))}"):
            Task("number", **wrong)
    with pytest.raises(fb.errors.BlockValueError, match="of number alone, found those of class; leave"):
        Task(classes=3, center=1.0)


def test_a_wrong_class_is_an_error():
    program = fb.compile(model(Task(classes=2)))
    with pytest.raises(fb.errors.ExampleError, match="from 0 to 1"):
        float(program.value_and_grad([([1, 2], 2)])[0])  # a GPU says so to who looks
