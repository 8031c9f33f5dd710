"""A program's planning in another process: a description that pickles, and what plans by it.

The description of blocks is the block, pickled; that of a walk has the import paths and what was learnt, as a
file does. Neither has the numbers of parameters, which no plan depends on, and none makes kernels.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foldbatch.blocks.lower import built, linked
from foldbatch.engines.batch import SubBatch
from foldbatch.engines.planner import Planner, Ways
from foldbatch.errors import FoldbatchError, ModelError, shortened
from foldbatch.functions.saving import WrittenWalk, from_written
from foldbatch.functions.tracer import FunctionTracer
from foldbatch.model.drafts import ASIDES
from foldbatch.model.model import Model
from foldbatch.model.paths import ALL_TRUST
from foldbatch.model.tracer import Tracer
from foldbatch.params.parameters import Array, Parameter
from foldbatch.planning.policies import find_policy
from foldbatch.program.program import Program
from foldbatch.program.traced import Traces
from foldbatch.scheduler.trace import Trace

AT_TOP = "define functions and classes at the top of a module"
WHERE = "workers"


@dataclass(frozen=True)
class Description:
    """The parts of a program that another process needs to plan batches as it does."""

    block: bytes  # the block, pickled; nothing of a walk
    walk: WrittenWalk | None  # the walk as plain data
    arrays: dict[str, Array]  # of the walk: those that are no parameters
    shapes: dict[str, tuple[tuple[int, ...], str]]  # of the walk: shape and dtype of each parameter
    ways: Ways  # how batches are planned
    max_calls: int
    digest: str  # of the model, which the other process must have as well
    fingerprint: str  # of the program: stands for it in prepared examples


def described(program: Program) -> Description:
    """Return the description of a program, as far as its model is known now.

    Raises:
        ModelError: when a block does not pickle, or a walk, a cell or a layer has no import path.
    """
    ready, tracer = program._ready, program.lowered
    written, block = None, b""
    shapes = {}
    if tracer.grows:
        parameters = program.params.parameters
        try:
            written = tracer.written(parameters)
        except ModelError as error:
            where, place = WHERE, error.where.removeprefix("Program.save: ")
            raise ModelError(where, f"{place} to be {error.expected}", error.found, error.fix) from None
        shapes = {name: (p.type.shape, p.type.dtype) for name, p in parameters.items()}
    else:
        block = _pickled(tracer.origin)
    return Description(
        block,
        None if written is None else written.plain,
        {} if written is None else written.arrays,
        shapes,
        ready.runner.planner.ways,
        tracer.max_calls,
        digest_of(ready.model, tracer),
        ready.fingerprint,
    )


class _WithoutNumbers(pickle.Pickler):
    """Pickles parameters without their numbers."""

    def reducer_override(self, value: object) -> Any:
        """Return how a parameter is pickled; of other objects, that nothing is special."""
        if not isinstance(value, Parameter):
            return NotImplemented
        reduced: Any = value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        kind, arguments, (of_dict, slots) = reduced[:3]
        init = value.init if isinstance(value.init, str) else 0.0
        return kind, arguments, (of_dict, slots | {"_value": None, "init": init})


def _pickled(block: object) -> bytes:
    """Return a block as bytes; refuse one that does not pickle."""
    file = io.BytesIO()
    try:
        _WithoutNumbers(file, pickle.HIGHEST_PROTOCOL).dump(block)
    except Exception as error:
        actual = f"one that does not pickle: {error}"
        raise ModelError(WHERE, "a model that another process can open", actual, AT_TOP) from error
    return file.getvalue()


def digest_of(model: Model, tracer: Tracer) -> str:
    """Return a digest of what plans depend on: equal in processes that plan alike."""
    feeds = [[(str(feed.type), str(feed.declared)) for feed in cell_feeds] for cell_feeds in model.feeds]
    parts = model.signatures, len(model.arenas), feeds, model.bounds, model.labels, model.marks, model.keys
    text = repr((*parts, str(model.result), tracer.source))
    return hashlib.sha256(text.encode()).hexdigest()


class Opened:
    """A program's planning in a process that has neither its kernels nor its parameters.

    Attributes:
        fingerprint: that of the program.
        model: the program's, without numbers.
    """

    def __init__(self, description: Description) -> None:
        """Open a description.

        Raises:
            ModelError: when something that it names is not here, or is another one here.
        """
        self.fingerprint = description.fingerprint
        self._tracer = _tracer_of(description)
        self.model = self._tracer.model
        if digest_of(self.model, self._tracer) != description.digest:
            expected = "the same model in each process"
            fix = "let its functions read what modules hold once they are imported"
            raise ModelError(WHERE, expected, "another one where a worker has opened it", fix)
        self._planner = Planner(self.model, description.ways)
        self._traces = Traces(self._tracer, self.model)

    def traces(self, examples: Sequence[object]) -> list[Trace] | None:
        """Return the traces of examples; None if they bring cells or wires that the program does not know.

        Raises:
            ExampleError: when an example does not fit the model.
            DecidingError: when its walk asks for computed numbers.
        """
        if self._tracer.model is not self.model:
            return None
        traces: list[Trace] = self._traces.all(examples, self)
        return traces if self._tracer.model is self.model else None

    def plan(self, examples: Sequence[object]) -> tuple[SubBatch, ...] | None:
        """Return a batch planned; results and errors are those of `traces`."""
        traces = self.traces(examples)
        return None if traces is None else self._planner.plan(traces)


def _tracer_of(description: Description) -> Tracer:
    """Return the tracer of a description; refuse a walk that reads something else here."""
    policy = find_policy(description.ways.policy)
    if description.walk is None:
        block = pickle.loads(description.block)  # noqa: S301 - the process that began this one has written it
        return linked(block, built(block), policy, description.max_calls)
    zeros = {name: np.zeros(shape, dtype) for name, (shape, dtype) in description.shapes.items()}
    try:
        walk, learnt, _, changed = from_written(description.walk, description.arrays | zeros, ALL_TRUST)
    except FoldbatchError as error:
        fix = "let modules hold what its functions read once they are imported"
        raise ModelError(f"{WHERE}: {error.where}", error.expected, error.found, fix) from None
    if changed:
        expected, actual = "a walk that reads the same in each process", f"others: {shortened(changed)}"
        raise ModelError(WHERE, expected, actual, "fill them where their module is imported")
    return FunctionTracer(walk, policy, description.max_calls, ASIDES, learnt)
