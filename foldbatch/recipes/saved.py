"""Saved models: from a file, or a run's folder, to a program and what it was trained on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from foldbatch.errors import ReadError
from foldbatch.loading import load, read_notes
from foldbatch.program import Program
from foldbatch.recipes.configuration import checked
from foldbatch.recipes.fitting import MODEL
from foldbatch.recipes.settings import Configuration


def model_files(path: Path) -> list[Path]:
    """Return the file of a model, or those of all seeds of a run; none where a folder holds no model.

    Args:
        path: of a file, of the folder of a run, or of one that holds runs ``seed-0``, ``seed-1`` and so on.
    """
    if not path.is_dir():
        return [path]
    return [path / MODEL] if (path / MODEL).exists() else sorted(path.glob(f"seed-*/{MODEL}"))


def load_model(
    path: Path, backend: str = "auto", trust: Iterable[str] = ()
) -> tuple[Program, dict[str, Any], Configuration]:
    """Return a trained model with its notes and its configuration.

    Args:
        path: of the file, or of the folder of a run.
        backend: what computes.
        trust: as of `foldbatch.load`.

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
    return load(file, backend, trust=trust), notes, configuration


def load_models(
    path: Path, backend: str = "auto", trust: Iterable[str] = ()
) -> tuple[list[Program], dict[str, Any], Configuration]:
    """Return a trained model, or those of all seeds of a run, with the notes and configuration of the first.

    Args:
        path: of a file, of the folder of a run, or of one that holds runs ``seed-0``, ``seed-1`` and so on.
        backend: what computes.
        trust: as of `foldbatch.load`.

    Raises:
        ReadError: when a file is damaged, ``foldbatch train`` did not write it, or a seed has other classes.
        OSError: when there is no such file.
    """
    files = model_files(path) or [path]
    models = [load_model(file, backend, trust) for file in files]
    _, notes, configuration = models[0]
    for file, (_, other, _) in zip(files, models, strict=True):
        if (other["task"], other["classes"]) != (notes["task"], notes["classes"]):
            fix = "give the folder of a run with --seeds, or a single model"
            raise ReadError(str(file), "the task and classes of the other seeds", "others", fix)
    return [program for program, _, _ in models], notes, configuration
