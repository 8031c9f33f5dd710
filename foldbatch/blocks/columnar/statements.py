"""Statements: lines of the tracing program, each made a function that applies it to all lanes of a scope.

A program is a few kinds of lines, for it is written by blocks. Lines of another kind are refused.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foldbatch.blocks.columnar.calling import UserFunction, of_numbers
from foldbatch.blocks.columnar.items import items_of, lengths_of, take_item, zipped
from foldbatch.blocks.columnar.kinds import Column, Data, Lists, Refused, Stored, merge, take, unstored
from foldbatch.blocks.columnar.scope import Part, Scope
from foldbatch.blocks.columnar.steps import (
    Step,
    applying,
    as_numbers,
    choosing,
    condition_of,
    copying,
    name_of,
    parts_of,
    picking,
    refusing,
    refusing_rest,
    taking,
    unknown,
    unpacking,
)
from foldbatch.blocks.parsed import APPENDS

if TYPE_CHECKING:
    from foldbatch.blocks.drafts import Procedure


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement, with the path of the block that it is for."""

    step: Step
    where: str


@dataclass(frozen=True, slots=True)
class Body:
    """Statements in order, and the variables that they assign."""

    statements: tuple[Statement, ...]
    assigned: frozenset[str]

    def apply(self, scope: Scope) -> None:
        """Apply all statements to the lanes of a scope.

        Raises:
            Refused: where one cannot be applied, with its block.
        """
        for statement in self.statements:
            try:
                statement.step(scope)
            except Refused as refused:
                refused.where = refused.where or statement.where
                raise


class Parser:
    """Makes statements of lines.

    Args:
        globals_: what the program finds among its globals.
        names: the functions of the program.
        visit: calls one of them.
    """

    def __init__(
        self,
        globals_: Mapping[str, Any],
        names: frozenset[str],
        visit: Callable[[Scope, str, list[Column]], list[Column]],
    ) -> None:
        self.globals, self.names, self.visit = globals_, names, visit

    def parse(self, function: Procedure) -> Body:
        """Return the statements of a function."""
        text = "\n".join(["def function():", *(line.text for line in function.lines)])
        (tree,) = ast.parse(text).body
        assert isinstance(tree, ast.FunctionDef)
        self.wheres = [line.where for line in function.lines]
        return self.body(tree.body)

    def body(self, nodes: Sequence[ast.stmt]) -> Body:
        """Return some statements."""
        statements, assigned = [], set[str]()
        for node in nodes:
            where = self.wheres[node.lineno - 2]
            try:
                step = self.statement(node)
            except Refused as refused:
                refused.where = refused.where or where
                raise
            if step is not None:
                statements.append(Statement(step, where))
            assigned |= {
                n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            }
        return Body(tuple(statements), frozenset(assigned))

    def statement(self, node: ast.stmt) -> Step | None:
        """Return one statement as a function of a scope; None where it does nothing here."""
        match node:
            case ast.Pass():
                return None
            case ast.Assign([ast.Name("key")]) | ast.If(ast.Name("key")):
                return None  # of a memo, and no tree has one
            case ast.If(ast.BoolOp(ast.And(), [ast.Name("key"), *_])):
                return None
            case ast.Assign([ast.Name("result")], ast.Tuple(values)):
                return self.returning(values)
            case ast.Return(ast.Name("result")):
                return None
            case ast.Return(ast.Tuple(values)):
                return self.returning(values)
            case ast.Assign([ast.Tuple(targets)], ast.Yield(ast.Call() as call)):
                return self.visiting(targets, call)
            case ast.Assign([ast.Tuple(targets)], ast.Call(ast.Name(name)) as call) if name in self.names:
                return self.visiting(targets, call)
            case ast.Expr(ast.Yield(ast.Call() as call)):
                return self.visiting([], call)
            case ast.Expr(ast.Call(ast.Name(name)) as call) if name in self.names:
                return self.visiting([], call)
            case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)):
                return self.assigning([name_of(target) for target in targets], values)
            case ast.Assign([ast.Tuple(targets)], ast.Name(source)):
                return unpacking([name_of(target) for target in targets], source)
            case ast.Assign([ast.Name(target)], value):
                return self.assignment(target, value)
            case ast.Expr(ast.Call(ast.Name(name), [argument])) if match := APPENDS.fullmatch(name):
                return self.recording(match[1], int(match[2]), int(match[3] or 0), argument)
            case ast.Expr(ast.Call(ast.Name("refuse_rest"), [ast.Name(name), ast.Constant(int(count))])):
                return refusing_rest(name, count)
            case ast.Expr(ast.Call(ast.Name(name), [ast.Name()])) if name.startswith("refuse_"):
                return refusing
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "append"), [item])):
                return self.appending(name, item)
            case ast.If(test, body, orelse):
                return self.choice(test, self.body(body), self.body(orelse))
            case ast.For(ast.Tuple([_, ast.Name(item)]), ast.Call(ast.Name("enumerate"), [source]), body):
                return self.each(item, source, self.body(body))
        raise unknown(node)

    # -- variables

    def expression(self, node: ast.expr) -> Callable[[Scope], Column]:
        """Return an expression of values as a function of a scope."""
        match node:
            case ast.Name(name):
                return lambda scope: scope.read(name)
            case ast.BinOp(ast.Name(name), ast.Add(), ast.Constant(int(output))):
                return lambda scope: scope.values(name) + np.int32(output)
            case ast.Constant(None):  # what nobody reads
                return lambda scope: np.zeros(scope.size, np.int32)
            case ast.Call(ast.Name("len"), [sequence]):
                counted = self.expression(sequence)
                return lambda scope: of_numbers(lengths_of(counted(scope)))
            case ast.Subscript(ast.Name(name), ast.Slice(ast.Constant(int(start)), None, None)):
                return lambda scope: take_item(scope.read(name), slice(start, None))
            case ast.Subscript(sequence, ast.Name(name)) if isinstance(self.globals.get(name), slice):
                listed_there, key = self.expression(sequence), self.globals[name]
                return lambda scope: take_item(listed_there(scope), key)
            case ast.Tuple(parts):
                made = [self.expression(part) for part in parts]
                return lambda scope: tuple(part(scope) for part in made)
        raise unknown(node)

    def assigning(self, targets: list[str], values: Sequence[ast.expr]) -> Step:
        expressions = [self.expression(value) for value in values]

        def step(scope: Scope) -> None:
            columns = [expression(scope) for expression in expressions]
            scope.names.update(zip(targets, columns, strict=True))

        return step

    def assignment(self, target: str, value: ast.expr) -> Step:
        match value:
            case ast.Call(ast.Name("call"), []):

                def call(scope: Scope) -> None:
                    scope.names[target] = scope.make_calls()

                return call
            case ast.List([]):

                def empty(scope: Scope) -> None:
                    scope.names[target] = Lists(np.zeros(scope.size, np.int64), ())

                return empty
            case ast.Call(ast.Name(name), [ast.Name(source), ast.Name(place)]) if name.startswith("pick_"):
                return picking(target, source, place)
            case ast.List(elements):
                return self.listing(target, elements)
            case ast.Call(ast.Name("list"), [ast.Name(source)]):
                return copying(target, source)
            case ast.ListComp(
                item, [ast.comprehension(ast.Tuple(names), ast.Call(ast.Name("zip"), sources))]
            ):
                return self.zipping(target, item, list(map(name_of, names)), sources)
            case ast.Call(ast.Name(name), [ast.Name(source)]) if callable(self.globals.get(name)):
                return applying(target, UserFunction(self.globals[name]), source)
            case ast.Call(ast.Name("len"), [ast.Name(source)]):
                return applying(target, UserFunction(len), source)
            case ast.Subscript(ast.Name(source), key):
                return taking(target, source, self.key(key))
            case ast.Call(ast.Name("item_or"), [ast.Name(source), key, ast.Name(default)]):
                return taking(target, source, self.key(key), (self.globals[default],))
            case ast.Call(ast.Attribute(ast.Name(table), "get"), [ast.Name(source), ast.Constant(int(miss))]):
                return choosing(target, self.globals[table], source, miss)
        return self.assigning([target], [value])

    def listing(self, target: str, elements: Sequence[ast.expr]) -> Step:
        several = [e.elts if isinstance(e, ast.Tuple) and len(e.elts) > 1 else [e] for e in elements]
        expressions = [[self.expression(part) for part in parts] for parts in several]

        def step(scope: Scope) -> None:
            columns = [[part(scope) for part in parts] for parts in expressions]
            count = len(columns)
            lanes = np.arange(scope.size) * count
            items = [
                merge([(lanes + i, parts[k]) for i, parts in enumerate(columns)], count * scope.size)
                for k in range(len(columns[0]))
            ]
            scope.names[target] = Lists(np.full(scope.size, count), parts_of(items))

        return step

    def zipping(self, target: str, item: ast.expr, names: list[str], sources: Sequence[ast.expr]) -> Step:
        expressions = [self.expression(source) for source in sources]
        parts = item.elts if isinstance(item, ast.Tuple) and len(item.elts) > 1 else [item]

        def step(scope: Scope) -> None:
            lengths, given = zipped([expression(scope) for expression in expressions])
            known = dict(zip(names, given, strict=True))
            lanes = np.repeat(np.arange(scope.size), lengths)
            items: list[Column] = []
            for part in parts:
                match part:
                    case ast.Name(name) | ast.Starred(ast.Name(name)) if name in known:
                        items += known[name]
                    case _:
                        items.append(take(self.expression(part)(scope), lanes))
            scope.names[target] = Lists(lengths, parts_of(items))

        return step

    def key(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value):
                return value
            case ast.UnaryOp(ast.USub(), ast.Constant(int(value))):
                return -value
            case ast.Name(name) if name in self.globals:
                return self.globals[name]
        raise Refused("it reads an item whose key is computed")

    def appending(self, target: str, item: ast.expr) -> Step:
        several = item.elts if isinstance(item, ast.Tuple) and len(item.elts) > 1 else [item]
        expressions = [self.expression(part) for part in several]

        def append(scope: Scope) -> None:
            outer = scope.outer
            if outer is None or scope.frame is outer.frame or target not in outer.lists():
                raise Refused("it appends to a list in another loop")
            scope.appended[target] = parts_of([expression(scope) for expression in expressions])

        return append

    # -- calls

    def recording(self, kind: str, cell: int, place: int, argument: ast.expr) -> Step:
        if kind == "row":
            assert isinstance(argument, ast.Tuple)
            variable, *values = argument.elts
            expressions = [self.expression(value) for value in values]
            name = name_of(variable)

            def row(scope: Scope) -> None:
                first = int(scope.values(name)[0]) // scope.run.width if scope.size else 0
                columns = [as_numbers(expression(scope)) for expression in expressions]
                scope.run.parts[cell].append(Part(first, scope.size, columns))

            return row
        expression = self.expression(argument)

        def record(scope: Scope) -> None:
            part, column = scope.run.parts[cell][-1], expression(scope)
            match kind, unstored(column) if kind == "label" else column:
                case "feed", (np.ndarray() | Data() | Stored()) as feed:
                    part.feeds[place] = feed
                case "elements", Lists() as elements:
                    part.elements[place] = elements
                case "label", Data() as labels:
                    part.labels[place] = labels
                case _:
                    raise Refused("it reads a node of a tree, or a list, as a whole")

        return record

    def visiting(self, targets: Sequence[ast.expr], call: ast.Call) -> Step:
        names = [name_of(target) for target in targets]
        function = name_of(call.func)
        arguments = [self.expression(argument) for argument in call.args]

        def step(scope: Scope) -> None:
            results = self.visit(scope, function, [argument(scope) for argument in arguments])
            scope.names.update(zip(names, results, strict=True))

        return step

    def returning(self, values: Sequence[ast.expr]) -> Step:
        expressions = [self.expression(value) for value in values]

        def step(scope: Scope) -> None:
            scope.result = [expression(scope) for expression in expressions]

        return step

    # -- choices and loops

    def choice(self, test: ast.expr, body: Body, otherwise: Body) -> Step:
        holds = condition_of(test)

        def step(scope: Scope) -> None:
            mask = holds(scope)
            branches = []
            for chosen, part in ((mask, body), (~mask, otherwise)):
                branch = scope.among(np.flatnonzero(chosen))
                part.apply(branch)
                branches.append(branch)
            scope.gather(branches)

        return step

    def each(self, item: str, source: ast.expr, body: Body) -> Step:
        listed_there = self.expression(source)

        def step(scope: Scope) -> None:
            turns, items = items_of(listed_there(scope))
            with scope.loop(turns, set(body.assigned)) as inside:
                inside.names[item] = items
                body.apply(inside)

        return step
