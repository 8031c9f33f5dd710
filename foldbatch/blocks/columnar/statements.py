"""Statements of the tracing program, each applied to all lanes of a scope, and calls of its functions.

A function that does not recur is applied to the lanes that call it. One that does is applied once to all
nodes of the trees that it is entered with: every node is a lane. What a visit gets from those below it are
links.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foldbatch.blocks import tracing
from foldbatch.blocks.columnar.clock import Frame, Recursion, Visits
from foldbatch.blocks.columnar.forest import Forest
from foldbatch.blocks.columnar.kinds import (
    Array,
    Column,
    ListColumn,
    NodeColumn,
    ObjectColumn,
    Refused,
    StoredColumn,
    unstored,
)
from foldbatch.blocks.columnar.reading import (
    apply,
    are_immutable,
    items_of,
    lengths_of,
    of_numbers,
    take_item,
)
from foldbatch.blocks.columnar.scope import CallColumns, Scope
from foldbatch.blocks.drafts import Procedure
from foldbatch.blocks.purity import ATOMS
from foldbatch.blocks.tracing import (
    Append,
    Apply,
    Assign,
    Branch,
    Call,
    CallOutput,
    Case,
    Constant,
    Count,
    Expression,
    Invoke,
    Limit,
    Listed,
    Loop,
    Present,
    Read,
    Return,
    Statement,
    Tuple,
    statements_of,
)

REFUSED = "there is an example that the program refuses"
MOST_NODES = 2_000_000  # of a tree; the program refuses what is deeper


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The functions of the program by name, and the names of those that call themselves."""

    procedures: Mapping[str, Procedure]
    recursive: frozenset[str]

    def run(self, body: tracing.Body, scope: Scope) -> None:
        """Apply statements to the lanes of a scope.

        Raises:
            Refused: where one cannot be applied, with its block.
        """
        for statement in body:
            try:
                self._apply(statement, scope)
            except Refused as refused:
                refused.where = refused.where or statement.blame.where
                raise

    def _apply(self, statement: Statement, scope: Scope) -> None:
        names = scope.names
        match statement:
            case Assign(_, into, value):
                column = _value(value, scope)
                if len(into) > 1 and not isinstance(column, tuple):
                    raise Refused("it unpacks an object")
                columns = column if len(into) > 1 and isinstance(column, tuple) else (column,)
                names.update(zip(into, columns, strict=True))
            case Read(_, target, source, key, default):
                otherwise = () if default is None else (default.value,)
                names[target] = take_item(_value(source, scope), key.value, otherwise)
            case Apply(_, str() as target, function, (argument,), None):
                names[target] = apply(function.value, _value(argument, scope))
            case Apply(_, None):  # a check, which fails
                scope.refuses = True
                if scope.size:
                    raise Refused(REFUSED)
            case Limit(_, source, count):
                _limit(_value(source, scope), count)
            case Append(_, to, value):
                _append(scope, to, value)
            case Call():
                _call(statement, scope)
            case Invoke(_, results, name, arguments):
                found = self.visit(scope, name, [_value(argument, scope) for argument in arguments])
                names.update(zip(results, found, strict=True))
            case Return(_, values):
                scope.result = [_value(value, scope) for value in values]
            case Branch(_, test, bodies):
                self._branch(test, bodies, scope)
            case Loop(_, _, item, source, body):
                turns, items = items_of(_value(source, scope))
                assigned = {name for each in statements_of(body) for name in each.targets}
                with scope.loop(turns, assigned) as inside:
                    inside.names[item] = items
                    self.run(body, inside)
            case _:
                raise Refused(f"columns do not know this kind of statement: {_described(statement)}")

    def _branch(self, test: Any, bodies: tuple[tracing.Body, ...], scope: Scope) -> None:
        match test:
            case Case(target, table, key):
                chosen = scope.names[target] = _cases(table, _value(key, scope), len(bodies) - 1)
            case Present(objects):
                present = [_present(_value(x, scope)) for x in objects]
                chosen = np.where(np.logical_and.reduce(present), 0, 1)
            case _:
                raise Refused("it chooses by what columns cannot tell")
        branches = []
        for number, body in enumerate(bodies):
            branch = scope.among(np.flatnonzero(chosen == number))
            self.run(body, branch)
            branches.append(branch)
        scope.gather(branches)

    def visit(self, scope: Scope, name: str, arguments: list[Column]) -> list[Column]:
        """Return the results of a function, called in each lane of a scope.

        Raises:
            Refused: where it recurs in a way that columns do not follow.
        """
        function, around = self.procedures[name], scope.function
        if function.memo:
            arguments = [*map(unstored, arguments)]
            if any(
                isinstance(x, ObjectColumn) and not set(map(type, x.objects)) <= {*ATOMS} for x in arguments
            ):
                raise Refused("an object that may stand in several places is visited once for all of them")
        if name not in self.recursive:
            inner = Scope(scope.run, scope.frame, scope.lanes, scope.size)
            inner.function = around
            return self._results(function, inner, arguments)
        tree = arguments[0] if len(arguments) == 1 else None
        if isinstance(tree, ObjectColumn) and not scope.size:  # nothing is visited
            tree = NodeColumn(around.forest if around else Forest([]), np.zeros(0, np.int64), 1)
        if not isinstance(tree, NodeColumn):
            raise Refused("a recursion reads something else than one tree")
        if around is None:
            return self._enter(function, scope, tree)
        if around.name != name or around.forest is not tree.forest or tree.depth != 1:
            raise Refused("a recursion calls another one, or goes on to a node that is no child")
        scope.frame.events.append(Visits(scope.lanes, around.recursion, tree.index))
        around.visited.append(tree.index)
        return [links[tree.index] for links in around.links]

    def _results(self, function: Procedure, scope: Scope, arguments: list[Column]) -> list[Column]:
        scope.names.update(zip(function.names, arguments, strict=True))
        self.run(function.body, scope)
        assert scope.result is not None, "every function returns"
        return scope.result

    def _enter(self, function: Procedure, scope: Scope, tops: NodeColumn) -> list[Column]:
        """Apply a function that recurs to all nodes of some trees."""
        run, forest = scope.run, tops.forest
        if forest.most > MOST_NODES:
            raise Refused("a tree is so large that it may be deeper than the program allows")
        recursion = Recursion(Frame(forest.size), forest.first)
        run.recursions.append(recursion)
        links = [run.new_links(forest.size) for _ in function.results]
        inner = Scope(run, recursion.frame, None, forest.size)
        inner.function = visiting = Visiting(function.name, forest, links, recursion)
        results = self._results(function, inner, [NodeColumn(forest, forest.nodes)])
        for references, column in zip(links, results, strict=True):
            if not isinstance(column, np.ndarray):
                raise Refused("a recursion returns an object", function.path)
            run.link(references, column)
        visited = np.concatenate([tops.index, *visiting.visited])
        reached = np.zeros(forest.size, bool)
        reached[visited] = True
        if len(visited) != forest.size or not reached.all():
            raise Refused("a recursion does not visit each node once")
        recursion.count()
        scope.frame.events.append(Visits(scope.lanes, recursion, tops.index))
        return [references[tops.index] for references in links]


@dataclass(slots=True, eq=False)
class Visiting:
    """A recursion while its function is applied."""

    name: str  # of the function
    forest: Forest  # the trees; each node is a lane
    links: list[Array]  # per result, references to the links of all lanes
    recursion: Recursion
    visited: list[Array] = field(default_factory=list)  # the lanes that are visited from others


def _described(statement: Statement) -> str:
    kind = type(statement).__name__
    return f"{kind} of {statement.function.name}" if isinstance(statement, Apply) else kind


def _value(expression: Expression, scope: Scope) -> Column:
    match expression:
        case str(name):
            return scope.read(name)
        case CallOutput(call, _, number):
            return scope.values(call) + np.int32(number)
        case None:  # what nobody reads
            return np.zeros(scope.size, np.int32)
        case Count(of):
            return of_numbers(lengths_of(_value(of, scope)))
        case Listed(()):
            return ListColumn(np.zeros(scope.size, np.int64), ())
        case Tuple(items):
            return tuple(_value(item, scope) for item in items)
    raise Refused(f"columns do not know this kind of value: {type(expression).__name__}")


def _append(scope: Scope, to: str, value: Expression) -> None:
    outer = scope.outer
    if outer is None or scope.frame is outer.frame or not isinstance(outer.names.get(to), ListColumn):
        raise Refused("it appends to a list in another loop")
    found = _value(value, scope)
    columns = found if isinstance(value, Tuple) and isinstance(found, tuple) else (found,)
    if len(columns) > 1 and not all(isinstance(column, np.ndarray) for column in columns):
        raise Refused("it makes a list of tuples of objects")
    scope.appended[to] = columns


def _limit(column: Column, count: int) -> None:
    if isinstance(column, ObjectColumn) and not {*map(type, column.compact().objects)} <= {list, tuple}:
        raise Refused(REFUSED)
    if (lengths_of(column) > count).any():
        raise Refused(REFUSED)


def _call(call: Call, scope: Scope) -> None:
    first = scope.run.calls
    scope.names[call.target] = scope.make_calls()
    if call.draft is None:
        return
    counts = [Count(datum.value) for datum in call.lists]
    part = CallColumns(first, scope.size, [_numbers(_value(x, scope)) for x in (*call.arguments, *counts)])
    scope.run.parts[call.draft.number].append(part)
    for place, datum in enumerate(call.lists):
        part.elements[place] = _checked(_value(datum.value, scope), ListColumn)
    for place, datum in enumerate(call.feeds):
        part.feeds[place] = _checked(_value(datum.value, scope), np.ndarray, ObjectColumn, StoredColumn)
    for place, datum in enumerate(call.labels):
        part.labels[place] = _checked(unstored(_value(datum.value, scope)), ObjectColumn)


def _checked(column: Column, *kinds: type) -> Any:
    if not isinstance(column, kinds):
        raise Refused("it reads a node of a tree, or a list, as a whole")
    return column


def _numbers(column: Column) -> Array:
    """Return references, or the lengths of lists."""
    match column:
        case np.ndarray():
            return column
        case ObjectColumn(codes, range()):
            return codes
    raise Refused("it passes an object to a cell")


def _cases(table: Constant, keys: Column, miss: int) -> Array:
    """Return the numbers of the cases for keys."""
    keys = unstored(keys)
    if not isinstance(keys, ObjectColumn):
        raise Refused("it chooses by a node as a whole")
    if not are_immutable(keys.objects) or not are_immutable([*table.value]):  # others may note who compares
        raise Refused("it chooses by an object that may change")
    return np.array([table.value.get(key, miss) for key in keys.objects], np.int32)[keys.codes]


def _present(column: Column) -> Array:
    match column:
        case ObjectColumn(codes, objects):
            return np.array([x is not None for x in objects], bool)[codes]
        case StoredColumn(store, rows):
            return np.ones(len(rows), bool) if store.absent is None else ~store.absent[rows]
        case NodeColumn() | ListColumn():
            return np.ones(len(lengths_of(column)), bool)
    raise Refused("it asks whether a tensor is None")
