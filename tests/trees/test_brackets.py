"""The bracket reader: what it reads, where it finds fault, and that depth and blocks do not matter."""

import itertools
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldbatch.errors import ReadError
from foldbatch.trees import Tree, parse_brackets, read_brackets, read_sst, text, write_brackets
from foldbatch.trees.brackets import read_tree_lines, unescape

DEPTH = 20_000
WORDS = st.text(
    st.characters(exclude_characters=" \t\r\n()\0", exclude_categories=["Cs"]), min_size=1, max_size=6
)


@st.composite
def written_trees(draw):
    """Trees that brackets can hold: every node has a label, and only leaves have words."""
    tree = draw(st.from_type(Tree))
    labels = draw(st.lists(WORDS, min_size=tree.size, max_size=tree.size))
    words = draw(st.lists(st.none() | WORDS, min_size=tree.size, max_size=tree.size))
    if len(tree) > 1 and draw(st.booleans()):
        labels[-1] = ""
    return Tree(
        tree.parents,
        labels,
        [w if node.is_leaf else None for w, node in zip(words, tree.nodes(), strict=True)],
    )


def outcome(source):
    """What the reader says of a file or lines: the trees, and then the error if there is one."""
    said = []
    try:
        said.extend(read_brackets(source))
    except ReadError as error:
        said.append(str(error))
    return said


@given(written_trees())
def test_reading_undoes_writing(tree):
    assert parse_brackets(write_brackets(tree)) == tree


@given(st.text("() ab\n\t\r\0\ufeff\u00a0", max_size=30))
def test_any_text_is_read_back_alike_or_refused_with_its_place(anything):
    trees = outcome([anything])
    if isinstance(trees[-1], str):
        assert re.match(r"lines:\d+:\d+: expected ", trees.pop())
    if trees:
        assert list(read_brackets(map(write_brackets, trees))) == trees


def test_the_outer_bracket_of_the_penn_treebank_is_dropped_around_one_child():
    assert parse_brackets("( (S (NP I) (VP slept)) )") == parse_brackets("(S (NP I) (VP slept))")
    assert parse_brackets("((S I))") == parse_brackets("(S I)")
    assert parse_brackets("( (3 a))", int).label == 3
    assert parse_brackets("( (S I) (S you))").label == ""
    assert parse_brackets("( (S I) (S you)) ") == Tree.from_nested(("", ("S", "I"), ("S", "you")))


def test_labels_are_made_by_the_function_once_for_each_text():
    calls = []

    def label(word):
        calls.append(word)
        return len(word)

    assert parse_brackets("(a (bb x) (a (bb y)))", label).labels == (2, 2, 1, 1)
    assert calls == ["a", "bb"]
    assert parse_brackets("(neg (pos x))", {"neg": 0, "pos": 1}.__getitem__).labels == (1, 0)
    with pytest.raises(ReadError, match="labels: expected a function of a label's text, found None"):
        read_brackets(["(a b)"], None)


def test_escapes_stand_unless_asked_for():
    written = "(X (A -LRB-) (B 1\\/2) (C -RRB-))"
    assert parse_brackets(written).words() == ("-LRB-", "1\\/2", "-RRB-")
    tree = parse_brackets(written, unescape=True)
    assert tree.words() == ("(", "1/2", ")")
    assert write_brackets(tree, escape=True) == written
    assert list(read_brackets([written], unescape=True)) == [tree]
    assert unescape("and\\/or") == "and/or"


def test_trees_are_given_out_while_reading():
    endless = (f"(S w{i})" for i in itertools.count())
    trees = read_brackets(endless)
    assert [next(trees).words() for _ in range(3)] == [("w0",), ("w1",), ("w2",)]


BOUNDARIES = [
    "( (S\u00a0 (\u00e4 \U0001d11e\u20ac)\r\n\t(N film) ))\r\n(VP slept)(X)".encode(),
    "\ufeff(S (A \u00e4\u00a0b) (B c))".encode(),
    b"(A b)\n(A (B wo\xffrd))",
    b"(A b)\n(A (B wo\0rd))",
    b"(A b)\n(A (BCD wor d))",
    b"(A b)\n  (A (BCD wor)\n",
    "(\u00e4 b)\n\u20ac\u20ac (C".encode(),
    b"(A b)\n(C \xe2\x82",
]


@pytest.mark.parametrize("data", BOUNDARIES)
def test_blocks_may_end_anywhere(tmp_path, monkeypatch, data):
    path = tmp_path / "trees.txt"
    path.write_bytes(data)
    whole = outcome(path)
    assert len(whole) == (1 if data.startswith("\ufeff".encode()) else 3 if b"slept" in data else 2)
    for block in range(1, len(data) + 1):
        monkeypatch.setattr(text, "BLOCK_BYTES", block)
        assert outcome(path) == whole, block


def test_20_000_levels_are_read_and_written():
    written = "(A " * DEPTH + "(B w)" + ")" * DEPTH
    tree = parse_brackets(written)
    assert (tree.size, tree.height, tree.words()) == (DEPTH + 1, DEPTH, ("w",))
    assert write_brackets(tree) == written
    with pytest.raises(ReadError, match="expected 20000 more"):
        parse_brackets("(A " * DEPTH)


@pytest.mark.parametrize(
    ("name", "trees", "nodes", "leaves", "roots"),
    [
        ("train.txt", 8544, 318582, 163563, [1092, 2218, 1624, 2322, 1288]),
        ("dev.txt", 1101, 41447, 21274, [139, 289, 229, 279, 165]),
        ("test.txt", 2210, 82600, 42405, [279, 633, 389, 510, 399]),
    ],
)
def test_the_stanford_sentiment_treebank_has_the_counts_of_its_readme(
    data_folder, name, trees, nodes, leaves, roots
):
    path = data_folder / "sst" / name
    treebank = list(read_sst(path))
    assert len(treebank) == trees
    assert sum(tree.size for tree in treebank) == nodes
    assert sum(len(tree.words()) for tree in treebank) == leaves
    assert sorted(Counter(tree.label for tree in treebank).items()) == list(enumerate(roots))
    with path.open(encoding="utf-8", newline="\n") as lines:
        assert all(
            write_brackets(tree) == line.rstrip("\n") for tree, line in zip(treebank, lines, strict=True)
        )


def test_a_plain_line_is_words_and_a_nul_byte_is_no_text():
    assert next(read_tree_lines(["a gem\n", "\n", "(X b)"], "x")) == ["a", "gem"]
    with pytest.raises(ReadError, match=r"x:2:3: expected text, found a NUL byte"):
        list(read_tree_lines(["a gem", "a \0gem"], "x"))
