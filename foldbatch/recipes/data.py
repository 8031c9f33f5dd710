"""Data sets: the three parts of a run as examples of the zoo, and the classes of their labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from foldbatch.errors import ReadError, UnknownNameError, shortened, with_nearest
from foldbatch.recipes.formats import FORMATS, PARTS, Sample
from foldbatch.recipes.settings import Configuration
from foldbatch.trees.tree import Tree, trusted_tree

Kind = Literal["nodes", "root", "class", "number"]


@dataclass(frozen=True, slots=True)
class Dataset:
    """Examples in three parts, in the form of a `foldbatch.zoo.Task`.

    Attributes:
        train: to train on.
        dev: to choose the best epoch by; may be empty.
        test: to test on; may be empty.
        kind: the task's.
        classes: names of the classes; none for numbers.
        aside: names of more classes, which only training has and no prediction can be.
    """

    train: list[Any]
    dev: list[Any]
    test: list[Any]
    kind: Kind
    classes: tuple[str, ...]
    aside: tuple[str, ...] = ()


def read_dataset(configuration: Configuration) -> Dataset:
    """Return the data set of a configuration.

    Raises:
        ReadError: when a file is malformed, no training file is named, or a label is none of training.
        OSError: when a file cannot be read.
    """
    data, kind = configuration.data, task_kind(configuration)
    format_ = FORMATS[data.format]
    train, dev, test = (list(format_.part(data, part)) for part in PARTS)
    if not train:
        fix = "set data.folder, or data.train" if data.format != "functions" else ""
        raise ReadError("data.train", "examples to train on", "none", fix)
    classes = () if kind == "number" else format_.classes(data) or _classes(train, kind)
    more = set(_classes(train, kind)) - set(classes) if kind == "class" else ()
    aside = tuple(sorted(more))
    train = list(islice(train, data.limit or None))
    return Dataset(
        numbered(train, kind, classes + aside, "train"),
        numbered(dev, kind, classes, "dev"),
        numbered(test, kind, classes, "test"),
        kind,
        classes,
        aside,
    )


def read_labelled(path: Path, configuration: Configuration, classes: Sequence[str]) -> list[Any]:
    """Return the examples of another file of the same format, with the same classes.

    Raises:
        ReadError: when the file is malformed, or holds another class.
        OSError: when it cannot be read.
    """
    samples = FORMATS[configuration.data.format].samples(path, configuration.data)
    return numbered(samples, task_kind(configuration), classes, str(path))


def task_kind(configuration: Configuration) -> Kind:
    """Return the task that is trained: what the configuration says, or what suits format and model.

    Raises:
        UnknownNameError: when the format has no such task.
    """
    kind, format_ = configuration.task.kind, configuration.data.format
    nodes = FORMATS[format_].nodes
    suits: tuple[Kind, ...] = ("nodes", "root") if nodes else ("class", "number")
    if kind == "auto":
        return "root" if nodes and configuration.model.__struct_config__.tag == "bilstm" else suits[0]
    if kind not in suits:
        expected = f"{' or '.join(suits)} for data of format {format_}"
        raise UnknownNameError("task.kind", expected, with_nearest(kind, suits), "or leave it at auto")
    return kind


def numbered(samples: Iterable[Sample], kind: Kind, classes: Sequence[str], where: str) -> list[Any]:
    """Return samples as examples of a task, their classes as numbers.

    Raises:
        ReadError: when a label is no number where one is told, or none of the classes.
    """
    number_of = {name: number for number, name in enumerate(classes)}
    examples: list[Any] = []
    for place, (structure, label) in enumerate(samples):
        if kind in ("nodes", "root"):
            examples.append(_numbered_tree(structure, number_of, f"{where}, tree {place + 1}"))
        elif kind == "number":
            examples.append((structure, _number(label, f"{where}, example {place + 1}")))
        else:
            examples.append((structure, _class(label, number_of, f"{where}, example {place + 1}")))
    return examples


def _classes(samples: Sequence[Sample], kind: Kind) -> tuple[str, ...]:
    """Return the names of the labels there are, numbers in their order and others by the alphabet."""
    if kind in ("nodes", "root"):
        names = {str(label) for tree, _ in samples for label in tree.labels if label is not None}
    else:
        names = {str(label) for _, label in samples if label is not None}
    numbers = all(name.lstrip("-").isdecimal() for name in names)
    return tuple(sorted(names, key=int if numbers else str))


def _numbered_tree(tree: Tree, number_of: dict[str, int], where: str) -> Tree:
    if all(label is None or isinstance(label, int) for label in tree.labels):
        return tree
    labels = [_class(label, number_of, where) for label in tree.labels]
    return trusted_tree(tree.parents, labels, tree.tokens)


def _class(label: Any, number_of: dict[str, int], where: str) -> int | None:
    if label is None:
        return None
    if str(label) not in number_of:
        expected = f"a class of the training part: {shortened(number_of)}"
        raise ReadError(where, expected, repr(label), "add examples of it, or leave its label out")
    return number_of[str(label)]


def _number(label: Any, where: str) -> float | None:
    if label is not None and (isinstance(label, bool) or not isinstance(label, int | float)):
        raise ReadError(where, "a number as label", repr(label), "or set task.kind to class")
    return label
