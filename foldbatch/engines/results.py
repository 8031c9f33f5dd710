"""Results of a batch: one per example, in the shape of the block's result type."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import NotAskedError, UnknownNameError, counted
from foldbatch.params.gradients import BatchGradients
from foldbatch.params.parameters import Array
from foldbatch.system.showing import Printed
from foldbatch.types import BroadcastType, ObjectType, SequenceType, TensorType, TupleType, Type, VoidType


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


class Results(Sequence[Any]):
    """The results of a batch, one per example, in order; beside them the losses and metrics asked for.

    Raises:
        NotAskedError: when losses or metrics are read that were not asked for.
    """

    def __init__(
        self, items: list[Any], metrics: Metrics | None = None, losses: Losses | None = None
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
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
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
    parts: Sequence[tuple[Array, NDArray[np.int64], NDArray[np.int64], list[Any] | None]],
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
    labels: list[Any] | None = None
    if any(part[3] is not None for part in parts):
        joined = list(itertools.chain.from_iterable(part[3] or [None] * len(part[0]) for part in parts))
        labels = [joined[i] for i in order]
    return MetricValues(values[order], examples, nodes, labels)


def no_values(type_: TensorType, *, labelled: bool) -> MetricValues:
    """Return the values of a metric that a batch never visits: arrays of no rows."""
    none = np.zeros(0, np.int64)
    return MetricValues(np.zeros((0, *type_.shape), type_.dtype), none, none, [] if labelled else None)


def decode(
    type_: Type, results: Sequence[Any], offsets: Sequence[int], fetch: Callable[[list[int]], list[Array]]
) -> list[Any]:
    """Return each example's result, from its terminals as its trace holds them.

    Offsets are what merging added to value numbers. `fetch` returns the arrays of some; it is called once.
    """
    if isinstance(type_, TensorType):  # of which there is one
        return fetch([number + offset for (number,), offset in zip(results, offsets, strict=True)])
    if isinstance(type_, SequenceType) and isinstance(type_.element, TensorType):
        sequences = [sequence for (sequence,) in results]
        ends = list(itertools.accumulate(map(len, sequences), initial=0))
        raised = np.repeat(np.array(offsets, np.int64), np.diff(ends))
        every = np.fromiter(itertools.chain.from_iterable(sequences), np.int64, ends[-1]) + raised
        tensors = fetch(every.tolist())
        return [tensors[start:stop] for start, stop in itertools.pairwise(ends)]
    arrays = iter(fetch(numbers_in(type_, results, offsets)))
    return [map_tensors(type_, iter(terminals), lambda _: next(arrays)) for terminals in results]


def numbers_in(type_: Type, results: Sequence[Any], offsets: Sequence[int]) -> list[int]:
    """Return the value numbers of all tensors in results, in the batch; arguments are those of `decode`."""
    numbers: list[int] = []
    for terminals, offset in zip(results, offsets, strict=True):
        map_tensors(type_, iter(terminals), lambda number, offset=offset: numbers.append(number + offset))  # type: ignore[misc]
    return numbers


def map_tensors(type_: Type, terminals: Iterator[Any], tensor: Callable[[int], Any]) -> Any:
    """Return a value of a type, made of its terminals, with `tensor` applied to each value number."""
    match type_:
        case VoidType():
            return None
        case TupleType(items):
            return type_.value_of([map_tensors(item, terminals, tensor) for item in items])
        case BroadcastType(element):
            return itertools.repeat(map_tensors(element, terminals, tensor))
        case TensorType():
            return tensor(next(terminals))
        case SequenceType(element):
            single = terminal_count(element) == 1  # then an element is held as it is, else as a tuple
            return [
                map_tensors(element, iter((part,) if single else part), tensor) for part in next(terminals)
            ]
        case ObjectType():
            return next(terminals)


def terminal_count(type_: Type) -> int:
    """Return how many terminals a trace holds for a value of a type."""
    match type_:
        case TupleType(items):
            return sum(map(terminal_count, items))
        case BroadcastType(element):
            return terminal_count(element)
        case VoidType():
            return 0
        case TensorType() | SequenceType() | ObjectType():
            return 1


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
        labels: list[Any] | None = None
        if any(m.labels is not None for m, _ in metric_parts):
            labels = [label for m, _ in metric_parts for label in m.labels or [None] * len(m)]
        values, examples, nodes = map(np.concatenate, zip(*arrays, strict=True))
        collected[name] = MetricValues(values, examples, nodes, labels)
    return Metrics(collected)
