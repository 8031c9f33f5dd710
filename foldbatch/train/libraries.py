"""Metrics that other libraries compute: those of scikit-learn by class or number, any one of torchmetrics.

scikit-learn (the extra ``sklearn``) is looked for when a metric is made; torchmetrics' metrics bring their
library, and PyTorch.
"""

import math
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import BackendError, TrainingError, install
from foldbatch.params.parameters import Array
from foldbatch.train.metrics import Base, Every, Figure, Labels, OfLabelSets, OfNumbers, labelled, names_of
from foldbatch.types import describe_value

MeanOfClasses: TypeAlias = Literal["macro", "weighted"] | None
MEANS = ("macro", "weighted", None)


def _needed(where: str) -> None:
    if not find_spec("sklearn"):
        raise BackendError(where, "the library scikit-learn", "none", install("sklearn"))


class Ranking(OfLabelSets):
    """The common base of metrics that ask whether right classes have greater scores than wrong ones.

    Of two classes, the figure is that of the second one. Of more, each class is compared with all others
    together, by its probability. Labels may be sets of classes, vectors ``[classes]`` of 0 and 1.

    Args:
        of, name, every: see `foldbatch.train.Metric`. Values are logits or log probabilities.
        average: ``"macro"``: the mean over classes that have right and wrong values. ``"weighted"``: each
            of them counts as often as it is right. None: a dict by class, NaN where there is no figure.
        classes: the names of the classes, for `average` None; by default ``"0"``, ``"1"`` and so on.

    Raises:
        BackendError: when scikit-learn is not installed.
    """

    function = ""

    def __init__(
        self,
        of: str,
        name: str | None = None,
        *,
        average: MeanOfClasses = "macro",
        classes: Sequence[str] | None = None,
        every: Every = "value",
    ) -> None:
        where = type(self).__name__
        if average not in MEANS:
            expected = "'macro', 'weighted' or None"
            raise TrainingError(f"{where} average", expected, repr(average), "None is by class")
        _needed(where)
        super().__init__(of, name, every=every)
        self.average = average
        self.classes = None if classes is None else list(classes)

    def _figure(self, scores: Array, numbers: NDArray[np.int64]) -> object:
        """Return the figure of log probabilities, of two classes that of the difference of logits."""
        logits = np.asarray(scores, np.float64)
        shifted = logits - logits.max(axis=1, keepdims=True, initial=-np.inf)
        chances = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        sets = numbers[:, None] == np.arange(scores.shape[1])
        if (
            scores.shape[1] == 2 and self.average is not None
        ):  # the difference tells more than probabilities do
            return self._mean(logits[:, 1:] - logits[:, :1], sets[:, 1:])
        return self._mean(chances, sets)

    def _of_sets(self, scores: Array, sets: NDArray[np.bool_]) -> object:
        return self._mean(np.asarray(scores, np.float64), sets)

    def _mean(self, scores: Array, sets: NDArray[np.bool_]) -> object:
        """Return the figure of scores and of which classes are right, both ``[n, classes]``."""
        if not np.isfinite(scores).all():
            return math.nan if self.average else dict.fromkeys(self._names(scores), math.nan)
        compute = getattr(import_module("sklearn.metrics"), self.function)
        counts = sets.sum(axis=0)
        there = (counts > 0) & (counts < len(sets))
        pairs = zip(sets.T, scores.T, there, strict=True)
        by_class = [float(compute(*pair)) if usable else math.nan for *pair, usable in pairs]
        if self.average is None:
            return dict(zip(self._names(scores), by_class, strict=True))
        if not there.any():
            return math.nan
        weights = counts[there] if self.average == "weighted" else None
        return float(np.average(np.array(by_class)[there], weights=weights))

    def _names(self, scores: Array) -> list[str]:
        return names_of(type(self).__name__, self.classes, scores.shape[1])


class AUROC(Ranking):
    """The area under the ROC curve: how often a right value has a greater score than a wrong one.

    One half is chance, 1 is best.

    Args:
        of, name, average, classes, every: see `foldbatch.train.libraries.Ranking`.

    >>> scores = np.array([[0.1, 0.9], [0.8, 0.2], [0.6, 0.4], [0.5, 0.5]])
    >>> AUROC("root").compute(scores, [1, 0, 1, 0])
    0.75

    Source: sklearn.metrics.roc_auc_score; Fawcett 2006.
    """

    usual = "auroc"
    function = "roc_auc_score"


class AveragePrecision(Ranking):
    """The mean of precisions at each right value, in the order of scores: the area under that curve.

    The share of right values is chance, 1 is best.

    Args:
        of, name, average, classes, every: see `foldbatch.train.libraries.Ranking`.

    >>> scores = np.array([[0.1, 0.9], [0.8, 0.2], [0.6, 0.4], [0.5, 0.5]])
    >>> round(AveragePrecision("root").compute(scores, [1, 0, 1, 0]), 4)
    0.8333

    Source: sklearn.metrics.average_precision_score.
    """

    usual = "average_precision"
    function = "average_precision_score"


class R2(OfNumbers):
    """The share of the labels' variance that values ``[m, *shape]`` explain, a mean over entries of `shape`.

    1 is best, 0 what the mean of the labels gets; of fewer than two values it is NaN.

    Raises:
        BackendError: when scikit-learn is not installed.

    >>> R2("score").compute(np.array([1.0, 2.0, 4.0]), [1, 3, 4])
    0.7857142857142857

    Source: sklearn.metrics.r2_score.
    """

    usual = "r2"

    def __init__(self, of: str, name: str | None = None, *, every: Every = "value") -> None:
        _needed(type(self).__name__)
        super().__init__(of, name, every=every)

    def _figure(self, values: Array, wanted: Array) -> float:
        if len(values) < 2 or not np.isfinite(values).all():
            return math.nan
        flat = wanted.reshape(len(wanted), -1), values.reshape(len(values), -1)
        return float(import_module("sklearn.metrics").r2_score(*flat))


class TorchMetric(Base):
    """A metric of torchmetrics, as a metric of a trainer, which takes it as it is, too.

    Of each evaluation it gets all values and labels at once, as tensors on the CPU; what it held is reset.

    Args:
        metric: a `torchmetrics.Metric`, or a collection of several.
        of: the name of the `foldbatch.Metric` block; by default the only one of the model.
        name: by default the name of its class, ``multiclass_accuracy`` of ``MulticlassAccuracy``.
        every: see `foldbatch.train.Metric`.

    Raises:
        TrainingError: when `metric` is none of torchmetrics; by an evaluation, when it cannot be computed.

    >>> import torchmetrics
    >>> metric = TorchMetric(torchmetrics.Accuracy("binary"), "root")
    >>> metric.name, metric.compute(np.array([2.0, -1.0]), [1, 1])
    ('binary_accuracy', 0.5)
    """

    def __init__(self, metric: Any, of: str = "", name: str | None = None, *, every: Every = "value") -> None:
        if not is_torch_metric(metric):
            fix = "for example torchmetrics.Accuracy('binary')"
            raise TrainingError("TorchMetric", "a metric of torchmetrics", describe_value(metric), fix)
        usual = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(metric).__name__).lower()
        super().__init__(of, usual if name is None else name, every=every)
        self.metric = metric

    def compute(self, values: Array, labels: Labels) -> Figure:
        """Return the figure: a number, a dict of several, or lists; NaN of no values."""
        where = f"metric {self.name}"
        kept, right = labelled(where, values, labels)
        if not right:
            return math.nan
        torch = import_module("torch")
        self.metric.reset()
        try:
            self.metric.update(torch.as_tensor(np.array(kept)), torch.as_tensor(np.array(right)))
            return _plain(self.metric.compute())
        except (ValueError, RuntimeError, TypeError, IndexError) as error:
            actual = f"{type(error).__name__}: {error}".splitlines()[0]
            fix = f"it got values of shape {list(kept.shape)}, and as many labels"
            raise TrainingError(where, "values and labels that it takes", actual, fix) from error


class OutsideMetric(Protocol):
    """A metric as torchmetrics has them, which a trainer takes as it is."""

    def update(self, *arguments: object, **options: object) -> None:
        """Take the values and labels of a batch."""

    def compute(self) -> Figure:
        """Return the figure."""

    def reset(self) -> None:
        """Begin anew."""


def is_torch_metric(metric: Any) -> bool:
    """Return whether an object is a metric of torchmetrics, which is not imported for this."""
    return any(
        kind.__module__.partition(".")[0] == "torchmetrics"
        and kind.__name__ in ("Metric", "MetricCollection")
        for kind in type(metric).__mro__
    )


def _plain(figure: object) -> Any:
    """Return tensors as numbers and lists, also within dicts and tuples."""
    if isinstance(figure, Mapping):
        return {str(name): _plain(value) for name, value in figure.items()}
    if isinstance(figure, list | tuple):
        return [_plain(value) for value in figure]
    return figure.tolist() if hasattr(figure, "tolist") else figure
