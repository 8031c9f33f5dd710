"""A block alone: its result for one example, its depth there, and its parameters from a file.

No program is made: the block is built and linked, the example traced, and the calls of its trace are
evaluated one after the other.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol, get_args
from warnings import warn

import numpy as np

from foldbatch.blocks.building import Buildable
from foldbatch.blocks.lower import built, depth, linked, lower
from foldbatch.errors import UnknownNameError, UnusedBackendWarning, frames_inside
from foldbatch.model.decoding import decode
from foldbatch.model.drafts import ASIDES
from foldbatch.model.evaluation import CallError, Evaluation
from foldbatch.model.keys import keyed
from foldbatch.model.model import Model
from foldbatch.params.parameters import Array, ParameterStore, name_parameters
from foldbatch.params.saved import read_parameters
from foldbatch.scheduler.policies import find_policy
from foldbatch.scheduler.trace import Trace
from foldbatch.system.processes import no_garbage
from foldbatch.system.showing import shown
from foldbatch.types import BackendName

# What evaluates op by op: by backend, the precision of all floats; None is that of each tensor.
PRECISIONS: dict[str, str | None] = {"auto": None, "numpy": None, "reference": "float64"}


class CalledWalk(Protocol):
    """A plain function that a block calls, as a program of the block holds it."""

    def traced(self, block: Buildable, example: object, asides: frozenset[str]) -> tuple[Model, Trace]:
        """Return the model of a block that calls the function, and the trace of an example for it.

        The model has the side outputs in `asides`; its parameters have numbers.
        """


def evaluate(block: Buildable, example: object, backend: BackendName) -> Any:
    """Return a block's result for one example, with its metrics if it has some; see `Block.eval`."""
    precision = _precision_of(block, backend)
    # losses are not returned, so nothing that only they need is computed
    model, trace = traced(block, example, frozenset({"metrics"}))
    if any(model.keys):  # random numbers are those of the first run of a program with seed 0
        examples = [np.zeros(len(rows), np.int64) for rows in trace.calls]
        feeds = keyed(trace.feeds, model.keys, 0, 0, examples)
    else:
        feeds = trace.feeds
    evaluation = Evaluation(model, replace(trace, feeds=feeds), precision, training=False)
    try:
        with no_garbage(), np.errstate(all="ignore"):
            evaluation.forward()
    except CallError as error:
        raise evaluation.error_of(error, 0) from None

    def fetch(numbers: Sequence[int]) -> list[Array]:
        return [np.array(evaluation.values[number]) for number in numbers]  # the caller may write to them

    (result,) = decode(model.result, [trace.result], [0], fetch)
    metrics = _metrics(evaluation)
    return (result, metrics) if metrics else result


def max_depth(block: Buildable, example: object) -> int:
    """Return the longest chain of calls that compute something, for one example."""
    return depth(*traced(block, example, ASIDES))


def load_parameters(block: Buildable, path: str | os.PathLike[str]) -> None:
    """Fill a block's parameters from a file; see `Block.load_parameters`."""
    numbers = read_parameters(path)
    store = ParameterStore(name_parameters(lower(block, find_policy("auto")).model.parameters))
    store.update(numbers, strict=True)


def traced(block: Buildable, example: object, asides: frozenset[str]) -> tuple[Model, Trace]:
    """Return the model of a block, whose parameters have numbers, and the trace of an example for it."""
    program = built(block, asides)
    if program.walks:  # only a run of these tells which cells there are
        walk: CalledWalk = program.walks[0]
        return walk.traced(block, example, asides)
    lowered = linked(block, program, find_policy("auto"))
    for name, parameter in name_parameters(lowered.model.parameters).items():
        parameter.initialize(0, name)
    (trace,) = lowered.trace_all([example], [0])
    return lowered.model, trace


def _precision_of(block: Buildable, backend: str) -> str | None:
    """Return the precision that a backend computes one example in; refuse an unknown one.

    Warns `UnusedBackendWarning` of one that would need kernels.
    """
    if backend in list(PRECISIONS):  # what cannot be hashed is no name either
        return PRECISIONS[backend]
    names = get_args(BackendName)
    if backend not in list(names):
        raise UnknownNameError("backend", f"one of {', '.join(names)}", repr(backend))
    expected = "auto, numpy or reference, as one example is evaluated op by op"
    fix = f'to run it there, write fb.compile(block, "{backend}").run([example])[0]'
    where = f"{shown(block)}.eval backend"
    warn(UnusedBackendWarning(where, expected, repr(backend), fix), stacklevel=frames_inside())
    return None


def _metrics(evaluation: Evaluation) -> dict[str, list[Array]]:
    """Return the metrics of an example by name, the values of each in the order of visits."""
    model, trace = evaluation.model, evaluation.trace
    visits: dict[str, list[tuple[int, Array]]] = {name: [] for names in model.metrics for name in names}
    for (k, i), values in sorted(evaluation.metrics.items(), key=lambda item: item[0]):
        mark = dict(model.marks[k]).get(i)
        places = trace.calls[k][:, 0] if mark is None else trace.feeds[k][mark]
        visits[model.metrics[k][i]] += zip(places.tolist(), values, strict=True)
    return {
        name: [np.array(value) for _, value in sorted(pairs, key=lambda pair: pair[0])]
        for name, pairs in visits.items()
    }
