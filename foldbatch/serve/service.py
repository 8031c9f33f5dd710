"""The service: a saved model that answers batches, refuses single examples, and can be read anew."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from math import isfinite
from pathlib import Path
from typing import Any

from foldbatch.errors import ExampleError, FoldbatchError, ReadError
from foldbatch.program import Program
from foldbatch.recipes.formats import FORMATS
from foldbatch.recipes.predicting import predictions
from foldbatch.recipes.saved import load_models, model_files
from foldbatch.recipes.settings import Configuration
from foldbatch.serve.openapi import SAMPLES

EXPECTED = "a model that can answer"
FIX = "train it again, or give another file"
NUMBER = re.compile(r"\bat example (\d+)")  # of an example, in an error of a batch
RECORDS = "jsonlines"  # the format whose examples are any JSON
Signature = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Model:
    """A saved model, ready to answer.

    Attributes:
        programs: one, or those of several seeds, whose mean is the answer.
        notes: that were saved with it: ``task`` and ``classes``.
        configuration: what it was trained by.
    """

    programs: Sequence[Program]
    notes: dict[str, Any]
    configuration: Configuration

    def predict(self, structures: Sequence[Any], *, nodes: bool) -> list[dict[str, Any]]:
        """Return the predictions of structures, as `foldbatch.recipes.predicting.predictions` does."""
        return list(predictions(self.programs, self.notes, structures, nodes=nodes))


def load(path: Path, backend: str, trust: Iterable[str] = ()) -> Model:
    """Return the model of a file or of a folder, compiled for its first batch, when it has answered once.

    Raises:
        ReadError: when a file is damaged, ``foldbatch train`` did not write it, or the model cannot answer.
        OSError: when there is no such file.
    """
    for file in model_files(path):
        if file.exists() and not file.is_file():  # reading a pipe may never end
            raise ReadError(str(file), "a file", "a pipe or a device", "give a model.safetensors")
    try:
        model = Model(*load_models(path, backend, trust))
        every_node = model.notes["task"] == "nodes"
        for program in model.programs:
            program.run([], metrics=every_node)
            program.run([])
        _try(model, path, nodes=every_node)
    except (FoldbatchError, OSError):
        raise
    except Exception as error:
        found = f"one that raises {type(error).__name__}: {error}"
        raise ReadError(str(path), EXPECTED, found, FIX) from error
    return model


def _try(model: Model, path: Path, *, nodes: bool) -> None:
    """Refuse a model that cannot read a small example of its format, or answers with what is no number."""
    format_ = model.configuration.data.format
    if format_ == RECORDS:
        return  # which fields they have, only the model knows
    expected = f"a model that reads the format {format_}"
    for _, structure in FORMATS[format_].structures(StringIO(SAMPLES[format_]), "sample"):
        try:
            (told,) = model.predict([structure], nodes=nodes)
        except ExampleError as error:
            raise ReadError(str(path), expected, f"one that refuses a sample: {error}", FIX) from error
        numbers = told.get("probabilities", told)
        if not all(isfinite(number) for number in numbers.values()):
            raise ReadError(str(path), EXPECTED, "one whose answers are NaN or infinite", FIX)


class Service:
    """The model that answers now.

    Args:
        path: of a model's file, or of the folder of a run.
        backend: what computes.
        loaded: is called when a model has been read, and the former one is not needed any more.
        trust: as of `foldbatch.load`, also when the model is read anew.

    Attributes:
        model: the model.

    Raises:
        ReadError: when a file is damaged, ``foldbatch train`` did not write it, or the model cannot answer.
        OSError: when there is no such file.
    """

    def __init__(
        self,
        path: Path,
        backend: str = "auto",
        loaded: Callable[[], None] = lambda: None,
        trust: Iterable[str] = (),
    ) -> None:
        self.path = path
        self._backend = backend
        self._trust = tuple(trust)
        self._loaded = loaded
        self._seen = self._signature()
        self.model = load(path, backend, self._trust)
        loaded()

    def changed(self) -> bool:
        """Return whether the files of the model are others than when it was last read."""
        return self._signature() != self._seen

    def reload(self) -> None:
        """Read the model anew. A batch that runs ends on the former model, which stays where this fails.

        Raises:
            ReadError: when a file is damaged, or the new model cannot answer, or reads another format.
            OSError: when there is no such file.
        """
        self._seen = self._signature()
        model = load(self.path, self._backend, self._trust)
        former, new = self.model.configuration.data.format, model.configuration.data.format
        if new != former:
            fix = "start another server for it"
            raise ReadError(str(self.path), f"a model of format {former}", f"one of {new}", fix)
        self.model = model
        self._loaded()

    def answer(self, structures: Sequence[Any], nodes: bool = False) -> list[Any]:  # noqa: FBT001, FBT002
        """Return a prediction for each structure, or the error of the one that the model cannot read.

        They run together. Where that fails, the rest runs without the one that is to blame.

        Args:
            structures: trees, lists of words or records.
            nodes: whether predictions hold all nodes, too.
        """
        model = self.model
        answers: list[Any] = [None] * len(structures)
        parts = [list(range(len(structures)))]
        while parts:
            part = parts.pop()
            try:
                predicted = model.predict([structures[number] for number in part], nodes=nodes)
            except Exception as error:  # noqa: BLE001 - one example's error must not be another's
                if len(part) == 1:
                    answers[part[0]] = error
                else:
                    parts += _divided(part, error)
            else:
                for number, prediction in zip(part, predicted, strict=True):
                    answers[number] = prediction
        return answers

    def _signature(self) -> Signature:
        """Return what changes when a file of the model is written anew."""
        found = []
        with suppress(OSError):  # a file that is just being exchanged, or a folder that cannot be listed
            for file in model_files(self.path):
                status = file.stat()
                found.append((str(file), status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(found)


def _divided(part: list[int], error: Exception) -> list[list[int]]:
    """Return parts of a part that failed: the example that the error names, and the rest in halves.

    So each example that is to blame ends up alone, after few runs.
    """
    named = NUMBER.search(error.where) if isinstance(error, FoldbatchError) else None
    blamed = part[int(named[1]) :][:1] if named else []
    rest = [number for number in part if number not in blamed]
    half = (len(rest) + 1) // 2
    return [each for each in (blamed, rest[:half], rest[half:]) if each]
