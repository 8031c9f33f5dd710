"""A run trains, saves, goes on and is read back; what does not fit is refused."""

import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import FoldbatchError, TrainingError
from foldbatch.program import read_notes
from foldbatch.program.predicting import predictions
from foldbatch.recipes.building import metrics_of
from foldbatch.recipes.configuration import Configuration, describe_options, plain, read_configuration
from foldbatch.recipes.data import Dataset, read_dataset
from foldbatch.recipes.fitting import FREE, Run, evaluate, fit, load_model, load_models, model_files
from foldbatch.system.files import LOCK, locked
from foldbatch.train.resuming import differences
from tests.recipes.test_data import configured
from tests.serve.conftest import save_model
from tests.train.callbacks.test_trackers import read_tensorboard

TINY = {"data__format": "sst", "model__hidden": 2, "words__size": 2, "train__batch_size": 4}


def run(folder, treebank, *, resume=False, **options):
    configuration = configured(data__folder=treebank, **(TINY | options))
    return fit(configuration, read_dataset(configuration), folder, resume=resume)


def test_a_run_leaves_a_model_its_options_and_its_figures(treebank, tmp_path):
    folder = tmp_path / "run"
    fitted = run(folder, treebank, train__epochs=2)
    figures = json.loads((folder / "figures.json").read_text())
    assert len(figures["epochs"]) == 2 and set(figures) == {"epochs", "dev", "test", "baselines"}
    assert len((folder / "epochs.csv").read_text().splitlines()) == 3
    again = read_configuration(folder / "configuration.toml", {})
    assert again == configured(data__folder=treebank, train__epochs=2, **TINY)
    dataset = read_dataset(again)
    program, notes = fb.load(fitted.path), read_notes(fitted.path)
    test = evaluate([program], dataset.test, metrics_of("nodes"))
    assert test == figures["test"] == fitted.figures["test"]
    roots = Counter(tree.label for tree in dataset.test)
    nodes = Counter(label for tree in dataset.test for label in tree.tree.labels)
    shares = {
        "accuracy": max(roots.values()) / roots.total(),
        "node_accuracy": max(nodes.values()) / nodes.total(),
    }
    assert figures["baselines"]["test"] == pytest.approx(shares)
    assert notes["classes"] == list(dataset.classes)


def test_classes_aside_are_learnt_from_but_no_answers(tmp_path):
    trees = [fb.trees.python_tree(f"{word} = 1") for word in "xyz"]
    train = [(tree, number) for number, tree in enumerate(trees)]
    dataset = Dataset(train, train[:2], [], "class", ("a", "b"), ("more",))
    options = {"model__name": "child_sum", "model__hidden": 2, "words__size": 2, "train__epochs": 1}
    fitted = fit(configured(**options), dataset, tmp_path / "run")
    assert fitted.program.params["classify.bias"].shape == (3,)
    assert fitted.program.run([train[2]], losses=True).loss > 0
    (told,) = predictions([fb.load(fitted.path)], fitted.notes, trees[:1])
    assert list(told["probabilities"]) == ["a", "b"]


def test_a_run_is_written_to_trackers_in_its_folder(treebank, tmp_path):
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    options = {"train__epochs": 2, "train__log_to": ["tensorboard"]}
    fitted = run(tmp_path / "run", treebank, **options)
    run(tmp_path / "run", treebank, resume=True, **options | {"train__epochs": 3})
    written = read_tensorboard(tmp_path / "run" / "tensorboard")
    losses = written.numbers["validation_loss"]
    assert sorted(losses) == [3, 6, 9]
    assert losses[6] == pytest.approx(fitted.figures["epochs"][1]["validation_loss"])
    assert written.settings["words.size"] == 2 and written.settings["data.format"] == "sst"
    assert written.pictures == ["model", "schedule"]


def test_averages_are_what_is_kept(treebank, tmp_path):
    fitted = run(tmp_path / "run", treebank, train__epochs=3, average__name="moving", average__decay=0.5)
    best = max(each["validation_averaged_accuracy"] for each in fitted.figures["epochs"])
    assert fitted.figures["dev"]["accuracy"] == best


def test_a_resumed_run_ends_as_an_unbroken_one(treebank, tmp_path):
    options = {"optimizer__lr": 0.1, "schedule__name": "exponential", "words__dropout": 0.5}
    whole = run(tmp_path / "whole", treebank, train__epochs=3, **options)
    run(tmp_path / "parts", treebank, train__epochs=2, **options)
    resumed = run(tmp_path / "parts", treebank, train__epochs=3, resume=True, **options)
    assert len(resumed.figures["epochs"]) == 3
    for name, value in whole.program.params.items():
        np.testing.assert_array_equal(resumed.program.params[name], value)


def write_records(folder):
    records = [{"price": i, "tags": ["new"] * (i % 3), "label": i % 2} for i in range(8)]
    (folder / "train").write_text("\n".join(map(json.dumps, records)))
    return {"price": 3, "tags": ["new"]}


def write_sentences(folder):
    sentence = "# label = {}\n1\tGo\tgo\tVERB\t_\t_\t0\troot\t_\t_\n2\ton\ton\tADP\t_\t_\t1\tcase\t_\t_\n\n"
    (folder / "train").write_text("".join(sentence.format(label) for label in ("a", "b", "a")))
    return next(fb.trees.read_conllu(["1\tStop\tstop\tVERB\t_\t_\t0\troot\t_\t_"]))


def write_code(folder):
    for name in ("a", "b"):
        (folder / "train" / name).mkdir(parents=True)
        (folder / "train" / name / "x.py").write_text(f"read_{name} = 1\n")
    return fb.trees.python_tree("readLine = None")


def write_trees(folder):
    (folder / "train").write_text("(b (a x) (b y))\n(a (a x) (b z))\n")
    return fb.trees.parse_brackets("(X (X x) (X new))")


@pytest.mark.parametrize(
    "write, options",
    [
        (write_records, {"data__format": "jsonlines", "model__name": "json", "task__kind": "number"}),
        (write_sentences, {"data__format": "conllu", "model__name": "child_sum"}),
        (write_code, {"data__format": "python", "model__name": "child_sum", "words__split": "subwords"}),
        (write_trees, {"data__format": "brackets", "model__name": "rntn", "task__weights": [1, 2]}),
        (write_trees, {"data__format": "brackets", "model__name": "tree_lstm", "words__lower": "true"}),
    ],
    ids=["numbers", "dependencies", "code", "trees", "lower"],
)
def test_every_model_is_loaded_as_it_was_saved(tmp_path, write, options):
    structure = write(tmp_path)
    options |= {"data__train": tmp_path / "train", "model__hidden": 2, "train__epochs": 1} | (
        {} if options.get("model__name") == "json" else {"words__spread": 0.1}
    )
    configuration = configured(**options)
    fitted = fit(configuration, read_dataset(configuration), tmp_path / "run")
    told, again = (
        list(predictions([program], fitted.notes, [structure]))
        for program in (fitted.program, fb.load(fitted.path))
    )
    assert told == again and len(told) == 1


def test_large_numbers_are_learnt(tmp_path):
    """Such as prices: the rule's steps, 0.01 or so, would else not come near 250,000 in any run."""
    records = [{"rooms": i % 5, "label": 250_000 + 30_000 * (i % 5 - 2)} for i in range(20)]
    (tmp_path / "train").write_text("\n".join(map(json.dumps, records)))
    options = {"data__format": "jsonlines", "model__name": "json", "task__kind": "number"}
    configuration = configured(data__train=tmp_path / "train", train__epochs=20, **options)
    fitted = fit(configuration, read_dataset(configuration), tmp_path / "run")
    told = fitted.program.run([(record, None) for record in records[:5]])
    assert told == pytest.approx([record["label"] for record in records[:5]], abs=10_000)


def test_two_runs_in_one_folder_are_refused(treebank, tmp_path):
    """Also one that was begun when there was no run yet, and comes when the other has ended."""
    folder = tmp_path / "run"
    folder.mkdir()
    with locked(folder), pytest.raises(TrainingError, match="a folder that no other training writes to"):
        run(folder, treebank, train__epochs=1)
    assert [path.name for path in folder.iterdir()] == [LOCK]
    (folder / ".model.safetensors.0f.partial").write_bytes(b"half")
    fitted = run(folder, treebank, train__epochs=1)
    before = fitted.path.read_bytes()
    with pytest.raises(TrainingError, match="a folder without a run, found one that a run has written to"):
        run(folder, treebank, train__epochs=2)
    assert fitted.path.read_bytes() == before
    assert {path.name for path in folder.rglob(".*")} == {LOCK}


NUMPY = {"train__backend": "numpy"}
OPTIONS = sorted({name for name, _, _ in describe_options()})
CHANGED = {  # where the rule below would not make another fitting value
    "data.format": "sst", "data.label": "class", "words.split": "subwords", "model.name": "rntn",
    "task.kind": "root", "task.weights": "[1, 2]", "optimizer.name": "adam", "schedule.name": "cosine",
    "average.name": "moving", "train.backend": "numpy", "train.metrics": "f1", "train.log_to": "wandb", "train.best": "loss",
    "optimizer.lr_factors": "{words = 0.5}", "model.pooling": "mean",
    "model.list_pooling": "max", "data.leave_out": '["id"]',
}  # fmt: skip
OF_RECORDS = ("data.label", "data.leave_out", "data.weight")
KINDS = ("child_sum", "tree_lstm", "rntn", "bilstm", "json")


def other(value):
    """Another value of an option, as text."""
    match value:
        case bool():
            return str(not value).lower()
        case int():
            return str(value + 1)
        case float():
            return str(value / 2 + 0.125)
    return "other"


def unlike(*runs):
    records = [Run(configuration, classes, Path()).must_match() for configuration, classes in runs]
    return differences(records, ["in the checkpoint", "here"])


@pytest.mark.parametrize("option", OPTIONS)
def test_no_option_is_ignored(option):
    section, _, key = option.partition(".")
    tried = 0
    for kind in KINDS if section == "model" and key != "name" else ("child_sum",):
        name = {} if kind == "child_sum" else {"model.name": kind}
        name |= {"data.format": "jsonlines"} if option in OF_RECORDS else {}
        try:
            before = read_configuration(None, name)
            now = read_configuration(
                None, {**name, option: CHANGED.get(option) or other(plain(before)[section][key])}
            )
        except (FoldbatchError, KeyError):  # of another kind of model
            continue
        assert now != before
        found = unlike((before, ()), (now, ()))
        assert found == "" if option in FREE else f"option {option} " in found
        tried += 1
    assert tried


def test_options_that_are_free_are_options():
    assert FREE <= set(OPTIONS)


def test_other_classes_are_told():
    found = unlike((Configuration(), ["bad", "good"]), (Configuration(), ["bad", "fine"]))
    assert found == "classes bad, good in the checkpoint, bad, fine here"


def test_a_run_goes_on_with_the_same_data_elsewhere_and_no_others(treebank, tmp_path):
    whole = run(tmp_path / "whole", treebank, **NUMPY, train__epochs=2)
    run(tmp_path / "run", treebank, **NUMPY, train__epochs=1)
    moved = treebank / "moved"
    moved.mkdir()
    for part in ("train", "dev", "test"):
        (moved / f"{part}.txt").write_text((treebank / f"{part}.txt").read_text())
    resumed = run(tmp_path / "run", moved, resume=True, **NUMPY, train__epochs=2, train__checkpoint=1)
    for name, array in whole.program.params.items():
        assert (resumed.program.params[name] == array).all()
    lines = (moved / "train.txt").read_text()
    (moved / "train.txt").write_text(lines.replace("(4 (2 very)", "(3 (2 very)", 1))
    with pytest.raises(TrainingError, match="other examples here from number 0 on"):
        run(tmp_path / "run", moved, resume=True, **NUMPY, train__epochs=3)
    (moved / "train.txt").write_text(lines)
    assert len(run(tmp_path / "run", moved, resume=True, **NUMPY, train__epochs=3).figures["epochs"]) == 3


@pytest.fixture
def run_of_saved(tmp_path):
    folder = tmp_path / "run_of_saved"
    folder.mkdir()
    save_model(folder / "model.safetensors")
    return folder


def test_a_folder_stands_for_the_model_in_it(run_of_saved):
    program, notes, configuration = load_model(run_of_saved)
    assert notes["task"] == "nodes" and configuration.model.hidden == 2
    assert program.params.keys() == load_model(run_of_saved / "model.safetensors")[0].params.keys()


def test_seeds_of_a_run_are_loaded_together(run_of_saved, tmp_path):
    for seed in (0, 1):
        (tmp_path / f"seed-{seed}").mkdir()
        shutil.copy(run_of_saved / "model.safetensors", tmp_path / f"seed-{seed}")
    assert model_files(tmp_path) == [tmp_path / f"seed-{seed}/model.safetensors" for seed in (0, 1)]
    assert (
        model_files(run_of_saved)
        == [run_of_saved / "model.safetensors"]
        == model_files(run_of_saved / "model.safetensors")
    )
    programs, notes, _ = load_models(tmp_path)
    assert len(programs) == 2 and notes["task"] == "nodes" and len(load_models(run_of_saved)[0]) == 1
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


def test_a_run_does_not_depend_on_the_number_of_workers(treebank, tmp_path):
    options = {"train__epochs": 2, "train__backend": "numpy"}
    alone, other = (
        run(tmp_path / str(workers), treebank, train__workers=workers, **options) for workers in (0, 1)
    )
    assert other.figures["test"] == alone.figures["test"]
    for name, array in alone.program.params.items():
        np.testing.assert_array_equal(other.program.params[name], array)
