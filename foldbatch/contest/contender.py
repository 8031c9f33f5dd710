"""Contenders: what each is given, and what it brings back."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from foldbatch.contest.clock import Clock
from foldbatch.contest.examples import Answer, Examples, Form
from foldbatch.contest.features import phrases_of
from foldbatch.params.parameters import Array

MAX_PHRASES = 4  # further examples of a tree, of its phrases, for contenders that know no trees


@dataclass(frozen=True, slots=True)
class Lesson:
    """All that a contender learns from: the test part is not in it.

    Attributes:
        train: examples to learn from.
        dev: examples to stop early by.
        flat_structures: what contenders without trees learn from: the same, and of phrases, whose nodes have
            labels, some of the phrases below each root.
        flat_answers: their answers, ``[len(flat_structures)]``.
        seed: of first values, orders and dropout.
    """

    train: Examples
    dev: Examples
    flat_structures: Sequence[object]
    flat_answers: Array
    seed: int

    @property
    def form(self) -> Form:
        """The form of the structures."""
        return self.train.form

    @property
    def task(self) -> Answer:
        """The kind of the answers."""
        return self.train.task

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes; none for numbers."""
        return self.train.classes


Predict: TypeAlias = Callable[[Sequence[Any]], Array]


@dataclass(frozen=True, slots=True)
class Learnt:
    """A trained contender.

    Attributes:
        predict: from structures to the numbers of their classes, or to numbers, ``[N]``.
        size: bytes of its parameters.
        setting: the setting that dev chose, in words.
        curve: the seconds and the score on dev after each epoch, or round, of that setting.
        in_time: whether it ended by itself, rather than because its time was over.
    """

    predict: Predict
    size: int
    setting: str
    curve: list[tuple[float, float]] = field(default_factory=list)
    in_time: bool = True


Train: TypeAlias = Callable[[Lesson, Clock], Learnt]


@dataclass(frozen=True, slots=True)
class Contender:
    """A way to learn the task.

    Attributes:
        title: its name in tables.
        train: learns a lesson in the time of a clock.
        sources: functions and classes whose lines are what a user would write for it, beside libraries.
    """

    title: str
    train: Train
    sources: Callable[[Form], Sequence[object]]


@dataclass(frozen=True, slots=True)
class Attempt:
    """A setting that a contender has trained: its model, its score on dev, and whether it ended by itself."""

    setting: str
    model: Any
    score: float
    curve: list[tuple[float, float]]
    in_time: bool


def best_of(settings: Iterable[Callable[[Clock], Attempt]], clock: Clock) -> tuple[Attempt, bool]:
    """Train settings while there is time; return the one that is best on dev, and whether none was cut off.

    A setting has all the time that it needs, as half a training would say little of it; the next one begins
    where at least half as much is left.

    Args:
        settings: functions that train a setting by a clock, likely ones first.
        clock: of all of them.
    """
    attempts: list[Attempt] = []
    for train in settings:
        if attempts and clock.remaining() < clock.elapsed() / len(attempts) / 2:
            break
        attempts.append(train(clock.part(1.0)))
    return max(attempts, key=lambda attempt: attempt.score), all(attempt.in_time for attempt in attempts)


def lesson_of(train: Examples, dev: Examples, seed: int) -> Lesson:
    """Return the lesson of two parts, with phrases of labelled trees as further flat examples."""
    structures, answers = list(train.structures), [train.answers]
    if train.form == "phrases":
        number_of = {name: number for number, name in enumerate(train.classes)}
        phrases = dict.fromkeys(
            (words, str(label))
            for tree in train.structures
            for words, label in phrases_of(tree)
            if str(label) in number_of
        )
        listed = list(phrases)
        count = min(len(listed), MAX_PHRASES * len(train))
        chosen = np.sort(np.random.default_rng(seed).permutation(len(listed))[:count])
        structures += [listed[place][0] for place in chosen]
        answers.append(np.array([number_of[listed[place][1]] for place in chosen], train.answers.dtype))
    return Lesson(train, dev, structures, np.concatenate(answers), seed)
