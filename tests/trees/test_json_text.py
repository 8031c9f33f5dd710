"""JSON, JSON lines, and trees as JSON lines."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.errors import ExampleError, ReadError
from foldbatch.trees import Tree, read_json_trees, write_json

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


def test_what_is_no_json_is_refused_with_its_place(tmp_path):
    for content, place, message in MALFORMED:
        path = tmp_path / "x.json"
        path.write_text(content, encoding="utf-8", newline="")
        with pytest.raises(ReadError) as caught:
            fb.trees.read_json(path)
        assert caught.value.where == f"{path}:{place}"
        assert message in str(caught.value)


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
