"""Each form of sentences is traced, and told beside what the user's functions cost alone."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

import foldbatch as fb
from benchmarks.tracing import forms, main
from benchmarks.workload import random_trees
from foldbatch.trees import Vocabulary


def test_every_form_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    main("--trees 3 --batch 1 2 --repeats 1 --backend numpy".split())
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split()[-5:] == "batch 1 batch 2 alone".split()
    assert len(rows) == (7 if find_spec("pyarrow") else 5)
    for row in rows:
        assert all(float(number) > 0 for number in row.split()[-3:])


def test_all_forms_of_trees_hold_the_same() -> None:
    trees = random_trees(3)
    vocabulary = Vocabulary.count(word for tree in trees for word in tree.words())
    losses = []
    for form in forms(trees, vocabulary)[:3]:
        program = fb.compile(form.block, "numpy", seed=1)
        losses.append(program.run(form.examples(), losses=True).loss)
    assert losses[0] == losses[1] == losses[2]
