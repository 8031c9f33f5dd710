"""The table that an embedding starts from, made of a vocabulary and word vectors; and what it covers.

In come words and vectors, out come a matrix and a report on the words that have no vector.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import counted
from foldbatch.trees.brackets import unescape
from foldbatch.trees.text import shorten
from foldbatch.trees.vectors import Vectors

MOST = 20  # missing words that a report holds
SHOWN = 8  # and that it prints


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many words of a vocabulary have a vector; `str` says it in a few lines.

    Attributes:
        found: words that were found as they stand.
        lowered: words that were found in lower case.
        missing: words that were not found.
        most_missed: the first 20 missing words in the order of the vocabulary, which `Vocabulary.count`
            sorts by frequency; with counts, the 20 most frequent ones.
        tokens: with counts, how often all words of the vocabulary occur; else 0.
        missing_tokens: with counts, how often the missing words occur; else 0.

    >>> print(Coverage(8, 1, 1, ("loomy",), tokens=200, missing_tokens=5))
    9 of 10 words have a vector (90.0 %), 1 of them in lower case; 1 word has none.
    The words without a vector are 5 of 200 tokens (2.5 %).
    Missing: 'loomy'.
    """

    found: int
    lowered: int
    missing: int
    most_missed: tuple[str, ...] = ()
    tokens: int = 0
    missing_tokens: int = 0

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
