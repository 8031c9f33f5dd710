"""Metrics of the values that `Metric` blocks collect, and figures of a training: found by name, compared."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from foldbatch.engines.results import MetricValues, Results
from foldbatch.errors import TrainingError, UnknownNameError, with_nearest
from foldbatch.params.parameters import Array
from foldbatch.system.closed import Closed
from foldbatch.train.numbers import whole_number
from foldbatch.types import describe_value
from foldbatch.views import plots
from foldbatch.views.plots import Plot

Figure: TypeAlias = Any  # a number, or several by name
Mode = Literal["min", "max"]
MODES: dict[Mode, tuple[str, ...]] = {  # by what is part of a figure's name
    "min": ("loss", "error", "mse", "mae", "perplexity"),
    "max": ("accuracy", "f1", "top", "auroc", "precision", "r2"),
}


def flattened(figures: Mapping[str, object]) -> dict[str, Figure]:
    """Return figures in one level, each class's under a name of its own; only numbers and texts stay.

    >>> flattened({"loss": 0.5, "train_f1": {"bad": 1.0, "good": 0.5}, "confusion": [[1, 0], [0, 1]]})
    {'loss': 0.5, 'train_f1/bad': 1.0, 'train_f1/good': 0.5}
    """
    flat: dict[str, object] = {}
    for name, value in figures.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}/{key}": entry for key, entry in flattened(value).items()}
        elif isinstance(value, int | float | str):
            flat[name] = value
    return flat


def figure_of(where: str, figures: Mapping[str, object], name: str) -> float:
    """Return a figure by name; one by class is named ``FIGURE/CLASS``.

    >>> figure_of("EarlyStopping", {"validation_f1": {"good": 0.5}}, "validation_f1/good")
    0.5
    """
    flat = flattened(figures)
    if not isinstance(flat.get(name), int | float):
        fix = "figures that begin with validation_ need fit(examples, validation)"
        raise UnknownNameError(where, f"a figure of {', '.join(flat)}", with_nearest(name, flat), fix)
    return float(flat[name])


def mode_of(where: str, figure: str, mode: Mode | None = None) -> Mode:
    """Return whether lower or higher is better: the mode, else as the name of a figure says.

    >>> mode_of("Checkpoints", "validation_accuracy"), mode_of("EarlyStopping", "loss")
    ('max', 'min')
    """
    if mode in ("min", "max"):
        return mode
    if mode is not None:
        expected, fix = "'min' or 'max'", "'min' is for losses, 'max' for accuracies"
        raise TrainingError(f"{where} mode", expected, repr(mode), fix)
    modes = [candidate for candidate, parts in MODES.items() if any(part in str(figure) for part in parts)]
    if len(modes) != 1:
        expected = f"a name with one of {', '.join(part for parts in MODES.values() for part in parts)}"
        raise TrainingError(f"{where} monitor", expected, repr(figure), "or give mode='min' or mode='max'")
    return modes[0]


def is_better(value: float, best: float | None, mode: str | None, margin: float = 0.0) -> bool:
    """Return whether a figure is better than the best one by more than a margin; NaN never is.

    >>> is_better(0.5, None, "min"), is_better(0.5, 0.55, "min", 0.1), is_better(0.7, 0.5, "max", 0.1)
    (True, False, True)
    """
    if math.isnan(value):
        return False
    return best is None or (value < best - margin if mode == "min" else value > best + margin)


Every: TypeAlias = Literal["value", "example"]
EVERY = get_args(Every)
Labels = Sequence[Any]


class Metric(Protocol):
    """A figure of one `foldbatch.Metric` block's values.

    Those of this package are made of `of`, `name` (by default a short name of the class) and `every`. A value
    whose label is None is not counted; of no values the figure is NaN. Values and labels that do not fit, and
    settings that are none, raise `TrainingError`.

    Attributes:
        name: under which the figure is shown.
        of: the name of the block.
        every: ``"value"`` counts each value that the block collected, so each node of a tree. ``"example"``
            counts the last value of each example. That is the root's, where the block takes what is computed
            from the children; see the order of visits at `foldbatch.Metric`.
    """

    name: str
    of: str
    every: str

    def compute(self, values: Array, labels: Labels) -> Figure:
        """Return the figure of all values ``[m, ...]`` and their labels: a number, or plain data."""


class Baseline(NamedTuple):
    """The figure of an answer that is the same for every example; one that a model has learnt is better."""

    answer: str  # in words
    figure: float  # NaN where nothing is labelled


def majority_share(labels: Iterable[object]) -> float:
    """Return the share of the most frequent label, which is the accuracy of always answering it.

    Print it beside an accuracy: of labels of which 72 % are alike, 73 % right answers say little. Labels that
    are None are not counted; of no labels the share is NaN.

    >>> majority_share(["no", "yes", "no", "no", None])
    0.75
    """
    counts = Counter(label for label in labels if label is not None)
    return max(counts.values()) / counts.total() if counts else math.nan


class Base(Closed):
    """The common base of the package's metrics: names, and the values that count; see `Metric`."""

    usual = ""

    def __init__(self, of: str, name: str | None = None, *, every: Every = "value") -> None:
        if every not in EVERY:
            fix = "'example' counts the last value of each example, in a tree the root's"
            raise TrainingError(f"{type(self).__name__} every", "'value' or 'example'", repr(every), fix)
        self.of = of
        self.name = self.usual if name is None else name
        self.every: str = every

    def baseline(self, labels: Labels) -> Baseline | None:
        """Return the figure of the best constant answer to these labels; None where that says nothing."""
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.of!r}, name={self.name!r}, every={self.every!r})"


def labelled(where: str, values: Array, labels: Labels) -> tuple[Array, list[Any]]:
    """Return the values that have a label, and these labels; a label of None is no label.

    >>> labelled("Accuracy", np.array([1, 2, 3]), [7, None, 9])
    (array([1, 3]), [7, 9])
    """
    if len(values) != len(labels):
        fix = "give it labels: AllOf(tensor, label) >> Metric(name), or in a walk one that is not None"
        raise TrainingError(where, f"{len(values)} labels, one a value", str(len(labels)), fix)
    places = [place for place, label in enumerate(labels) if label is not None]
    return values[places], [labels[place] for place in places]


class OfClasses(Base):
    """A metric of scores ``[m, classes]`` and labels, ``m`` whole numbers."""

    def compute(self, values: Array, labels: Labels) -> Figure:
        """Return the figure."""
        where = type(self).__name__
        scores, kept = labelled(where, values, labels)
        if scores.ndim != 2 or (len(scores) and scores.shape[1] < 2):
            expected, shape = "a vector of two scores or more as each value", list(scores.shape[1:])
            raise TrainingError(where, expected, f"values of shape {shape}", "give it the logits")
        return self._of_labels(where, scores, kept)

    def _of_labels(self, where: str, scores: Array, kept: list[object]) -> Figure:
        """Return the figure of scores and as many labels, which are checked."""
        for label in kept:
            if not isinstance(label, int | np.integer) or not 0 <= label < scores.shape[1]:
                expected = f"labels from 0 to {scores.shape[1] - 1}, or None"
                raise TrainingError(where, expected, describe_value(label), "give the class's number")
        return self._figure(scores, np.array(kept, np.int64))

    def _figure(self, scores: Array, numbers: NDArray[np.int64]) -> Figure:
        return self._share(scores, numbers) if len(numbers) else math.nan

    def _share(self, scores: Array, numbers: NDArray[np.int64]) -> float:
        raise NotImplementedError


class OfLabelSets(OfClasses):
    """A metric whose labels may be several classes each: vectors ``[classes]`` of 0 and 1, or of truths."""

    def _of_labels(self, where: str, scores: Array, kept: list[Any]) -> Figure:
        """Return the figure of scores and of numbers or vectors as labels, which are checked."""
        if not kept or np.ndim(kept[0]) == 0:
            return super()._of_labels(where, scores, kept)
        expected = f"numbers 0 or 1, {scores.shape[1]} in each label"
        fix = "1 says that the class of the score is right; several may be"
        for label in kept:
            if np.shape(label) != scores.shape[1:] or not np.isin(label, (0, 1)).all():
                raise TrainingError(where, expected, describe_value(label), fix)
        return self._of_sets(scores, np.array(kept) != 0)

    def _of_sets(self, scores: Array, sets: NDArray[np.bool_]) -> Figure:
        """Return the figure of scores and of which classes are right, both ``[n, classes]``."""
        raise NotImplementedError


class Accuracy(OfClasses):
    """The share of values whose greatest score is at their label.

    >>> Accuracy("root").compute(np.array([[0.1, 0.9], [0.8, 0.2], [1.0, 0.0]]), [1, 1, None])
    0.5
    """

    usual = "accuracy"

    def baseline(self, labels: Labels) -> Baseline:
        """Return the share of the most frequent label.

        >>> Accuracy("root").baseline([1, 1, 0, 1])
        Baseline(answer='the most frequent class', figure=0.75)
        """
        return Baseline("the most frequent class", majority_share(labels))

    def _share(self, scores: Array, numbers: NDArray[np.int64]) -> float:
        return float(np.mean(scores.argmax(axis=1) == numbers))


class TopK(OfClasses):
    """The share of values whose label is among the `k` greatest scores, at least 1; of equal ones, all count.

    >>> TopK("root", 2).compute(np.array([[0.1, 0.9, 0.2], [0.8, 0.1, 0.2]]), [2, 1])
    0.5
    """

    def __init__(self, of: str, k: int = 5, name: str | None = None, *, every: Every = "value") -> None:
        whole_number("TopK k", k, 1, "for example 5")
        super().__init__(of, f"top_{k}" if name is None else name, every=every)
        self.k = k

    def _share(self, scores: Array, numbers: NDArray[np.int64]) -> float:
        label_scores = np.take_along_axis(scores, numbers[:, None], axis=1)
        return float(np.mean((scores > label_scores).sum(axis=1) < self.k))


class SideAccuracy(OfClasses):
    """The share of values on the right side of the middle, where classes stand in an order, as ratings do.

    Its answer is the side, of the first or of the last half of the classes, that is more probable. Values at
    the middle of an odd number of classes are not counted, and its probability is left out: of five ratings 0
    and 1 are on a side, 3 and 4 on the other.

    Args:
        of, name, every: see `Metric`. Values are logits or log probabilities.

    >>> scores = np.log([[0.3, 0.3, 0.4], [0.3, 0.5, 0.2], [0.1, 0.1, 0.8]])
    >>> round(SideAccuracy("root").compute(scores, [0, 1, 2]), 2)  # the second is in the middle
    0.5
    """

    usual = "side_accuracy"

    def _figure(self, scores: Array, numbers: NDArray[np.int64]) -> float:
        """Return the share of the labels below and above the middle; NaN where there are none."""
        half, classes = scores.shape[1] // 2, scores.shape[1]
        counted = (numbers < half) | (numbers >= classes - half)
        if not counted.any():
            return math.nan
        logits = np.asarray(scores[counted], np.float64)
        first = np.logaddexp.reduce(logits[:, :half], axis=1)
        last = np.logaddexp.reduce(logits[:, classes - half :], axis=1)
        return float(np.mean((last > first) == (numbers[counted] >= classes - half)))


class Drawn(OfClasses):
    """The common base of metrics that draw what they have computed last; a notebook shows it by itself."""

    def plot(self) -> Plot:
        """Return a picture of the last figure.

        Raises:
            TrainingError: when nothing has been computed yet, or of no labelled values.
            BackendError: when matplotlib is not installed.
        """
        if not self._is_computed():
            kind, fix = type(self).__name__, "give it to a Trainer, and evaluate or fit with a validation set"
            raise TrainingError(f"{kind} plot", "a metric of labelled values", "nothing computed yet", fix)
        return self._plot()

    def _is_computed(self) -> bool:
        raise NotImplementedError

    def _plot(self) -> Plot:
        raise NotImplementedError

    def _repr_png_(self) -> bytes | None:
        return self.plot().content("png") if self._is_computed() and plots.is_installed() else None


class Confusion(Drawn):
    """How often each class is taken for which: row = label, column = the class of the greatest score.

    Args:
        of, name, every: see `Metric`.
        classes: the names of the classes, for `plot`; by default their numbers.

    >>> Confusion("root").compute(np.array([[0.1, 0.9], [0.8, 0.2], [0.7, 0.3]]), [1, 0, 1])
    [[1, 0], [1, 1]]
    """

    usual = "confusion"

    def __init__(
        self,
        of: str,
        name: str | None = None,
        *,
        classes: Sequence[str] | None = None,
        every: Every = "value",
    ) -> None:
        super().__init__(of, name, every=every)
        self.classes = None if classes is None else list(classes)
        self.table: list[list[int]] = []  # the last one that was computed

    def _figure(self, scores: Array, numbers: NDArray[np.int64]) -> list[list[int]]:
        self.table = _counts(scores, numbers).tolist()
        return self.table

    def _is_computed(self) -> bool:
        return any(map(any, self.table))

    def _plot(self) -> Plot:
        return plots.confusion(self.table, names_of(type(self).__name__, self.classes, len(self.table)))


class CalibrationError(Drawn):
    """The distance between how sure answers are and how often they are right, a mean over bins of answers.

    An answer is as sure as its class is probable. It falls in one of `bins` bins of equal width; of each bin
    the mean probability is compared with the share of right answers, and bins count by their answers. 0 is
    best. `plot` draws the reliability diagram.

    Args:
        of, name, every: see `Metric`. Values are logits or log probabilities.
        bins: how many.

    >>> round(CalibrationError("root").compute(np.log([[0.75, 0.25], [0.75, 0.25]]), [0, 1]), 6)
    0.25

    Source: Naeini, Cooper and Hauskrecht 2015; Guo and others 2017, equation 3.
    """

    usual = "calibration_error"

    def __init__(self, of: str, name: str | None = None, *, bins: int = 10, every: Every = "value") -> None:
        super().__init__(of, name, every=every)
        self.bins = whole_number("CalibrationError bins", bins, 1, "for example 10")
        self._sums = np.zeros((3, self.bins))  # by bin: answers, their probabilities, how many are right

    def _figure(self, scores: Array, numbers: NDArray[np.int64]) -> float:
        """Return the error; keep the sums of bins for the plot."""
        logits = np.asarray(scores, np.float64)
        shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
        sure = shifted.max(axis=1) / shifted.sum(axis=1)
        # a bin has its upper end, and not its lower one
        places = np.digitize(sure, np.linspace(0, 1, self.bins + 1)[1:-1], right=True)
        weights = (None, sure, scores.argmax(axis=1) == numbers) if len(scores) else (None, sure, sure)
        self._sums = np.array([np.bincount(places, row, self.bins) for row in weights])
        _, confidence, right = self._sums
        return float(np.abs(confidence - right).sum() / len(scores)) if len(scores) else math.nan

    def _is_computed(self) -> bool:
        return bool(self._sums[0].any())

    def _plot(self) -> Plot:
        counts, confidence, right = self._sums
        sizes = np.maximum(counts, 1)
        return plots.reliability(np.linspace(0, 1, self.bins + 1), counts, confidence / sizes, right / sizes)


def names_of(where: str, classes: Sequence[str] | None, count: int) -> list[str]:
    """Return the names of classes, by default their numbers; refuse another number of them."""
    names = [str(number) for number in range(count)] if classes is None else list(classes)
    if len(names) != count:
        raise TrainingError(f"{where} classes", f"{count} names", str(len(names)), "one a score")
    return names


AVERAGES = ("macro", "micro", "weighted", None)
Average: TypeAlias = Literal["macro", "micro", "weighted"] | None


class F1(OfLabelSets):
    """The harmonic mean of precision and recall, of all classes or by class.

    Labels may be sets of classes, vectors ``[classes]`` of 0 and 1; a class is then an answer where its score
    is above 0, the logit of one half.

    Args:
        of, name, every: see `Metric`.
        average: ``"macro"``: the mean over the classes that are a label or an answer somewhere.
            ``"weighted"``: the mean over classes, each as often as it is a label. ``"micro"``: the F1 of all
            answers together, which with one class a value is the accuracy. None: a dict by class.
        classes: the names of the classes, for `average` None; by default ``"0"``, ``"1"`` and so on.

    >>> scores = np.array([[0.1, 0.9], [0.8, 0.2], [0.7, 0.3]])
    >>> F1("root", average=None, classes=["bad", "good"]).compute(scores, [1, 0, 0])
    {'bad': 1.0, 'good': 1.0}
    >>> round(F1("root").compute(scores, [1, 0, 1]), 4)
    0.6667
    """

    usual = "f1"

    def __init__(
        self,
        of: str,
        name: str | None = None,
        *,
        average: Average = "macro",
        classes: Sequence[str] | None = None,
        every: Every = "value",
    ) -> None:
        if average not in AVERAGES:
            expected = "'macro', 'micro', 'weighted' or None"
            raise TrainingError("F1 average", expected, repr(average), "None is by class")
        super().__init__(of, name, every=every)
        self.average = average
        self.classes = None if classes is None else list(classes)

    def _figure(self, scores: Array, numbers: NDArray[np.int64]) -> Figure:
        counts = _counts(scores, numbers)
        return self._of_counts(counts.diagonal(), counts.sum(axis=0), counts.sum(axis=1))

    def _of_sets(self, scores: Array, sets: NDArray[np.bool_]) -> Figure:
        answers = scores > 0
        return self._of_counts((answers & sets).sum(axis=0), answers.sum(axis=0), sets.sum(axis=0))

    def _of_counts(self, right: Array, answers: Array, labels: Array) -> Figure:
        """Return the figure, or one by class, of how often each class is right, an answer and a label."""
        sums = answers + labels
        by_class = 2 * right / np.maximum(sums, 1)
        if self.average is None:
            return dict(zip(names_of("F1", self.classes, len(right)), by_class.tolist(), strict=True))
        if not sums.any():
            return math.nan
        if self.average == "micro":
            return float(2 * right.sum() / sums.sum())
        if self.average == "weighted":
            return float(np.average(by_class, weights=labels)) if labels.any() else math.nan
        return float(np.mean(by_class[sums > 0]))


def _counts(scores: Array, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how often each label (row) gets each answer (column)."""
    classes = scores.shape[1]
    answers = scores.argmax(axis=1) if len(scores) else np.zeros(0, np.int64)
    return np.bincount(numbers * classes + answers, minlength=classes**2).reshape(classes, classes)


class Perplexity(OfClasses):
    """How many equally likely choices would be as hard to guess: exp of the mean of -log p(label).

    Values are logits or log probabilities. It is infinite where it is too large for a float.

    >>> Perplexity("word").compute(np.zeros((3, 4)), [0, 3, 1])
    4.0
    """

    usual = "perplexity"

    def _share(self, scores: Array, numbers: NDArray[np.int64]) -> float:
        """Return the perplexity of scores ``[n, classes]`` with label numbers ``[n]``."""
        scores = scores.astype(np.float64)
        label_scores = np.take_along_axis(scores, numbers[:, None], axis=1)[:, 0]
        # Log probabilities are logits, too: their log-sum-exp is 0.
        maxima = scores.max(axis=1)
        log_sums = maxima + np.log(np.exp(scores - maxima[:, None]).sum(axis=1))
        with np.errstate(over="ignore"):
            return float(np.exp(np.mean(log_sums - label_scores)))


class OfNumbers(Base):
    """A metric of numbers ``[m, *shape]`` and labels, numbers or arrays of the values' shape."""

    def compute(self, values: Array, labels: Labels) -> float:
        """Return the figure, or NaN of no values."""
        where = type(self).__name__
        kept, right = labelled(where, values, labels)
        try:
            wanted = np.array(right, np.float64).reshape((len(right), *kept.shape[1:]))
        except (TypeError, ValueError) as error:
            expected = f"labels of shape {list(kept.shape[1:])}"
            raise TrainingError(where, expected, str(error), "give numbers, or None") from None
        return self._figure(np.asarray(kept, np.float64), wanted)

    def _figure(self, values: Array, wanted: Array) -> float:
        """Return the figure of numbers and their labels, of one shape."""
        raise NotImplementedError


class MeanSquaredError(OfNumbers):
    """The mean of squared differences between values ``[m, *shape]`` and labels, over all entries.

    >>> MeanSquaredError("score").compute(np.array([1.0, 2.0]), [1, 4])
    2.0
    """

    usual = "mse"
    distance: Callable[[Array], Array] = np.square

    def baseline(self, labels: Labels) -> Baseline:
        """Return the figure of always answering the mean of the labels.

        >>> MeanSquaredError("score").baseline([1.0, 3.0, None])
        Baseline(answer='the mean', figure=1.0)
        """
        numbers = np.array([label for label in labels if label is not None], np.float64)
        means = np.broadcast_to(numbers.mean(axis=0), numbers.shape) if len(numbers) else numbers
        return Baseline("the mean", self.compute(means, list(numbers)))

    def _figure(self, values: Array, wanted: Array) -> float:
        distances = type(self).distance(values - wanted)
        return float(distances.mean()) if distances.size else math.nan


class MeanAbsoluteError(MeanSquaredError):
    """The mean distance between values ``[m, *shape]`` and labels, over all entries.

    >>> MeanAbsoluteError("score").compute(np.array([1.0, 2.0]), [1, 4])
    1.0
    """

    usual = "mae"
    distance = np.abs


def only_block(name: str, blocks: Iterable[str]) -> str:
    """Return the name of the only `Metric` block, whose values a metric gets that names none.

    >>> only_block("accuracy", ["root"])
    'root'
    """
    names = sorted(set(blocks))
    if len(names) != 1:
        fix = "name one, as in TorchMetric(metric, 'root')"
        raise TrainingError(f"metric {name}", "one Metric block", ", ".join(names) or "none", fix)
    return names[0]


# the summed loss, how many examples, and for each metric its arrays of values, and its labels
Parts = tuple[float, int, list[list[Array]], list[list[Any]]]


class Tally:
    """Collects losses and metric values of batches, and makes figures of them."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics
        self._values: list[list[Array]] = [[] for _ in metrics]
        self._labels: list[list[Any]] = [[] for _ in metrics]
        self._loss = 0.0
        self._count = 0

    def add(self, results: Results, count: int) -> None:
        """Add a batch of so many examples."""
        self._loss += results.loss
        self._count += count
        for metric, values, labels in zip(self._metrics, self._values, self._labels, strict=True):
            collected = results.metrics[metric.of or only_block(metric.name, results.metrics)]
            if metric.every == "example":
                collected = _last(collected)
            values.append(collected.values)
            labels.extend(collected.labels or ())

    def parts(self) -> Parts:
        """Return the sums, values and labels that were added, as plain data and arrays."""
        return float(self._loss), self._count, self._values, self._labels

    def join(self, parts: Sequence[Parts]) -> None:
        """Replace the contents by those of several tallies, one after the other."""
        self._loss = sum((loss for loss, *_ in parts), 0.0)
        self._count = sum(count for _, count, *_ in parts)
        for k in range(len(self._metrics)):
            self._values[k] = [array for _, _, values, _ in parts for array in values[k]]
            self._labels[k] = [label for *_, labels in parts for label in labels[k]]

    @property
    def count(self) -> int:
        """How many examples were added."""
        return self._count

    def figures(self) -> dict[str, Figure]:
        """Return the loss per example, and the figure of each metric by name."""
        figures: dict[str, Figure] = {"loss": float(self._loss) / max(self._count, 1)}
        for metric, values, labels in zip(self._metrics, self._values, self._labels, strict=True):
            figures[metric.name] = metric.compute(
                np.concatenate(values) if values else np.zeros((0, 1)), labels
            )
        return figures


def _last(collected: MetricValues) -> MetricValues:
    examples = collected.examples
    places = np.flatnonzero(np.append(examples[1:] != examples[:-1], [True] * (len(examples) > 0)))
    labels = None if collected.labels is None else [collected.labels[place] for place in places]
    return MetricValues(collected.values[places], examples[places], collected.nodes[places], labels)
