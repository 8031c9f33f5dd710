"""Formats of data: how each is read, with labels for training, without them for predictions.

A format yields *samples*: pairs of a structure (a tree, a list of words, a record) and a label, or, where
every node is labelled, a tree and None. Labels are still what the file says.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from foldbatch.errors import ReadError
from foldbatch.recipes.settings import Data
from foldbatch.trees import (
    python_functions,
    python_tree,
    read_brackets,
    read_jsonlines,
    read_sentences,
    read_sst,
    standard_library_functions,
)
from foldbatch.trees.bracket_lines import plain_trees
from foldbatch.trees.stdlib_functions import VERBS, Corpus
from foldbatch.trees.tree import trusted_tree
from foldbatch.types import describe_value

PARTS = ("train", "dev", "test")
Sample = tuple[Any, Any]
Named = tuple[str | None, Any]
SENTIMENTS = ("very negative", "negative", "neutral", "positive", "very positive")
NEGATIVE_OR_POSITIVE = {0: 0, 1: 0, 2: -1, 3: 1, 4: 1}


@dataclass(frozen=True, slots=True)
class Format:
    """How data of one format are read.

    Attributes:
        part: reads one of the parts of a `Data` section, by name; none where the section names none.
        samples: reads a file, or folder, of labelled samples.
        structures: reads lines of text without labels, with a name of the text for errors; yields a name
            of each structure, or None, and the structure.
        nodes: whether samples are trees whose labels are classes.
        classes: returns the names of the classes, where they are known ahead; else none. Training may have
            more, if they are no labels of nodes.
    """

    part: Callable[[Data, str], Iterable[Sample]]
    samples: Callable[[Path, Data], Iterable[Sample]]
    structures: Callable[[Iterable[str], str], Iterable[Named]]
    nodes: bool
    classes: Callable[[Data], tuple[str, ...]]


def _file_part(
    samples: Callable[[Path, Data], Iterable[Sample]], ending: str, data: Data, part: str
) -> Iterable[Sample]:
    """Read the file that a section names for a part, or the one of this name in its folder."""
    named = getattr(data, part)
    if not named and data.folder:
        named = os.fspath(Path(data.folder, f"{part}{ending}"))
    return samples(Path(named), data) if named else ()


def _sst(path: Path, data: Data) -> Iterator[Sample]:
    return ((tree, None) for tree in read_sst(path))


def _sst_binary(path: Path, data: Data) -> Iterator[Sample]:
    """Yield trees of two classes; neutral nodes are not labelled, sentences that are neutral left out."""
    for tree in read_sst(path):
        if tree.label != SENTIMENTS.index("neutral"):
            labels = [NEGATIVE_OR_POSITIVE[label] for label in tree.labels]  # type: ignore[index]
            yield trusted_tree(tree.parents, labels, tree.tokens), None


def _brackets(path: Path, data: Data) -> Iterator[Sample]:
    return ((tree, None) for tree in read_brackets(path))


def _bracket_structures(lines: Iterable[str], where: str) -> Iterator[Named]:
    """Yield a tree of each line in brackets, and the words of any other line."""
    for number, line in enumerate(lines, 1):
        if (trees := plain_trees(line)) is not None:
            yield from ((None, tree) for tree in trees)
        elif line.lstrip().startswith("("):
            try:
                yield from ((None, tree) for tree in read_brackets([line]))
            except ReadError as error:
                column = error.where.rpartition(":")[2]
                place = f"{where}:{number}:{column}"
                expected = error.expected.replace("lines:1:", f"{where}:{number}:")
                raise ReadError(place, expected, error.found, error.fix) from None
        elif line.strip():
            yield None, line.split()


def _python_samples(path: Path, data: Data) -> Iterator[Sample]:
    """Yield the tree of each file ``PATH/CLASS/*.py`` with its class."""
    files = sorted(path.glob("*/*.py"))
    if not files:
        fix = "put the files of each class into a folder that is called like the class"
        raise ReadError(str(path), "files CLASS/*.py", "none", fix)
    for file in files:
        yield python_tree(file.read_bytes(), str(file)), file.parent.name


def _python_structures(lines: Iterable[str], where: str) -> Iterator[Named]:
    yield where, python_tree("".join(lines), where)


def _function_structures(lines: Iterable[str], where: str) -> Iterator[Named]:
    yield from python_functions("".join(lines), where)


def _conllu(path: Path, data: Data) -> Iterator[Sample]:
    """Yield dependency trees with the label that a comment ``# label = x`` above them says."""
    for sentence in read_sentences(path):
        yield sentence.tree(roots="join"), sentence.notes().get(data.label)


def _conllu_structures(lines: Iterable[str], where: str) -> Iterator[Named]:
    for sentence in read_sentences(lines):
        yield sentence.notes().get("sent_id"), sentence.tree(roots="join")


def _jsonlines(path: Path, data: Data) -> Iterator[Sample]:
    """Yield records and the label that they have at a key."""
    for number, record in enumerate(read_jsonlines(path), 1):
        if not isinstance(record, dict) or data.label not in record:
            expected, fix = f"an object with {data.label!r}", "set data.label to the key of the label"
            raise ReadError(f"{path}:{number}", expected, describe_value(record), fix)
        yield {key: value for key, value in record.items() if key != data.label}, record[data.label]


def _json_structures(lines: Iterable[str], where: str) -> Iterator[Named]:
    return ((None, record) for record in read_jsonlines(lines))


@cache
def _functions(training_verbs: int) -> Corpus:
    """Return the embedded functions, read once a process for each number of verbs."""
    return standard_library_functions(training_verbs=training_verbs)


def _function_part(data: Data, part: str) -> Iterator[Sample]:
    corpus = _functions(data.training_verbs)
    examples = {"train": corpus.train, "dev": corpus.dev, "test": corpus.test}[part]
    return ((example.tree, corpus.verbs[example.verb]) for example in examples)


def _function_file(path: Path, data: Data) -> Iterator[Sample]:
    fix = "leave DATA out: its own test part is evaluated"
    raise ReadError(str(path), "no file for the embedded functions", "one", fix)


def _function_classes(data: Data) -> tuple[str, ...]:
    return _functions(data.training_verbs).verbs[:VERBS]


def _format(
    samples: Callable[[Path, Data], Iterable[Sample]],
    structures: Callable[[Iterable[str], str], Iterable[Named]],
    classes: tuple[str, ...] = (),
    *,
    nodes: bool,
    ending: str = ".txt",
) -> Format:
    return Format(partial(_file_part, samples, ending), samples, structures, nodes, lambda data: classes)


FORMATS: dict[str, Format] = {
    "functions": Format(
        _function_part, _function_file, _function_structures, nodes=False, classes=_function_classes
    ),
    "sst": _format(_sst, _bracket_structures, SENTIMENTS, nodes=True),
    "sst-binary": _format(_sst_binary, _bracket_structures, ("negative", "positive"), nodes=True),
    "brackets": _format(_brackets, _bracket_structures, nodes=True),
    "python": _format(_python_samples, _python_structures, nodes=False, ending=""),
    "conllu": _format(_conllu, _conllu_structures, nodes=False, ending=".conllu"),
    "jsonlines": _format(_jsonlines, _json_structures, nodes=False, ending=".jsonl"),
}
