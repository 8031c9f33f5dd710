"""Lines of text ``word number number ...``: word vectors of GloVe, and of word2vec's text format.

In come pieces of text, out come the words and their vectors. Columns are split at plain blanks, from the
right: words may hold any other character. The numbers of words that nobody asked for are not parsed.

Source: the format is that of GloVe (Pennington, Socher and Manning 2014). That of word2vec (Mikolov et al.
2013) has a first line before it: how many words there are, and how many numbers each has.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import ReadError
from foldbatch.trees.text import Piece, shorten, whole_pieces


@dataclass(slots=True)
class Wanted:
    """What to keep of a file of vectors, and what has been kept.

    Attributes:
        words: the words to keep; None for all.
        unique: whether a repeated word is an error.
        kept: the words kept so far, with their rows.
        rows: their vectors, in blocks.
    """

    words: Collection[str] | None
    unique: bool
    kept: dict[str, int] = field(default_factory=dict)
    rows: list[NDArray[np.float32]] = field(default_factory=list)


def read_lines(pieces: Iterable[Piece], wanted: Wanted, *, header: bool) -> None:
    """Read all vectors of a text; `header` says whether its first line is word2vec's.

    Raises:
        ReadError: with ``file:line:column``; see `read_vectors`.
    """
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


def _read_header(piece: Piece, lines: list[str]) -> tuple[int, int]:
    parts = lines[0].split()
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) < 16 for part in parts):
        expected = "word2vec's first line: how many words, and how many numbers each"
        raise ReadError(piece.where(0), expected, shorten(lines[0]), "or pass format='glove'")
    if int(parts[1]) < 1:
        raise ReadError(piece.where(0), "one number a word or more", parts[1], "or pass format='glove'")
    return int(parts[0]), int(parts[1])


def _read_rows(piece: Piece, lines: list[str], width: int, wanted: Wanted) -> tuple[NDArray[np.float32], int]:
    """Return the vectors of a piece's lines, and how many lines hold one; number the words kept."""
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


def _where(piece: Piece, lines: list[str], number: int, column: int = 0) -> str:
    return piece.where(sum(len(line) + 1 for line in lines[:number]) + column)


def _count_columns(piece: Piece, lines: list[str]) -> int:
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


def _wrong_columns(piece: Piece, lines: list[str], number: int, width: int) -> ReadError:
    expected = f"a word and {width} numbers, as in the first line"
    columns = lines[number].rstrip(" \r").count(" ") + 1
    fix = "repair the line"
    if width == 1:
        fix += ", or remove the first line if it is word2vec's header"
    return ReadError(_where(piece, lines, number), expected, f"{columns} columns", fix)


def _wrong_number(piece: Piece, lines: list[str], number: int, width: int) -> ReadError:
    parts = lines[number].rstrip(" \r").rsplit(" ", width)
    place = next(i for i in range(1, len(parts)) if not _is_finite(parts[i]))
    column = len(" ".join(parts[:place])) + 1
    where = _where(piece, lines, number, column)
    return ReadError(
        where, "a finite number", shorten(parts[place]), "repair the line, with one blank a column"
    )
