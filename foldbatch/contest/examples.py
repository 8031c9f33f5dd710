"""Examples of a contest: structures with answers of one task, without what would make the contest unfair."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import ReadError, counted, shortened
from foldbatch.params.parameters import Array
from foldbatch.trees.objects import tree_of
from foldbatch.trees.tree import TreeNode
from foldbatch.types import describe_value

Form = Literal["phrases", "trees", "records", "sequences"]
Answer = Literal["class", "number"]
MIN_EXAMPLES = 20
MAX_WHOLE_CLASSES = 20  # whole numbers of more values are numbers to be told, not classes
MIN_OF_CLASS = 3  # one for each part of the split
IDENTITY = ("_id", "guid", "id", "idx", "index", "key", "uuid")  # fields that number the examples


@dataclass(frozen=True, slots=True)
class Examples:
    """Structures and their answers, which all contenders see alike.

    Attributes:
        structures: trees, records (dicts) or sequences (tuples of words).
        answers: ``[len(structures)]``: numbers of classes, int64, or the numbers to be told, float64.
        form: of the structures; ``phrases`` are trees with words at their leaves and a class at every node.
        task: ``class`` or ``number``.
        classes: the names of the classes by their numbers; none for numbers.
        source: where they are from.
        notes: sentences about what was left out or guessed.
    """

    structures: list[Any]
    answers: Array
    form: Form
    task: Answer
    classes: tuple[str, ...]
    source: str
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.structures)

    def taken(self, places: Sequence[int] | NDArray[np.generic]) -> "Examples":
        """Return some of the examples by their places, in that order."""
        structures = [self.structures[place] for place in places]
        answers = self.answers[np.asarray(places, np.int64)]
        return Examples(structures, answers, self.form, self.task, self.classes, self.source, self.notes)


def examples_of(
    structures: Iterable[Any],
    targets: Iterable[Any] | None,
    source: str,
    *,
    form: Form | None = None,
    task: Answer | None = None,
    notes: Sequence[str] = (),
) -> Examples:
    """Return structures and their targets as checked examples of a task.

    Structures without a target, those that repeat another one, and those of a class of fewer than three
    examples are left out; fields that only number the records are not read. A note tells each.

    Args:
        structures: trees, objects that `foldbatch.trees.from_` reads, records, strings or lists of words.
        targets: one for each structure; None for trees whose root has it as label.
        source: the name of the data in errors.
        form: of the structures; by default that of the first one.
        task: by default ``number`` for floats and for whole numbers of more than 20 values, else ``class``.
        notes: sentences that the examples bring along.

    Raises:
        ReadError: when there are fewer than 20 examples, one class, or as many classes as examples; when a
            target is missing or structures are of several forms.

    >>> texts = [f"{subject} is {state}" for subject in "abcdefghij" for state in ("good", "bad")]
    >>> examples = examples_of(texts, ["yes", "no"] * 10, "texts")
    >>> examples.structures[0], examples.form, examples.task, examples.classes
    (('a', 'is', 'good'), 'sequences', 'class', ('no', 'yes'))
    """
    read = list(structures)
    if not read:
        raise ReadError(source, f"{MIN_EXAMPLES} examples or more", "none", "name a file that has some")
    read = [_structure(item, f"{source}, example {place}") for place, item in enumerate(read, 1)]
    form = form or _form_of(read[0], labelled=targets is None)
    _check_forms(read, form, source)
    labels = [tree.label for tree in read] if targets is None else [plain(label) for label in targets]
    if len(labels) != len(read):
        actual, fix = counted(len(labels), "target"), "give one for each"
        raise ReadError(source, f"{len(read)} targets, one for each example", actual, fix)
    notes = list(notes)
    if form == "records":
        read, ignored = without_identity(read)
        notes += [f"not read, since they only number the examples: {', '.join(ignored)}"] * bool(ignored)
    read, labels = _labelled(read, labels, notes)
    read, labels = _different(read, labels, notes, form)
    _check_count(read, source)
    task = task or _task_of(labels)
    if task == "number":
        return Examples(read, _numbers(labels, source), form, task, (), source, tuple(notes))
    return _classified(read, [_class_name(label) for label in labels], form, source, notes)


def _classified(
    structures: list[object], names: list[str], form: Form, source: str, notes: list[str]
) -> Examples:
    """Return examples of classes, without those of classes that are too rare to be in each part."""
    counts = Counter(names)
    if len(counts) > 1 and 2 * len(counts) > len(names):
        actual = f"{len(counts)} different ones among {counted(len(names), 'example')}"
        fix = "name another field with --label, or a field of numbers with --task number"
        raise ReadError(source, "labels that repeat", actual, fix)
    classes = sorted((name for name, count in counts.items() if count >= MIN_OF_CLASS), key=_order)
    if len(counts) > 1 and len(classes) < len(counts):
        rare = [name for name, count in counts.items() if count < MIN_OF_CLASS]
        notes.append(f"classes of fewer than {MIN_OF_CLASS} examples are left out: {shortened(rare)}")
    if len(classes) < 2:
        actual = f"only {classes[0]!r}" if classes else "none"
        expected = f"two classes or more, of {MIN_OF_CLASS} examples or more each"
        raise ReadError(source, expected, actual, "look at the labels; --label names their field")
    number_of = {name: number for number, name in enumerate(classes)}
    kept = [place for place, name in enumerate(names) if name in number_of]
    _check_count(kept, source)
    answers = np.array([number_of[names[place]] for place in kept], np.int64)
    chosen = [structures[place] for place in kept]
    return Examples(chosen, answers, form, "class", tuple(classes), source, tuple(notes))


def without_identity(records: list[dict[str, object]]) -> tuple[list[dict[str, object]], list[str]]:
    """Return records without fields that are named as numbers of examples are and never repeat; and these.

    >>> without_identity([{"id": 7, "a": 1}, {"id": 8, "a": 1}])
    ([{'a': 1}, {'a': 1}], ['id'])
    """
    ignored = []
    for key in dict.fromkeys(key for record in records for key in record):
        name = str(key).lower()
        if name and not (name in IDENTITY or name.endswith(("_id", " id"))):
            continue
        values = [record.get(key) for record in records]
        if all(isinstance(value, int | str) for value in values) and len(set(values)) == len(values):
            ignored.append(key)
    if not ignored or all(set(record) <= set(ignored) for record in records):
        return records, []
    kept = [{key: value for key, value in record.items() if key not in ignored} for record in records]
    return kept, [str(key) or "the column without a name" for key in ignored]


def plain(value: object) -> Any:
    """Return a label as Python's own value: numbers of libraries become int or float.

    >>> plain(np.int64(3)), plain("a")
    (3, 'a')
    """
    return value.item() if isinstance(value, np.generic) else value


def _structure(item: object, where: str) -> Any:
    """Return a structure as the contest holds it: strings and lists become tuples of words."""
    if isinstance(item, TreeNode):
        return item
    if isinstance(item, str):
        return tuple(item.split())
    if isinstance(item, Mapping):
        return dict(item)
    if isinstance(item, list | tuple) and all(isinstance(part, str | int) for part in item):
        return tuple(map(str, item))
    tree = tree_of(item)
    if isinstance(tree, TreeNode):
        return tree
    fix = "give trees, records as dicts, strings or lists of words"
    raise ReadError(where, "a tree, a record or a sequence", describe_value(item), fix)


def _form_of(structure: object, *, labelled: bool) -> Form:
    if isinstance(structure, dict):
        return "records"
    if isinstance(structure, TreeNode):
        return "phrases" if labelled else "trees"
    return "sequences"


def _check_forms(structures: Sequence[object], form: Form, source: str) -> None:
    """Refuse a structure of another form than that of the first one."""
    kind = {"records": dict, "sequences": tuple}.get(form, TreeNode)
    for place, structure in enumerate(structures, 1):
        if not isinstance(structure, kind):
            actual, fix = describe_value(structure), "compare structures of one form"
            raise ReadError(f"{source}, example {place}", f"one of the form {form}", actual, fix)


def _labelled(
    structures: list[Any], labels: list[object], notes: list[str]
) -> tuple[list[Any], list[object]]:
    """Return the structures that have a label, and the labels; note how many have none."""
    kept = [place for place, label in enumerate(labels) if not _is_missing(label)]
    if len(kept) < len(labels):
        notes.append(f"{counted(len(labels) - len(kept), 'example')} without a label left out")
    return [structures[place] for place in kept], [labels[place] for place in kept]


def _is_missing(label: object) -> bool:
    return label is None or label == "" or (isinstance(label, float) and math.isnan(label))


def _different(
    structures: list[object], labels: list[object], notes: list[str], form: Form
) -> tuple[list[Any], list[Any]]:
    """Return each structure once, so that none of the test part was in training; note how many repeat."""
    first: dict[Any, int] = {}
    for place, structure in enumerate(structures):
        first.setdefault(_identity(structure, form), place)
    if len(first) < len(structures):
        repeated = counted(len(structures) - len(first), "example")
        notes.append(f"{repeated} left out that repeat another one: tests are of structures not seen before")
    return [structures[place] for place in first.values()], [labels[place] for place in first.values()]


def _identity(structure: Any, form: Form) -> object:
    """Return a value that two structures share where contenders see the same of them."""
    if form == "records":
        return repr(sorted(structure.items(), key=lambda item: str(item[0])))
    if isinstance(structure, TreeNode):
        tree = structure.tree
        labels = () if form == "phrases" else tuple(map(str, tree.labels))
        return tree.parents.tobytes(), labels, tuple(tree.tokens)
    return structure


def _check_count(structures: Sequence[object], source: str) -> None:
    if len(structures) < MIN_EXAMPLES:
        fix = "an interval of so few would say nothing; give more that differ and have labels"
        raise ReadError(source, f"{MIN_EXAMPLES} examples or more", str(len(structures)), fix)


def _task_of(labels: Sequence[object]) -> Answer:
    """Return the task that labels suggest: numbers are classes where few whole ones repeat."""
    numbers = [label for label in labels if isinstance(label, int | float) and not isinstance(label, bool)]
    if len(numbers) < len(labels):
        return "class"
    integral = all(float(label).is_integer() for label in numbers)
    return "class" if integral and len(set(numbers)) <= MAX_WHOLE_CLASSES else "number"


def _numbers(labels: Sequence[Any], source: str) -> NDArray[np.float64]:
    """Return labels as numbers; refuse texts, infinity, and numbers that are all the same."""
    for place, label in enumerate(labels, 1):
        fits = isinstance(label, int | float) and not isinstance(label, bool)
        if not fits or not math.isfinite(label):
            fix = "name another field with --label, or write --task class"
            raise ReadError(f"{source}, example {place}", "a finite number as label", repr(label), fix)
    numbers = np.array(labels, np.float64)
    if np.ptp(numbers) == 0:
        actual, fix = f"only {labels[0]!r}", "look at the labels; --label names their field"
        raise ReadError(source, "numbers that differ", actual, fix)
    return numbers


def _class_name(label: object) -> str:
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def _order(name: str) -> tuple[float, str]:
    """Return the key by which classes are sorted: numbers by value, others by the alphabet behind them."""
    return (float(name), name) if name.lstrip("-").isdecimal() else (math.inf, name)
