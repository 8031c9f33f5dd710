"""The table of formats: with labels and without, and known to no other module."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from foldbatch.errors import ReadError
from foldbatch.trees.formats import FORMATS, TRAINABLE, structures_of
from foldbatch.trees.pyast import random_expressions

ROOT = Path(__file__).parents[2]


def test_binary_sentiment_leaves_out_what_is_neutral(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text("(0 (1 bad) (2 film))\n(2 (2 a) (2 film))\n(4 (3 good) (2 film))\n")
    trees = [tree for tree, _ in FORMATS["sst-binary"].labelled(path, "label")]
    assert [tree.labels for tree in trees] == [(0, -1, 0), (1, -1, 1)]


def test_lines_are_trees_or_words():
    named = list(structures_of("sst")(["(3 (2 a) (4 gem))\n", "\n", "a gem\n"], "standard input"))
    assert named[0][1].words() == ("a", "gem")
    assert named[1] == (None, ["a", "gem"])


@pytest.mark.parametrize("broken", ["(3 (2 a)", "(3 a b)", "(3 (2 a\0) (4 b))"])
def test_a_broken_line_is_named(broken):
    with pytest.raises(ReadError) as error:
        list(structures_of("sst")(["(3 (2 a) (4 gem))\n", f"{broken}\n"], "my.txt"))
    assert str(error.value).startswith("my.txt:2:")


def test_files_of_classes(tmp_path):
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text("x = 1\n")
    samples = list(FORMATS["python"].labelled(tmp_path, "label"))
    assert [(tree.label, label) for tree, label in samples] == [("Module", "bad"), ("Module", "good")]
    with pytest.raises(ReadError, match=r"expected files CLASS/\*.py, found none"):
        list(FORMATS["python"].labelled(tmp_path / "good", "label"))


def test_functions_of_a_file_are_told_by_name():
    text = ["def get_it(x):\n", "  'Say it.'\n", "  return get_it\n"]
    ((name, tree),) = structures_of("functions")(text, "my.py")
    assert name == "get_it"
    assert tree.label == "FunctionDef" and "get_it" not in tree.tokens and "Say it." not in tree.tokens
    (named,) = structures_of("python")(text, "my.py")
    assert named[0] == "my.py" and named[1].label == "Module"


def test_embedded_data_sets_are_no_file(tmp_path):
    for name in ("expressions", "functions"):
        with pytest.raises(ReadError, match="expected no file for an embedded data set"):
            FORMATS[name].labelled(tmp_path, "label")


def test_expressions_are_worth_what_python_says():
    parts = random_expressions()
    trees = [tree for part in parts.values() for tree, _ in part]
    assert len(set(trees)) == len(trees)  # no test expression was trained on
    for tree, value in parts["test"][:50]:
        text = spelled(tree)
        assert str(eval(text)) == value
        ((name, again),) = structures_of("expressions")([f" {text}\n", "\n"], "f.txt")
        assert (name, again) == (text, tree)


def spelled(node):
    return node.token or f"{node.label}({', '.join(map(spelled, node.children))})"


@pytest.mark.parametrize(
    "text", ["max()", "max(1, 10)", "max(1, True)", "abs(1)", "max(*[1])", "max(1", "max(1, key=2)"]
)
def test_other_expressions_are_refused(text):
    with pytest.raises(ReadError, match="f.txt:1: expected max and min of digits"):
        list(structures_of("expressions")([text], "f.txt"))


def test_the_docs_have_a_row_for_each_format():
    text = (ROOT / "docs" / "commands.md").read_text()
    for name in TRAINABLE:
        assert f"| `{name}` | {FORMATS[name].example} | {FORMATS[name].label} |" in text


def test_no_other_module_names_a_format():
    """So a reader is a module, an entry of the table, and a row of the docs."""
    usual = {"functions", "python", "json"}  # words of other things, too
    for path in (ROOT / "foldbatch").rglob("*.py"):
        text = path.read_text()
        if path.name != "formats.py" and any(f'"{name}"' in text for name in FORMATS.keys() - usual):
            strings = {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}
            assert not strings & (FORMATS.keys() - usual), path


NEW = """
import sys
from pathlib import Path
from foldbatch.trees import formats
from foldbatch.trees.tree import Tree

def read(path):
    return (Tree([-1], [int(line == "b")], [line]) for line in path.read_text().splitlines())

def lines(text, where):
    return ((None, Tree([-1], [None], [line.strip()])) for line in text)

formats.FORMATS["lines"] = formats.Format(
    example="a line", label="0", kind="phrases", suffixes=(".lines",), read=read, structures=lines, ending=".lines",
    write=lambda tree: tree.token, classes=("bad", "good"), sample="a film")
formats.TRAINABLE += ("lines",)

import foldbatch.cli as cli
Path("train.lines").write_text("a\\nb\\n")
Path("model.lines").write_text("a\\n")
assert cli.main(["data", "check", "train.lines"]) == 0
assert cli.main(["data", "convert", "train.lines", "other.lines"]) == 0
assert Path("other.lines").read_text() == "a\\nb\\n"
assert cli.main(["train", "--data.format", "lines", "--data.train", "train.lines", "--train.epochs", "1", "--words.size", "2",
                 "--model.hidden", "2", "--train.backend", "numpy", "--no-gain", "--folder", "run"]) == 0
assert cli.main(["predict", "run", "model.lines", "--backend", "numpy"]) == 0
"""


def test_a_reader_of_its_own_is_known_to_every_command(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", NEW], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "train.lines: 2 trees" in run.stdout and '"label"' in run.stdout
