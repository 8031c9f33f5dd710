"""The log of a server: lines on standard error, which no client and no file can forge or end."""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress

LONGEST = 1000  # characters of a line


def log(text: str, error: BaseException | None = None) -> None:
    r"""Write a line, and below it the traceback of an error; where nobody takes the log, do nothing.

    >>> print(one_line("no such file: a\nb: read anew\x1b[2J"))
    no such file: a\nb: read anew\x1b[2J
    """
    lines = [text]
    if error is not None:
        lines += "".join(traceback.format_exception(error)).splitlines()
    with suppress(OSError, ValueError):  # it was closed, or the disk is full
        print(*map(one_line, lines), sep="\n", file=sys.stderr, flush=True)


def one_line(text: str) -> str:
    """Return a text as one line that a terminal shows as it is, its end left out where it is very long."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:LONGEST])
    return shown + "..." * (len(text) > LONGEST)
