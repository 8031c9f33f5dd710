"""Configurations are checked, written and read back; every option is described; models suit their data."""

from pathlib import Path

import msgspec
import pytest

from foldbatch.errors import FoldbatchError, ReadError, UnknownNameError
from foldbatch.recipes import configuration as settings
from foldbatch.recipes.configuration import (
    BiLSTMModel,
    ChildSumModel,
    check_model,
    checked,
    describe_options,
    plain,
    read_configuration,
    split_overrides,
    to_toml,
    usual_model,
    with_absolute_paths,
)
from foldbatch.recipes.data import read_dataset, read_labelled, task_kind
from foldbatch.trees.formats import TRAINABLE
from tests.recipes.test_data import configured

CONFIGS = Path(__file__).resolve().parents[2] / "examples" / "configs"


def read(tmp_path, text, **overrides):
    path = tmp_path / "my.toml"
    path.write_text(text, encoding="utf-8")
    return read_configuration(path, {name.replace("__", "."): text for name, text in overrides.items()})


def test_the_command_line_counts(tmp_path):
    text = '[model]\nname = "child_sum"\nhidden = 10\n[data]\nformat = "conllu"\nlabel = "kind"\n'
    found = read(tmp_path, text, model__hidden="20", model__counts="true", data__label="5")
    assert found.model == ChildSumModel(hidden=20, counts=True)
    assert found.data.label == "5"  # text stays text
    assert read(tmp_path, "", task__weights="[1, 5]").task.weights == [1.0, 5.0]


def test_a_model_has_its_own_options(tmp_path):
    assert read(tmp_path, "", model__name="bilstm", model__pooling="mean").model == BiLSTMModel(
        pooling="mean"
    )


def test_what_is_written_is_read_again(tmp_path):
    found = read(
        tmp_path,
        "[optimizer]\nlr = 1e-3\nlr_factors = {words = 0.1, 'a b' = 2.0}\n[task]\nweights = [0.5]\n",
        data__folder='a "folder" \\ of\nmine é',
        model__name="json",
    )
    assert read(tmp_path, to_toml(found)) == found
    assert checked(plain(found), "here") == found


@pytest.mark.parametrize(
    "text, overrides, message",
    [
        ('[model]\nhidden = "x"', {}, "my.toml: model.hidden: expected int, found str 'x'; "),
        ("[model]\nhidden = 0", {}, "my.toml: model.hidden: expected int >= 1, found int 0; "),
        ("[model]\nhiden = 1", {}, "model.hiden: expected an option, found 'hiden' (did you mean 'hidden'?)"),
        (
            "[train]\nlr = 1",
            {},
            "my.toml: train.lr: expected an option, found 'lr' (did you mean 'optimizer.lr'?)",
        ),
        ("[modle]\nhidden = 1", {}, "my.toml: modle: expected an option, found 'modle' (did you mean 'model"),
        ("model = 3", {}, "my.toml: model: expected object, found int 3"),
        ("model = 3", {"model.hidden": "3"}, "my.toml: model: expected object, found int 3"),
        ('[data]\nformat = "sts"', {}, "data.format: expected one of expressions, functions, sst, "),
        ('[data]\nformat = "sts"', {}, "found 'sts' (did you mean 'sst'?)"),
        (
            '[train]\nmetrics = "f1"',
            {},
            "my.toml: train.metrics: expected a list in brackets, found str 'f1'",
        ),
        ("", {"train.metrics": "f2"}, "--train.metrics[0]: expected one of accuracy, f1, "),
        ('[model]\nname = "rntm"', {}, "found 'rntm' (did you mean 'rntn'?)"),
        ('[task]\nweights = [1, "x"]', {}, "my.toml: task.weights[1]: expected float, found str 'x'"),
        ("[optimizer]\nlr = 1", {"optimizer.lr": "-2"}, "--optimizer.lr: expected float >= 0.0, found int"),
        ("", {"model.name": "bilstm", "model.counts": "true"}, "--model.counts: expected an option, found"),
        ("x =", {}, "my.toml: expected a TOML file, found Invalid value"),
    ],
)
def test_wrong_options_are_named(tmp_path, text, overrides, message):
    path = tmp_path / "my.toml"
    path.write_text(text)
    with pytest.raises(FoldbatchError) as error:
        read_configuration(path, overrides)
    assert message in str(error.value)


def test_a_file_of_other_bytes_is_no_toml(tmp_path):
    path = tmp_path / "my.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(FoldbatchError, match="expected a TOML file"):
        read_configuration(path, {})


@pytest.mark.parametrize(
    ("text", "overrides"),
    [
        (f"a = {'[' * 5000}{']' * 5000}", {}),
        (f"[{'.'.join(['a'] * 3000)}]\nx = 1", {}),
        (f"[model]\nhidden = {'{a = ' * 2000}1{'}' * 2000}", {}),
        ("", {"task.weights": "[" * 5000 + "]" * 5000}),
    ],
)
def test_options_inside_each_other_are_one_line(tmp_path, text, overrides):
    path = tmp_path / "my.toml"
    path.write_text(text)
    with pytest.raises(FoldbatchError, match=r"my.toml: |--task.weights: ") as error:
        read_configuration(path, overrides)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--train.lr", "3"], "an option, found '--train.lr' (did you mean '--optimizer.lr'?)"),
        (["--train.learning_rate", "3"], "(did you mean '--optimizer.lr'?)"),
        (["--train.dropout", "0"], "'--words.dropout' or '--model.dropout' or '--task.dropout'?"),
        (["--train.epoch", "3"], "an option, found '--train.epoch' (did you mean '--train.epochs'?)"),
        (["--train.epochs"], "--train.epochs: expected a value, found none"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(FoldbatchError) as error:
        split_overrides(arguments)
    assert message in str(error.value)


def test_names_may_stand_between_commas():
    for text in ("f1,top3", '["f1", "top3"]'):
        assert read_configuration(None, {"train.metrics": text}).train.metrics == ["f1", "top3"]


def test_paths_are_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = with_absolute_paths(read(tmp_path, "", data__folder="sst", words__vectors="/v.txt"))
    assert found.data.folder == str(tmp_path / "sst") and found.data.train == ""
    assert found.words.vectors == "/v.txt"


def test_a_path_that_no_file_of_options_can_hold_is_refused(tmp_path):
    with pytest.raises(ReadError, match=r"text that UTF-8 can hold, found str '/\\udcff'; rename"):
        with_absolute_paths(read(tmp_path, "", data__folder="/\udcff"))


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.stem)
def test_the_examples_are_configurations(path):
    """Which say only what differs from the defaults, and how to run them."""
    configuration = read_configuration(path, {})
    assert task_kind(configuration)
    alone = path.stem in ("expressions", "functions")
    assert alone or f"examples/configs/{path.name} --data." in path.read_text()


@pytest.mark.parametrize(
    "text, place",
    [
        ("[task]\nweights = [1, nan]", "task.weights"),
        ("[optimizer]\nclip = inf", "optimizer.clip"),
        ("[optimizer.lr_factors]\nwords = -inf", "optimizer.lr_factors"),
    ],
)
def test_numbers_are_finite(tmp_path, text, place):
    with pytest.raises(FoldbatchError, match=f"my.toml: {place}: expected finite numbers, found float"):
        read(tmp_path, text)


def test_every_option_is_described():
    options = list(describe_options())
    assert len(options) > 30
    assert [name for name, _, what in options if len(what) < 5] == []


def test_defaults_are_within_their_bounds():
    plain = msgspec.to_builtins(settings.Configuration())
    assert msgspec.convert(plain, settings.Configuration) == settings.Configuration()


@pytest.mark.parametrize("format_", TRAINABLE)
def test_the_model_that_is_not_named_suits(format_):
    configuration = configured(data__format=format_)
    assert configuration.model.__struct_config__.tag == usual_model(format_)
    check_model(configuration)


@pytest.mark.parametrize(
    "format_, name",
    [("jsonlines", "bilstm"), ("conllu", "tree_lstm"), ("functions", "rntn"), ("sst", "json")],
)
def test_a_model_that_cannot_read_the_data_is_refused_before_they_are_read(format_, name):
    configuration = configured(data__format=format_, model__name=name, data__train=Path("no such file"))
    with pytest.raises(UnknownNameError, match=rf"model.name: expected .* for data of format {format_}"):
        read_dataset(configuration)


@pytest.mark.parametrize(
    "name, likely", [("a.jsonl", "jsonlines"), ("a.conllu", "conllu"), ("a.txt", "NAME")]
)
def test_a_file_that_the_format_does_not_read_is_refused(name, likely):
    message = (
        "data.train: expected a data.format that reads files: sst, .*, found 'functions'; add --data.format"
    )
    with pytest.raises(UnknownNameError, match=f"{message} {likely}$"):
        read_dataset(configured(data__train=name))


@pytest.mark.parametrize("tree, count", [("(S (X a))", 1), ("(S (X a) (X b) (X c))", 3)])
def test_trees_that_are_not_binary_are_named(tmp_path, tree, count):
    (tmp_path / "t.txt").write_text(f"(X (S a) (S b))\n{tree}\n")
    given = {"data__format": "brackets", "data__train": tmp_path / "t.txt"}
    message = f"t.txt:2: expected two children at each inner node, found a node with {count}"
    with pytest.raises(ReadError, match=message):
        read_dataset(configured(**given))
    with pytest.raises(ReadError, match="t.txt:2: expected two children"):
        read_labelled(tmp_path / "t.txt", configured(**given), ["S", "X"])
    assert len(read_dataset(configured(**given, model__name="child_sum")).train) == 2
