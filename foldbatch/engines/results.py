"""Results of a batch: one per example, in the shape of the block's result type."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import NotAskedError, UnknownNameError, counted
from foldbatch.params.gradients import BatchGradients
from foldbatch.params.parameters import Array
from foldbatch.system.showing import Printed
from foldbatch.types import TensorType


@dataclass(frozen=True, slots=True, repr=False)
class MetricValues(Printed):
    """The values that a metric collected over a batch, in the order of visits.

    That is example by example, and within an example in the order in which the model applies its blocks:
    the parts of a `Record` or a pipe one after the other, the elements of a sequence from the first to the
    last, a part with all that is nested in it before the next part.
    """

    values: Array  # ``[m, *shape]``, m being the number of visits
    examples: NDArray[np.int64]  # ``[m]``: the example of each value
    nodes: NDArray[np.int64]  # ``[m]``: which visit of its example each was collected at, counted from 0
    labels: Any  # a list of ``m`` objects, or None where the metric has no labels

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        type_ = TensorType(self.values.shape[1:], self.values.dtype.name)
        examples = counted(len(np.unique(self.examples)), "example")
        labelled = "" if self.labels is None else ", labelled"
        return f"MetricValues({counted(len(self), 'value')} {type_} of {examples}{labelled})"

    def __str__(self) -> str:
        return f"{self!r}\n{self.values}"


class Metrics(Printed, Mapping[str, MetricValues]):
    """The metrics of a batch by name."""

    def __init__(self, values: dict[str, MetricValues]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> MetricValues:
        if name not in self._values:
            expected = f"a metric of {', '.join(self._values) or 'none'}"
            raise UnknownNameError("metrics", expected, repr(name), "name it in a Metric block")
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._values})"

    def __str__(self) -> str:
        return "\n".join(f"{name}: {values}" for name, values in self.items()) or repr(self)


@dataclass(frozen=True, slots=True)
class Losses:
    """The losses of a batch, each the float sum over all visits."""

    total: float  # the sum of all losses
    by_name: dict[str, float]  # the sum of those of each name


Result: TypeAlias = Any  # of an example, in the form that the model gives it


class Results(Sequence[Result]):
    """The results of a batch, one per example, in order; beside them the losses and metrics asked for.

    Raises:
        NotAskedError: when losses or metrics are read that were not asked for.
    """

    def __init__(
        self, items: list[Result], metrics: Metrics | None = None, losses: Losses | None = None
    ) -> None:
        self._items = items
        self._metrics = metrics
        self._losses = losses

    @property
    def metrics(self) -> Metrics:
        """The metrics by name."""
        if self._metrics is None:
            raise _not_asked("metrics", "metrics")
        return self._metrics

    @property
    def loss(self) -> float:
        """The float sum of all losses."""
        if self._losses is None:
            raise _not_asked("loss", "losses")
        return self._losses.total

    @property
    def losses(self) -> dict[str, float]:
        """The float sum of the losses of each name."""
        if self._losses is None:
            raise _not_asked("losses", "losses")
        return self._losses.by_name

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> list[Result]: ...
    def __getitem__(self, index: int | slice) -> Result:
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        return self._items == (other._items if isinstance(other, Results) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._items)


@dataclass(frozen=True, slots=True, repr=False)
class StepResult:
    """The loss, gradients, results and metrics of one training pass over a batch."""

    loss: float  # the float sum of all losses
    losses: dict[str, float]  # the float sum of the losses of each name
    gradients: BatchGradients[str]  # of `loss`, by parameter name; as of `Program.value_and_grad`
    results: Results  # one per example, in order
    metrics: Metrics  # by name

    def __repr__(self) -> str:
        gradients = f"gradients of {counted(len(self.gradients), 'parameter')}"
        results = counted(len(self.results), "result")
        return f"Step(loss {self.loss:g}, losses {self.losses}, {gradients}, {results}, {self.metrics})"


def _not_asked(attribute: str, option: str) -> NotAskedError:
    expected, actual = f"run(..., {option}=True)", f"a run without {option}"
    fix = f"ask for them: program.run(examples, {option}=True), or program.step(examples)"
    return NotAskedError(f"results.{attribute}", expected, actual, fix)


def collect_metric(
    parts: Sequence[tuple[Array, NDArray[np.int64], NDArray[np.int64], list[object] | None]],
) -> MetricValues:
    """Join the values that several cells collected under one name.

    Args:
        parts: per cell the values ``[n, *shape]``, the place of each value's visit among the calls of the
            batch ``[n]`` (growing from example to example), the examples ``[n]``, and the labels.
    """
    values = np.concatenate([part[0] for part in parts])
    calls = np.concatenate([part[1] for part in parts])
    order = np.argsort(calls, kind="stable")
    examples = np.concatenate([part[2] for part in parts])[order]
    starts = np.flatnonzero(np.diff(examples, prepend=-1))
    nodes = np.arange(len(examples)) - np.repeat(starts, np.diff(starts, append=len(examples)))
    labels: list[object] | None = None
    if any(part[3] is not None for part in parts):
        joined = list(itertools.chain.from_iterable(part[3] or [None] * len(part[0]) for part in parts))
        labels = [joined[i] for i in order]
    return MetricValues(values[order], examples, nodes, labels)


def no_values(type_: TensorType, *, labelled: bool) -> MetricValues:
    """Return the values of a metric that a batch never visits: arrays of no rows."""
    none = np.zeros(0, np.int64)
    return MetricValues(np.zeros((0, *type_.shape), type_.dtype), none, none, [] if labelled else None)


def join(parts: Sequence[Results]) -> Results:
    """Return the results of consecutive parts of a batch as one."""
    if len(parts) == 1:
        return parts[0]
    metrics = [part._metrics for part in parts if part._metrics is not None]
    losses = [part._losses for part in parts if part._losses is not None]
    by_name = {
        name: sum((part.by_name[name] for part in losses), 0.0)
        for name in (losses[0].by_name if losses else ())
    }
    return Results(
        [item for part in parts for item in part._items],
        _join_metrics(metrics, list(map(len, parts))) if metrics else None,
        Losses(sum((part.total for part in losses), 0.0), by_name) if losses else None,
    )


def _join_metrics(parts: Sequence[Metrics], sizes: Sequence[int]) -> Metrics:
    """Return the metrics of consecutive parts of a batch as one; `sizes` are the parts' examples."""
    collected: dict[str, MetricValues] = {}
    firsts = list(itertools.accumulate(sizes, initial=0))
    for name in dict.fromkeys(itertools.chain.from_iterable(parts)):
        metric_parts = [
            (part[name], first) for part, first in zip(parts, firsts, strict=False) if name in part
        ]
        arrays = [(m.values, m.examples + first, m.nodes) for m, first in metric_parts]
        labels: list[object] | None = None
        if any(m.labels is not None for m, _ in metric_parts):
            labels = [label for m, _ in metric_parts for label in m.labels or [None] * len(m)]
        values, examples, nodes = map(np.concatenate, zip(*arrays, strict=True))
        collected[name] = MetricValues(values, examples, nodes, labels)
    return Metrics(collected)
