"""Columns: whether a tracing program can be applied to many examples by array operations, and doing so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foldbatch.blocks.columnar.clock import Frame
from foldbatch.blocks.columnar.items import planted
from foldbatch.blocks.columnar.joining import join, number
from foldbatch.blocks.columnar.kinds import Column, Data, Refused
from foldbatch.blocks.columnar.scope import Run, Scope
from foldbatch.blocks.columnar.statements import Parser
from foldbatch.blocks.columnar.visits import Again, Function, visit
from foldbatch.model.model import Model
from foldbatch.model.wires import components
from foldbatch.scheduler.record import Record
from foldbatch.types import TensorType

if TYPE_CHECKING:
    from foldbatch.blocks.drafts import Procedure


@dataclass(frozen=True, slots=True)
class Columns:
    """A tracing program whose functions are applied to all their visits at once.

    Attributes:
        functions: the functions of the program, by name, the root's first.
        model: the model that traces fit.
        width: how many value numbers each call reserves.
    """

    functions: Mapping[str, Function]
    model: Model
    width: int

    def trace(self, examples: Sequence[Any], max_calls: int) -> Record | None:
        """Return the calls that examples make; None where the program must be run on each.

        Args:
            examples: what the root block reads.
            max_calls: how many calls an example may make.
        """
        try:
            return self.record(examples, max_calls)
        except Refused:
            return None

    def record(self, examples: Sequence[Any], max_calls: int) -> Record:
        """Return the calls that examples make.

        Raises:
            Refused: where some example does not fit, or is such that the program must be run on it.
        """
        root = next(iter(self.functions.values()))
        argument = planted(Data(np.arange(len(examples)), examples))
        chosen: dict[int, Any] = {}
        while True:
            run, frame = Run(len(self.model.cells), self.width, chosen), Frame(len(examples))
            scope = Scope(run, frame, None, len(examples))
            try:
                results = self._call(scope, root.name, [argument])
                break
            except Again:
                pass
        numbers = number(run, frame)
        if len(numbers.ends) and np.diff(numbers.ends, prepend=0).max() > max_calls:
            raise Refused("an example makes more calls than it may")
        return join(self.model, run, numbers, results)

    def _call(self, scope: Scope, name: str, arguments: list[Column]) -> list[Column]:
        return visit(self.functions, scope, name, arguments)


def find(functions: Sequence[Procedure], globals_: Mapping[str, Any], model: Model) -> Columns | str:
    """Return the columns of a tracing program, or what keeps it from having any: a block and a reason.

    Args:
        functions: the functions of the program, the root's first.
        globals_: what the program finds among its globals.
        model: the model that traces fit.
    """
    try:
        columns = Columns(_functions(functions, globals_), model, _width(model))
        columns.record([], 0)
    except Refused as refused:
        return f"{refused.where}: {refused.reason}"
    return columns


def _width(model: Model) -> int:
    return max([1, *(len(signature.outputs) for signature in model.signatures)])


def _functions(functions: Sequence[Procedure], globals_: Mapping[str, Any]) -> dict[str, Function]:
    calls = {function.name: function.calls for function in functions}
    component = components(list(calls), calls)
    made: dict[str, Function] = {}

    def call(scope: Scope, name: str, arguments: list[Column]) -> list[Column]:
        return visit(made, scope, name, arguments)

    parser = Parser(globals_, frozenset(calls), call)
    for function in functions:
        recurs = any(component[name] == component[function.name] for name in function.calls)
        results = [slot.type for slot in function.results]
        if recurs and not all(isinstance(type_, TensorType) for type_ in results):
            raise Refused("a recursion returns an object", function.path)
        parameters = tuple(slot.code for slot in function.parameters)
        memo = any(line.text.strip().startswith("key = ") for line in function.lines[:1])
        body = parser.parse(function)
        made[function.name] = Function(function.name, parameters, len(results), recurs, memo, body)
    return made
