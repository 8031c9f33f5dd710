"""Saving: a file is whole or the former one, notes are JSON, and the same program makes the same file."""

from functools import partial

import pytest

import foldbatch as fb
from foldbatch.errors import ModelError, NotWholeWarning, ParameterError, ReadError
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


def test_a_lambda_leaves_the_parameters_and_its_name_and_a_warning(tmp_path):
    program = fb.compile(fb.Vector(2) >> fb.Linear(2) >> fb.Function(lambda x: x * 2), "numpy")
    with pytest.warns(NotWholeWarning, match=r"found a lambda \(test_saving.py:\d+\) of Function") as told:
        program.save(tmp_path / "a", {"classes": ["x"]})
    assert told[0].filename == __file__
    arrays, header = files.read(tmp_path / "a", KIND, "")
    assert arrays.keys() == {"linear.weight", "linear.bias"}
    assert header["block"] is None
    assert header["lost"][0].startswith("a lambda (test_saving.py:")
    assert read_notes(tmp_path / "a") == {"classes": ["x"]}


def test_a_layer_that_a_function_reads_is_missed_at_once(tmp_path):
    program = fb.compile(fb.Vector(2) >> fb.Function(kept.through_a_layer), "numpy")
    with pytest.warns(NotWholeWarning, match="the parameter 'beside.weight', which only a function reads"):
        program.save(tmp_path / "a")
    with pytest.raises(ReadError, match="make its layer a block of the model"):
        fb.load(tmp_path / "a", trust=["tests"])
    given = fb.compile(fb.Vector(2) >> fb.Function(partial(kept.through, kept.BESIDE)), "numpy")
    given.save(tmp_path / "a")
    assert (
        fb.load(tmp_path / "a", "numpy", trust=["tests"]).run([[1, 2]])[0] == given.run([[1, 2]])[0]
    ).all()


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
