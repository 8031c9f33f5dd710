"""Checks of second derivatives as a module of PyTorch takes them: of gradients, in parameters and data at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np

from foldbatch.engines import threads
from foldbatch.model.dual import FeedTangents
from foldbatch.params.parameters import Parameter, dense
from foldbatch.program.program import Program
from foldbatch.program.variants import Derivatives
from foldbatch.scheduler.trace import Trace
from tests.derivative_checks import DRAWN, STEP, WAYS, assert_near, others
from tests.programs import BlockProgram

Place = tuple[int, int]


@dataclass(frozen=True)
class Direction:
    """A direction in which parameters and data move."""

    parameters: dict[Parameter, Any]
    data: dict[Place, Any]  # by cell and feed, in the order of calls

    def along(self, other: "Direction") -> float:
        parts = ((self.parameters, other.parameters), (self.data, other.data))
        return sum(float(np.vdot(one[key], two[key])) for one, two in parts for key in one)


@dataclass
class Batch:
    """A batch of a program, for losses or for results with cotangents."""

    derivatives: Derivatives
    traces: list[Trace]
    cotangents: list[Any] | None
    training: bool = True

    def places(self) -> Iterator[Place]:
        for k, cell in enumerate(self.derivatives.runner.model.cells):
            yield from ((k, i) for i, x in enumerate(cell.built.feeds) if x.type.is_float)

    def column(self, place: Place) -> Any:
        k, i = place
        type_ = self.derivatives.runner.model.feeds[k][i].type
        return np.concatenate([np.zeros((0, *type_.shape)), *(trace.feeds[k][i] for trace in self.traces)])

    def direction(self, rng: np.random.Generator) -> Direction:
        parameters = [p for p in self.derivatives.runner.model.parameters if p.trainable]
        return Direction(
            {p: rng.normal(size=p.type.shape) for p in parameters},
            {place: rng.normal(size=self.column(place).shape) for place in self.places()},
        )

    def first(self, cotangents: list[Any] | None = None) -> tuple[float, list[Any], Direction]:
        """Return the loss, the results' values, and the gradients, as a backward pass yields them."""
        cotangents, losses = cotangents or self.cotangents, self.cotangents is None
        wanted = {"losses": losses, "results": not losses, "inputs": True, "training": self.training}
        pool = self.derivatives.pool_of(**wanted)
        held = pool.hold(self.traces, DRAWN, results=not losses)
        loss, values = float(held.loss), [*map(np.array, held.values)]
        return loss, values, self.of(held.backward(cotangents or (), visited=True))

    def of(self, gradients: Any) -> Direction:
        return Direction(
            {p: dense(g) for p, g in gradients.parameters.items()},
            {
                place: np.asarray(gradients.of_data(*place))
                if any(place in part.gradients for part in gradients.visits)
                else np.zeros(self.column(place).shape)
                for place in self.places()
            },
        )

    def second(self, along: Direction) -> tuple[float, list[Any], Direction]:
        """Return the tangents of loss and values, and of the gradients."""
        counts = np.array([trace.counts for trace in self.traces])
        firsts = [np.concatenate([[0], np.cumsum(calls)]) for calls in counts.T]
        found = self.derivatives.second(
            self.traces,
            DRAWN,
            along.parameters,
            FeedTangents(along.data, firsts),
            self.cotangents,
            training=self.training,
        )
        return float(found.loss), found.values, self.of(found.gradients)

    def moved(self, direction: Direction, distance: float) -> "Batch":
        """Return the batch with its data moved."""
        counts = np.array([trace.counts for trace in self.traces])
        traces = []
        for number, trace in enumerate(self.traces):
            starts = counts[:number].sum(axis=0)
            feeds = [
                tuple(
                    x + distance * direction.data[k, i][starts[k] : starts[k] + len(x)]
                    if (k, i) in direction.data
                    else x
                    for i, x in enumerate(columns)
                )
                for k, columns in enumerate(trace.feeds)
            ]
            traces.append(replace(trace, feeds=tuple(feeds)))
        return replace(self, traces=traces)


def difference(batch: Batch, along: Direction, of: Any) -> Any:
    """Return the derivative of a function of a batch, by finite differences."""
    origin = {p: p.value.copy() for p in along.parameters}

    def at(k: int) -> Any:
        for p, tangent in along.parameters.items():
            p.value[...] = origin[p] + k * STEP * tangent
        return of(batch.moved(along, k * STEP))

    found = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * STEP)
    for p, value in origin.items():
        p.value[...] = value
    return found


def random_cotangents(batch: Batch, rng: np.random.Generator) -> list[Any]:
    values = replace(batch, cotangents=[]).first([])[1]
    return [
        rng.normal(size=value.shape) if value.dtype.kind == "f" and rng.random() < 0.9 else None
        for value in values
    ]


def assert_second(engine: Program, program: BlockProgram, ways: Sequence[dict[str, Any]] = WAYS) -> None:
    """Check second derivatives of losses and results against first ones, differences, and other engines."""
    rng = np.random.default_rng(program.seed)
    traces = engine._trace_all(program.examples)
    derivatives = engine._ready.derivatives
    for losses in (True, False):
        batch = Batch(derivatives, traces, None, training=bool(rng.integers(2)))
        if not losses:
            batch.cotangents = random_cotangents(batch, rng)
        check(batch, rng, ways)


def check(batch: Batch, rng: np.random.Generator, ways: Sequence[dict[str, Any]]) -> None:
    v, d = batch.direction(rng), batch.direction(rng)
    _, _, gradients = batch.first()
    loss, values, products = batch.second(v)
    scale = sum(
        float(np.abs(x).sum()) for part in (products.parameters, products.data) for x in part.values()
    )
    # tangents are those of gradients with the same cotangents: <u, J v> = <J' u, v>
    if batch.cotangents is None:
        tangent = loss
    else:
        pairs = zip(batch.cotangents, values, strict=True)
        tangent = sum(float(np.vdot(u, dy)) for u, dy in pairs if u is not None)
    sizes = [np.abs(gradients.parameters[p] * v.parameters[p]).sum() for p in v.parameters]
    assert_near(tangent, gradients.along(v), 1e-9, float(sum(sizes)))
    # a Hessian is symmetric
    assert_near(products.along(d), batch.second(d)[2].along(v), 1e-9, scale)
    # and how gradients change
    right = difference(batch, d, lambda moved: moved.first()[2].along(v))
    assert_near(products.along(d), right, 1e-6, max(scale, abs(gradients.along(v))))
    (pool,) = [
        pool
        for key, pool in batch.derivatives._duals.items()
        if key == (batch.cotangents is not None, True, batch.training)
    ]
    first = pool.runner
    with mock.patch.multiple(threads, CALLS_PER_PART=1, MULTIPLICATIONS_PER_PART=1):
        for other in others(first, ways):
            key = (batch.cotangents is not None, True, batch.training)
            batch.derivatives._duals[key] = type(pool)(other)
            same_loss, same_values, same = batch.second(v)
            assert_near(same_loss, loss, 1e-9)
            for value, own in zip(same_values, values, strict=True):
                assert (value is None) == (own is None)
                assert own is None or np.allclose(value, own, rtol=1e-9, atol=1e-9)
            for p, product in products.parameters.items():
                assert_near(same.parameters[p], product, 1e-9, scale)
            for place, product in products.data.items():
                assert_near(same.data[place], product, 1e-9, scale)
    batch.derivatives._duals[key] = pool
