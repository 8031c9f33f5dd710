"""Measures: right answers with the interval in which they lie, and differences of two contenders in pairs."""

import ast
import inspect
import math
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.contest.examples import Answer

Z = 1.959964  # of an interval of 95 %
DRAWS = 2000  # of a bootstrap
Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure, with the interval of 95 % that it lies in."""

    figure: float
    low: float
    high: float


def score(answers: Array, predicted: Array, task: Answer) -> float:
    """Return the accuracy of classes, or the R2 of numbers: 1 is perfect, 0 as good as their mean.

    >>> score(np.array([0, 1, 1, 1]), np.array([0, 1, 0, 1]), "class")
    0.75
    """
    return _mean_score(answers, gains_of(answers, predicted, task), task)


def gains_of(answers: Array, predicted: Array, task: Answer) -> Array:
    """Return how good each answer is: of classes 1 or 0, of numbers the negative squared error."""
    if task == "class":
        right: Array = (answers == predicted).astype(np.float64)
        return right
    errors: Array = np.square(answers - predicted)
    return -errors


def _mean_score(answers: Array, gains: Array, task: Answer) -> float:
    if task == "class":
        return float(gains.mean())
    spread = float(np.square(answers - answers.mean()).mean())
    return 1 + float(gains.mean()) / spread if spread else 0.0


def interval(answers: Array, predicted: Array, task: Answer, seed: int) -> Interval:
    """Return the score with its interval: Wilson's of an accuracy, by bootstrap of R2.

    >>> interval(np.array([0, 1, 1, 1]), np.array([0, 1, 0, 1]), "class", 0).low.__round__(3)
    0.301
    """
    figure = score(answers, predicted, task)
    if task == "class":
        return Interval(figure, *wilson(figure, len(answers)))
    gains = gains_of(answers, predicted, task)
    scores = [_mean_score(answers[drawn], gains[drawn], task) for drawn in _draws(len(answers), seed)]
    return Interval(figure, *_middle(scores))


def wilson(share: float, count: int) -> tuple[float, float]:
    """Return Wilson's interval of 95 % of a share of so many.

    >>> [round(end, 3) for end in wilson(0.5, 100)]
    [0.404, 0.596]

    Source: Wilson 1927, Probable inference, the law of succession, and statistical inference.
    """
    square = Z * Z / count
    middle = (share + square / 2) / (1 + square)
    half = Z / (1 + square) * math.sqrt(share * (1 - share) / count + square / (4 * count))
    return max(middle - half, 0.0), min(middle + half, 1.0)


def difference(answers: Array, first: Array, second: Array, task: Answer, seed: int) -> Interval:
    """Return by how much the first predictions are better than the second ones, by a bootstrap in pairs.

    Args:
        answers: the right ones, ``[N]``.
        first: predictions, ``[N]``.
        second: those of a contender to compare with, ``[N]``.
        task: ``class`` for a difference of accuracies, ``number`` for one of R2.
        seed: of the bootstrap.
    """
    gains = [gains_of(answers, predicted, task) for predicted in (first, second)]
    figure = _mean_score(answers, gains[0], task) - _mean_score(answers, gains[1], task)
    draws = [
        _mean_score(answers[drawn], gains[0][drawn], task)
        - _mean_score(answers[drawn], gains[1][drawn], task)
        for drawn in _draws(len(answers), seed)
    ]
    return Interval(figure, *_middle(draws))


def mcnemar(answers: Array, first: Array, second: Array) -> float:
    """Return the chance of so unequal answers if two contenders were equally good: McNemar's exact test.

    >>> mcnemar(np.zeros(10), np.zeros(10), np.array([0] * 4 + [1] * 6))
    0.03125

    Source: McNemar 1947, Note on the sampling error of the difference between correlated proportions.
    """
    right, also = answers == first, answers == second
    wins, losses = int((right & ~also).sum()), int((~right & also).sum())
    count, fewer = wins + losses, min(wins, losses)
    if not count:
        return 1.0
    logs = [
        math.lgamma(count + 1) - math.lgamma(n + 1) - math.lgamma(count - n + 1) for n in range(fewer + 1)
    ]
    tail = math.fsum(math.exp(log - count * math.log(2)) for log in logs)
    return min(1.0, round(2 * tail, 12))


def outcome(gap: Interval, chance: float | None) -> str:
    """Return ``wins``, ``ties`` or ``loses``: a difference counts where its interval and the test exclude 0.

    >>> outcome(Interval(0.1, 0.02, 0.2), 0.01), outcome(Interval(0.1, -0.02, 0.2), 0.2)
    ('wins', 'ties')
    """
    if chance is not None and chance >= 0.05:
        return "ties"
    return "wins" if gap.low > 0 else "loses" if gap.high < 0 else "ties"


def _draws(count: int, seed: int) -> Array:
    return np.random.default_rng(seed).integers(0, count, (DRAWS, count))


def _middle(figures: Iterable[float]) -> tuple[float, float]:
    low, high = np.percentile(list(figures), [2.5, 97.5])
    return float(low), float(high)


def code_lines(sources: Iterable[Any]) -> int:
    """Return how many lines of code functions and classes have: no comments, docstrings or blank lines.

    >>> code_lines([wilson])
    5
    """
    count = 0
    for source in sources:
        tree = ast.parse(textwrap.dedent(inspect.getsource(source)))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
        count += sum(bool(line.strip()) for line in ast.unparse(tree).splitlines())
    return count
