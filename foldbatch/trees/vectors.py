"""Word vectors from files: GloVe's format, and word2vec's as text or binary; plain or ``.gz``.

In comes a path, out comes a matrix. Files are read block by block, so that only what is kept needs memory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import BlockValueError, with_nearest
from foldbatch.trees.text import Problem, decoded_pieces, read_blocks
from foldbatch.trees.vector_lines import Wanted, is_number, read_lines
from foldbatch.trees.word2vec import read_binary

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
    """Return the format of a file, and its blocks from the beginning."""
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
