"""Walks that read numbers, and small batches, on the engine of a program: what computes their rounds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldbatch.engines.batch import ScheduledBatch
from foldbatch.engines.engine import Engine, choose_engine, load_engine
from foldbatch.engines.launch import OutOfRangeError
from foldbatch.engines.results import Results
from foldbatch.engines.runner import Options, Runner
from foldbatch.engines.threads import single_threaded_blas
from foldbatch.errors import BlockTypeError, ExamplePlace
from foldbatch.functions.deciding import UnderWay, decide, results, small_batch_results
from foldbatch.functions.readings import Reading
from foldbatch.functions.rounds import Rounds, RunRound
from foldbatch.functions.tracer import FunctionTracer
from foldbatch.model.keys import call_keys, example_numbers
from foldbatch.model.model import Model
from foldbatch.model.small_batches import SmallBatch
from foldbatch.model.tracer import Decide, ExamplesNoted, RunSmall, Tracer
from foldbatch.params.parameters import Array, Parameter
from foldbatch.planning.layout import find_layout
from foldbatch.planning.merge import Merged
from foldbatch.planning.policies import find_policy, levels
from foldbatch.planning.sharing import find_share
from foldbatch.planning.tables import build
from foldbatch.program.traced import Prepared
from foldbatch.program.variants import Variant
from foldbatch.scheduler.schedule import Index, Schedule, verify
from foldbatch.scheduler.trace import Form, Ints, batch_trace, form


class ReadyRound(NamedTuple):
    """A round made ready: `foldbatch.functions.rounds.RoundSchedule`."""

    order: Callable[[int], Index]
    ready: object
    schedule: Schedule


class Deciding:
    """The rounds of a program's walk: the learnt schedules, and the engine of their model."""

    def __init__(self, options: Options, seed: int, admit: Callable[[Sequence[Parameter]], None]) -> None:
        self.rounds = Rounds()
        self.options, self.seed = options, seed
        self.policy, self.layout = find_policy(options.policy), find_layout(options.layout)
        self._admit = admit
        self._engine: Engine | None = None
        self.model: Model | None = None
        self.memory: object = None
        self.form: Form
        self.levels: Any = None  # finds those of a round's calls, where a schedule needs them
        self.phased = False

    def run_on(self, options: Options) -> None:
        """Let an engine of other options run rounds from now on; what was learnt of walks stays."""
        self.options = options
        self._engine = None

    def engine(self, model: Model) -> Engine:
        """Return the engine of a model; it is made once."""
        if self._engine is None or self.model is not model:
            self._admit(model.parameters)
            settings = self.options.engine_settings
            self._engine = load_engine(choose_engine(self.options.backend), model, settings)
            self.model, self.memory = model, self._engine.memory()
            cells = model.signatures
            self.levels = partial(levels, self.policy, cells)
            widths = tuple([cell.arguments for cell in cells]), tuple([cell.sequences for cell in cells])
            self.form = form(*widths, ((),) * len(cells))
            built = [cell.built.joined for cell in model.cells]
            self.phased = any(node.op.name == "when_training" for graph in built for node in graph.nodes)
        return self._engine

    def computing(self, step: int, numbers: Sequence[int] = (), *, training: bool) -> RoundEngine:
        """Return the engine for rounds of a phase, with the random numbers of a step."""
        return RoundEngine(self, step, numbers, training)

    def decide(self, step: int, numbers: Sequence[int] = (), *, training: bool) -> Decide:
        """Return the runner of walks for `Tracer.trace_all`; arguments are those of `computing`."""
        return partial(decide, self.rounds, self.computing(step, numbers, training=training))

    def results(
        self, tracer: Tracer, examples: Any, asides: Collection[str], step: int, *, keep_going: bool
    ) -> list[object] | None:
        """Return the results of a deciding walk in inference; None where examples are traced first."""
        if not (keep_going or tracer.decides):
            return None
        simple = not asides and isinstance(examples, list | tuple)
        if (
            not isinstance(tracer, FunctionTracer)
            or not simple
            or any(isinstance(x, Prepared) for x in examples)
        ):
            if keep_going:
                expected, actual = "results alone of a plain function, of examples in a list", "another run"
                raise BlockTypeError("run return_exceptions", expected, actual, "leave it out")
            return None
        computing, readings = self.computing(step, training=False), tracer.learnt.readings

        def work(reading: Reading, careful: bool) -> list[object]:  # noqa: FBT001 - see `Readings.read`
            return results(self.rounds, computing, tracer, reading, keep_going=keep_going, careful=careful)

        with tracer.lock():
            return readings.read(examples, range(len(examples)), work)

    def run_small(self, variant: Variant, asides: Collection[str], step: int) -> RunSmall[Results]:
        """Return the function that may run a small batch of inference from its notes."""
        tracer = variant.tracer
        if not isinstance(tracer, FunctionTracer):
            return partial(_results_of_blocks, variant.ready.runner, asides)
        return partial(_results_of_walks, self.rounds, self.computing(step, training=False), tracer, asides)

    def begun(self, tracer: Tracer, step: int = 0) -> UnderWay:
        """Return an empty batch that examples join between rounds, for inference, with a step's draws."""
        if not isinstance(tracer, FunctionTracer):
            fix = "give its examples to run"
            raise BlockTypeError("Continuous", "a program of a plain function", "one of a block", fix)
        return UnderWay(self.rounds, self.computing(step, training=False), tracer, keep_going=True)


def _results_of_blocks(
    runner: Runner, asides: Collection[str], notes: ExamplesNoted, numbers: Sequence[int]
) -> Results | None:
    """Return the results of a small batch of blocks; None where it must run as any batch."""
    assert isinstance(notes, SmallBatch), "blocks have noted them"
    return runner.run_small(asides, notes)


def _results_of_walks(
    rounds: Rounds,
    computing: RoundEngine,
    tracer: FunctionTracer,
    asides: Collection[str],
    notes: ExamplesNoted,
    numbers: Sequence[int],
) -> Results | None:
    """Return the results of a small batch of walks; None where it must run as any batch."""
    results = small_batch_results(rounds, computing, tracer, asides, notes, numbers)
    return None if results is None else Results(results)


class RoundEngine:
    """Computes rounds; implements `foldbatch.functions.rounds.Computing`."""

    def __init__(self, deciding: Deciding, step: int, numbers: Sequence[int], training: bool) -> None:  # noqa: FBT001
        self._deciding, self._step, self._numbers = deciding, step, numbers
        self.training = training

    def alone(self) -> AbstractContextManager[None]:
        """Return the context in which rounds are computed: with one thread of BLAS."""
        return single_threaded_blas()

    def run_small(self, model: Model) -> RunRound:
        """Return the runner of rounds; see `foldbatch.functions.rounds.Computing.run_small`."""
        deciding = self._deciding
        engine = deciding.engine(model)
        training = self.training and deciding.phased
        return partial(engine.run_small, deciding.memory, training=training)

    def ready(
        self, model: Model, calls: Sequence[Ints], elements: Sequence[tuple[Ints, ...]], values: int
    ) -> ReadyRound:
        """Return a round's schedule and launch table."""
        deciding = self._deciding
        engine = deciding.engine(model)
        cells = model.signatures
        arenas = len(model.arenas)
        none = ((),) * len(cells)
        trace = batch_trace(
            deciding.form, deciding.levels, tuple(calls), tuple(elements), (), none, none, values
        )
        counts = np.array([[len(rows)] for rows in calls], np.int64)
        merged = Merged(trace, counts, np.zeros(1, np.int64))
        share = find_share(None)
        schedule: Schedule = build(
            merged, cells, deciding.policy, deciding.layout, arenas, share, engine.costs
        )
        if deciding.options.debug:
            verify(schedule, tuple([cell.outputs for cell in cells]))
        batch = ScheduledBatch(merged, schedule, (), (), {})
        ready = engine.ready(batch, training=self.training and deciding.phased)
        return ReadyRound(schedule.orders.__getitem__, ready, schedule)

    def run(
        self, ready: ReadyRound, feeds: Sequence[Sequence[Array]], example: Callable[[int, int], int]
    ) -> Callable[[int, Index], Array]:
        """Compute a round; see `foldbatch.functions.rounds.Computing.run`."""
        deciding = self._deciding
        engine, model = deciding._engine, deciding.model
        assert engine is not None, "a round is made ready before it runs"
        assert model is not None, "with its model"
        try:
            run = engine.forward(ready.ready, feeds, deciding.memory)
        except OutOfRangeError as error:
            where = ExamplePlace(model.cells[error.cell].name, example(error.cell, error.rank))
            raise error.example_error(where, ready.schedule.cells[error.cell].segments) from None
        return run.take

    def keys(self, examples: Index, calls: Index) -> NDArray[np.int64]:
        """Return keys of random numbers; see `foldbatch.functions.rounds.Computing.keys`."""
        if len(self._numbers):
            numbers = example_numbers(self._numbers, len(self._numbers))
            examples = numbers.take(examples)
        return call_keys(self._deciding.seed, self._step, examples, calls)
