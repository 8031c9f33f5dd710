"""Text from files, in pieces that know where they lie, so that readers can name line and column."""

import codecs
import gzip
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from foldbatch.errors import ReadError
from foldbatch.system.files import refuse_endless
from foldbatch.types import describe_value

BLOCK_BYTES = 1 << 18
_BOM = "\ufeff"
Problem = tuple[str, str, str]  # of reading: what was expected and found, and how to fix it


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A stretch of text, with the line and column (both from 1, in characters) of its beginning."""

    text: str
    name: str
    line: int
    column: int

    def place(self, offset: int) -> tuple[int, int]:
        """Return the line and column of the character at `offset`."""
        line_start = self.text.rfind("\n", 0, offset)
        if line_start < 0:
            return self.line, self.column + offset
        return self.line + self.text.count("\n", 0, offset), offset - line_start

    def where(self, offset: int) -> str:
        r"""Return the place of the character at `offset` as ``name:line:column``.

        >>> TextPiece("one\ntwo", "notes.txt", 1, 1).where(5)
        'notes.txt:2:2'
        """
        line, column = self.place(offset)
        return f"{self.name}:{line}:{column}"


def shorten(text: str) -> str:
    """Return the repr of a piece of user data, cut at 40 characters, for error messages."""
    return repr(text) if len(text) <= 40 else f"{text[:37]!r}..."


def read_pieces(path_or_lines: str | os.PathLike[str] | Iterable[str]) -> Iterator[TextPiece]:
    """Yield the text of a file, or of an iterable of lines: one piece at least, perhaps empty.

    A byte order mark at the very beginning is dropped. A path that ends in ``.gz`` is unpacked.
    A line of an iterable may lack its line end.
    """
    if isinstance(path_or_lines, str | os.PathLike):
        path = os.fspath(path_or_lines)
        if "\n" in path and not os.path.exists(path):  # noqa: PTH110 - quiet on any string
            fix = "give the lines of a text: text.splitlines()"
            raise ReadError("text", "a path or lines", f"the text {shorten(path)}", fix)
        return _place(_decode(_read_blocks(path)), path)
    given: object = path_or_lines
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise ReadError("text", "a path or lines", describe_value(given), "give a str or a list of str")
    return _place(_take_lines(path_or_lines), str(getattr(path_or_lines, "name", "lines")))


def text_pieces(text: str, name: str = "text", line: int = 1) -> Iterator[TextPiece]:
    """Yield one string, which begins at a line, as pieces, checked as a file's text is."""
    if not isinstance(text, str):
        raise ReadError(name, "a str", describe_value(text), "read a file with read_brackets")
    return _place([(text, None)], name, line)


def whole_pieces(pieces: Iterable[TextPiece], ends: str) -> Iterator[TextPiece]:
    """Regroup pieces so that each, but perhaps the last, ends with a character of `ends`.

    >>> pieces = TextPiece("ab c", "x", 1, 1), TextPiece("d e", "x", 1, 5)
    >>> [piece.text for piece in whole_pieces(pieces, " ")]
    ['ab ', 'cd ', 'e']
    """
    pending: list[TextPiece] = []
    for piece in pieces:
        cut = 1 + max(piece.text.rfind(end) for end in ends)
        if not cut:
            pending.append(piece)
            continue
        line, column = piece.place(cut)
        yield _join([*pending, TextPiece(piece.text[:cut], piece.name, piece.line, piece.column)])
        tail = piece.text[cut:]
        pending = [TextPiece(tail, piece.name, line, column)] if tail else []
    if pending:
        yield _join(pending)


def _join(pieces: list[TextPiece]) -> TextPiece:
    if len(pieces) == 1:
        return pieces[0]
    first = pieces[0]
    return TextPiece("".join(piece.text for piece in pieces), first.name, first.line, first.column)


def _open(path: str) -> IO[bytes]:
    refuse_endless(path)
    try:
        return open(path, "rb")  # noqa: PTH123 - a path may be any text
    except IsADirectoryError:
        raise ReadError(path, "a file", "a folder", "name one file in it") from None
    except FileNotFoundError:
        raise ReadError(path, "a file", "nothing of that name", f"check the path from {Path.cwd()}") from None
    except (OSError, ValueError) as error:
        raise ReadError(path, "a readable file", str(error), "check its path and permissions") from None


def _read_blocks(path: str) -> Iterator[bytes | Problem]:
    """Yield the bytes of a file, unpacked if its name ends in ``.gz``; a problem of reading comes last."""
    with _open(path) as file:
        source: IO[bytes] = gzip.GzipFile(fileobj=file) if path.endswith(".gz") else file  # type: ignore[assignment]
        while True:
            try:
                block = source.read(BLOCK_BYTES)
            except (OSError, EOFError, zlib.error) as error:
                yield "a readable file", f"{type(error).__name__}: {error}", _fix_of(error)
                return
            if not block:
                return
            yield block


def _fix_of(error: Exception) -> str:
    if isinstance(error, gzip.BadGzipFile):
        return "pack it with gzip, or drop .gz from its name"
    if isinstance(error, EOFError | zlib.error):
        return "the file is cut off or damaged: fetch it again"
    return "check the disk"


def _decode(blocks: Iterable[bytes | Problem]) -> Iterator[tuple[str, Problem | None]]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    problem: Problem | None = None
    try:
        for block in blocks:
            if isinstance(block, bytes):
                yield decoder.decode(block), None
            else:
                problem = block
        if problem is None:
            decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        data = bytes(error.object)
        found = f"the byte 0x{data[error.start]:02x} ({error.reason})"
        problem = ("UTF-8 text", found, "save the file as UTF-8")
        yield data[: error.start].decode("utf-8"), problem
        return
    if problem is not None:
        yield "", problem


def _take_lines(lines: Iterable[str]) -> Iterator[tuple[str, Problem | None]]:
    for line in lines:
        if not isinstance(line, str):
            yield "", ("a line of text", describe_value(line), "open the file as text, with encoding='utf-8'")
            return
        yield line if line.endswith("\n") else line + "\n", None


def _place(texts: Iterable[tuple[str, Problem | None]], name: str, line: int = 1) -> Iterator[TextPiece]:
    column, begun = 1, False
    for raw, problem in texts:
        text = raw if begun else raw.removeprefix(_BOM)
        begun = begun or bool(raw)
        nul = text.find("\0")
        piece = TextPiece(text if nul < 0 else text[:nul], name, line, column)
        if piece.text:
            yield piece
        end = piece.where(len(piece.text))
        if nul >= 0:
            raise ReadError(end, "text", "a NUL byte", "save the file as UTF-8 text, or remove the byte")
        if problem is not None:
            raise ReadError(end, *problem)
        line, column = piece.place(len(text))
    if not begun:
        yield TextPiece("", name, line, column)
