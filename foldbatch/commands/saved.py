"""What commands have in common: numbers on the command line, and the loading of saved models."""

from __future__ import annotations

from argparse import ArgumentTypeError

from foldbatch.recipes.saved import load_model as load_model
from foldbatch.recipes.saved import load_models as load_models


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
