"""The command measures what import paths name, prints and writes it; a mistake is one line and status 2."""

import json
import re
import sys

import pytest

from foldbatch import cli
from foldbatch.commands import bench as command
from foldbatch.commands.bench import named
from foldbatch.errors import UnknownNameError

MODEL = """
import foldbatch as fb

block = fb.Map(fb.Scalar()) >> fb.Sum()
examples = [[1, 2], [3], [], [4]]

def make():
    return block >> fb.Loss()

def generated():
    yield from examples

def needs(one, two):
    return block

def walk(numbers):
    for number in numbers:
        fb.loss(fb.tensor(number, "float32") * 2.0)

def fails():
    return len(7)
"""


@pytest.fixture(autouse=True)
def model(monkeypatch, tmp_path):
    """The module, in the working directory; what is imported meanwhile is forgotten."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


QUICK = ("--repeats", "1", "--backend", "numpy", "--threads", "1")


def test_it_prints_and_writes(tmp_path, capsys) -> None:
    """Values as they are."""
    file = tmp_path / "figures.json"
    arguments = "bench model.py:block model.py:examples --batch-sizes 2 4 --json".split()
    assert cli.main([*arguments, str(file), *QUICK]) == 0
    out = capsys.readouterr().out
    assert out.startswith("4 examples, ")
    assert "What batching gains in inference" in out
    data = json.loads(file.read_text())
    assert [batch["size"] for batch in data["batches"]] == [1, 2, 4]
    assert (data["backend"], data["threads"], data["repeats"]) == ("numpy", 1, 1)


def test_functions_are_called_or_are_walks(capsys) -> None:
    """A loss without parameters is nothing to train."""
    assert cli.main(["bench", "model.py:make", "model.py:generated", "--infer", *QUICK]) == 0
    assert "inference" in capsys.readouterr().out
    assert cli.main(["bench", "model.py:walk", "model.py:examples", "--batch-sizes", "4", *QUICK]) == 0
    assert "4 examples, 12 calls; in batches of 4 " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model.py:blok", "model.py:examples"], "model.py:blok: .*, found 'blok'; did you mean 'block'?"),
        (["model.py:needs", "model.py:examples"], "model.py:needs: expected a value, or a function without"),
        (["model.py:examples", "model.py:block"], "expected a block, .*, found int 1"),
        (["model.py:block", "model.py:examples", "--batch-sizes", "9"], "expected 9 or more, .*, found 4"),
        (["model.py:block", "model.py:examples", "--train"], "bench: expected a block with losses"),
        (["model.py:block", "model.py:examples", "--backend", "abacus"], "found 'abacus'"),
    ],
)
def test_a_mistake_is_one_line(arguments, message, capsys) -> None:
    assert cli.main(["bench", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("error: ")
    assert re.search(message, line), line


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--batch-sizes", "0"], "argument --batch-sizes: expected a whole number of 1 or more, found 0"),
        (["--repeats", "x"], "argument --repeats: expected a whole number of 1 or more, found x"),
        (["--json", "/no/such/folder/x"], "expected a file in a folder that exists, found /no/such/folder/x"),
        (["--json", "."], "expected a file, found the folder ."),
        (["--train", "--infer"], "not allowed with argument"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_imported(option, message, capsys) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["bench", "none.py:x", "none.py:y", *option])
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


def test_figures_are_printed_also_where_they_cannot_be_written(monkeypatch, capsys) -> None:
    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command, "write_whole", full)
    arguments = [*"model.py:block model.py:examples --batch-sizes 2 --json figures.json".split(), *QUICK]
    assert cli.main(["bench", *arguments]) == 2
    captured = capsys.readouterr()
    assert "What batching gains in inference" in captured.out
    assert captured.err.count("\n") == 1 and "found No space left on device" in captured.err


def test_a_module_is_looked_for_in_the_working_directory(tmp_path) -> None:
    (tmp_path / "package_of_mine").mkdir()
    (tmp_path / "package_of_mine" / "models.py").write_text("class A:\n    size = 3\n")
    assert named("package_of_mine.models:A.size") == 3


def test_a_file_is_imported_once_and_may_import_its_neighbours(tmp_path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "neighbour_of_mine.py").write_text("value = []\n")
    (tmp_path / "deep" / "model.py").write_text("from neighbour_of_mine import value\nother = []\n")
    assert named("deep/model.py:value") is named(f"{tmp_path}/deep/model.py:value")
    assert named("deep/model.py:other") is named("deep/model.py:other")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("model", "model: expected package.module:attribute or path/to/file.py:attribute, found no colon"),
        (":x", "found no colon between two names"),
        ("model.py:", "found no colon between two names"),
        ("none.py:x", "none.py:x: expected the file none.py to exist, found none; name it as"),
        ("no_package.models:x", "expected a module no_package.models that can be imported, found none"),
        ("json.nothing:x", "expected a module json.nothing that can be imported, found none"),
        ("..:x", "expected a module .. that can be imported, found none"),
        ("json:lods", "json:lods: expected a name that json defines, found 'lods'; did you mean 'loads'"),
        ("json:loads.zzz", "found 'zzz'$"),
    ],
)
def test_what_is_not_there_is_said(path, message) -> None:
    with pytest.raises(UnknownNameError, match=message.replace("..", r"\.\.")):
        named(path)
