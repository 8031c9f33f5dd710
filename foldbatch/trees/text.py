"""Text from files, whole lines that know where they lie, so that readers can name line and column."""

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
NEW_LINE = "\n"
BYTE_ORDER_MARK = "\ufeff"
Problem = tuple[str, str, str]  # of reading: what was expected and found, and how to fix it


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Whole lines of a text, with the number of the first, counted from 1."""

    text: str
    name: str
    line: int

    def where(self, offset: int) -> str:
        r"""Return the place of the character at `offset` as ``name:line:column``.

        >>> TextPiece("one\ntwo", "notes.txt", 1).where(5)
        'notes.txt:2:2'
        """
        line = self.line + self.text.count(NEW_LINE, 0, offset)
        return f"{self.name}:{line}:{offset - self.text.rfind(NEW_LINE, 0, offset)}"

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the lines without their ends, each with its number."""
        return enumerate(self.text.removesuffix(NEW_LINE).split(NEW_LINE), self.line)


class CountedLines:
    r"""Lines of a text, which know at which line the example begins that a reader yields next.

    >>> lines = CountedLines(["a\n", "\n", "b\n"], "notes.txt")
    >>> [(line, lines.place()) for line in lines]
    [('a\n', 'notes.txt:1'), ('\n', 'notes.txt:2'), ('b\n', 'notes.txt:3')]
    """

    def __init__(self, lines: Iterable[str], name: str) -> None:
        self.name = name
        self._lines = lines
        self._number = 0  # of the last line that was read
        self._begin = 0  # of the first line, of what was read since an example was taken, that is not blank

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self._number += 1
            if not self._begin and not line.isspace():
                self._begin = self._number
            yield line

    def place(self) -> str:
        """Return ``name:line`` of the example that has just been yielded."""
        line = self._begin or self._number
        self._begin = 0
        return f"{self.name}:{max(line, 1)}"


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
        return _placed(_read(path), path)
    source: object = path_or_lines
    if isinstance(source, bytes) or not isinstance(source, Iterable):
        raise ReadError("text", "a path or lines", describe_value(source), "give a str or a list of str")
    return _placed(_from_lines(path_or_lines), str(getattr(path_or_lines, "name", "lines")))


def text_pieces(text: str, name: str = "text", line: int = 1) -> Iterator[TextPiece]:
    """Yield one string, which begins at a line, as pieces, checked as a file's text is."""
    if not isinstance(text, str):
        raise ReadError(name, "a str", describe_value(text), "read a file with read_brackets")
    return _placed([text], name, line)


def _open(path: str) -> IO[bytes]:
    """Open a file of bytes; raise a ReadError where there is none, or it is endless."""
    refuse_endless(path)
    try:
        return open(path, "rb")  # noqa: PTH123 - a path may be any text
    except IsADirectoryError:
        raise ReadError(path, "a file", "a folder", "name one file in it") from None
    except FileNotFoundError:
        raise ReadError(path, "a file", "nothing of that name", f"check the path from {Path.cwd()}") from None
    except (OSError, ValueError) as error:
        raise ReadError(path, "a readable file", str(error), "check its path and permissions") from None


def _read(path: str) -> Iterator[bytes | Problem]:
    """Yield whole lines of a file, unpacked if its name ends in ``.gz``; a problem of reading comes last."""
    with _open(path) as file:
        source: IO[bytes] = gzip.GzipFile(fileobj=file) if path.endswith(".gz") else file  # type: ignore[assignment]
        try:
            while lines := source.readlines(BLOCK_BYTES):
                yield b"".join(lines)
        except (OSError, EOFError, zlib.error) as error:
            fix = "check the disk"
            if isinstance(error, gzip.BadGzipFile):
                fix = "pack it with gzip, or drop .gz from its name"
            elif not isinstance(error, OSError):
                fix = "the file is cut off or damaged: fetch it again"
            yield "a readable file", f"{type(error).__name__}: {error}", fix


def _from_lines(lines: Iterable[str]) -> Iterator[str | Problem]:
    for line in lines:
        if not isinstance(line, str):
            yield "a line of text", describe_value(line), "open the file as text, with encoding='utf-8'"
            return
        yield line if line.endswith(NEW_LINE) else line + NEW_LINE


def _placed(parts: Iterable[str | bytes | Problem], name: str, line: int = 1) -> Iterator[TextPiece]:
    """Yield decoded parts with their lines; raise a ReadError at the first byte that is no text."""
    begun = False
    for part in parts:
        text, problem = _decoded(part)
        text = text if begun else text.removeprefix(BYTE_ORDER_MARK)
        if (nul := text.find("\0")) >= 0:
            fix = "save the file as UTF-8 text, or remove the byte"
            text, problem = text[:nul], ("text", "a NUL byte", fix)
        begun = True
        if problem is not None:
            yield TextPiece(text[: text.rfind(NEW_LINE) + 1], name, line)
            raise ReadError(TextPiece(text, name, line).where(len(text)), *problem)
        yield TextPiece(text, name, line)
        line += text.count(NEW_LINE)
    if not begun:
        yield TextPiece("", name, line)


def _decoded(part: str | bytes | Problem) -> tuple[str, Problem | None]:
    """Return the text of a part up to its first problem, and the problem or None."""
    if isinstance(part, tuple):
        return "", part
    try:
        return part if isinstance(part, str) else part.decode(), None
    except UnicodeDecodeError as error:
        data = bytes(error.object)
        actual = f"the byte 0x{data[error.start]:02x} ({error.reason})"
        return data[: error.start].decode(), ("UTF-8 text", actual, "save the file as UTF-8")
