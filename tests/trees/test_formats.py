"""The table of formats, and trees of Python and JSON."""

import ast
import json
import re
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.errors import ExampleError, ReadError
from foldbatch.trees import Tree, python_tree, read_json, read_json_trees, read_jsonlines, write_json
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


DEPTH = 20_000


def test_a_function_becomes_a_tree_without_contexts():
    tree = python_tree("def get(self, key=None):\n    return self.rows[key]\n")
    assert tree == Tree.build(
        ["Module", None, ["FunctionDef", "get",
            ["arguments", None, ["arg", "self"], ["arg", "key"], ["Constant:NoneType", "None"]],
            ["Return", None, ["Subscript", None, ["Attribute", "rows", ["Name", "self"]], ["Name", "key"]]]]],
        children=lambda part: part[2:], label=lambda part: part[0], token=lambda part: part[1],
    )  # fmt: skip


def test_statements_name_what_they_bind():
    source = """
global x, y
import os.path as p
from a.b import c
class K(B, metaclass=M): pass
async def f(*args): await g
try: pass
except E as e: pass
match v:
    case {"k": 1, **rest}: pass
    case [*star]: pass
    case None as whole: pass
"""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = python_tree(source)
    tokens = {(node.label, node.token) for node in tree.nodes() if node.token is not None}
    assert tokens >= {
        ("Global", "x,y"), ("alias", "os.path"), ("ImportFrom", "a.b"), ("alias", "c"), ("ClassDef", "K"),
        ("keyword", "metaclass"), ("AsyncFunctionDef", "f"), ("arg", "args"), ("ExceptHandler", "e"),
        ("MatchMapping", "rest"), ("MatchStar", "star"), ("MatchAs", "whole"),
        ("MatchSingleton:NoneType", "None"),
    }  # fmt: skip


def test_a_chain_deeper_than_the_recursion_limit_is_flattened():
    node = ast.Name("x", ast.Load())
    for _ in range(DEPTH):
        node = ast.UnaryOp(ast.Not(), node)
    assert sys.getrecursionlimit() < DEPTH
    assert python_tree(node).height == DEPTH


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = (\n", "a.py:1:5: expected Python source, found '(' was never closed"),
        ("def f():\n  return 1 +\n", "a.py:2:13: expected Python source, found invalid syntax"),
        ("a\0b", "a.py:1:1: expected Python source, found source code string cannot contain null bytes"),
        ("'\ud800'", "a.py:1:1: expected Python source, found 'utf-8' codec can't encode"),
        (b"\xff = 1", "a.py:1:1: expected Python source"),
        ("-" * DEPTH + "1", "a.py:1:1: expected nesting that Python can parse, found deeper nesting"),
        ("(" * 1000 + ")" * 1000, "too many nested parentheses"),
    ],
)
def test_source_that_python_cannot_parse_is_a_read_error(source, message):
    with pytest.raises(ReadError) as caught:
        python_tree(source, "a.py")
    assert message in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abé"), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(st.lists(JSON, max_size=3))
@settings(max_examples=15)
def test_lines_are_read_as_they_were_written(values):
    assert list(fb.trees.read_jsonlines([json.dumps(value) for value in values])) == values


MALFORMED = [
    ('{"a": x}', "1:7", "expected a JSON value, found 'x' (invalid character); repair it"),
    ('{"é": 1,\n "b" 2}', "2:6", "found '2' (expected ':')"),
    ('["é", x]', "1:7", "(invalid character)"),
    ("[1,\n 2 \n", "2:3", "found its end too early"),
    (" \n", "1:1", "found nothing"),
    ('{"a": 1} {"a": 2}', "1:10", "found '{' (trailing characters)"),
    ("[NaN]", "1:2", "(invalid character)"),
    ("1e999", "1:1", "found Number out of range"),
    ("1" * 10_000, "1:1", "expected a JSON value, found Integer value out of range"),
    ("[" * 100_000, "1:1", "found deeper nesting than the parser can follow"),
    ("[1, \0]", "1:5", "found a NUL byte"),
]


def test_what_is_no_json_is_refused_with_its_place(assert_refused):
    for malformed in MALFORMED:
        assert_refused(fb.trees.read_json, *malformed)


@given(st.from_type(Tree))
@settings(max_examples=20)
def test_trees_are_read_back_alike(tree):
    try:
        line = write_json(tree)
    except ExampleError:
        assert any("\ud800" <= c <= "\udfff" for part in (*tree.labels, *tree.tokens) for c in str(part))
        return
    assert "\n" not in line
    if "\0" not in line:
        assert next(read_json_trees([line])) == tree


def test_a_tree_of_great_depth_is_one_flat_line():
    count = 100_000
    deep = Tree([*range(1, count), -1], ["a"] * count)
    assert next(read_json_trees([write_json(deep)])) == deep


@given(st.binary(max_size=30), st.integers(0, 60))
@settings(max_examples=30)
def test_damaged_lines_are_read_or_refused(tmp_path_factory, damage, at):
    good = write_json(Tree.from_nested(("S", ("NP", "I"), ("VP", "é")))).encode()
    path = tmp_path_factory.mktemp("damaged") / "x"
    path.write_bytes(good[:at] + damage + good[at + len(damage) :])
    for reader in (read_json_trees, fb.trees.read_jsonlines, lambda path: [fb.trees.read_json(path)]):
        try:
            list(reader(path))
        except ReadError as error:
            assert re.search(r":\d+:\d+", error.where)


MARK = "\ufeff"


def test_a_byte_order_mark_at_the_beginning_is_no_part_of_a_text(tmp_path):
    assert python_tree(f"{MARK}x = 1") == python_tree("x = 1") == python_tree(f"{MARK}x = 1".encode())
    for name, format_ in FORMATS.items():
        if name == "html" and not find_spec("lxml"):
            continue  # it is read by that library
        if format_.structures is not None and isinstance(format_.sample, str):
            read = [
                [structure for _, structure in format_.structures(iter(text.splitlines(True)), "x")]
                for text in (format_.sample, MARK + format_.sample)
            ]
            assert read[0] == read[1], name
    text = f'{MARK}{{"a": 1}}'
    assert list(read_jsonlines([text])) == [read_json([text])] == [{"a": 1}]
    (tmp_path / "a.jsonl").write_text(text)
    assert list(read_jsonlines(tmp_path / "a.jsonl")) == [{"a": 1}]


def test_long_sums_of_python_are_parsed_where_the_version_can():
    terms = 4000
    try:
        tree = python_tree("+".join(["a"] * terms))
    except ReadError as error:
        assert sys.version_info[:2] == (3, 12)
        assert "3.12" in error.fix
    else:
        assert tree.size == 2 * terms + 1
        assert sys.getrecursionlimit() < terms
