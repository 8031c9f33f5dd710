"""The service: a saved model that answers batches, refuses single examples, is read anew; its limits."""

import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from io import StringIO
from math import isfinite
from pathlib import Path
from typing import Any

from foldbatch.errors import ExampleError, FoldbatchError, ReadError
from foldbatch.program.predicting import plain, predictions
from foldbatch.program.program import Program
from foldbatch.recipes.configuration import Configuration
from foldbatch.recipes.data import unlike
from foldbatch.recipes.fitting import SCRIPTED, load_any, model_files
from foldbatch.schema import Schema
from foldbatch.serve.continuous import Continuous, Join
from foldbatch.trees.formats import FORMATS, structures_of
from foldbatch.types import BackendName


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds the memory and the time of a server.

    >>> Limits(batch=64).batch
    64
    """

    head: int = 16_384  # bytes of a request's head: address and headers
    body: int = 4_000_000  # bytes of a request
    # bytes of all requests that are being read or answered; one more is asked to come again later
    held: int = 64_000_000
    examples: int = 1_000  # of a request
    nodes: int = 10_000  # of an example: nodes of a tree, words of a list, values of a record
    depth: int = 2_000  # of an example: levels below its topmost node or value
    batch: int = 256  # examples that run together
    batch_nodes: int = 32_768  # nodes that run together; a larger example runs alone
    # nodes that wait; a request for which there is no room is asked to come again later
    queue_nodes: int = 262_144
    deadline: float = 10.0  # seconds that a request may take, unless it asks for fewer
    connections: int = 1_000  # that may be open; one more is refused
    idle: float = 10.0  # seconds in which a connection must send its next head, or take some of its answer


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


EXPECTED = "a model that can answer"
FIX = "train it again, or give another file"
NUMBER = re.compile(r"\bat example (\d+)")  # of an example, in an error of a batch
Signature = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A saved model, ready to answer."""

    programs: Sequence[Program]  # one, or those of several seeds, whose mean is the answer
    notes: dict[str, Any]  # that were saved with it: ``task`` and ``classes``
    configuration: Configuration  # what it was trained by
    schema: Schema | None = None  # of the records that it was trained on

    @property
    def name(self) -> str:
        """What the model is called."""
        if self.configuration is SCRIPTED:
            return self.programs[0].lowered.name
        return str(self.configuration.model.__struct_config__.tag)

    def predict(self, structures: Sequence[Any], *, nodes: bool) -> list[dict[str, Any]]:
        """Return the predictions of structures, as `foldbatch.program.predicting.predictions` does.

        That of a record unlike those of training has a ``warning``, too.
        """
        told = list(predictions(self.programs, self.notes, structures, nodes=nodes))
        for record, one in zip(structures, told, strict=True):
            if self.schema and (found := unlike(self.schema, record, self.configuration.data)[0]):
                one["warning"] = f"expected fields that training had, found {found}"
        return told


def load(path: Path, backend: BackendName, trust: Iterable[str] = ()) -> ServedModel:
    """Return the model of a file or of a folder, compiled for its first batch, when it has answered once.

    Raises:
        ReadError: when a file is damaged, or the model cannot answer.
        OSError: when there is no such file.
    """
    for file in model_files(path):
        if file.exists() and not file.is_file():  # reading a pipe may never end
            raise ReadError(str(file), "a file", "a pipe or a device", "give a model.safetensors")
    try:
        programs, notes, configuration = load_any(path, backend, trust)
        schema = Schema.from_plain(notes["schema"]) if "schema" in notes else None
        model = ServedModel(programs, notes, configuration, schema)
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


def _try(model: ServedModel, path: Path, *, nodes: bool) -> None:
    """Refuse a model that cannot read a small example of its format, or answers with what is no number."""
    format_ = model.configuration.data.format
    if FORMATS[format_].kind == "records":
        return  # which fields they have, only the model knows
    expected = f"a model that reads the format {format_}"
    for _, structure in structures_of(format_)(StringIO(FORMATS[format_].sample), "sample"):
        try:
            (told,) = model.predict([structure], nodes=nodes)
        except ExampleError as error:
            raise ReadError(str(path), expected, f"one that refuses a sample: {error}", FIX) from error
        numbers = told.get("probabilities", told)
        if not all(isfinite(number) for number in numbers.values()):
            raise ReadError(str(path), EXPECTED, "one whose answers are NaN or infinite", FIX)


class Service:
    """The model that answers now."""

    def __init__(
        self,
        path: Path,
        backend: BackendName = "auto",
        loaded: Callable[[], None] = lambda: None,
        trust: Iterable[str] = (),
    ) -> None:
        self.path = path
        self._backend = backend
        self._trust = tuple(trust)
        self._loaded = loaded
        self._seen = self._signature()
        self._continuous: Continuous | None = None
        self.model = load(path, backend, self._trust)
        loaded()

    def changed(self) -> bool:
        """Return whether the files of the model are others than when it was last read."""
        return self._signature() != self._seen

    def reload(self) -> None:
        """Read the model anew. A batch that runs ends on the former model, which stays where this fails."""
        self._seen = self._signature()
        model = load(self.path, self._backend, self._trust)
        former, new = self.model.configuration.data.format, model.configuration.data.format
        if new != former:
            fix = "start another server for it"
            raise ReadError(str(self.path), f"a model of format {former}", f"one of {new}", fix)
        self.model = model
        self._loaded()

    def answer(self, structures: Sequence[Any], nodes: bool = False) -> list[Any]:  # noqa: FBT001, FBT002
        """Return a prediction for each structure, or the error of the one that the model cannot read."""
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

    def joining(self) -> Join | None:
        """Return what lets an example join the batch under way; None where the model does not decide."""
        program = self.model.programs[0]
        if self.model.notes.get("classes") is not None or not program.lowered.decides:
            return None
        continuous = self._continuous
        if continuous is None or continuous.program is not program:
            self.close()
            continuous = self._continuous = Continuous(program, most=sys.maxsize)  # who asks counts them

        def join(structure: Any) -> Future[Any]:
            told: Future[Any] = Future()
            continuous.ask(structure).add_done_callback(partial(_tell, told))
            return told

        return join

    def close(self) -> None:
        """Let what is under way end; nothing joins it any more."""
        if self._continuous is not None:
            threading.Thread(target=self._continuous.close, name="foldbatch end of rounds").start()
            self._continuous = None

    def _signature(self) -> Signature:
        found = []
        with suppress(OSError):  # a file that is just being exchanged, or a folder that cannot be listed
            for file in model_files(self.path):
                status = file.stat()
                found.append((str(file), status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(found)


def _tell(told: Future[Any], answer: Future[Any]) -> None:
    try:
        told.set_result({"result": plain(answer.result())})
    except Exception as error:  # noqa: BLE001 - it is the answer
        told.set_exception(error)


def _divided(part: list[int], error: Exception) -> list[list[int]]:
    """Return parts of a part that failed: the example that the error names, and the rest in halves.

    So each example that is to blame ends up alone, after few runs.
    """
    named = NUMBER.search(error.where) if isinstance(error, FoldbatchError) else None
    blamed = part[int(named[1]) :][:1] if named else []
    rest = [number for number in part if number not in blamed]
    half = (len(rest) + 1) // 2
    return [each for each in (blamed, rest[:half], rest[half:]) if each]
