"""`Job`: a question about examples, which parts they are in, and how models of each kind read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

PARTS = 20  # of which dev has two, test four, and training the rest


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """An object, the number of its class, and the group that it comes from, such as a file.

    All examples of a group are in one part, so that near copies do not cross. The errors of a group are
    taken together where the uncertainty of a figure is estimated.
    """

    data: Any
    label: int
    group: str


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A question with its examples, of which dev chooses settings, and test is used once.

    Attributes:
        name: of the question.
        classes: the possible answers.
        train, dev, test: the examples.
        walk: makes our model of the examples to train on: a function of a pair (data, label or None) to the
            scores of the classes, with the loss in it.
        features: what logistic regression and boosting read: numbers by name.
        tokens: what a recurrent network reads: words in order.
        mirrored: the same example turned around, with the other label, where there is such a symmetry. Models
            that do not have it built in train on both.
        bag: the features without those that somebody made for this question, where there are such.
    """

    name: str
    classes: tuple[str, ...]
    train: Sequence[Example]
    dev: Sequence[Example]
    test: Sequence[Example]
    walk: Callable[[Sequence[Example]], Callable[[Any], Any]]
    features: Callable[[Any], dict[str, float]]
    tokens: Callable[[Any], list[str]]
    mirrored: Callable[[Example], Example] | None = None
    bag: Callable[[Any], dict[str, float]] | None = None

    @property
    def parts(self) -> tuple[Sequence[Example], Sequence[Example], Sequence[Example]]:
        """The examples to train on, dev and test."""
        return self.train, self.dev, self.test

    def with_mirrors(self) -> list[Example]:
        """Return the examples to train on, and beside each one its mirror image, where there is one."""
        turned = [*map(self.mirrored, self.train)] if self.mirrored else []
        return [*self.train, *turned]

    def cut(self, count: int) -> Job:
        """Return the job with so many examples to train on, and as many in dev and in test, or fewer."""
        return replace(self, train=self.train[:count], dev=self.dev[:count], test=self.test[:count])


def part_of(group: str) -> str:
    """Return the part that a group belongs to, by a digest of its name: the same on every machine.

    >>> part_of("json/decoder.py"), part_of("bisect.py")
    ('train', 'test')
    """
    number = crc32(group.encode()) % PARTS
    return "dev" if number < 2 else "test" if number < 6 else "train"


def parted(examples: Iterable[Example]) -> dict[str, list[Example]]:
    """Return the examples of each part: ``train``, ``dev`` and ``test``."""
    parts: dict[str, list[Example]] = {"train": [], "dev": [], "test": []}
    for example in examples:
        parts[part_of(example.group)].append(example)
    return parts
