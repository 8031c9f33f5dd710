"""The reader of word vectors, and how it guesses their format."""

import gzip
import re
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.errors import BlockValueError, ReadError
from foldbatch.trees import read_vectors, text


def write(folder, content, name="vectors.txt"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_words_and_numbers_are_read(tmp_path):
    vectors = read_vectors(write(tmp_path, "the 0.5 -1e-1\n, 2 3\n"))
    assert vectors.words == ("the", ",")
    assert vectors.matrix.dtype == np.float32
    assert vectors.matrix.tolist() == [[0.5, np.float32(-0.1)], [2.0, 3.0]]


@pytest.mark.parametrize(
    "word", ["8\u00a01/2", ". . .", "a\u2028b", "\x85", "1", "nan", "\u00e4\U0001d11e", "x\ty"]
)
def test_words_may_hold_any_character_but_a_line_end(tmp_path, word):
    vectors = read_vectors(write(tmp_path, f"the 1 2\n{word} 3 4\n"))
    assert vectors.words == ("the", word)


def test_a_number_may_be_the_first_word(tmp_path):
    vectors = read_vectors(write(tmp_path, "5 1 2\n6 3 4"))
    assert (vectors.words, vectors.matrix.shape) == (("5", "6"), (2, 2))


def test_gzip_crlf_trailing_blanks_and_blank_lines_are_accepted(tmp_path):
    data = "\ufeff\nthe 1 2 \r\n\r\nfilm 3 4\r\n\n"
    for path in (write(tmp_path, data), write(tmp_path, gzip.compress(data.encode()), "vectors.txt.gz")):
        vectors = read_vectors(path)
        assert vectors.words == ("the", "film")
        assert vectors.matrix.tolist() == [[1, 2], [3, 4]]


def test_only_the_words_asked_for_are_kept(tmp_path):
    path = write(tmp_path, "a 1 2\nb x y\nc 5 6\n")
    vectors = read_vectors(path, {"c", "a", "z"})
    assert (vectors.words, vectors.matrix.tolist()) == (("a", "c"), [[1, 2], [5, 6]])
    assert read_vectors(path, ()).matrix.shape == (0, 2)


def test_lines_may_be_spread_over_blocks(tmp_path, monkeypatch):
    path = write(tmp_path, "\n\nthe 1 2\n\u00a0 3 4\n\n")
    for block in range(1, 24):
        monkeypatch.setattr(text, "BLOCK_BYTES", block)
        assert read_vectors(path).matrix.tolist() == [[1, 2], [3, 4]]
        assert read_vectors(path, ()).matrix.shape == (0, 2)


def test_of_a_repeated_word_the_first_is_kept_or_an_error_raised(tmp_path):
    path = write(tmp_path, "a 1 2\nb 3 4\na 5 6\n")
    assert read_vectors(path).matrix.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(
        ReadError, match=r"vectors.txt:3:1: expected each word once, found 'a' again; remove one line"
    ):
        read_vectors(path, duplicates="error")


def test_a_file_that_is_no_gzip_file_though_named_so_is_an_error(tmp_path):
    with pytest.raises(ReadError, match=r"vectors\.gz:1:1: expected a readable file, found BadGzipFile"):
        read_vectors(write(tmp_path, "a 1 2\n", "vectors.gz"))


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


def binary(*rows, header=None, line_end=b"\n"):
    """A file in word2vec's binary format."""
    first = header or f"{len(rows)} {len(rows[0]) - 1}"
    packed = (word.encode() + b" " + struct.pack(f"<{len(v)}f", *v) + line_end for word, *v in rows)
    return first.encode() + b"\n" + b"".join(packed)


FORMATS = {
    "glove": b"the 1 2\n\xc3\xa9 3 4\n",
    "word2vec": b"2 2\nthe 1 2 \n\xc3\xa9 3 4 \n",
    "word2vec-binary": binary(("the", 1, 2), ("\u00e9", 3, 4)),
}


@pytest.mark.parametrize("block", [1, 7, 10_000])
@pytest.mark.parametrize("format", FORMATS)
def test_the_format_is_guessed_or_given(tmp_path, monkeypatch, format, block):
    monkeypatch.setattr(text, "BLOCK_BYTES", block)
    data = FORMATS[format]
    for path in (write(tmp_path, data), write(tmp_path, gzip.compress(data), "vectors.gz")):
        for asked in ("auto", format):
            vectors = read_vectors(path, format=asked)
            assert (vectors.words, vectors.matrix.tolist()) == (("the", "\u00e9"), [[1, 2], [3, 4]])
            assert vectors.matrix.dtype == np.float32
            only = read_vectors(path, {"\u00e9"}, format=asked)
            assert (only.words, only.matrix.tolist()) == (("\u00e9",), [[3, 4]])
            assert read_vectors(path, (), format=asked).matrix.shape == (0, 2)


def test_a_format_is_guessed_from_a_long_second_line(tmp_path):
    numbers = [0.25] * 40_000
    line = " ".join(map(str, numbers))
    for data in (f"1 40000\nx {line}\n", binary(("x", *numbers))):
        assert read_vectors(write(tmp_path, data)).matrix.shape == (1, 40_000)


def test_binary_numbers_may_look_like_text(tmp_path):
    vectors = read_vectors(write(tmp_path, b"1 2\nx ab c d 5"))
    assert vectors.matrix.tobytes() == b"ab c d 5"


def test_formats_are_checked():
    with pytest.raises(
        BlockValueError, match=r"format as one of 'auto', .*, found 'glov' \(did you mean 'glove'\?\)"
    ):
        read_vectors("x", format="glov")


@given(st.sampled_from(list(FORMATS)), st.integers(0, 40), st.binary(max_size=6), st.integers(0, 9))
@settings(max_examples=60)
def test_damaged_files_are_read_or_refused(tmp_path_factory, format, at, damage, gone):
    data = FORMATS[format]
    path = write(tmp_path_factory.mktemp("damaged"), data[:at] + damage + data[at + gone :])
    for asked in ("auto", format):
        try:
            read_vectors(path, format=asked)
        except ReadError as error:
            assert re.search(r":(\d+:\d+|byte \d+)$", error.where)
