"""The command ``foldbatch predict``: classes or numbers of new data, as JSON lines or drawn."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from foldbatch.commands.saved import load_models
from foldbatch.errors import ReadError
from foldbatch.recipes.formats import FORMATS, Named
from foldbatch.recipes.predicting import drawing, predictions

STANDARD_INPUT = "-"


def main(arguments: Sequence[str], prog: str) -> int:
    """Print a line of JSON for each example; return the exit status.

    Args:
        arguments: of the command.
        prog: what help and errors call it.

    Raises:
        FoldbatchError: for what the user can mend.
        OSError: when a file cannot be read.
    """
    what = "Print a line of JSON for each example of files or of the standard input: label and probabilities."
    parser = ArgumentParser(prog=prog, description=what)
    parser.add_argument(
        "model",
        type=Path,
        metavar="MODEL",
        help="a model.safetensors, or the folder of a run, of several seeds, too",
    )
    what = "in the format that it was trained on, labels or not; by default -, the standard input"
    parser.add_argument("files", nargs="*", default=[STANDARD_INPUT], metavar="FILE", help=what)
    parser.add_argument("--nodes", action="store_true", help="add the label of every node")
    parser.add_argument("--draw", action="store_true", help="draw trees instead of JSON")
    parser.add_argument("--backend", default="auto", help="what computes (default auto)")
    options = parser.parse_args(arguments)
    programs, notes, configuration = load_models(options.model, options.backend)
    nodes = options.nodes or (options.draw and notes["task"] == "nodes")
    for name in options.files:
        waiting: deque[Named] = deque()  # what is read and not yet told
        structures = _remembered(_structures(name, configuration.data.format), waiting)
        for told in predictions(programs, notes, structures, nodes=nodes):
            label, structure = waiting.popleft()
            if options.draw:
                print(*([label] if label else []), drawing(structure, told), sep="\n")
            else:
                print(msgspec.json.encode(({"name": label} if label else {}) | told).decode())
    return 0


def _remembered(named: Iterable[Named], waiting: deque[Named]) -> Iterator[Any]:
    """Yield structures; put each with its name into a queue."""
    for pair in named:
        waiting.append(pair)
        yield pair[1]


def _structures(name: str, format_: str) -> Iterator[Named]:
    """Yield the examples of a file, or of the standard input."""
    read = FORMATS[format_].structures
    if name == STANDARD_INPUT:
        yield from read(sys.stdin, "standard input")
        return
    try:
        with Path(name).open(encoding="utf-8") as lines:
            yield from read(lines, name)
    except UnicodeDecodeError as error:
        raise ReadError(name, "text in UTF-8", str(error), "save the file as UTF-8") from None
