"""Runs: trained, tested and saved in a folder, and resumed."""

from __future__ import annotations

import json

import numpy as np

import foldbatch as fb
from foldbatch.loading import read_notes
from foldbatch.recipes.configuration import read_configuration
from foldbatch.recipes.data import read_dataset
from foldbatch.recipes.fitting import evaluate, fit
from tests.recipes.test_data import configured

TINY = {"data__format": "sst", "model__hidden": 2, "words__size": 2, "train__batch": 4}


def run(folder, treebank, *, resume=False, **options):
    configuration = configured(data__folder=treebank, **(TINY | options))
    return fit(configuration, read_dataset(configuration), folder, resume=resume)


def test_a_run_leaves_a_model_its_options_and_its_figures(treebank, tmp_path):
    folder = tmp_path / "run"
    fitted = run(folder, treebank, train__epochs=2)
    figures = json.loads((folder / "figures.json").read_text())
    assert len(figures["epochs"]) == 2 and set(figures) == {"epochs", "dev", "test"}
    assert len((folder / "epochs.csv").read_text().splitlines()) == 3
    again = read_configuration(folder / "configuration.toml", {})
    assert again == configured(data__folder=treebank, train__epochs=2, **TINY)
    dataset = read_dataset(again)
    program, notes = fb.load(fitted.path), read_notes(fitted.path)
    assert evaluate(program, notes["task"], dataset.test) == figures["test"] == fitted.figures["test"]
    assert notes["classes"] == list(dataset.classes)


def test_the_best_epoch_is_kept(treebank, tmp_path):
    fitted = run(tmp_path / "run", treebank, train__epochs=4, optimizer__lr=0.5)
    best = max(each["dev_accuracy"] for each in fitted.figures["epochs"])
    assert fitted.figures["dev"]["accuracy"] == best


def test_averages_are_what_is_kept(treebank, tmp_path):
    fitted = run(tmp_path / "run", treebank, train__epochs=3, average__name="moving", average__decay=0.5)
    best = max(each["dev_averaged_accuracy"] for each in fitted.figures["epochs"])
    assert fitted.figures["dev"]["accuracy"] == best


def test_a_resumed_run_ends_as_an_unbroken_one(treebank, tmp_path):
    options = {"optimizer__lr": 0.1, "schedule__name": "exponential", "words__dropout": 0.5}
    whole = run(tmp_path / "whole", treebank, train__epochs=3, **options)
    run(tmp_path / "parts", treebank, train__epochs=2, **options)
    resumed = run(tmp_path / "parts", treebank, train__epochs=3, resume=True, **options)
    assert len(resumed.figures["epochs"]) == 3
    for name, value in whole.program.params.items():
        np.testing.assert_array_equal(resumed.program.params[name], value)


def test_without_dev_and_test_the_last_epoch_is_kept(treebank, tmp_path):
    configuration = configured(**(TINY | {"data__train": treebank / "train.txt", "train__epochs": 1}))
    fitted = fit(configuration, read_dataset(configuration), tmp_path / "run")
    assert set(fitted.figures) == {"epochs"} and fitted.path.exists()
