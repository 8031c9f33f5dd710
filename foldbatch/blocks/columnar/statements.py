"""Statements of the tracing program, each made a function that applies it to all lanes of a scope."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from foldbatch.blocks import tracing
from foldbatch.blocks.columnar.kinds import Array, Column, Data, Lists, Refused, Stored, unstored
from foldbatch.blocks.columnar.reading import (
    UserFunction,
    are_immutable,
    items_of,
    lengths_of,
    of_numbers,
    take_item,
)
from foldbatch.blocks.columnar.scope import Part, Scope
from foldbatch.blocks.tracing import (
    Append,
    Apply,
    Assign,
    Branch,
    Call,
    Case,
    Constant,
    Count,
    Expression,
    Invoke,
    Limit,
    Listed,
    Loop,
    Output,
    Present,
    Read,
    Return,
    Statement,
    Tuple,
    statements_of,
)

Step: TypeAlias = "Callable[[Scope], None]"
Visit: TypeAlias = "Callable[[Scope, str, list[Column]], list[Column]]"
REFUSED = "there is an example that the program refuses"


@dataclass(frozen=True, slots=True)
class Body:
    """Statements in order, each with the path of the block that it is for, and the variables they assign."""

    steps: tuple[tuple[Step, str], ...]
    assigned: frozenset[str]

    def apply(self, scope: Scope) -> None:
        """Apply all statements to the lanes of a scope.

        Raises:
            Refused: where one cannot be applied, with its block.
        """
        for step, where in self.steps:
            try:
                step(scope)
            except Refused as refused:
                refused.where = refused.where or where
                raise


def body_of(body: tracing.Body, visit: Visit) -> Body:
    """Return statements as functions of a scope.

    Args:
        body: the statements.
        visit: calls a function of the program.

    Raises:
        Refused: where columns do not know one.
    """
    steps = []
    for statement in body:
        where = statement.blame.where
        try:
            steps.append((_step(statement, visit), where))
        except Refused as refused:
            refused.where = refused.where or where
            raise
    assigned = (name for statement in statements_of(body) for name in statement.targets)
    return Body(tuple(steps), frozenset(assigned))


def _step(statement: Statement, visit: Visit) -> Step:
    match statement:
        case Assign(_, into, value):
            return _assigning(into, _expression(value), unpacks=len(into) > 1 and not statement.pairs)
        case Read(_, target, source, key, default):
            found, otherwise = _expression(source), () if default is None else (default.value,)
            return _into(target, lambda scope: take_item(found(scope), key.value, otherwise))
        case Apply(_, str() as target, function, (argument,), None):
            user, given = UserFunction(function.value), _expression(argument)
            return _into(target, lambda scope: user(given(scope)))
        case Apply(_, None):
            return _refuse
        case Limit(_, source, count):
            return _limiting(_expression(source), count)
        case Append(_, to, value):
            return _appending(to, _expressions(value))
        case Call():
            return _calling(statement)
        case Invoke(_, results, name, arguments):
            passed = [*map(_expression, arguments)]

            def invoke(scope: Scope) -> None:
                found = visit(scope, name, [argument(scope) for argument in passed])
                scope.names.update(zip(results, found, strict=True))

            return invoke
        case Return(_, values):
            returned = [*map(_expression, values)]

            def finish(scope: Scope) -> None:
                scope.result = [value(scope) for value in returned]

            return finish
        case Branch(_, test, (*first, last)):
            return _branching(test, [body_of(case, visit) for case in first], body_of(last, visit))
        case Loop(_, _, item, source, body):
            return _looping(item, _expression(source), body_of(body, visit))
    raise Refused(f"columns do not know this kind of statement: {_described(statement)}")


def _described(statement: Statement) -> str:
    kind = type(statement).__name__
    return f"{kind} of {statement.function.name}" if isinstance(statement, Apply) else kind


# -- expressions


def _expression(expression: Expression) -> Callable[[Scope], Column]:
    """Return an expression of values as a function of a scope."""
    match expression:
        case str(name):
            return lambda scope: scope.read(name)
        case Output(call, _, number):
            return lambda scope: scope.values(call) + np.int32(number)
        case None:  # what nobody reads
            return lambda scope: np.zeros(scope.size, np.int32)
        case Count(of):
            counted = _expression(of)
            return lambda scope: of_numbers(lengths_of(counted(scope)))
        case Listed(()):
            return lambda scope: Lists(np.zeros(scope.size, np.int64), ())
        case Tuple(items):
            parts = [*map(_expression, items)]
            return lambda scope: tuple(part(scope) for part in parts)
    raise Refused(f"columns do not know this kind of value: {type(expression).__name__}")


def _expressions(item: Expression) -> list[Callable[[Scope], Column]]:
    """Return the parts of an item of a list."""
    return [*map(_expression, item.items)] if isinstance(item, Tuple) else [_expression(item)]


def _into(target: str, found: Callable[[Scope], Column]) -> Step:
    def step(scope: Scope) -> None:
        scope.names[target] = found(scope)

    return step


def _assigning(into: Sequence[str], value: Callable[[Scope], Column], *, unpacks: bool) -> Step:
    def step(scope: Scope) -> None:
        column = value(scope)
        if unpacks and not isinstance(column, tuple):
            raise Refused("it unpacks an object")
        columns = column if len(into) > 1 and isinstance(column, tuple) else (column,)
        scope.names.update(zip(into, columns, strict=True))

    return step


# -- lists and checks


def _appending(target: str, parts: Sequence[Callable[[Scope], Column]]) -> Step:
    def append(scope: Scope) -> None:
        outer = scope.outer
        if outer is None or scope.frame is outer.frame or target not in outer.lists():
            raise Refused("it appends to a list in another loop")
        columns = [part(scope) for part in parts]
        if len(columns) > 1 and not all(isinstance(column, np.ndarray) for column in columns):
            raise Refused("it makes a list of tuples of objects")
        scope.appended[target] = tuple(columns)

    return append


def _refuse(scope: Scope) -> None:
    """Refuse the lanes, for the program checks something there; where there are none, all is well."""
    scope.refuses = True
    if scope.size:
        raise Refused(REFUSED)


def _limiting(source: Callable[[Scope], Column], count: int) -> Step:
    def step(scope: Scope) -> None:
        column = source(scope)
        if isinstance(column, Data):
            objects = [column.objects[place] for place in column.present().tolist()]
            if not all(type(x) in (list, tuple) and len(x) <= count for x in objects):
                raise Refused(REFUSED)
        elif (lengths_of(column) > count).any():
            raise Refused(REFUSED)

    return step


# -- calls


def _calling(call: Call) -> Step:
    arguments = [*map(_expression, [*call.arguments, *(Count(datum.value) for datum in call.lists)])]
    lists, feeds, labels = (
        [_expression(datum.value) for datum in data] for data in (call.lists, call.feeds, call.labels)
    )

    def step(scope: Scope) -> None:
        first = scope.run.calls
        scope.names[call.target] = scope.make_calls()
        if call.draft is None:
            return
        part = Part(first, scope.size, [_numbers(argument(scope)) for argument in arguments])
        scope.run.parts[call.draft.number].append(part)
        for place, elements in enumerate(lists):
            part.elements[place] = _checked(elements(scope), Lists)
        for place, feed in enumerate(feeds):
            part.feeds[place] = _checked(feed(scope), np.ndarray, Data, Stored)
        for place, label in enumerate(labels):
            part.labels[place] = _checked(unstored(label(scope)), Data)

    return step


def _checked(column: Column, *kinds: type) -> Any:
    if not isinstance(column, kinds):
        raise Refused("it reads a node of a tree, or a list, as a whole")
    return column


def _numbers(column: Column) -> Array:
    """Return references, or the lengths of lists."""
    match column:
        case np.ndarray():
            return column
        case Data(codes, range()):
            return codes
    raise Refused("it passes an object to a cell")


# -- choices and loops


def _branching(test: Any, first: Sequence[Body], last: Body) -> Step:
    def step(scope: Scope) -> None:
        match test:
            case Case(target, table, key):
                chosen = scope.names[target] = _numbers_of(table, _expression(key)(scope), len(first))
            case Present(objects):
                present = [_present(_expression(x)(scope)) for x in objects]
                chosen = np.where(np.logical_and.reduce(present), 0, 1)
            case _:
                raise Refused("it chooses by what columns cannot tell")
        branches = []
        for number, body in enumerate([*first, last]):
            branch = scope.among(np.flatnonzero(chosen == number))
            body.apply(branch)
            branches.append(branch)
        scope.gather(branches)

    return step


def _numbers_of(table: Constant, keys: Column, miss: int) -> Array:
    """Return the numbers of the cases for keys."""
    keys = unstored(keys)
    if not isinstance(keys, Data):
        raise Refused("it chooses by a node as a whole")
    if not are_immutable(keys.objects) or not are_immutable([*table.value]):  # others may note who compares
        raise Refused("it chooses by an object that may change")
    try:
        cases = [table.value.get(key, miss) for key in keys.objects]
    except TypeError:
        raise Refused("it chooses by an object that has no hash") from None
    return np.array(cases, np.int32)[keys.codes]


def _present(column: Column) -> Array:
    match column:
        case Data(codes, objects):
            return np.array([x is not None for x in objects], bool)[codes]
        case Stored(store, rows):
            return np.ones(len(rows), bool) if store.absent is None else ~store.absent[rows]
        case np.ndarray() | tuple():
            raise Refused("it asks whether a tensor is None")
    return np.ones(len(lengths_of(column)), bool)


def _looping(item: str, source: Callable[[Scope], Column], body: Body) -> Step:
    def step(scope: Scope) -> None:
        turns, items = items_of(source(scope))
        with scope.loop(turns, set(body.assigned)) as inside:
            inside.names[item] = items
            body.apply(inside)

    return step
