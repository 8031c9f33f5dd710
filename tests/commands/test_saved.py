"""Saved models are found by file or by folder; others are refused."""

from __future__ import annotations

import pytest

import foldbatch as fb
from foldbatch.commands.saved import load_model


def test_a_folder_stands_for_the_model_in_it(run):
    program, notes, configuration = load_model(run)
    assert notes["task"] == "nodes" and configuration.model.hidden == 2
    assert program.params.keys() == load_model(run / "model.safetensors")[0].params.keys()


def test_a_model_of_another_hand_is_refused(tmp_path):
    fb.compile(fb.Vector(2) >> fb.Linear(1)).save(tmp_path / "mine.safetensors")
    with pytest.raises(
        fb.errors.ReadError, match="expected a model that foldbatch train wrote, found another one"
    ):
        load_model(tmp_path / "mine.safetensors")
