"""Walks that stand for blocks: `Walk` is the block that calls a plain function.

Its values are numbers in the tracing program around it. A block in which a `Walk` stands is itself
compiled as a walk, as only a run of the function tells which cells there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import BlockTypeError
from foldbatch.functions.deciding import decide
from foldbatch.functions.mixed import Called, repeats
from foldbatch.functions.rounds import Rounds, RunRound
from foldbatch.functions.seam import (
    Block,
    Builder,
    InvokeWalk,
    Object,
    Terminal,
    Value,
    function_name,
    leaves,
    new_wires,
    run_time_terminals,
    type_of,
)
from foldbatch.functions.tracer import FunctionTracer
from foldbatch.model.evaluation import CallError, Evaluation
from foldbatch.model.keys import call_keys
from foldbatch.model.model import Model
from foldbatch.model.tracer import MAX_CALLS
from foldbatch.params.parameters import Parameter, ParameterStore
from foldbatch.planning.policies import find_policy
from foldbatch.scheduler.trace import Index, Ints, Trace
from foldbatch.types import Type, as_type, describe_value


class Walk(Block[Any, Any]):
    """A plain function that stands for a block; it is run once for each visit, as a walk is.

    So a model of blocks may have parts that are written as functions, with all that these may do.

    Args:
        function: takes what the block is given, objects of the example and values; the items of a tuple are
            its arguments.
        output_type: what it returns, as of `ForwardDeclaration`.

    Raises:
        BlockTypeError: when the function is none, or its input or output is a broadcast.
        WalkError: when the tracing program runs, and the function returns something else.

    >>> def product(numbers):
    ...     found = fb.tensor(1.0)
    ...     for number in numbers:
    ...         found = found * fb.tensor(number)
    ...     return found
    >>> block = fb.Map(fb.functions.Walk(product, "float32")) >> fb.Sum()
    >>> float(block.eval([[2.0, 3.0], [], [4.0]]))
    11.0
    """

    def __init__(self, function: Callable[..., object], output_type: object) -> None:
        if isinstance(function, type | Block) or not callable(function):
            fix = "for example Walk(tree, 150)"
            raise BlockTypeError("Walk", "a function", describe_value(function), fix)
        self.function = function
        self.output_type_ = as_type(output_type, "Walk output_type")

    @property
    def output_type(self) -> Type:
        return self.output_type_

    def build(self, builder: Builder, value: Value) -> Value:
        """Add a call of the walk to the tracing program; return variables of the walk's output type."""
        where, input_type = builder.where(self), type_of(value)
        for type_ in (input_type, self.output_type_):
            if repeats(type_):
                raise BlockTypeError(where, "values, objects and sequences", str(type_), "Zip it first")
        if builder.inferring:
            return builder.specimen(self.output_type_)
        slots = builder.flatten(value)
        builder.enter()
        builder.affect()
        subject = next((leaf for leaf in leaves(value) if isinstance(leaf, Object)), None)
        place = subject.place if subject else ()
        results = [
            Terminal(builder.fresh(), t, new_wires(t), place) for t in run_time_terminals(self.output_type_)
        ]
        names = tuple([str(slot.expression) for slot in results])
        called = builder.constant("walk", TracedWalk(self.function, input_type, self.output_type_))
        blame = builder.blame(subject, calls=function_name(self.function))
        builder.add(InvokeWalk(blame, names, called, tuple([slot.expression for slot in slots])))
        return builder.unflatten(self.output_type_, iter(results))

    def arguments(self) -> str:
        return f"{function_name(self.function)}, {self.output_type_}"


@dataclass(frozen=True, slots=True)
class TracedWalk(Called):
    """A function that a block calls; the block can be traced for one example, without a program."""

    def traced(self, block: Any, example: object, asides: frozenset[str]) -> tuple[Model, Trace]:
        """Return the model of a block that calls the function, and the trace of an example for it.

        Where the function asks for numbers, they are computed op by op.
        """
        tracer, computing = FunctionTracer(block, find_policy("auto"), MAX_CALLS, asides), RoundInterpreter()
        (trace,) = tracer.trace_all([example], [0], decide=partial(decide, Rounds(), computing))
        model = tracer.model
        computing.admit(model.parameters)
        return model, trace


@dataclass(frozen=True, slots=True)
class RoundCalls:
    """The calls of a round; `foldbatch.functions.rounds.RoundSchedule` of one that runs in their order."""

    model: Model
    trace: Trace  # without data

    def order(self, cell: int, /) -> Index:
        """Return the place of each call of a cell, in the order in which they run."""
        return np.arange(len(self.trace.calls[cell]))


class RoundInterpreter:
    """Computes the rounds of one example op by op; implements `foldbatch.functions.rounds.Computing`."""

    training = False

    def __init__(self) -> None:
        self._store = ParameterStore({})

    def admit(self, parameters: Iterable[Parameter]) -> None:
        """Give new parameters their names, and numbers drawn from seed 0 where they have none."""
        admitted = {*self._store.parameters.values()}
        self._store.admit([parameter for parameter in parameters if parameter not in admitted])
        for name, parameter in self._store.parameters.items():
            parameter.initialize(0, name)

    def alone(self) -> AbstractContextManager[None]:
        """Return the context in which rounds are computed: any will do."""
        return nullcontext()

    def run_small(self, model: Model) -> RunRound:
        """Return a function that runs nothing from its notes: there are no kernels."""
        return lambda _notes, _asides: None

    def ready(
        self, model: Model, calls: Sequence[Ints], elements: Sequence[tuple[Ints, ...]], values: int
    ) -> RoundCalls:
        """Return the calls of a round as a trace."""
        self.admit(model.parameters)
        none = ((),) * len(calls)
        return RoundCalls(model, Trace(tuple(calls), tuple(elements), (), none, none, values))

    def run(
        self,
        ready: RoundCalls,
        feeds: Sequence[Sequence[NDArray[np.generic]]],
        example: Callable[[int, int], int],
    ) -> Callable[[int, Index], NDArray[Any]]:
        """Compute a round; see `foldbatch.functions.rounds.Computing.run`."""
        trace = replace(ready.trace, feeds=tuple(map(tuple, feeds)))
        evaluation = Evaluation(ready.model, trace, None, training=False)
        try:
            with np.errstate(all="ignore"):
                evaluation.forward()
        except CallError as error:
            raise evaluation.error_of(error, example(error.cell, error.call)) from None
        return lambda _, numbers: np.stack([evaluation.values[number] for number in numbers.tolist()])

    def keys(self, examples: Index, calls: Index) -> NDArray[np.int64]:
        """Return keys of random numbers: those of a program of seed 0 at its first step."""
        return call_keys(0, 0, examples, calls)
