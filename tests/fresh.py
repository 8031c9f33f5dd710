"""A process without the code that made a model: it loads the model's file, and must compute the same."""

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from foldbatch.program.program import Program
from foldbatch.program.traced import Prepared
from foldbatch.program.variants import Variant

LOADING = """
import json, os, pickle, sys
import foldbatch as fb
told, sys.stdout = sys.stdout, open(os.devnull, "w")  # what a module prints that is imported is no answer
for line in sys.stdin:
    path, folders, options = json.loads(line)
    sys.path[:0] = folders
    with open(f"{path}.examples", "rb") as file:
        examples = pickle.load(file)
    try:
        results = list(fb.load(path, **options).run(examples))
    except Exception as error:
        results = error
    with open(f"{path}.results", "wb") as file:
        pickle.dump(results, file)
    print(file=told, flush=True)
"""


class Fresh:
    """The process; it knows foldbatch alone."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def results(self, path: Path, examples: Sequence[Any], folders: Sequence[str], **options: Any) -> Any:
        """Return what a file's program makes of examples there; trusted modules lie in the folders."""
        Path(f"{path}.examples").write_bytes(pickle.dumps(examples))
        print(json.dumps([str(path), folders, options]), file=self.process.stdin, flush=True)
        self.process.stdout.readline()
        found = pickle.loads(Path(f"{path}.results").read_bytes())
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture(scope="session")
def fresh() -> Iterator[Fresh]:
    with subprocess.Popen(
        [sys.executable, "-c", LOADING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Fresh(process)


@contextmanager
def noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Program]]:
    """Yield the list of programs that are made within; each notes the last batch that it was given."""
    made: list[Program] = []
    batches: dict[Variant, list[Any]] = {}

    def noting(of: type, name: str, note: Any) -> None:
        method = getattr(of, name)

        def noted(self: Any, *arguments: Any, **options: Any) -> Any:
            result = method(self, *arguments, **options)
            note(self, *arguments)
            return result

        patch.setattr(of, name, noted)

    def note_batch(variant: Variant, examples: Any, *_: Any) -> None:
        if (
            isinstance(examples, list | tuple)
            and examples
            and not any(isinstance(x, Prepared) for x in examples)
        ):
            batches[variant] = list(examples)

    with monkeypatch.context() as patch:
        noting(Program, "__init__", lambda program, *_: made.append(program))
        noting(Variant, "all", note_batch)
        noting(Variant, "work", note_batch)
        yield made
    for program in made:
        program._batch = next((batches[v] for v in program._variants._built.values() if v in batches), [])
