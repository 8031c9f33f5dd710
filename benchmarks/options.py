"""Options that cases have in common, and how their values are read: what is wrong is refused before a run."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from benchmarks.workload import load_trees, random_trees
from foldbatch.trees import Tree

DEFAULT_DATA = Path("../shared/data/sst")


def positive(text: str) -> int:
    """Read a whole number of 1 or more.

    >>> positive("16")
    16
    """
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise ArgumentTypeError(f"expected 1 or more, found {text}")
    return int(text)


def add_data(parser: ArgumentParser) -> None:
    """Add ``--data``."""
    what = "a directory with train.txt in bracket form (default: random trees of the same size)"
    parser.add_argument("--data", type=Path, metavar="DIR", help=what)


def add_batch(parser: ArgumentParser, default: int) -> None:
    """Add ``--batch``, one size."""
    what = f"trees per batch (default {default})"
    parser.add_argument("--batch", type=positive, default=default, metavar="N", help=what)


def add_repeats(parser: ArgumentParser, default: int) -> None:
    """Add ``--repeats``."""
    what = f"timed runs of each task (default {default})"
    parser.add_argument("--repeats", type=positive, default=default, metavar="N", help=what)


def add_backend(parser: ArgumentParser) -> None:
    """Add ``--backend``."""
    parser.add_argument("--backend", default="auto", help="what computes: auto, llvm or numpy (default auto)")


def trees_of(options: Namespace, limit: int, *, whole: bool = False) -> tuple[list[Tree], str]:
    """Return `limit` trees of the options' treebank, or random ones; and what they are.

    With `whole` it is all of the treebank.

    Raises:
        OSError: when the treebank cannot be read.
        ReadError: when it is malformed.
    """
    directory = options.data or (DEFAULT_DATA if DEFAULT_DATA.is_dir() else None)
    if directory is None:
        return random_trees(limit), "random trees (give --data for a treebank)"
    return load_trees(directory, None if whole else limit), f"trees of {directory}"
