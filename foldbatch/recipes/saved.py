"""Saved models: from a file, or a run's folder, to a program and what it was trained on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from foldbatch.errors import ReadError
from foldbatch.loading import load, read_notes
from foldbatch.program import Program
from foldbatch.recipes.configuration import checked
from foldbatch.recipes.fitting import MODEL
from foldbatch.recipes.settings import Configuration
from foldbatch.types import TensorType
from foldbatch.zoo.tasks import Kind

EXPECTED = "a model that foldbatch train wrote"
FIX = "load it with foldbatch.load, in a script"


class Notes(TypedDict):
    """What ``foldbatch train`` notes in a model's file; others are left out."""

    task: Kind
    classes: list[str]
    configuration: dict[str, Any]


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
        ReadError: when the file is damaged, ``foldbatch train`` did not write it, or the model does not
            answer as its notes say.
        OSError: when there is no such file.
    """
    file = path / MODEL if path.is_dir() else path
    notes = _notes(read_notes(file), str(file))
    configuration = checked(notes["configuration"], str(file))
    program = load(file, backend, trust=trust)
    _check_answers(program, notes, str(file))
    return program, dict(notes), configuration


def _notes(raw: Any, where: str) -> Notes:
    try:
        notes = msgspec.convert(raw, Notes)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ReadError(where, EXPECTED, f"one whose notes do not fit ({error})", FIX) from None
    classes = notes["classes"]
    if len(set(classes)) < len(classes) or (notes["task"] == "number") == bool(classes):
        found = (
            f"one of the task {notes['task']} with {len(set(classes))} different of {len(classes)} classes"
        )
        raise ReadError(where, EXPECTED, found, FIX)
    return notes


def _check_answers(program: Program, notes: Notes, where: str) -> None:
    """Refuse a model that answers anything else than its notes say."""
    classes = len(notes["classes"])
    expected = TensorType((classes,) if classes else ())
    told: list[object] = [program.model.result]
    if notes["task"] == "nodes":
        metrics = zip(program.model.cells, program.model.metrics, strict=True)
        pairs = (pair for cell, names in metrics for pair in zip(names, cell.built.metrics, strict=True))
        told += [node.type for name, node in pairs if name == "node"] or ["nothing"]
    if any(each != expected for each in told):
        found = ", and at nodes ".join(map(str, told))
        raise ReadError(where, f"a model that answers {expected}, as its notes say", found, FIX)


def load_models(
    path: Path, backend: str = "auto", trust: Iterable[str] = ()
) -> tuple[list[Program], dict[str, Any], Configuration]:
    """Return a trained model, or those of all seeds of a run, with the notes and configuration of the first.

    Args:
        path: of a file, of the folder of a run, or of one that holds runs ``seed-0``, ``seed-1`` and so on.
        backend: what computes.
        trust: as of `foldbatch.load`.

    Raises:
        ReadError: when a file is damaged, ``foldbatch train`` did not write it, or a seed has other classes
            or reads another format.
        OSError: when there is no such file.
    """
    files = model_files(path) or [path]
    models = [load_model(file, backend, trust) for file in files]
    _, notes, configuration = models[0]
    for file, (_, other, its) in zip(files, models, strict=True):
        same = its.data.format == configuration.data.format
        if not same or (other["task"], other["classes"]) != (notes["task"], notes["classes"]):
            fix = "give the folder of a run with --seeds, or a single model"
            raise ReadError(str(file), "the format, task and classes of the other seeds", "others", fix)
    return [program for program, _, _ in models], notes, configuration
