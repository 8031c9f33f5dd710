"""Word vectors from files, and the embedding table that they make for a vocabulary.

Sources: GloVe (Pennington, Socher and Manning 2014); word2vec (Mikolov et al. 2013), whose text begins with a
line of how many words there are and how many numbers each has. In its binary format a word is its bytes, a
blank, and its numbers as little-endian float32; a line end may stand before a word.
"""

import os
import re
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import BlockValueError, ReadError, counted, with_nearest
from foldbatch.trees.brackets import unescape
from foldbatch.trees.text import Problem, TextPiece, decoded_pieces, read_blocks, shorten, whole_pieces


@dataclass(slots=True)
class Wanted:
    """What to keep of a file of vectors, and what has been kept."""

    words: Collection[str] | None  # the words to keep; None for all
    unique: bool  # whether a repeated word is an error
    kept: dict[str, int] = field(default_factory=dict)  # the words kept so far, with their rows
    rows: list[NDArray[np.float32]] = field(default_factory=list)  # their vectors, in blocks


def read_lines(pieces: Iterable[TextPiece], wanted: Wanted, *, header: bool) -> None:
    """Read all vectors of a text; `header` says whether its first line is word2vec's."""
    count, width, seen = 0, 0, 0
    end = ""
    for piece in whole_pieces(pieces, "\n"):
        lines = piece.text.split("\n")
        if header and not end:
            count, width = _read_header(piece, lines)
            lines[0] = " " * len(lines[0])  # blank, and as long as before for the places of errors
        width = width or _count_columns(piece, lines)
        if width:
            rows, read = _read_rows(piece, lines, width, wanted)
            wanted.rows.append(rows)
            seen += read
        end = piece.where(len(piece.text))
    if not seen:
        fix = "check that it was fetched whole"
        raise ReadError(end, "a word and its numbers", "the end of the file", fix)
    if header and seen != count:
        fix = "fetch it again, or pass format='glove' if the first line is a word and its number"
        raise ReadError(end, f"{count} words, as the first line says", f"{seen}", fix)


def _read_header(piece: TextPiece, lines: list[str]) -> tuple[int, int]:
    parts = lines[0].split()
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 16 for part in parts):
        expected = "word2vec's first line: how many words, and how many numbers each"
        raise ReadError(piece.where(0), expected, shorten(lines[0]), "or pass format='glove'")
    if int(parts[1]) < 1:
        raise ReadError(piece.where(0), "one number a word or more", parts[1], "or pass format='glove'")
    return int(parts[0]), int(parts[1])


def _read_rows(
    piece: TextPiece, lines: list[str], width: int, wanted: Wanted
) -> tuple[NDArray[np.float32], int]:
    values = array("f")
    numbers: list[int] = []  # of the lines that are kept
    words, kept = wanted.words, wanted.kept
    seen = 0
    for number, line in enumerate(lines):
        if not line.strip(" \r"):
            continue
        seen += 1
        word, fields = _split(line, width)
        if not word:
            raise _wrong_columns(piece, lines, number, width)
        if word in kept and wanted.unique:
            fix = "remove one line, or pass duplicates='first'"
            raise ReadError(_where(piece, lines, number), "each word once", f"{word!r} again", fix)
        if word in kept or (words is not None and word not in words):
            continue
        kept[word] = len(kept)
        numbers.append(number)
        try:
            values.extend(map(float, fields))
        except ValueError:
            raise _wrong_number(piece, lines, number, width) from None
    rows = np.frombuffer(values, np.float32).reshape(len(numbers), width)
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        raise _wrong_number(piece, lines, numbers[int(finite.argmin())], width)
    return rows, seen


def _split(line: str, width: int) -> tuple[str, list[str]]:
    """Return the line's word and its `width` other fields; no word if the columns are more or fewer."""
    word, *fields = line.rstrip(" \r").rsplit(" ", width)
    # A word may hold blanks, but one that ends in a number has taken a column too many.
    if len(fields) < width or (" " in word and is_number(word.rpartition(" ")[2])):
        return "", fields
    return word, fields


def is_number(field: str | bytes) -> bool:
    """Whether `float` reads a field."""
    try:
        float(field)
    except ValueError:
        return False
    return True


def _is_finite(field: str) -> bool:
    with np.errstate(over="ignore"):
        return is_number(field) and bool(np.isfinite(np.float32(float(field))))


def _where(piece: TextPiece, lines: list[str], number: int, column: int = 0) -> str:
    return piece.where(sum(len(line) + 1 for line in lines[:number]) + column)


def _count_columns(piece: TextPiece, lines: list[str]) -> int:
    """Return how many numbers the first line that is not blank ends with, or 0 where all are blank."""
    for number, line in enumerate(lines):
        parts = line.rstrip(" \r").split(" ")
        if parts == [""]:
            continue
        count = 0
        while count < len(parts) - 1 and is_number(parts[-1 - count]):
            count += 1
        if not count:
            fix = "give a file in GloVe's text format"
            raise ReadError(_where(piece, lines, number), "a word and numbers", shorten(line), fix)
        return count
    return 0


def _wrong_columns(piece: TextPiece, lines: list[str], number: int, width: int) -> ReadError:
    expected = f"a word and {width} numbers, as in the first line"
    columns = lines[number].rstrip(" \r").count(" ") + 1
    fix = "repair the line"
    if width == 1:
        fix += ", or remove the first line if it is word2vec's header"
    return ReadError(_where(piece, lines, number), expected, f"{columns} columns", fix)


def _wrong_number(piece: TextPiece, lines: list[str], number: int, width: int) -> ReadError:
    parts = lines[number].rstrip(" \r").rsplit(" ", width)
    place = next(i for i in range(1, len(parts)) if not _is_finite(parts[i]))
    column = len(" ".join(parts[:place])) + 1
    where = _where(piece, lines, number, column)
    return ReadError(
        where, "a finite number", shorten(parts[place]), "repair the line, with one blank a column"
    )


LONGEST_WORD = 4096  # bytes
_BINARY_HEADER = re.compile(rb"([0-9]{1,15}) ([0-9]{1,15})[ \r]*\n")
_CUT = "the file is cut off or no binary word2vec: fetch it again, or pass its format"


def read_binary(blocks: Iterator[bytes | Problem], name: str, wanted: Wanted) -> None:
    """Read all vectors of a binary file."""
    window = _Window(blocks, name)
    window.fill(64)
    header = _BINARY_HEADER.match(window.data)
    if not header or int(header[2]) < 1:
        expected = "word2vec's first line: how many words, and how many numbers each"
        found = shorten(window.data[:40].partition(b"\n")[0].decode("utf-8", "replace"))
        raise ReadError(window.where(), expected, found, "or pass another format")
    count, width = int(header[1]), int(header[2])
    window.at = header.end()
    kept, values, places = wanted.kept, bytearray(), []
    asked = None if wanted.words is None else {word.encode("utf-8", "surrogatepass") for word in wanted.words}
    for number in range(count):
        raw = window.word(f"word {number + 1} of {count}")
        begin = window.where(-len(raw) - 1)
        vector = window.take(4 * width)
        if asked is not None and raw not in asked:
            continue
        word = _decoded(raw, begin)
        if word in kept:
            if wanted.unique:
                fix = "pass duplicates='first'"
                raise ReadError(begin, "each word once", f"{word!r} again", fix)
            continue
        kept[word] = len(kept)
        values += vector
        places.append(begin)
    if not count:
        raise ReadError(window.where(), "a word or more", "none", "check that it was fetched whole")
    window.end(count)
    rows = np.frombuffer(values, "<f4").reshape(len(kept), width).astype(np.float32, copy=False)
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        row = int(finite.argmin())
        found = f"{rows[row][~np.isfinite(rows[row])][0]} for {list(kept)[row]!r}"
        raise ReadError(places[row], "finite numbers", found, "repair the file, or leave the word out")
    wanted.rows.append(rows)


def _decoded(raw: bytes, where: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        fix = "pass words= without it"
        raise ReadError(where, "a word in UTF-8", shorten(raw.decode("utf-8", "replace")), fix) from None


class _Window:
    def __init__(self, blocks: Iterator[bytes | Problem], name: str) -> None:
        self.blocks = blocks
        self.name = name
        self.data = b""
        self.at = 0  # what is read next, in `data`
        self.base = 0  # where `data` begins in the file

    def where(self, offset: int = 0) -> str:
        return f"{self.name}:byte {self.base + self.at + offset}"

    def fill(self, size: int) -> None:
        left = len(self.data) - self.at
        if left >= size:
            return
        parts = [self.data[self.at :]]
        for block in self.blocks:
            if not isinstance(block, bytes):
                raise ReadError(f"{self.name}:byte {self.base + self.at + left}", *block)
            parts.append(block)
            left += len(block)
            if left >= size:
                break
        self.data, self.base, self.at = b"".join(parts), self.base + self.at, 0

    def word(self, what: str) -> bytes:
        self.fill(LONGEST_WORD + 2)
        while self.data[self.at : self.at + 1] == b"\n":
            self.at += 1
        end = self.data.find(b" ", self.at, self.at + LONGEST_WORD + 1)
        if end <= self.at:
            found = "the end of the file" if self.at == len(self.data) else "none before a blank"
            raise ReadError(self.where(), what, found, _CUT)
        raw = self.data[self.at : end]
        self.at = end + 1
        return raw

    def take(self, size: int) -> bytes:
        self.fill(size)
        taken = self.data[self.at : self.at + size]
        if len(taken) < size:
            raise ReadError(self.where(), f"{size} bytes of numbers", f"{len(taken)}", _CUT)
        self.at += size
        return taken

    def end(self, count: int) -> None:
        self.fill(64)
        if self.data[self.at :].strip(b"\r\n"):
            fix = "the first line gives the number of words: correct it"
            raise ReadError(self.where(), f"the end of the file after {count} words", "more", fix)


Format = Literal["auto", "glove", "word2vec", "word2vec-binary"]
PEEK_BYTES = 1 << 16  # of a file, from which its format is guessed
_HEADER = re.compile(rb"(?:\xef\xbb\xbf)?[0-9]{1,15} ([0-9]{1,15})[ \r]*")


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """Words and their vectors: ``matrix: [n, d] float32``, row i belonging to ``words[i]``."""

    words: tuple[str, ...]
    matrix: NDArray[np.float32]


def read_vectors(
    path: str | os.PathLike[str],
    words: Collection[str] | None = None,
    duplicates: Literal["first", "error"] = "first",
    format: Format = "auto",
) -> Vectors:
    """Return the vectors of a file, plain or ``.gz``.

    Args:
        path: the file.
        words: keep only these, and do not parse the numbers of others. So memory is bounded by them.
        duplicates: whether of a repeated word the first is kept, or an error raised.
        format: "glove", lines of a word and its numbers, the first of which says how many; "word2vec",
            the same after a line with the number of words and of numbers; "word2vec-binary", where numbers
            are float32; or "auto": one of word2vec's if the first line is two whole numbers, and binary
            if the second line is not as many numbers as they say.

    Raises:
        BlockValueError: when `format` is none of these.
        ReadError: with ``file:line:column``, or ``file:byte N`` in a binary one: when a word has another
            number of columns, or something that is no finite float32; when there is no word, or another
            number of words than the first line says; or as `read_pieces`.
    """
    if format not in get_args(Format):
        choices = ", ".join(map(repr, get_args(Format)))
        found = with_nearest(format, get_args(Format))
        raise BlockValueError("read_vectors", f"format as one of {choices}", found, "pass one of them")
    name = os.fspath(path)
    wanted = Wanted(None if words is None else frozenset(words), duplicates == "error")
    blocks = read_blocks(name)
    if format == "auto":
        format, blocks = _guess(blocks)
    if format == "word2vec-binary":
        read_binary(blocks, name, wanted)
    else:
        read_lines(decoded_pieces(blocks, name), wanted, header=format == "word2vec")
    return Vectors(tuple(wanted.kept), np.concatenate(wanted.rows))


def _guess(blocks: Iterator[bytes | Problem]) -> tuple[Format, Iterator[bytes | Problem]]:
    taken: list[bytes | Problem] = []
    data = b""
    whole = True
    for block in blocks:
        taken.append(block)
        if not isinstance(block, bytes):
            break
        data += block
        if len(data) > PEEK_BYTES or data.count(b"\n") > 1:
            whole = False
            break
    first, _, rest = data.partition(b"\n")
    second, line_end, _ = rest.partition(b"\n")
    found = _HEADER.fullmatch(first)
    format: Format = "glove"
    if found:
        cut = not (line_end or whole)
        format = "word2vec" if _is_line(second, int(found[1]), cut=cut) else "word2vec-binary"
    return format, chain(taken, blocks)


def _is_line(line: bytes, width: int, *, cut: bool) -> bool:
    """Whether a line of bytes is a word and `width` numbers; of one that is cut off, the first ones."""
    fields = line.rstrip(b" \r").split(b" ")
    if cut:
        return len(fields) > 2 and all(map(is_number, fields[1:-1]))
    return len(fields) > width and all(map(is_number, fields[-width:]))


MOST = 20  # missing words that a report holds
SHOWN = 8  # and that it prints


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many words of a vocabulary have a vector; `str` says it in a few lines.

    >>> print(Coverage(8, 1, 1, ("loomy",), tokens=200, missing_tokens=5))
    9 of 10 words have a vector (90.0 %), 1 of them in lower case; 1 word has none.
    The words without a vector are 5 of 200 tokens (2.5 %).
    Missing: 'loomy'.
    """

    found: int  # words that were found as they stand
    lowered: int  # words that were found in lower case
    missing: int  # words that were not found
    # the first 20 missing words in the order of the vocabulary, which `Vocabulary.count` sorts by frequency;
    # with counts, the 20 most frequent ones
    most_missed: tuple[str, ...] = ()
    tokens: int = 0  # with counts, how often all words of the vocabulary occur; else 0
    missing_tokens: int = 0  # with counts, how often the missing words occur; else 0

    def __str__(self) -> str:
        covered, words = self.found + self.lowered, self.found + self.lowered + self.missing
        text = f"{covered:,} of {counted(words, 'word')} have a vector{_share(covered, words)}"
        text += f", {self.lowered:,} of them in lower case" if self.lowered else ""
        text += f"; {counted(self.missing, 'word')} ha{'s' if self.missing == 1 else 've'} none."
        if self.tokens:
            share = _share(self.missing_tokens, self.tokens)
            text += (
                "\nThe words without a vector are "
                f"{self.missing_tokens:,} of {counted(self.tokens, 'token')}{share}."
            )
        if self.most_missed:
            more = self.missing - len(self.most_missed[:SHOWN])
            text += f"\nMissing: {', '.join(map(shorten, self.most_missed[:SHOWN]))}"
            text += f" and {more:,} more." if more > 0 else "."
        return text


def _share(part: int, whole: int) -> str:
    return f" ({100 * part / whole:.1f} %)" if whole else ""


def embedding_matrix(
    vocabulary: Iterable[str],
    vectors: Vectors,
    seed: int | np.random.Generator = 0,
    scale: float = 0.05,
    counts: Mapping[str, int] | None = None,
) -> tuple[NDArray[np.float32], Coverage]:
    r"""Return the table of a vocabulary's vectors, and how many of its words have one.

    A word is looked up as it stands (treebank escapes undone: ``-LRB-`` is ``(``, ``-RRB-``
    is ``)``, ``\/`` is ``/``), then in lower case. A word without a vector gets numbers drawn
    evenly from -scale to scale, which depend on the seed and its row alone.

    Shapes: ``table: [len(vocabulary), d] float32``.

    Args:
        vocabulary: the words, in the order of the table's rows.
        vectors: words and their vectors.
        seed: of the numbers of missing words.
        scale: their largest absolute value.
        counts: how often each word occurs, for the report: ``collections.Counter(tokens)``.

    >>> vectors = Vectors(("film", "("), np.ones((2, 3), "float32"))
    >>> table, coverage = embedding_matrix(["<unk>", "Film", "-LRB-"], vectors)
    >>> table.shape
    (3, 3)
    >>> coverage
    Coverage(found=1, lowered=1, missing=1, most_missed=('<unk>',), tokens=0, missing_tokens=0)
    """
    words = list(vocabulary)
    row_of = {word: row for row, word in reversed(list(enumerate(vectors.words)))}
    found: list[tuple[int, int]] = []
    lowered: list[tuple[int, int]] = []
    missing: list[str] = []
    for row, word in enumerate(words):
        plain = unescape(word)
        if (source := row_of.get(word, row_of.get(plain))) is not None:
            found.append((row, source))
        elif (source := row_of.get(word.lower(), row_of.get(plain.lower()))) is not None:
            lowered.append((row, source))
        else:
            missing.append(word)
    shape = len(words), vectors.matrix.shape[1]
    table = np.random.default_rng(seed).uniform(-scale, scale, shape).astype(np.float32)
    for pairs in (found, lowered):
        rows, sources = np.array(pairs, np.int64).reshape(-1, 2).T
        table[rows] = vectors.matrix[sources]
    times = counts or {}
    most = sorted(missing, key=lambda word: -times.get(word, 0))[
        :MOST
    ]  # stable: keeps the vocabulary's order
    tokens, missing_tokens = (sum(times.get(word, 0) for word in part) for part in (words, missing))
    coverage = Coverage(len(found), len(lowered), len(missing), tuple(most), tokens, missing_tokens)
    return table, coverage
