"""Data sets: the three parts of a run as examples of the zoo, and the classes of their labels."""

import gzip
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import msgspec

from foldbatch.errors import (
    FoldbatchError,
    FoldbatchWarning,
    ReadError,
    UnknownNameError,
    shortened,
    with_nearest,
)
from foldbatch.program.predicting import ClassLabel
from foldbatch.recipes.configuration import (
    PATHS,
    Configuration,
    Data,
    check_arity,
    check_model,
    read_configuration,
)
from foldbatch.schema import Comparison, Schema
from foldbatch.train.streams import Stream
from foldbatch.trees.formats import FORMATS, Sample
from foldbatch.trees.pyast import VERBS, Corpus, standard_library_functions
from foldbatch.trees.text import CountedLines
from foldbatch.trees.tree import Tree, TreeNode, trusted_tree
from foldbatch.types import describe_value

Kind = Literal["nodes", "root", "class", "number"]
Label = ClassLabel
PARTS = ("train", "dev", "test")
MOST_NUMBERS = 20  # whole numbers that are taken for classes without asking


@dataclass(frozen=True, slots=True)
class Dataset:
    """Examples in three parts, in the form of a `foldbatch.zoo.Task`."""

    train: list[Any] | Stream  # to train on
    dev: list[Any]  # to choose the best epoch by; may be empty
    test: list[Any]  # to test on; may be empty
    kind: Kind  # the task's
    classes: tuple[Label, ...]  # the classes, as labels name them; none for numbers
    aside: tuple[Label, ...] = ()  # more classes, which only training has and no prediction can be
    weights: list[float] | None = None  # how much each example of `train` counts; None where all count alike

    @property
    def count(self) -> int:
        """How many examples there are to train on."""
        return (self.train.rows or 0) if isinstance(self.train, Stream) else len(self.train)

    def members(self, count: int) -> list[Any]:
        """Return examples to train on, at most so many; of a stream the first ones."""
        return list(islice(self.train, count)) if isinstance(self.train, Stream) else self.train


def read_dataset(configuration: Configuration) -> Dataset:
    """Return the data set of a configuration."""
    check_model(configuration)
    data, kind = configuration.data, task_kind(configuration)
    origins = {part: Origin(str(_file_of(data, part) or part), data) for part in PARTS}
    weights = _weights(data, origins["train"]) if data.weight else None
    train = _stream(data) or list(read_part(data, "train"))
    dev, test = (list(read_part(data, part)) for part in PARTS[1:])
    if next(iter(train), None) is None:
        raise ReadError("data.train", "examples to train on", "none", "set data.folder, or data.train")
    class_labels = () if kind == "number" else _classes(train, kind, origins["train"])
    classes = class_labels and (_known_classes(data) or class_labels)
    asked = configuration.task.kind != "auto" or kind != "class" or len(classes) <= MOST_NUMBERS
    if not asked and all(type(label) is int for _, label in train if label is not None):
        numbers = f"{len(classes)} different whole numbers as labels"
        raise UnknownNameError("task.kind", "number or class", numbers, "set --task.kind number, or class")
    aside = tuple(sorted(set(class_labels) - set(classes), key=str)) if kind == "class" else ()
    parts = {"train": train, "dev": dev, "test": test}
    read: dict[str, Any] = {}
    for part, samples in parts.items():
        candidates = (*classes, *aside) if part == "train" else classes
        if isinstance(samples, Stream):
            _check_stream(samples, kind, candidates, origins[part])
            read[part] = samples.map(partial(_example_of, kind, _numbers_of(candidates), origins[part], 0))
            continue
        examples = read[part] = numbered(samples, kind, candidates, origins[part])
        if examples or getattr(data, part) or data.folder:  # a part may be left out
            _check(examples, f"data.{part}", configuration, origins[part])
    return Dataset(**read, kind=kind, classes=classes, aside=aside, weights=weights)


def read_labelled(path: Path | None, configuration: Configuration, classes: Sequence[Label]) -> list[Any]:
    """Return examples to try a saved model on, in its format and with its classes; none where there are none.

    The path is of a file of examples, or of a CONFIG.toml that names a test part. Without one, the test part
    is read where that takes no file: what the configuration of a saved model names, a stranger may have
    chosen, so it is not opened.
    """
    data = configuration.data
    where = "DATA" if path is None else str(path)
    origin = Origin(where, data)
    if path is None and any(getattr(data, key) for key in PATHS["data"]):
        expected = "a file of examples, or the CONFIG.toml of the run"
        raise ReadError(where, expected, "none", "a model's own file opens no other")
    if path is not None and path.suffix == ".toml":
        data = read_configuration(path, {}).data
        if data.format != configuration.data.format:
            fix = "give that which the model was trained by"
            raise ReadError(where, f"data of format {configuration.data.format}", data.format, fix)
        path = None
        origin = Origin(str(_file_of(data, "test") or where), data)
    samples = read_part(data, "test") if path is None else FORMATS[data.format].labelled(path, data.label)
    examples = numbered(samples, task_kind(configuration), classes, origin)
    if examples or path is not None:
        _check(examples, where, configuration, origin)
    return examples


def read_part(data: Data, part: str) -> Iterable[Sample]:
    """Return the samples of a part: of the file that a section names for it, or of the one in its folder."""
    if data.format == "functions":
        corpus = _functions(data.training_verbs)
        return ((example.tree, corpus.verbs[example.verb]) for example in getattr(corpus, part))
    format_, file = FORMATS[data.format], _file_of(data, part)
    if format_.embedded is not None:
        return format_.embedded()[part]
    samples = format_.labelled(file, data.label) if file is not None else ()
    keys = [key for key in data.ignored if key != data.label]
    return _without(samples, keys, optional=part != "train") if keys else samples


def _file_of(data: Data, part: str) -> Path | None:
    named = getattr(data, part) or (data.folder and Path(data.folder, f"{part}{FORMATS[data.format].ending}"))
    return Path(named) if named else None


@dataclass(frozen=True, slots=True)
class Origin:
    """Where examples are from: a file, or the name of a part, and how it is read."""

    where: str
    data: Data | None = None

    def place(self, number: int) -> str:
        """Return the file and the line at which an example begins; its number where there is no such file."""
        file, format_ = Path(self.where), FORMATS[self.data.format] if self.data else None
        with suppress(OSError, FoldbatchError, UnicodeDecodeError, EOFError):
            if format_ is not None and format_.table is not None:
                return f"{self.where}, row {number - 1}"
            if format_ is not None and format_.files is not None:  # each file is an example
                return str(format_.files(file)[number - 1] if file.is_dir() else file)
            if self.data is not None and format_ is not None and file.is_file():
                opener = gzip.open if file.suffix == ".gz" else open
                with opener(file, "rt", encoding="utf-8-sig") as text:
                    lines = CountedLines(text, self.where)
                    for place, _ in enumerate(format_.labelled(lines, self.data.label), 1):
                        begin = lines.place()
                        if place == number:
                            return begin
        return f"{self.where}, example {number}"


def _stream(data: Data) -> Stream | None:
    """Return the samples of the training part as a stream, where they are rows of a table; else None."""
    table, file = FORMATS[data.format].table, _file_of(data, "train")
    if table is None or file is None:
        return None
    rows = table(str(file), data.label)
    for key in data.leave_out:
        if key not in rows.schema.names:
            expected = f"a key of the records: {shortened(sorted(rows.schema.names))}"
            raise UnknownNameError("data.leave_out", expected, with_nearest(key, rows.schema.names))
    return Stream(rows).map(partial(_sample_of, data))


def _sample_of(data: Data, row: dict[str, object]) -> Sample:
    (record,) = without([row], data.ignored)
    return record, row[data.label]


def _check_stream(samples: Stream, kind: Kind, classes: Sequence[Label], origin: Origin) -> None:
    """Refuse samples of which one has a label that does not suit the task, or none has one; warn of some."""
    number_of, bare, count = _numbers_of(classes), 0, 0
    for count, sample in enumerate(samples, 1):
        bare += _example_of(kind, number_of, origin, count, sample)[1] is None
    if bare == count:
        fix = "label them; foldbatch predict needs no labels"
        raise ReadError("data.train", "examples with labels", f"{count:,} without", fix)
    if bare:
        actual, fix = f"{bare:,} of {count:,} without", "nothing is learnt or counted of them"
        warnings.warn(FoldbatchWarning("data.train", "a label of each example", actual, fix), stacklevel=2)


def _weights(data: Data, origin: Origin) -> list[float]:
    """Return how much each record of the training part counts."""
    weights = []
    for place, (record, _) in enumerate(read_part(msgspec.structs.replace(data, weight=""), "train"), 1):
        weight = record.get(data.weight) if isinstance(record, dict) else None
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
            where, expected = origin.place(place), f"a number of 0 or more at {data.weight!r}"
            raise ReadError(where, expected, describe_value(weight), "1 counts once, 0 not at all")
        weights.append(weight)
    return weights


def _without(samples: Iterable[Sample], keys: Sequence[str], *, optional: bool) -> Iterator[Sample]:
    """Yield records without some of their keys, which records must have unless they are known to."""
    there: set[str] = set()
    for record, label in samples:
        there.update(record if isinstance(record, dict) else ())
        (kept,) = without([record], keys)
        yield kept, label
    for key in [] if optional else keys:
        if key not in there:
            expected = f"a key of the records: {shortened(sorted(there))}"
            raise UnknownNameError("data.leave_out", expected, with_nearest(key, there))


def without(records: Iterable[Any], keys: Sequence[str]) -> Iterator[Any]:
    """Yield records without some of their keys; values that are no dicts stay as they are."""
    for record in records:
        kept = isinstance(record, dict)
        yield {key: value for key, value in record.items() if key not in keys} if kept else record


def unlike(schema: Schema, record: object, data: Data) -> tuple[str, Comparison]:
    """Return in words how a record is unlike those of training, "" where it is not; and how it compares."""
    compared = schema.compare(*without([record], data.ignored))
    parts = [f"the fields {shortened(compared.fields)}"] if compared.fields else []
    parts += [f"a {kind} at {path}" for path, kind in compared.kinds]
    if not parts and not compared.read:
        parts = ["nothing that is known"]
    return shortened(parts) if parts else "", compared


@cache
def _functions(training_verbs: int) -> Corpus:
    """Return the embedded functions, read once a process for each number of verbs."""
    return standard_library_functions(training_verbs=training_verbs)


def _known_classes(data: Data) -> tuple[str, ...]:
    """Return the names of the classes where they are known ahead; training may have more, if not of nodes."""
    if data.format == "functions":
        return _functions(data.training_verbs).verbs[:VERBS]
    return FORMATS[data.format].classes


def _check(examples: Sequence[Any], where: str, configuration: Configuration, origin: Origin) -> None:
    """Refuse examples that the model cannot read, and a part without labels; warn of examples without one."""
    for number, example in enumerate(examples, 1):
        try:
            check_arity(configuration, example, "")
        except ReadError as error:
            raise ReadError(origin.place(number), error.expected, error.found, error.fix) from None
    if not any(label is not None for example in examples for label in _labels(example)):
        actual = f"{len(examples)} without" if examples else "none"
        fix = "label them, or leave the part out; foldbatch predict needs no labels"
        raise ReadError(where, "examples with labels", actual, fix)
    of_nodes = FORMATS[configuration.data.format].kind == "phrases"
    bare = 0 if of_nodes else [label for _, label in examples].count(None)
    if bare:
        actual, fix = f"{bare:,} of {len(examples):,} without", "nothing is learnt or counted of them"
        warnings.warn(FoldbatchWarning(where, "a label of each example", actual, fix), stacklevel=2)


def _labels(example: Any) -> Iterable[Any]:
    return example.tree.labels if isinstance(example, TreeNode) else (example[1],)


def task_kind(configuration: Configuration) -> Kind:
    """Return the task that is trained: the configuration's, or the one that suits format and model."""
    kind, format_ = configuration.task.kind, configuration.data.format
    nodes = FORMATS[format_].kind == "phrases"
    suits: tuple[Kind, ...] = ("nodes", "root") if nodes else ("class", "number")
    if kind == "auto":
        return "root" if nodes and configuration.model.__struct_config__.tag == "bilstm" else suits[0]
    if kind not in suits:
        expected = f"{' or '.join(suits)} for data of format {format_}"
        raise UnknownNameError("task.kind", expected, with_nearest(kind, suits), "or leave it at auto")
    return kind


def numbered(samples: Iterable[Sample], kind: Kind, classes: Sequence[Label], origin: Origin) -> list[object]:
    """Return samples as examples of a task, their classes as numbers."""
    number_of = _numbers_of(classes)
    return [_example_of(kind, number_of, origin, place, sample) for place, sample in enumerate(samples, 1)]


def _numbers_of(classes: Sequence[Label]) -> dict[str, int]:
    return {str(name): number for number, name in enumerate(classes)}


def _example_of(kind: Kind, number_of: dict[str, int], origin: Origin, place: int, sample: Sample) -> Any:
    """Return a sample, which has a place among others, as an example of a task, its class as a number."""
    structure, label = sample
    if kind in ("nodes", "root"):
        return _numbered_tree(structure, number_of, origin, place)
    if kind == "number":
        return structure, _number(label, origin, place)
    return structure, _class(label, number_of, origin, place)


def _classes(samples: Iterable[Sample], kind: Kind, origin: Origin) -> tuple[Label, ...]:
    """Return the labels there are, as they were given, numbers in their order and others by the alphabet.

    Labels of one spelling, such as 1 and "1", are one class; it is a text then. So are all classes where two
    of them are equal, as true and 1 are.
    """
    spellings: dict[str, Label] = {}
    if kind in ("nodes", "root"):
        of_nodes = (str(label) for tree, _ in samples for label in tree.labels if label is not None)
        spellings = {name: name for name in of_nodes}
    else:
        for place, (_, label) in enumerate(samples, 1):
            if label is not None:
                name = _name(label, origin, place)
                alike = {type(label), type(spellings.get(name, label))}
                spellings[name] = label if len(alike) == 1 else name
    if len(spellings) == 1:
        fix = "look at the labels; data.label says at which key they are"
        raise ReadError(
            "data.train", "labels of two classes or more", f"only {next(iter(spellings.values()))!r}", fix
        )
    numbers = all(name.lstrip("-").isdecimal() for name in spellings)
    names = sorted(spellings, key=int if numbers else str)
    classes = [spellings[name] for name in names]
    return tuple(classes if len(set(classes)) == len(classes) else names)


def _numbered_tree(tree: Tree, number_of: dict[str, int], origin: Origin, place: int) -> Tree:
    if all(label is None or isinstance(label, int) for label in tree.labels):
        return tree
    labels = [_class(label, number_of, origin, place) for label in tree.labels]
    return trusted_tree(tree.parents, labels, tree.tokens)


def _class(label: object, number_of: dict[str, int], origin: Origin, place: int) -> int | None:
    """Return the number of a label's class; None without a label."""
    if label is None:
        return None
    if str(label) not in number_of:
        expected = f"a class of the training part: {shortened(number_of)}"
        fix = "add examples of it, or leave its label out"
        raise ReadError(origin.place(place), expected, repr(label), fix)
    return number_of[str(label)]


def _name(label: object, origin: Origin, place: int) -> str:
    if isinstance(label, list | dict | float):
        fix = "or set task.kind to number" if isinstance(label, float) else "write a text or a whole number"
        raise ReadError(origin.place(place), "the name of a class as label", describe_value(label), fix)
    return str(label)


def _number(label: object, origin: Origin, place: int) -> float | None:
    if label is not None and (isinstance(label, bool) or not isinstance(label, int | float)):
        fix = "or set task.kind to class"
        raise ReadError(origin.place(place), "a number as label", repr(label), fix)
    return label
