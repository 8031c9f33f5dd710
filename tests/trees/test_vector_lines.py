"""Lines of words and numbers: what is wrong with them, and where."""

import pytest

from foldbatch.errors import ReadError
from foldbatch.trees import read_vectors, text


def write(folder, content, name="vectors.txt"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("block", [1, 7, 30, 10_000])
@pytest.mark.parametrize(
    ("content", "place", "message"),
    [
        ("", "1:1", "expected a word and its numbers, found the end of the file"),
        ("\n \n", "3:1", "expected a word and its numbers, found the end of the file"),
        ("the\n", "1:1", "expected a word and numbers, found 'the'"),
        ("the film\n", "1:1", "expected a word and numbers, found 'the film'"),
        (
            "a 1 2\nb 3\n",
            "2:1",
            "expected a word and 2 numbers, as in the first line, found 2 columns; repair the line",
        ),
        ("a 1 2\nb 3 4 5\n", "2:1", "expected a word and 2 numbers, as in the first line, found 4 columns"),
        ("a 1 2\nb\n", "2:1", "found 1 columns"),
        ("a 1 2\n 3 4\n", "2:1", "found 3 columns"),
        (
            "400000 2\nthe 1 2\n",
            "3:1",
            "expected 400000 words, as the first line says, found 1; fetch it again, or pass format='glove'",
        ),
        ("a 1 2\nb 3 x\n", "2:5", "expected a finite number, found 'x'"),
        ("a 1 2\nb 3,5 4\n", "2:3", "expected a finite number, found '3,5'"),
        (
            "a 1 2\nb  4\n",
            "2:3",
            "expected a finite number, found ''; repair the line, with one blank a column",
        ),
        ("a 1 2\nb 3 4\nc nan 1\n", "3:3", "expected a finite number, found 'nan'"),
        ("a 1 2\nb 3 -inf\nc 5 6\n", "2:5", "expected a finite number, found '-inf'"),
        ("a 1 2\nb 3 1e39\n", "2:5", "expected a finite number, found '1e39'"),
        (b"a 1 2\nb\xff 3 4\n", "2:2", "expected UTF-8 text, found the byte 0xff"),
        ("a 1 2\n\0 3 4\n", "2:1", "found a NUL byte"),
    ],
)
def test_malformed_files_are_refused_with_their_place(tmp_path, monkeypatch, block, content, place, message):
    monkeypatch.setattr(text, "BLOCK_BYTES", block)
    path = write(tmp_path, content)
    with pytest.raises(ReadError) as caught:
        read_vectors(path)
    assert caught.value.where == f"{path}:{place}"
    assert message in str(caught.value)


@pytest.mark.parametrize("words", [None, {"b"}])
@pytest.mark.parametrize(
    ("format", "content", "place", "message"),
    [
        (
            "glove",
            "5 2\nthe 1 2\n",
            "2:1",
            "found 3 columns; repair the line, or remove the first line if it is word2vec",
        ),
        ("word2vec", "", "1:1", "expected word2vec's first line: how many words, and how many numbers each"),
        ("word2vec", "a 1 2\n", "1:1", "found 'a 1 2'; or pass format='glove'"),
        ("word2vec", "1 0\na\n", "1:1", "expected one number a word or more, found 0"),
        ("word2vec", "2 1\n", "2:1", "expected a word and its numbers, found the end of the file"),
        ("word2vec", "1 1\na 1\nb 2\n", "4:1", "expected 1 words, as the first line says, found 2"),
        ("word2vec", "2 2\na 1 2\nb 2\n", "3:1", "expected a word and 2 numbers"),
        ("word2vec", "2 2\na 1 2\nb 2 x\n", "3:5", "expected a finite number, found 'x'"),
    ],
)
def test_first_lines_are_checked(tmp_path, format, content, place, message, words):
    path = write(tmp_path, content)
    with pytest.raises(ReadError) as caught:
        read_vectors(path, words, format=format)
    assert caught.value.where == f"{path}:{place}"
    assert message in str(caught.value)
