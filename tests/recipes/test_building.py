"""Models and optimizers of configurations."""

from __future__ import annotations

import pytest

import foldbatch as fb
from foldbatch.recipes.building import OPTIMIZERS, build_model, build_optimizer, structure_of
from foldbatch.recipes.data import Dataset
from foldbatch.recipes.settings import OptimizerOptions
from tests.recipes.test_data import configured

TREE = fb.trees.parse_brackets("(1 (0 good) (1 (0 good) (0 film)))", labels=int)
FUNCTION = fb.trees.python_tree("def f(readLine): return read_it")


def built(configuration, trees, kind="nodes", dev=()):
    return fb.compile(build_model(configuration, Dataset(trees, list(dev), [], kind, ("a", "b"))))


@pytest.mark.parametrize("name", ["tree_lstm", "child_sum", "rntn", "bilstm"])
def test_models_of_trees(name):
    kind = "root" if name == "bilstm" else "nodes"
    program = built(configured(model__name=name, model__hidden=3, words__size=4), [TREE], kind)
    assert program.run([TREE])[0].shape == (2,)
    assert program.params["words.weight"].shape == (3, 4)


def test_a_syntax_tree_has_kinds_and_subwords():
    configuration = configured(model__name="child_sum", words__split="subwords", words__size=4)
    program = built(configuration, [(FUNCTION, 0)], "class")
    assert program.run([(FUNCTION, None)])[0].shape == (2,)
    assert program.params["words.weight"].shape == (1 + len({"f", "read", "line", "it"}), 4)
    assert program.params["kinds.weight"].shape == (1 + len(set(FUNCTION.labels)), 4)


def test_rare_words_are_unknown():
    once = fb.trees.parse_brackets("(1 (0 dull) (1 film))", labels=int)
    program = built(configured(words__minimum=2, words__size=4, model__hidden=2), [TREE, once])
    assert program.params["words.weight"].shape == (2, 4)  # only film is in two examples


def test_vectors_are_read(tmp_path):
    (tmp_path / "v.txt").write_text("good 1 2 3\nother 4 5 6\nnew 7 8 9\n")
    new = fb.trees.parse_brackets("(1 (0 New) (1 film))", labels=int)
    configuration = configured(words__vectors=tmp_path / "v.txt", model__hidden=2)
    rows = built(configuration, [TREE], dev=[new]).params["words.weight"].tolist()
    assert [1, 2, 3] in rows and [7, 8, 9] in rows and [4, 5, 6] not in rows


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_are_made_by_name(name):
    given = OptimizerOptions(name=name, lr=0.5, weight_decay=0.1, lr_factors={"words": 0.1})
    optimizer = build_optimizer(given)
    assert type(optimizer) is OPTIMIZERS[name] and optimizer.lr == 0.5
    assert build_optimizer(OptimizerOptions(name=name)).lr == OPTIMIZERS[name]().lr


def test_a_setting_that_a_rule_lacks_is_named():
    with pytest.raises(fb.errors.TrainingError, match="expected a rule with momentum, found adam"):
        build_optimizer(OptimizerOptions(name="adam", momentum=0.9))


def test_the_structure_of_an_example():
    assert structure_of((FUNCTION, 1)) is FUNCTION and structure_of(TREE) is TREE
