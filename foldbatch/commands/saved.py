"""Saved models for commands: from a file, or a run's folder, to a program and what it was trained on."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

from foldbatch.errors import ReadError
from foldbatch.loading import load, read_notes
from foldbatch.program import Program
from foldbatch.recipes.configuration import checked
from foldbatch.recipes.fitting import MODEL
from foldbatch.recipes.settings import Configuration


def load_model(path: Path, backend: str = "auto") -> tuple[Program, dict[str, Any], Configuration]:
    """Return a trained model with its notes and its configuration.

    Args:
        path: of the file, or of the folder of a run.
        backend: what computes.

    Raises:
        ReadError: when the file is damaged, or ``foldbatch train`` did not write it.
        OSError: when there is no such file.
    """
    file = path / MODEL if path.is_dir() else path
    notes = read_notes(file)
    if not {"task", "classes", "configuration"} <= notes.keys():
        fix = "load it with foldbatch.load, in a script"
        raise ReadError(str(file), "a model that foldbatch train wrote", "another one", fix)
    configuration = checked(notes["configuration"], str(file))
    return load(file, backend), notes, configuration


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
