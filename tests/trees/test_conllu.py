"""The reader of CoNLL-U: trees, columns, faults with their places, long sentences and long files."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.errors import BlockValueError, ReadError
from foldbatch.trees import Tree, read_conllu, read_sentences, text

LINE = "{}\t{}\t{}\t{}\t_\t{}\t{}\t{}\t_\t_"


def written(*words, comments=()):
    """A sentence of (form, head, deprel) in CoNLL-U."""
    rows = [
        LINE.format(i, form, form.lower(), "X", "_", head, rel)
        for i, (form, head, rel) in enumerate(words, 1)
    ]
    return "\n".join([*(f"# {comment}" for comment in comments), *rows]) + "\n\n"


FISH = written(
    ("They", 2, "nsubj"), ("buy", 0, "root"), ("raw", 4, "amod"), ("fish", 2, "obj"), (".", 2, "punct")
)
CROSSED = written(
    ("A", 2, "det"), ("hearing", 3, "nsubj"), ("came", 0, "root"), ("today", 3, "advmod"), ("on", 2, "nmod")
)


def parsed(content, **options):
    (tree,) = read_conllu(content.splitlines(), **options)
    return tree


TWO_ROOTS = written(("Yes", 0, "root"), ("I", 3, "nsubj"), ("do", 0, "root"))


def test_several_roots_are_refused_joined_or_skipped():
    with pytest.raises(
        ReadError, match=r"lines:4:1: expected one root, found a second root after word 1; pass roots='join'"
    ):
        list(read_conllu(["\n", *TWO_ROOTS.splitlines()]))
    joined = next(read_conllu(TWO_ROOTS.splitlines(), roots="join"))
    assert joined == Tree([3, 2, 3, -1], ["root", "nsubj", "root", ""], ["Yes", "I", "do", None])
    leaves = next(read_conllu(TWO_ROOTS.splitlines(), roots="join", heads="leaf"))
    assert leaves.words() == ("Yes", "I", "do")
    both = (TWO_ROOTS + FISH).splitlines()
    assert list(read_conllu(both, roots="skip")) == [parsed(FISH)]


def test_crossing_branches_are_kept():
    kept = parsed(CROSSED)
    assert [kept.token, kept[0].token, kept[0][1].token, kept[1].token] == ["came", "hearing", "on", "today"]


def test_multiword_tokens_and_empty_nodes_make_no_nodes():
    lines = [
        "# text = vámonos al mar",
        "0.1\tnada\t_\t_\t_\t_\t_\t_\t_\t_",
        "1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\t_",
        "1\tvamos\tir\tVERB\t_\t_\t0\troot\t_\t_",
        "2\tnos\tnosotros\tPRON\t_\tCase=Acc|Number=Plur\t1\tobj\t_\t_",
        "2.1\tx\t_\t_\t_\t_\t_\t_\t1:conj\t_",
        "2.2\ty\t_\t_\t_\t_\t_\t_\t1:conj\t_",
        "3-4\tal\t_\t_\t_\t_\t_\t_\t_\t_",
        "3\ta\ta\tADP\t_\t_\t4\tcase\t_\t_",
        "4\tel\tel\tDET\t_\t_\t1\tobl\t_\tSpaceAfter=No",
    ]
    (sentence,) = read_sentences(lines)
    assert sentence.notes() == {"text": "vámonos al mar"}
    assert sentence.words[1].features() == {"Case": "Acc", "Number": "Plur"}
    assert (sentence.words[3].misc, sentence.words[3].line) == ("SpaceAfter=No", 10)
    assert sentence.tree(heads="leaf").words() == ("vamos", "nos", "a", "el")


GOOD = "1\ta\ta\tX\t_\t_\t0\troot\t_\t_\n"
OTHER = "2\tb\tb\tX\t_\t_\t1\tx\t_\t_\n"
EMPTY = "\t_" * 8 + "\n"
MALFORMED = [
    # text, place, what the message must hold
    ("", "1:1", "expected a sentence, found the end of the file; check the path; in Python, allow_empty=True takes such a file"),
    ("# only a comment\n\n", "3:1", "expected a sentence"),
    ("1 a a X _ _ 0 root _ _\n", "1:1", "expected 10 columns between tabs, found '1 a a X"),
    ("1\ta\ta\n", "1:1", "found 3 columns; separate columns by tabs"),
    ("1\ta\t\tX\t_\t_\t0\troot\t_\t_\n", "1:5", "expected a value as LEMMA, found ''"),
    ("\n" + GOOD + "3\tb\tb\tX\t_\t_\t1\tx\t_\t_\n", "3:1", "expected the ID 2, found '3'"),
    (GOOD + GOOD, "2:1", "expected the ID 2, found '1'; number the words of a sentence"),
    (GOOD + "# note\n", "2:1", "expected a word or a blank line, found a comment"),
    ("1\ta\ta\tX\t_\t_\t_\t_\t_\t_\n", "1:13", "expected the number of a word, or 0, as HEAD, found '_'; each word needs"),
    ("1\ta\ta\tX\t_\t_\t01\tx\t_\t_\n", "1:13", "as HEAD, found '01'"),
    ("1\tab\ta\tX\t_\t_\t9\tx\t_\t_\n", "1:14", "expected a head from 0 to 1, and not the word itself, found 9"),
    (GOOD + "2\tb\tb\tX\t_\t_\t2\tx\t_\t_\n", "2:13", "found 2, the word itself; correct the head"),
    ("0.1\tab\t_\t_\t_\t_\t_\t_\t_\t_\n\n", "1:1", "expected a sentence of one word or more, found none"),
    (written(("a", 0, "root"), ("b", 3, "x"), ("c", 4, "x"), ("d", 3, "x")), "3:13",
     "expected heads that lead to a root, found a cycle of heads: 3 -> 4 -> 3; give one of them the head 0"),
    ("2-3\tab" + EMPTY + GOOD, "1:1", "expected the ID 1-N of several words, found '2-3'; put tokens"),
    ("1-0\tab" + EMPTY + GOOD, "1:1", "expected the ID 1-N of several words, found '1-0'"),
    ("1-2\tab" + EMPTY + GOOD + "2-2\tb" + EMPTY + OTHER, "3:1", "expected the ID 2-N of several words"),
    ("1-2\tab" + EMPTY + GOOD, "2:1", "expected words up to 2, as a token says, found 1; check that"),
    (GOOD + "2.1\tab" + EMPTY + OTHER, "2:1", "expected the ID 1.1, found '2.1'; put empty nodes behind"),
    (GOOD + "\0", "2:1", "found a NUL byte"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "place", "message"), MALFORMED)
def test_malformed_files_are_refused_with_their_place(assert_refused, monkeypatch, content, place, message):
    monkeypatch.setattr(text, "BLOCK_BYTES", 3)
    assert_refused(lambda path: list(read_conllu(path)), content, place, message)


def test_options_are_checked_at_once():
    with pytest.raises(
        BlockValueError,
        match=r"roots as one of 'error', 'join', 'skip', found 'joim' \(did you mean 'join'\?\)",
    ):
        read_conllu([], roots="joim")
    assert list(read_conllu([], allow_empty=True)) == []


@pytest.mark.parametrize("heads", ["node", "leaf"])
def test_a_long_chain_and_a_long_sentence_are_read_without_recursion(heads):
    count = 10_000
    chain = written(*(("w", i, "x") for i in range(count)))
    tree = parsed(chain, heads=heads)
    assert tree.height == count - 1
    flat = written(("w", 0, "root"), *[("w", 1, "x")] * count)
    assert len(parsed(flat)) == count


@given(st.lists(st.integers(0, 8), min_size=1, max_size=8))
@settings(max_examples=20)
def test_any_heads_make_a_tree_of_those_heads_or_are_refused(heads):
    content = written(*((f"w{i}", head, "x") for i, head in enumerate(heads, 1)))
    try:
        tree = next(read_conllu(content.splitlines(), roots="join"))
    except ReadError as error:
        assert "head" in str(error)
        return
    found = {node.token: node.parent.token if node.parent else None for node in tree.nodes() if node.token}
    assert found == {f"w{i}": f"w{head}" if head else None for i, head in enumerate(heads, 1)}
    leaves = next(read_conllu(content.splitlines(), roots="join", heads="leaf"))
    assert sorted(leaves.words()) == sorted(f"w{i}" for i in range(1, len(heads) + 1))


@given(st.data())
@settings(max_examples=30)
def test_damaged_files_are_read_or_refused_with_their_place(tmp_path_factory, data):
    good = (FISH + TWO_ROOTS).encode()
    at = data.draw(st.integers(0, len(good)))
    damage = data.draw(
        st.binary(max_size=4) | st.sampled_from([b"\t", b"\n", b"\n\n", b"-", b".1", b"0", b"#"])
    )
    damaged = good[:at] + damage + good[at + data.draw(st.integers(0, 9)) :]
    path = tmp_path_factory.mktemp("damaged") / "x"
    path.write_bytes(data.draw(st.just(damaged) | st.binary(max_size=40)))
    try:
        list(read_conllu(path, heads="leaf"))
    except ReadError as error:
        assert re.match(r".*:\d+:\d+$", error.where)
