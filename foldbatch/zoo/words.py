"""Words: what stands in the nodes of trees, as vectors."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from foldbatch import blocks as fb
from foldbatch.blocks.block import Block
from foldbatch.blocks.purity import pure
from foldbatch.errors import BlockValueError
from foldbatch.trees.objects import words_from
from foldbatch.trees.vocabulary import Vocabulary

SUBWORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """A vocabulary, and how its words become vectors.

    Raises:
        BlockValueError: when `vectors` is no table of that shape, `split` is another word, or words are
            looked up in `lower` case and the vocabulary has others.
    """

    vocabulary: Vocabulary  # the words; any other word is its number 0
    size: int = 100  # extent of a vector
    # the table that the vectors start from, ``[len(vocabulary), size]``; random by default
    vectors: NDArray[np.float32] | None = None
    trainable: bool = True  # whether training changes the table
    dropout: float = 0.0  # the share of a vector's elements that is dropped while training
    # ``whole`` words, or ``subwords``: ``readLine`` is the sum of read and line
    split: Literal["whole", "subwords"] = "whole"
    # of the random table's numbers, a standard deviation; by default as of `Embedding`
    spread: float | None = None
    lower: bool = False  # whether words are looked up in lower case, so that ``The`` is ``the``

    def __post_init__(self) -> None:
        expected = (len(self.vocabulary), self.size)
        if self.vectors is not None and self.vectors.shape != expected:
            fix = "make the table with foldbatch.trees.embedding_matrix, and give its width as size"
            raise BlockValueError("Words", f"vectors of shape {expected}", str(self.vectors.shape), fix)
        if self.split not in ("whole", "subwords"):
            raise BlockValueError("Words", "split whole or subwords", repr(self.split), "choose one of them")
        unreachable = next((word for word in self.vocabulary.words[1:] if word != word.lower()), None)
        if self.lower and unreachable is not None:
            fix = "count words in lower case, or leave lower out"
            raise BlockValueError("Words", "a vocabulary in lower case", repr(unreachable), fix)

    def initial(self) -> Any:
        """Return the initial values of a random table."""
        return "uniform" if self.spread is None else partial(normal, spread=self.spread)


@pure
def subwords(token: str | None) -> tuple[str, ...]:
    """Split an identifier into its words.

    >>> subwords("readLine2"), subwords("read_line"), subwords(None)
    (('read', 'line', '2'), ('read', 'line'), ())
    """
    return () if token is None else tuple(word.lower() for word in SUBWORD.findall(token))


@pure
def lowered(token: str | None) -> str | None:
    """Return a word in lower case; None, where there is none.

    >>> lowered("The"), lowered(None)
    ('the', None)
    """
    return None if token is None else token.lower()


@pure
def words_of(text: Any) -> tuple[str, ...]:
    """Return the words of a tree or an object that holds one, of a list, or of a string between blanks.

    >>> words_of("a fine film"), words_of(["a", "film"])
    (('a', 'fine', 'film'), ('a', 'film'))
    """
    if isinstance(text, str):
        return tuple(text.split())
    words = words_from(text)
    return tuple(text) if words is None else words


@pure
def reversed_words_of(text: object) -> tuple[str, ...]:
    """Return the words that `words_of` returns, the last one first."""
    return words_of(text)[::-1]


@pure
def name_of(label: object) -> str:
    """Return the name of a node's kind: its label as text, empty where there is none."""
    return "" if label is None else str(label)


def normal(generator: np.random.Generator, shape: Sequence[int], spread: float) -> NDArray[np.float64]:
    """Return random numbers around 0 with a standard deviation."""
    return generator.normal(0.0, spread, tuple(shape))


def word_vector(words: Words) -> Block[Any, Any]:
    """Return a block from a word, a str, to its vector ``[size]``."""
    row = words_to_rows(words.vocabulary, word_table(words), words.dropout)
    return fb.InputTransform(lowered) >> row if words.lower else row


def leaf_vector(words: Words) -> Block[Any, Any]:
    """Return a block from a leaf to the vector of its token; one without a token is an unknown word."""
    return fb.GetItem("token") >> word_vector(words)


def token_vector(words: Words) -> Block[Any, Any]:
    """Return a block from a node to the vector of its token; zeros where there is no token."""
    if words.split == "subwords":
        table = word_table(words)
        subword_vector = words_to_rows(words.vocabulary, table, words.dropout)
        return fb.GetItem("token") >> fb.InputTransform(subwords) >> fb.Map(subword_vector) >> fb.Sum()
    return fb.GetItem("token") >> fb.Optional(word_vector(words))


def word_table(words: Words) -> fb.Embedding:
    """Return the table of the words' vectors, a layer called ``words``."""
    init = words.initial() if words.vectors is None else words.vectors
    return fb.Embedding(len(words.vocabulary), words.size, init, trainable=words.trainable, name="words")


def words_to_rows(vocabulary: Vocabulary, table: fb.Embedding, dropout: float) -> Block[Any, Any]:
    """Return a block from a str to its row of a table."""
    row = fb.InputTransform(vocabulary.__getitem__) >> fb.Scalar("int32") >> table
    return row >> fb.Dropout(dropout) if dropout else row
