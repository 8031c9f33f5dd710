"""Word vectors from files, and the embedding table that they make for a vocabulary.

Sources: GloVe (Pennington, Socher and Manning 2014); word2vec (Mikolov et al. 2013), whose text begins with a
line of how many words there are and how many numbers each has.
"""

import os
import re
from array import array
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import ReadError, counted
from foldbatch.trees.brackets import unescape
from foldbatch.trees.text import read_pieces, shorten

_HEADER = re.compile(r"([0-9]{1,15}) ([1-9][0-9]{0,14})")  # word2vec's first line


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """Words and their vectors: ``matrix: [n, d] float32``, row i belonging to ``words[i]``."""

    words: tuple[str, ...]
    matrix: NDArray[np.float32]


def read_vectors(
    path: str | os.PathLike[str] | Iterable[str], words: Collection[str] | None = None
) -> Vectors:
    """Return the vectors of a text file, plain or ``.gz``: lines of a word and its numbers, as GloVe's.

    Blanks or tabs stand between columns. A word may hold blanks.

    A first line of two whole numbers is word2vec's: of words, and of numbers each. Of a repeated word the
    first is kept.

    Args:
        path: the file, or its lines.
        words: keep only these, and do not parse the numbers of others. So memory is bounded by them.

    Raises:
        ReadError: with ``file:line:column``: when a word has another number of columns, or something that is
            no finite float32; when there is no word, or another number of words than the first line says; or
            when the file cannot be read.
    """
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else "lines"
    asked = None if words is None else frozenset(words)
    lines_of: dict[str, int] = {}  # the line of each word that is kept
    values, width, seen, end = array("f"), 0, 0, ""
    promised: int | None = None
    for piece in read_pieces(path):
        for number, line in piece.lines():
            text = line.rstrip(" \t\r")
            if not text.strip():
                continue
            if not width:
                if header := _HEADER.fullmatch(text):
                    promised, width = int(header[1]), int(header[2])
                    continue
                width = _width(text.replace("\t", " "), f"{name}:{number}:1")
            seen += 1
            blanks = text.replace("\t", " ")
            word, *fields = blanks.rsplit(" ", width)
            # a word may hold blanks, but one that ends in a number has taken a column too many
            if len(fields) < width or not word or (" " in word and _is_number(word.rpartition(" ")[2])):
                expected = f"a word and {width} numbers, as in the first line"
                columns = blanks.count(" ") + 1
                raise ReadError(f"{name}:{number}:1", expected, f"{columns} columns", "repair the line")
            word = text[: len(word)]
            word = word.rstrip(" \t") or word  # columns may be aligned; a word of blanks alone is one
            if word in lines_of or (asked is not None and word not in asked):
                continue
            if "_" in text and any("_" in field for field in fields):  # Python reads 1_0 as ten
                fix = "write numbers without underscores"
                raise ReadError(f"{name}:{number}:1", "numbers", shorten(" ".join(fields)), fix)
            lines_of[word] = number
            try:
                values.extend(map(float, fields))
            except ValueError as error:
                fix = "repair the line, with one blank a column"
                raise ReadError(f"{name}:{number}:1", "numbers", str(error), fix) from None
        end = piece.where(len(piece.text))
    if not seen:
        fix = "check that it was fetched whole"
        raise ReadError(end, "a word and its numbers", "the end of the file", fix)
    if promised is not None and seen != promised:
        raise ReadError(end, f"{promised} words, as the first line says", f"{seen}", "fetch it again")
    matrix = np.frombuffer(values, np.float32).reshape(len(lines_of), width)
    finite = np.isfinite(matrix).all(axis=1)
    if not finite.all():
        row = int(finite.argmin())
        word, at = list(lines_of.items())[row]
        wrong = f"{matrix[row][~np.isfinite(matrix[row])][0]} for {shorten(word)}"
        raise ReadError(f"{name}:{at}:1", "finite numbers", wrong, "repair the line, or leave the word out")
    return Vectors(tuple(lines_of), matrix)


def _width(text: str, where: str) -> int:
    """Return how many numbers end a line of word vectors; refuse a line without any."""
    parts = text.split(" ")
    count = 0
    while count < len(parts) - 1 and _is_number(parts[-1 - count]):
        count += 1
    if not count:
        fix = "give a file in GloVe's or word2vec's text format"
        raise ReadError(where, "a word and numbers", shorten(text), fix)
    return count


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


MAX_MISSED = 20  # missing words that a report holds
SHOWN_MISSED = 8  # and that it prints


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many words of a vocabulary have a vector; `str` says it in a few lines.

    >>> print(Coverage(8, 1, 1, ("loomy",)))
    9 of 10 words have a vector (90.0 %), 1 of them in lower case; 1 word has none.
    Missing: 'loomy'.
    """

    found: int  # words that were found as they stand
    lowered: int  # words that were found in lower case
    missing: int  # words that were not found
    # the first 20 missing words in the order of the vocabulary, which `Vocabulary.count` sorts by frequency
    most_missed: tuple[str, ...] = ()

    def __str__(self) -> str:
        covered, words = self.found + self.lowered, self.found + self.lowered + self.missing
        text = f"{covered:,} of {counted(words, 'word')} have a vector"
        text += f" ({100 * covered / words:.1f} %)" if words else ""
        text += f", {self.lowered:,} of them in lower case" if self.lowered else ""
        text += f"; {counted(self.missing, 'word')} ha{'s' if self.missing == 1 else 've'} none."
        if self.most_missed:
            unlisted = self.missing - len(self.most_missed[:SHOWN_MISSED])
            text += f"\nMissing: {', '.join(map(shorten, self.most_missed[:SHOWN_MISSED]))}"
            text += f" and {unlisted:,} more." if unlisted > 0 else "."
        return text


def embedding_matrix(
    vocabulary: Iterable[str], vectors: Vectors, seed: int | np.random.Generator = 0, scale: float = 0.05
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

    >>> vectors = Vectors(("film", "("), np.ones((2, 3), "float32"))
    >>> table, coverage = embedding_matrix(["<unk>", "Film", "-LRB-"], vectors)
    >>> table.shape
    (3, 3)
    >>> coverage
    Coverage(found=1, lowered=1, missing=1, most_missed=('<unk>',))
    """
    words = list(vocabulary)
    row_of = {word: row for row, word in reversed(list(enumerate(vectors.words)))}
    exact: list[tuple[int, int]] = []
    lowered: list[tuple[int, int]] = []
    missing: list[str] = []
    for row, word in enumerate(words):
        plain = unescape(word)
        if (source := row_of.get(word, row_of.get(plain))) is not None:
            exact.append((row, source))
        elif (source := row_of.get(word.lower(), row_of.get(plain.lower()))) is not None:
            lowered.append((row, source))
        else:
            missing.append(word)
    shape = len(words), vectors.matrix.shape[1]
    table = np.random.default_rng(seed).uniform(-scale, scale, shape).astype(np.float32)
    for pairs in (exact, lowered):
        rows, sources = np.array(pairs, np.int64).reshape(-1, 2).T
        table[rows] = vectors.matrix[sources]
    coverage = Coverage(len(exact), len(lowered), len(missing), tuple(missing[:MAX_MISSED]))
    return table, coverage
