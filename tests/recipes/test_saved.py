"""Saved models are found by file or by folder; others are refused."""

from __future__ import annotations

import shutil

import pytest

import foldbatch as fb
from foldbatch.recipes.saved import load_model, load_models, model_files
from tests.serve.conftest import save_model


@pytest.fixture
def run(tmp_path):
    """The folder of a run."""
    folder = tmp_path / "run"
    folder.mkdir()
    save_model(folder / "model.safetensors")
    return folder


def test_a_folder_stands_for_the_model_in_it(run):
    program, notes, configuration = load_model(run)
    assert notes["task"] == "nodes" and configuration.model.hidden == 2
    assert program.params.keys() == load_model(run / "model.safetensors")[0].params.keys()


def test_seeds_of_a_run_are_loaded_together(run, tmp_path):
    for seed in (0, 1):
        (tmp_path / f"seed-{seed}").mkdir()
        shutil.copy(run / "model.safetensors", tmp_path / f"seed-{seed}")
    assert model_files(tmp_path) == [tmp_path / f"seed-{seed}/model.safetensors" for seed in (0, 1)]
    assert model_files(run) == [run / "model.safetensors"] == model_files(run / "model.safetensors")
    programs, notes, _ = load_models(tmp_path)
    assert len(programs) == 2 and notes["task"] == "nodes" and len(load_models(run)[0]) == 1
    notes["classes"] = ["other", "good"]
    (tmp_path / "seed-1" / "model.safetensors").unlink()
    programs[1].save(tmp_path / "seed-1" / "model.safetensors", notes=notes)
    with pytest.raises(
        fb.errors.ReadError, match="seed-1.*expected the format, task and classes of the other seeds"
    ):
        load_models(tmp_path)


def test_a_model_of_another_hand_is_refused(tmp_path):
    fb.compile(fb.Vector(2) >> fb.Linear(1)).save(tmp_path / "mine.safetensors")
    with pytest.raises(
        fb.errors.ReadError,
        match="expected a model that foldbatch train wrote, found one whose notes do not fit",
    ):
        load_model(tmp_path / "mine.safetensors")
