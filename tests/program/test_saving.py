"""Saving: a file is whole or the former one, notes are JSON, and the same program makes the same file."""

from __future__ import annotations

import pytest

import foldbatch as fb
from foldbatch.errors import ModelError, ParameterError
from foldbatch.program import read_notes
from foldbatch.program.saving import KIND
from foldbatch.system import files
from tests import kept


def test_the_same_program_makes_the_same_file(tmp_path):
    program = fb.compile(kept.tree_model(), "numpy")
    program.save(tmp_path / "a")
    program.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_parameters_are_stored_by_full_name_and_functions_by_path(tmp_path):
    program = fb.compile(kept.tree_model(), "numpy")
    program.save(tmp_path / "a")
    arrays, header = files.read(tmp_path / "a", KIND, "")
    assert arrays.keys() == {*program.params, *header["constants"]}
    assert "tests.kept:squared" in (tmp_path / "a").read_bytes().decode("latin-1")


def test_a_lambda_leaves_the_parameters_and_its_name(tmp_path):
    program = fb.compile(fb.Vector(2) >> fb.Linear(2) >> fb.Function(lambda x: x * 2), "numpy")
    program.save(tmp_path / "a", {"classes": ["x"]})
    arrays, header = files.read(tmp_path / "a", KIND, "")
    assert arrays.keys() == {"linear.weight", "linear.bias"}
    assert header["block"] is None
    assert header["lost"][0].startswith("a lambda (test_saving.py:")
    assert read_notes(tmp_path / "a") == {"classes": ["x"]}


@pytest.mark.parametrize(
    "notes", [[1], "x", {1: 2}, {"a": (1,)}, {"a": object()}, {"a": float("nan")}, {"a": {1}}]
)
def test_notes_that_would_come_back_otherwise_are_refused(tmp_path, notes):
    with pytest.raises(ModelError, match="^notes: expected JSON data"):
        fb.compile(fb.Scalar(), "numpy").save(tmp_path / "a", notes)
    assert not list(tmp_path.iterdir())


def test_a_parameter_that_is_nan_does_not_replace_a_good_file(tmp_path):
    program = fb.compile(fb.Vector(2) >> fb.Linear(1), "numpy")
    program.save(tmp_path / "a")
    before = (tmp_path / "a").read_bytes()
    program.params["linear.bias"][0] = float("nan")
    with pytest.raises(ParameterError, match="^linear.bias: expected finite numbers, found nan"):
        program.save(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == before


def test_a_file_that_cannot_be_written_leaves_the_former_one(tmp_path, monkeypatch):
    program = fb.compile(fb.Vector(2) >> fb.Linear(1), "numpy")
    program.save(tmp_path / "a")
    before = (tmp_path / "a").read_bytes()

    def full(_: int) -> None:
        raise OSError("no space left")

    program.params["linear.bias"] = [1.0]
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        program.save(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]
