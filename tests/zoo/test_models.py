"""The table of models: each is documented, says its source, and is made of functions that can be imported."""

from __future__ import annotations

import inspect
import pickle

import pytest

import foldbatch as fb
from foldbatch.zoo import MODELS, Task, Words
from tests.zoo.checks import TREE, WORDS

TASKS = {"bilstm": "root"}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_says_what_it_is_and_where_it_is_from(name):
    text = inspect.getdoc(MODELS[name])
    assert "Source: " in text and "Raises:" in text
    assert MODELS[name].__name__ == name and getattr(fb.zoo, name) is MODELS[name]


@pytest.mark.parametrize("name", ["tree_lstm", "child_sum", "rntn", "bilstm"])
def test_a_model_is_made_of_functions_that_can_be_imported(name):
    """Nothing of it is a lambda or a closure, so that a file can hold it."""
    task = Task(TASKS.get(name, "nodes"), 5, dropout=0.5, weights=(1.0,) * 5)
    block = MODELS[name](Words(WORDS, 3, dropout=0.5, spread=0.1), task, hidden=2)
    again = fb.compile(pickle.loads(pickle.dumps(block)), seed=3)
    assert again.run([TREE])[0].tolist() == fb.compile(block, seed=3).run([TREE])[0].tolist()
