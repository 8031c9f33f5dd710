"""The binary format of word2vec: words, numbers, and what is wrong with them at which byte."""

import struct

import pytest

from foldbatch.errors import ReadError
from foldbatch.trees import read_vectors, text

GOOD = b"2 2\nab " + struct.pack("<2f", 1, 2) + b"\nc " + struct.pack("<2f", 3, 4) + b"\n"


def read(folder, content, *args, name="vectors.bin", **options):
    path = folder / name
    path.write_bytes(content)
    return read_vectors(path, *args, format="word2vec-binary", **options)


def test_line_ends_between_words_may_be_missing(tmp_path):
    for data in (GOOD, GOOD.replace(b"\nc", b"c")[:-1]):
        vectors = read(tmp_path, data)
        assert (vectors.words, vectors.matrix.tolist()) == (("ab", "c"), [[1, 2], [3, 4]])


def test_numbers_may_look_like_blanks_and_line_ends(tmp_path):
    vectors = read(tmp_path, b"2 1\na    \nb \n\n\n\n")
    assert vectors.words == ("a", "b")
    assert vectors.matrix.tobytes() == b"   \n\n\n\n\n"


def test_repeated_words_and_words_that_are_no_text(tmp_path):
    twice = GOOD.replace(b"\nc ", b"\nab ")
    assert read(tmp_path, twice).matrix.tolist() == [[1, 2]]
    with pytest.raises(ReadError, match="byte 16: expected each word once, found 'ab' again"):
        read(tmp_path, twice, duplicates="error")
    broken = GOOD.replace(b"\nc ", b"\n\xff ")
    with pytest.raises(
        ReadError, match="byte 16: expected a word in UTF-8, found .*; pass words= without it"
    ):
        read(tmp_path, broken)
    assert read(tmp_path, broken, {"ab"}).words == ("ab",)


@pytest.mark.parametrize("block", [1, 9, 10_000])
@pytest.mark.parametrize(
    ("content", "place", "message"),
    [
        (b"", 0, "expected word2vec's first line: how many words, and how many numbers each, found ''"),
        (b"ab 1 2\n", 0, "found 'ab 1 2'; or pass another format"),
        (b"1 0\na \n", 0, "found '1 0'"),
        (b"0 3\n", 4, "expected a word or more, found none"),
        (GOOD[:9], 7, "expected 8 bytes of numbers, found 2; the file is cut off"),
        (GOOD[:16], 16, "expected word 2 of 2, found the end of the file; the file is cut off"),
        (b"1 1\n    x", 4, "expected word 1 of 1, found none before a blank"),
        (b"1 1\n" + b"x" * 9000, 4, "expected word 1 of 1, found none before a blank"),
        (b"1 999999999999999\nx 1234", 20, "expected 3999999999999996 bytes of numbers, found 4"),
        (b"1 2" + GOOD[3:], 15, "expected the end of the file after 1 words, found more"),
        (GOOD[:18] + struct.pack("<2f", 5, float("nan")), 16, "expected finite numbers, found nan for 'c'"),
    ],
)
def test_malformed_files_are_refused_with_their_place(tmp_path, monkeypatch, block, content, place, message):
    monkeypatch.setattr(text, "BLOCK_BYTES", block)
    with pytest.raises(ReadError) as caught:
        read(tmp_path, content)
    assert caught.value.where == f"{tmp_path / 'vectors.bin'}:byte {place}"
    assert message in str(caught.value)


def test_a_file_that_is_no_gzip_file_though_named_so_is_an_error(tmp_path):
    with pytest.raises(ReadError, match=r"x\.gz:byte 0: expected a readable file, found BadGzipFile"):
        read(tmp_path, GOOD, name="x.gz")
