"""Common parts of commands: options, numbers of the command line, output by one of several processes."""

import math
import os
import sys
import warnings
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from foldbatch.communicators import Communicator
from foldbatch.errors import FoldbatchError


def whole_number(least: int, highest: float = math.inf, expected: str = "") -> Callable[[str], int]:
    """Return a function that reads a whole number from the command line."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or not least <= int(text) <= highest:
            wanted = expected or f"a whole number of {least} or more"
            raise ArgumentTypeError(f"expected {wanted}, found {text}")
        return int(text)

    return read


def number(expected: str, *, above: bool = False, finite: bool = True) -> Callable[[str], float]:
    """Return a function that reads a number of 0 or more, or only above 0."""

    def read(text: str) -> float:
        """Return the number that a text spells; raise an ArgumentTypeError where it does not fit."""
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not (value > 0 or (value == 0 and not above)) or (finite and value == math.inf):
            raise ArgumentTypeError(f"expected {expected}, found {text}")
        return value

    return read


count = whole_number(1)
at_least_0 = number("a number of 0 or more")
seconds = number("seconds, 0 or more")


def _named(name: str) -> str:
    """Return a name as it is; from now on modules are looked for in the working directory, last."""
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    return name


MODEL_HELP = "a model.safetensors, or the folder of a run, of several seeds, too"
TRUST = "a module, or module:function, that the model's file may name; it is looked for here, too"
OPTIONS: dict[str, dict[str, Any]] = {  # of several commands
    "model": {"type": Path, "metavar": "MODEL", "help": MODEL_HELP},
    "--backend": {"default": "auto", "help": "what computes (default auto)"},
    "--trust": {"action": "append", "default": [], "type": _named, "metavar": "NAME", "help": TRUST},
}


def add(parser: ArgumentParser, *names: str, **changes: object) -> None:
    """Give a parser options of the table.

    >>> parser = ArgumentParser()
    >>> add(parser, "--trust")
    >>> parser.parse_args(["--trust", "models", "--trust", "text:clean"]).trust
    ['models', 'text:clean']
    """
    for name in names:
        parser.add_argument(name, **OPTIONS[name] | changes)


@contextmanager
def first_speaks(communicator: Communicator) -> Iterator[None]:
    """Let rank 0 alone print output, warnings and errors that the user can mend.

    Rank 0 learns of the others' errors, see `foldbatch.communicators.together`; they end with status 2.
    """
    if communicator.rank == 0:
        yield
        return
    with Path(os.devnull).open("w", encoding="utf-8") as null_device, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with redirect_stdout(null_device), redirect_stderr(null_device):
                yield
        except (FoldbatchError, OSError) as error:
            raise SystemExit(2) from error
        except KeyboardInterrupt as error:
            raise SystemExit(130) from error
