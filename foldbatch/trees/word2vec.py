"""Word vectors in word2vec's binary format.

In come blocks of bytes, out come the words and their vectors. After a line of text with the number of words
and of numbers, each word is its bytes, a blank, and its numbers as little-endian float32; a line end may
stand before a word. One block and one word are held at a time.

Source: the C program of word2vec (Mikolov et al. 2013).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from foldbatch.errors import ReadError
from foldbatch.trees.text import Problem, shorten
from foldbatch.trees.vector_lines import Wanted

LONGEST_WORD = 4096  # bytes
_HEADER = re.compile(rb"([0-9]{1,15}) ([0-9]{1,15})[ \r]*\n")
_CUT = "the file is cut off or no binary word2vec: fetch it again, or pass its format"


def read_binary(blocks: Iterator[bytes | Problem], name: str, wanted: Wanted) -> None:
    """Read all vectors of a binary file.

    Raises:
        ReadError: with ``file:byte N``; see `read_vectors`.
    """
    window = _Window(blocks, name)
    window.fill(64)
    header = _HEADER.match(window.data)
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
    """The bytes of a file from the place that is read on."""

    def __init__(self, blocks: Iterator[bytes | Problem], name: str) -> None:
        self.blocks = blocks
        self.name = name
        self.data = b""
        self.at = 0  # what is read next, in `data`
        self.base = 0  # where `data` begins in the file

    def where(self, offset: int = 0) -> str:
        """Return the place of what is read next."""
        return f"{self.name}:byte {self.base + self.at + offset}"

    def fill(self, size: int) -> None:
        """Have `size` bytes to read, or all that are left."""
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
        """Return the bytes up to the next blank."""
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
        """Return the next `size` bytes."""
        self.fill(size)
        taken = self.data[self.at : self.at + size]
        if len(taken) < size:
            raise ReadError(self.where(), f"{size} bytes of numbers", f"{len(taken)}", _CUT)
        self.at += size
        return taken

    def end(self, count: int) -> None:
        """Raise unless nothing but line ends is left.

        Raises:
            ReadError: when there is more.
        """
        self.fill(64)
        if self.data[self.at :].strip(b"\r\n"):
            fix = "the first line gives the number of words: correct it"
            raise ReadError(self.where(), f"the end of the file after {count} words", "more", fix)
