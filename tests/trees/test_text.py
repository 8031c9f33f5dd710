"""Sentences as text, and vocabularies."""

import gzip
import pickle
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldbatch.errors import ReadError
from foldbatch.trees import Vocabulary, text
from foldbatch.trees.text import read_pieces, text_pieces

SAMPLE = "one two\r\n\u00a0drei ß\n\n€𝄞 end"


def position(whole, offset):
    before = whole[:offset]
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


@pytest.mark.parametrize("block", range(1, len(SAMPLE.encode()) + 2))
def test_every_character_keeps_its_place_at_any_block_size(tmp_path, monkeypatch, block):
    monkeypatch.setattr(text, "BLOCK_BYTES", block)
    path = tmp_path / "sample.txt"
    path.write_bytes(SAMPLE.encode())
    seen = 0
    for piece in read_pieces(path):
        for offset in range(len(piece.text) + 1):
            line, column = position(SAMPLE, seen + offset)
            assert piece.where(offset) == f"{path}:{line}:{column}"
        lines = [f"{text}\n" for _, text in piece.lines()]
        assert "".join(lines).removesuffix("\n") == piece.text.removesuffix("\n")
        seen += len(piece.text)
        assert piece.text.endswith("\n") or seen == len(SAMPLE)
    assert seen == len(SAMPLE)


def test_a_gz_file_is_unpacked_and_a_byte_order_mark_dropped(tmp_path):
    path = tmp_path / "sample.txt.gz"
    path.write_bytes(gzip.compress(("\ufeff" + SAMPLE).encode()))
    assert "".join(piece.text for piece in read_pieces(str(path))) == SAMPLE
    assert [piece.text for piece in text_pieces("\ufeffa")] == ["a"]
    assert [piece.text for piece in text_pieces("a\ufeff")] == ["a\ufeff"]


@pytest.mark.parametrize(
    ("data", "place", "message"),
    [
        (
            b"ab\nc\xffd",
            "2:2",
            "expected UTF-8 text, found the byte 0xff (invalid start byte); save the file as UTF-8",
        ),
        (b"\xc3\xa4b\xe2\x82", "1:3", "found the byte 0xe2 (unexpected end of data)"),
        (b"\xe2\x82\xac\xe2(", "1:2", "found the byte 0xe2 (invalid continuation byte)"),
        (b"\xff\xfea\0", "1:1", "found the byte 0xff"),
        (b"ab\n\0c", "2:1", "expected text, found a NUL byte"),
    ],
)
def test_bytes_that_are_no_text_are_placed(assert_refused, monkeypatch, data, place, message):
    for block in [1, 2, 3, 5, 100]:
        monkeypatch.setattr(text, "BLOCK_BYTES", block)
        assert_refused(lambda path: list(read_pieces(path)), data, place, message)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"plain text", ":1:1: expected a readable file, found BadGzipFile: Not a gzipped file"),
        (gzip.compress(b"a" * 5000)[:-12], "found EOFError"),
        (gzip.compress(b"a" * 5000)[:12] + b"\xff" * 30, "found error: Error -3"),
    ],
    ids=[
        "text",
        "cut short",
        "damaged",
    ],  # the data hold the time, and every process must find the same tests
)
def test_a_gz_file_that_is_none_or_damaged_is_an_error(tmp_path, data, message):
    path = tmp_path / "bad.gz"
    path.write_bytes(data)
    with pytest.raises(ReadError) as caught:
        list(read_pieces(path))
    assert message in str(caught.value)


def test_a_missing_file_and_a_folder_are_errors(tmp_path):
    with pytest.raises(
        ReadError, match=r"none\.txt: expected a file, found nothing of that name; check the path"
    ):
        list(read_pieces(tmp_path / "none.txt"))
    with pytest.raises(ReadError, match="expected a file, found a folder"):
        list(read_pieces(tmp_path))
    with pytest.raises(ReadError, match="expected a readable file"):
        list(read_pieces("a\0b"))


def test_a_text_in_place_of_a_path_is_refused(tmp_path):
    with pytest.raises(
        ReadError,
        match=r"text: expected a path or lines, found the text 'one.ntwo'; give the lines of a text",
    ):
        list(read_pieces("one\ntwo"))
    path = tmp_path / "a\nb"
    path.write_text("read", encoding="utf-8")
    assert [piece.text for piece in read_pieces(str(path))] == ["read"]


@given(st.lists(st.text(max_size=3)), st.integers(1, 3))
def test_counted_words_are_numbered_from_one_and_others_are_zero(words, minimum):
    vocabulary = Vocabulary.count(words, minimum)
    counts = Counter(words)
    kept = [word for word in counts if counts[word] >= minimum]
    assert len(vocabulary) == len(kept) + 1
    assert [vocabulary[word] for word in vocabulary] == list(range(len(vocabulary)))
    for word in counts:
        assert (word in vocabulary) == (word in kept)
        assert (vocabulary[word] > 0) == (word in kept)
    assert [counts[word] for word in list(vocabulary)[1:]] == sorted(
        (counts[word] for word in kept), reverse=True
    )


def test_the_unknown_word_is_number_zero_wherever_it_stands():
    vocabulary = Vocabulary(["a", "*", "b"], unknown="*")
    assert list(vocabulary) == ["*", "a", "b"]
    assert (vocabulary["*"], vocabulary["b"], vocabulary["?"]) == (0, 2, 0)
    assert Vocabulary(vocabulary, unknown="*") == vocabulary


def test_vocabularies_compare_hash_and_pickle_by_their_words():
    vocabulary = Vocabulary(["a", "b"])
    again = pickle.loads(pickle.dumps(vocabulary))
    assert again == vocabulary
    assert hash(again) == hash(vocabulary)
    assert again["b"] == 2
    assert vocabulary != Vocabulary(["b", "a"])
    assert vocabulary != ("<unk>", "a", "b")
    assert repr(vocabulary) == "Vocabulary(3 words, unknown='<unk>')"
