"""Counts on the command line."""

from __future__ import annotations

from argparse import ArgumentTypeError


def count(text: str) -> int:
    """Read a whole number of 1 or more from the command line.

    Raises:
        ArgumentTypeError: when it is none.

    >>> count("16")
    16
    """
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise ArgumentTypeError(f"expected a whole number of 1 or more, found {text}")
    return int(text)
