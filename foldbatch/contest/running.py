"""Running one contender: it learns by the clock, and answers the test part once."""

import time
from dataclasses import dataclass

import numpy as np

from foldbatch.contest.clock import Clock
from foldbatch.contest.contender import Contender, Lesson
from foldbatch.contest.examples import Examples
from foldbatch.contest.measures import Interval, code_lines, interval, score
from foldbatch.params.parameters import Array

PREDICTED_BATCH = 256  # examples of a batch of predictions
TRAIN_LOOKED_AT = 300  # examples of training whose answers tell how well it is known


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a contender.

    Attributes:
        title: its name.
        setting: the one that dev chose.
        score: accuracy of classes, R2 of numbers, on test, with its interval.
        error: of numbers the mean absolute error on test; of classes None.
        train_score: on some of the examples that it learnt from; ``dev_score`` on dev.
        dev_score: see above.
        cpu_seconds: of training, of all settings and threads; ``seconds`` by the clock on the wall.
        seconds: see above.
        microseconds: of a prediction on test, in batches of 256, from the structure to the answer.
        size: bytes of its parameters.
        lines: of code, beside libraries.
        in_time: whether it ended by itself, before its time was over.
        curve: seconds and score on dev after each epoch of the chosen setting.
    """

    title: str
    setting: str
    score: Interval
    error: float | None
    train_score: float
    dev_score: float
    cpu_seconds: float
    seconds: float
    microseconds: float
    size: int
    lines: int
    in_time: bool
    curve: tuple[tuple[float, float], ...] = ()


def run(contender: Contender, lesson: Lesson, test: Examples, clock: Clock) -> tuple[Figures, Array]:
    """Train a contender by a clock; return its figures and its answers of the test part, ``[len(test)]``."""
    learnt = contender.train(lesson, clock)
    cpu, seconds = clock.cpu(), clock.elapsed()
    shown = np.random.default_rng(lesson.seed).permutation(len(lesson.train))[:TRAIN_LOOKED_AT]
    train = lesson.train.taken(np.sort(shown))
    train_score = score(train.answers, learnt.predict(train.structures), lesson.task)
    dev_score = score(lesson.dev.answers, learnt.predict(lesson.dev.structures), lesson.task)  # warms up, too
    began = time.perf_counter()
    parts = [
        learnt.predict(test.structures[first : first + PREDICTED_BATCH])
        for first in range(0, len(test), PREDICTED_BATCH)
    ]
    microseconds = (time.perf_counter() - began) / len(test) * 1e6
    predicted = np.concatenate(parts)
    figures = Figures(
        contender.title,
        learnt.setting,
        interval(test.answers, predicted, lesson.task, lesson.seed),
        float(np.abs(test.answers - predicted).mean()) if lesson.task == "number" else None,
        train_score,
        dev_score,
        cpu,
        seconds,
        microseconds,
        learnt.size,
        code_lines(contender.sources(lesson.form)),
        learnt.in_time,
        tuple(learnt.curve),
    )
    return figures, predicted


def constant(lesson: Lesson, test: Examples) -> tuple[Figures, Array]:
    """Return the figures of always giving the most frequent class of training, or its mean number."""
    if lesson.task == "class":
        answer = np.bincount(lesson.train.answers).argmax()
        setting = f"always {lesson.classes[answer]!r}"
    else:
        answer = lesson.train.answers.mean()
        setting = f"always {answer:.4g}"
    predicted = np.full(len(test), answer)
    train, dev = (
        score(part.answers, np.full(len(part), answer), lesson.task) for part in (lesson.train, lesson.dev)
    )
    error = float(np.abs(test.answers - predicted).mean()) if lesson.task == "number" else None
    shown = interval(test.answers, predicted, lesson.task, lesson.seed)
    costs = 0.0, 0.0, 0.0  # seconds of training, of a prediction
    figures = Figures("constant", setting, shown, error, train, dev, *costs, size=8, lines=1, in_time=True)
    return figures, predicted
