"""The option ``--trust`` of commands that read a model: whose functions its file may name."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path


def add_trust(parser: ArgumentParser) -> None:
    """Give a parser the option, for `foldbatch.load`.

    >>> parser = ArgumentParser()
    >>> add_trust(parser)
    >>> parser.parse_args(["--trust", "models", "--trust", "text:clean"]).trust
    ['models', 'text:clean']
    """
    what = "a module, or module:function, that the model's file may name; it is looked for here, too"
    parser.add_argument("--trust", action="append", default=[], type=_named, metavar="NAME", help=what)


def _named(name: str) -> str:
    """Return a name as it is; from now on modules are looked for in the working directory, last."""
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    return name
