"""Word vectors: a reader for GloVe's text format, and embedding tables made of them.

In comes a file of lines ``word number number ...``, plain or ``.gz``, out comes a matrix; or a
vocabulary and such vectors go in, and the table that an embedding starts from comes out.
Columns are split at plain blanks, from the right: words may hold any other character.

Source: the format is that of GloVe (Pennington, Socher and Manning 2014).
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import ReadError
from foldbatch.trees.brackets import unescape
from foldbatch.trees.text import Piece, read_pieces, shorten, whole_pieces


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """Words and their vectors: ``matrix: [n, d] float32``, row i belonging to ``words[i]``."""

    words: tuple[str, ...]
    matrix: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many words of a vocabulary were found as they stand, found in lower case, or not found."""

    found: int
    lowered: int
    missing: int


def read_vectors(
    path: str | os.PathLike[str],
    words: Collection[str] | None = None,
    duplicates: Literal["first", "error"] = "first",
) -> Vectors:
    """Return the vectors of a file in GloVe's text format, plain or ``.gz``.

    Args:
        path: the file; its first line says how many columns there are.
        words: keep only these, and do not parse the numbers of others.
        duplicates: whether of a repeated word the first is kept, or an error raised.

    Raises:
        ReadError: with ``file:line:column``, when a line has another number of columns or
            something that is no finite float32, when there is no line, or as `read_pieces`.
    """
    keep = None if words is None else frozenset(words)
    kept: dict[str, int] = {}
    rows: list[NDArray[np.float32]] = []
    width = 0
    piece = Piece("", os.fspath(path), 1, 1)
    for piece in whole_pieces(read_pieces(path), "\n"):
        lines = piece.text.split("\n")
        width = width or _count_columns(piece, lines)
        if width:
            rows.append(_read_rows(piece, lines, width, keep, kept, unique=duplicates == "error"))
    if not width:
        end = piece.where(len(piece.text))
        fix = "check that it was fetched whole"
        raise ReadError(end, "a word and its numbers", "the end of the file", fix)
    return Vectors(tuple(kept), np.concatenate(rows))


def _read_rows(
    piece: Piece,
    lines: list[str],
    width: int,
    keep: Collection[str] | None,
    kept: dict[str, int],
    *,
    unique: bool,
) -> NDArray[np.float32]:
    """Return the vectors of a piece's lines, and number their words in `kept`."""
    values = array("f")
    numbers: list[int] = []  # of the lines that are kept
    for number, line in enumerate(lines):
        if not line.strip(" \r"):
            continue
        word, fields = _split(line, width)
        if not word:
            raise _wrong_columns(piece, lines, number, width)
        if word in kept and unique:
            fix = "remove one line, or pass duplicates='first'"
            raise ReadError(_where(piece, lines, number), "each word once", f"{word!r} again", fix)
        if word in kept or (keep is not None and word not in keep):
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
    return rows


def _split(line: str, width: int) -> tuple[str, list[str]]:
    """Return the line's word and its `width` other fields; no word if the columns are more or fewer."""
    word, *fields = line.rstrip(" \r").rsplit(" ", width)
    # A word may hold blanks, but one that ends in a number has taken a column too many.
    if len(fields) < width or (" " in word and _is_number(word.rpartition(" ")[2])):
        return "", fields
    return word, fields


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _is_finite(field: str) -> bool:
    with np.errstate(over="ignore"):
        return _is_number(field) and bool(np.isfinite(np.float32(float(field))))


def _where(piece: Piece, lines: list[str], number: int, column: int = 0) -> str:
    return piece.where(sum(len(line) + 1 for line in lines[:number]) + column)


def _count_columns(piece: Piece, lines: list[str]) -> int:
    """Return how many numbers the first line that is not blank ends with, or 0 where all are blank."""
    for number, line in enumerate(lines):
        parts = line.rstrip(" \r").split(" ")
        if parts == [""]:
            continue
        count = 0
        while count < len(parts) - 1 and _is_number(parts[-1 - count]):
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


def embedding_matrix(
    vocabulary: Iterable[str],
    vectors: Vectors,
    seed: int | np.random.Generator = 0,
    scale: float = 0.05,
) -> tuple[NDArray[np.float32], Coverage]:
    r"""Return the table of a vocabulary's vectors, and how many of its words have one.

    A word is looked up as it stands (treebank escapes undone: ``-LRB-`` is ``(``, ``-RRB-``
    is ``)``, ``\/`` is ``/``), then in lower case. A word without a vector gets numbers drawn
    evenly from -scale to scale, which depend on the seed and its row alone.

    Shapes: ``table: [len(vocabulary), d] float32``.

    >>> vectors = Vectors(("film", "("), np.ones((2, 3), "float32"))
    >>> table, coverage = embedding_matrix(["<unk>", "Film", "-LRB-"], vectors)
    >>> table.shape, coverage
    ((3, 3), Coverage(found=1, lowered=1, missing=1))
    """
    words = list(vocabulary)
    row_of = {word: row for row, word in reversed(list(enumerate(vectors.words)))}
    found: list[tuple[int, int]] = []
    lowered: list[tuple[int, int]] = []
    for row, word in enumerate(words):
        plain = unescape(word)
        if (source := row_of.get(word, row_of.get(plain))) is not None:
            found.append((row, source))
        elif (source := row_of.get(word.lower(), row_of.get(plain.lower()))) is not None:
            lowered.append((row, source))
    shape = len(words), vectors.matrix.shape[1]
    table = np.random.default_rng(seed).uniform(-scale, scale, shape).astype(np.float32)
    for pairs in (found, lowered):
        rows, sources = np.array(pairs, np.int64).reshape(-1, 2).T
        table[rows] = vectors.matrix[sources]
    return table, Coverage(len(found), len(lowered), len(words) - len(found) - len(lowered))
