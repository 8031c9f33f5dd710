"""Data sets: labels become numbers of classes, for the task that suits."""

import pytest

from foldbatch.errors import FoldbatchError
from foldbatch.recipes.configuration import read_configuration
from foldbatch.recipes.data import Origin, numbered, read_dataset, read_labelled, task_kind
from foldbatch.trees import parse_brackets


def configured(**options):
    return read_configuration(None, {name.replace("__", "."): str(v) for name, v in options.items()})


def test_a_treebank_has_three_parts_and_five_classes(treebank):
    dataset = read_dataset(configured(data__format="sst", data__folder=treebank))
    assert [len(part) for part in (dataset.dev, dataset.test)] == [2, 2]
    assert dataset.kind == "nodes" and dataset.classes[0] == "very negative"
    assert dataset.test[0].label == 0


def test_labels_of_brackets_are_numbered_in_their_order(tmp_path):
    (tmp_path / "t.txt").write_text("(10 (9 a) (-2 b))\n")
    configuration = configured(data__format="brackets", data__train=tmp_path / "t.txt")
    dataset = read_dataset(configuration)
    assert dataset.classes == ("-2", "9", "10")
    assert dataset.train[0].labels == (1, 0, 2)
    (tmp_path / "d.txt").write_text("(10 (9 a) (8 b))\n")
    with pytest.raises(FoldbatchError, match=r"d.txt:1: expected a class of the training part: -2, 9, 10"):
        read_labelled(tmp_path / "d.txt", configuration, dataset.classes)


def test_classes_that_only_training_has_stand_aside(monkeypatch):
    tree = parse_brackets("(x (x a) (x b))")
    parts = {"train": [(tree, "get"), (tree, "sort"), (tree, "ask")], "dev": [(tree, "set")], "test": []}
    monkeypatch.setattr("foldbatch.recipes.data.read_part", lambda section, part: parts[part])
    monkeypatch.setattr("foldbatch.recipes.data._known_classes", lambda section: ("get", "set"))
    dataset = read_dataset(configured())
    assert (dataset.classes, dataset.aside) == (("get", "set"), ("ask", "sort"))
    assert [label for _, label in dataset.train + dataset.dev] == [0, 3, 2, 1]
    parts["dev"].append((tree, "sort"))
    with pytest.raises(FoldbatchError, match="found 'sort'"):
        read_dataset(configured())


def test_classes_and_numbers_of_pairs():
    assert numbered([("x", "b"), ("y", None)], "class", ["a", "b"], Origin("dev")) == [("x", 1), ("y", None)]
    assert numbered([("x", 2.5), ("y", None)], "number", [], Origin("dev")) == [("x", 2.5), ("y", None)]
    with pytest.raises(FoldbatchError, match="dev, example 1: expected a number as label, found 'high'"):
        numbered([("x", "high")], "number", [], Origin("dev"))


def test_a_label_that_training_lacks_is_named():
    tree = parse_brackets("(good (x a) (x b))")
    with pytest.raises(FoldbatchError, match="found 'x'"):
        numbered([(tree, None)], "nodes", ["good"], Origin("dev"))


def test_the_task_suits_model_and_format():
    assert task_kind(configured(data__format="sst", model__name="bilstm")) == "root"
    assert task_kind(configured(data__format="sst", task__kind="root")) == "root"
    assert task_kind(configured(data__format="functions")) == "class"
    with pytest.raises(FoldbatchError, match="expected class or number for data of format functions"):
        task_kind(configured(data__format="functions", task__kind="nodes"))


@pytest.mark.parametrize(
    "label, kind, message",
    [
        ("null", "auto", "data.train: expected examples with labels, found 1 without"),
        ("null", "number", "data.train: expected examples with labels, found 1 without"),
        ("[1]", "auto", "t.jsonl:2: expected the name of a class as label, found list of 1"),
        ("1.5", "auto", "t.jsonl:2: .* found float 1.5; or set task.kind to number"),
    ],
)
def test_labels_that_train_nothing_are_refused(tmp_path, label, kind, message):
    (tmp_path / "t.jsonl").write_text(f'\n{{"x": 1, "label": {label}}}\n')
    configuration = configured(data__format="jsonlines", data__train=tmp_path / "t.jsonl", task__kind=kind)
    with pytest.raises(FoldbatchError, match=message):
        read_dataset(configuration)


@pytest.mark.parametrize("text, found", [("", "none"), ('{"x": 1, "label": null}\n', "1 without")])
def test_a_part_that_is_named_has_labels(tmp_path, text, found):
    """Else there would be no figure to choose an epoch by."""
    (tmp_path / "t.jsonl").write_text('{"x": 1, "label": "a"}\n{"x": 1, "label": "b"}\n')
    (tmp_path / "d.jsonl").write_text(text)
    given = {"data__format": "jsonlines", "data__train": tmp_path / "t.jsonl"}
    configuration = configured(**given, data__dev=tmp_path / "d.jsonl")
    with pytest.raises(FoldbatchError, match=f"data.dev: expected examples with labels, found {found}"):
        read_dataset(configuration)
    with pytest.raises(FoldbatchError, match=f"d.jsonl: expected examples with labels, found {found}"):
        read_labelled(tmp_path / "d.jsonl", configured(**given), ["a", "b"])


def test_one_class_is_nothing_to_learn(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"x": 1, "label": "a"}\n')
    configuration = configured(data__format="jsonlines", data__train=tmp_path / "t.jsonl")
    with pytest.raises(
        FoldbatchError, match="data.train: expected labels of two classes or more, found only"
    ):
        read_dataset(configuration)


def test_a_saved_model_is_tried_on_a_file_or_on_the_test_part_that_a_configuration_names(treebank, tmp_path):
    configuration = configured(data__format="sst", data__folder=treebank)
    classes = read_dataset(configuration).classes
    (tmp_path / "c.toml").write_text(f'[data]\nformat = "sst"\ntest = "{treebank / "test.txt"}"\n')
    part = read_labelled(tmp_path / "c.toml", configuration, classes)
    assert [tree.labels for tree in part] == [
        tree.labels for tree in read_labelled(treebank / "test.txt", configuration, classes)
    ]
    for name in ("folder", "train", "dev", "test"):
        with pytest.raises(FoldbatchError, match="a model's own file opens no other"):
            read_labelled(None, configured(**{"data__format": "sst", f"data__{name}": treebank}), classes)
    assert read_labelled(None, configured(data__format="sst"), classes) == []
    (tmp_path / "c.toml").write_text('[data]\nformat = "brackets"\n')
    with pytest.raises(FoldbatchError, match="expected data of format sst, found brackets"):
        read_labelled(tmp_path / "c.toml", configuration, classes)
