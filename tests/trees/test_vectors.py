"""The reader of word vectors, and how it guesses their format."""

import gzip
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.errors import ReadError
from foldbatch.trees import Coverage, Vectors, Vocabulary, embedding_matrix, read_sst, read_vectors, text


def write(folder, content, name="vectors.txt"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("block", [1, 10_000])
@pytest.mark.parametrize(
    ("content", "place", "message"),
    [
        ("", "1:1", "expected a word and its numbers, found the end of the file"),
        ("\n \n", "3:1", "expected a word and its numbers, found the end of the file"),
        ("the\n", "1:1", "expected a word and numbers, found 'the'"),
        ("the film\n", "1:1", "expected a word and numbers, found 'the film'"),
        ("a 1 2\nb 3\n", "2:1", "2 numbers, as in the first line, found 2 columns; repair the line"),
        ("a 1 2\nb 3 4 5\n", "2:1", "expected a word and 2 numbers, as in the first line, found 4 columns"),
        ("a 1 2\nb\n", "2:1", "found 1 columns"),
        ("a 1 2\n 3 4\n", "2:1", "found 3 columns"),
        ("400000 2\nthe 1 2\n", "3:1", "400000 words, as the first line says, found 1; fetch it again"),
        ("a 1 2\nb 3 x\n", "2:1", "expected numbers, found could not convert string to float: 'x'"),
        ("a 1 2\nb 3,5 4\n", "2:1", "'3,5'"),
        ("a 1 2\nb  4\n", "2:1", "convert string to float: ''; repair the line, with one blank a column"),
        ("a 1 2\nb 3 4\nc nan 1\n", "3:1", "expected finite numbers, found nan for 'c'"),
        ("a 1 2\nb 3 -inf\nc 5 6\n", "2:1", "found -inf for 'b'"),
        ("a 1 2\nb 3 1e39\n", "2:1", "found inf for 'b'"),
        (b"a 1 2\nb\xff 3 4\n", "2:2", "expected UTF-8 text, found the byte 0xff"),
        ("a 1 2\n\0 3 4\n", "2:1", "found a NUL byte"),
    ],
)
def test_malformed_files_are_refused_with_their_place(
    assert_refused, monkeypatch, block, content, place, message
):
    monkeypatch.setattr(text, "BLOCK_BYTES", block)
    assert_refused(read_vectors, content, place, message)


@pytest.mark.parametrize(
    "word", ["8\u00a01/2", ". . .", "a\u2028b", "\x85", "1", "nan", "\u00e4\U0001d11e", "x\ty"]
)
def test_words_may_hold_any_character_but_a_line_end(tmp_path, word):
    vectors = read_vectors(write(tmp_path, f"the 1 2\n{word} 3 4\n"))
    assert vectors.words == ("the", word)


def test_lines_are_read_as_a_file_is():
    assert read_vectors(["a 1 2", "b 3 4\n"]).matrix.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(ReadError, match="lines:2:1: expected a word and 2 numbers"):
        read_vectors(["a 1 2", "b 3"])
    with pytest.raises(ReadError, match="expected a path or lines, found None"):
        read_vectors(None)


def test_of_a_repeated_word_the_first_is_kept(tmp_path):
    path = write(tmp_path, "a 1 2\nb 3 4\na 5 6\n")
    assert read_vectors(path).matrix.tolist() == [[1, 2], [3, 4]]


@given(
    st.dictionaries(st.text("ab\u00a0.", min_size=1, max_size=3), st.floats(-1e3, 1e3, width=32), max_size=9)
)
def test_a_written_file_is_read_back(tmp_path_factory, values):
    lines = "".join(f"{word} {value!r} {-value!r}\n" for word, value in values.items())
    path = write(tmp_path_factory.mktemp("vectors"), "first 0 0\n" + lines)
    vectors = read_vectors(path)
    assert vectors.words == ("first", *values)
    assert vectors.matrix[1:].tolist() == [[value, -value] for value in values.values()]


def test_the_vectors_of_the_treebank_words_are_read(data_folder):
    vectors = read_vectors(data_folder / "glove" / "glove.6B.100d.sst.txt.gz")
    assert (len(vectors.words), vectors.matrix.shape) == (17374, (17374, 100))
    assert vectors.words[:3] == ("the", ",", ".")
    assert vectors.matrix[0, :2].tolist() == [np.float32(-0.038194), np.float32(-0.24487)]


FORMATS = {"glove": b"the 1 2\n\xc3\xa9 3 4\n", "word2vec": b"2 2\nthe 1 2 \n\xc3\xa9 3 4 \n"}


@pytest.mark.parametrize("block", [1, 7, 10_000])
@pytest.mark.parametrize("data", FORMATS.values(), ids=FORMATS)
def test_both_formats_are_read(tmp_path, monkeypatch, data, block):
    monkeypatch.setattr(text, "BLOCK_BYTES", block)
    for path in (write(tmp_path, data), write(tmp_path, gzip.compress(data), "vectors.gz")):
        vectors = read_vectors(path)
        assert (vectors.words, vectors.matrix.tolist()) == (("the", "\u00e9"), [[1, 2], [3, 4]])
        assert vectors.matrix.dtype == np.float32
        only = read_vectors(path, {"\u00e9"})
        assert (only.words, only.matrix.tolist()) == (("\u00e9",), [[3, 4]])
        assert read_vectors(path, ()).matrix.shape == (0, 2)


@given(st.sampled_from(list(FORMATS)), st.integers(0, 40), st.binary(max_size=6), st.integers(0, 9))
@settings(max_examples=30)
def test_damaged_files_are_read_or_refused(tmp_path_factory, format, at, damage, gone):
    data = FORMATS[format]
    path = write(tmp_path_factory.mktemp("damaged"), data[:at] + damage + data[at + gone :])
    try:
        read_vectors(path)
    except ReadError as error:
        assert re.search(r":\d+:\d+$", error.where)


SMALL = Vectors(("the", "(", "and/or", ")", "/"), np.arange(10, dtype=np.float32).reshape(5, 2))


def test_a_table_takes_a_word_as_it_stands_then_in_lower_case():
    table, coverage = embedding_matrix(["the", "The", "loom"], SMALL)
    assert (table.dtype, coverage) == (np.float32, Coverage(1, 1, 1, ("loom",)))
    assert table[:2].tolist() == [[0, 1], [0, 1]]
    cased = Vectors(("the", "The"), np.array([[1], [2]], np.float32))
    assert embedding_matrix(["The", "the", "THE"], cased)[0].tolist() == [[2], [1], [1]]


def test_missing_words_are_drawn_from_the_seed_and_their_row_alone():
    words = [f"w{i}" for i in range(1000)]
    table, coverage = embedding_matrix(words, SMALL, seed=3, scale=0.2)
    assert coverage.missing == 1000
    assert np.abs(table).max() <= 0.2
    assert np.abs(table).max() > 0.19
    assert abs(table.mean()) < 0.02
    again, _ = embedding_matrix(["the", *words[1:]], SMALL, seed=np.random.default_rng(3), scale=0.2)
    assert again[1:].tolist() == table[1:].tolist()
    assert embedding_matrix(words, SMALL, seed=4, scale=0.2)[0].tolist() != table.tolist()


def test_the_report_names_missing_words():
    tokens = "the loom the LOOM x y y y of of".split()
    _, coverage = embedding_matrix(Vocabulary.count(tokens), SMALL)
    assert str(coverage) == (
        "1 of 7 words have a vector (14.3 %); 6 words have none.\n"
        "Missing: '<unk>', 'y', 'of', 'loom', 'LOOM', 'x'."
    )


def test_the_words_of_the_treebank_are_covered(data_folder):
    vectors = read_vectors(data_folder / "glove" / "glove.6B.100d.sst.txt.gz")
    words = (word for tree in read_sst(data_folder / "sst" / "dev.txt") for word in tree.words())
    table, coverage = embedding_matrix(Vocabulary.count(words), vectors)
    assert coverage.found + coverage.lowered + coverage.missing == len(table)
    assert coverage.missing < 0.1 * len(table)
    assert coverage.lowered > 0


def test_tabs_and_aligned_columns_stand_between_numbers_too():
    expected = {"the": [0.25, 0.5], "a": [1.0, 2.0]}
    for lines in (
        ["the\t0.25 0.5", "a\t1 2"],
        ["the\t0.25\t0.5\t", "a\t1\t2"],
        ["the  0.25 0.5", "a    1 2"],
    ):
        vectors = read_vectors(lines)
        assert dict(zip(vectors.words, vectors.matrix.tolist(), strict=True)) == expected


def test_underscores_in_numbers_are_refused():
    with pytest.raises(ReadError, match=r"lines:2:1: expected numbers, found '1_0 2'; write numbers without"):
        read_vectors(["a_b 1.0 2.0", "b 1_0 2"])
