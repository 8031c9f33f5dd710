"""Statements: lines of the tracing program, each made a function that applies it to all lanes of a scope.

A program is a few kinds of lines, for it is written by blocks. Lines of another kind are refused.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from foldbatch.blocks.columnar.calling import UserFunction, of_numbers
from foldbatch.blocks.columnar.items import items_of, lengths_of, take_item
from foldbatch.blocks.columnar.kinds import Array, Column, Data, Lists, Refused
from foldbatch.blocks.columnar.scope import Part, Scope
from foldbatch.blocks.parsed import APPENDS

if TYPE_CHECKING:
    from foldbatch.blocks.drafts import Procedure

Step: TypeAlias = "Callable[[Scope], None]"


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
                return self.assigning([_name(target) for target in targets], values)
            case ast.Assign([ast.Tuple(targets)], ast.Name(source)):
                return _unpacking([_name(target) for target in targets], source)
            case ast.Assign([ast.Name(target)], value):
                return self.assignment(target, value)
            case ast.Expr(ast.Call(ast.Name(name), [argument])) if match := APPENDS.fullmatch(name):
                return self.recording(match[1], int(match[2]), int(match[3] or 0), argument)
            case ast.Expr(ast.Call(ast.Name("refuse_rest"), [ast.Name(name), ast.Constant(int(count))])):
                return _refusing_rest(name, count)
            case ast.Expr(ast.Call(ast.Name(name), [ast.Name()])) if name.startswith("refuse_"):
                return _refusing
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "append"), [item])):
                return self.appending(name, item)
            case ast.If(test, body, orelse):
                return self.choice(test, self.body(body), self.body(orelse))
            case ast.For(ast.Tuple([_, ast.Name(item)]), ast.Call(ast.Name("enumerate"), [source]), body):
                return self.each(item, source, self.body(body))
        raise _unknown(node)

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
            case ast.Call(ast.Name("len"), [ast.Name(name)]):
                return lambda scope: of_numbers(lengths_of(scope.read(name)))
            case ast.Tuple(parts):
                made = [self.expression(part) for part in parts]
                return lambda scope: tuple(part(scope) for part in made)
        raise _unknown(node)

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
            case ast.Call(ast.Name(name), [ast.Name(source)]) if callable(self.globals.get(name)):
                return _applying(target, UserFunction(self.globals[name]), source)
            case ast.Call(ast.Name("len"), [ast.Name(source)]):
                return _applying(target, UserFunction(len), source)
            case ast.Subscript(ast.Name(source), key):
                return _taking(target, source, self.key(key))
            case ast.Call(ast.Name("item_or"), [ast.Name(source), key, ast.Name(default)]):
                return _taking(target, source, self.key(key), (self.globals[default],))
            case ast.Call(ast.Attribute(ast.Name(table), "get"), [ast.Name(source), ast.Constant(int(miss))]):
                return _choosing(target, self.globals[table], source, miss)
        return self.assigning([target], [value])

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
            columns = tuple(expression(scope) for expression in expressions)
            if len(columns) != 1 and not (columns and all(isinstance(c, np.ndarray) for c in columns)):
                raise Refused("it makes a list of tuples of objects")
            scope.appended[target] = columns

        return append

    # -- calls

    def recording(self, kind: str, cell: int, place: int, argument: ast.expr) -> Step:
        if kind == "row":
            assert isinstance(argument, ast.Tuple)
            variable, *values = argument.elts
            expressions = [self.expression(value) for value in values]
            name = _name(variable)

            def row(scope: Scope) -> None:
                first = int(scope.values(name)[0]) // scope.run.width if scope.size else 0
                columns = [_numbers(expression(scope)) for expression in expressions]
                scope.run.parts[cell].append(Part(first, scope.size, columns))

            return row
        expression = self.expression(argument)

        def record(scope: Scope) -> None:
            part, column = scope.run.parts[cell][-1], expression(scope)
            match kind, column:
                case "feed", np.ndarray() | Data():
                    part.feeds[place] = column
                case "elements", Lists():
                    part.elements[place] = column
                case "label", Data():
                    part.labels[place] = column
                case _:
                    raise Refused("it reads a node of a tree, or a list, as a whole")

        return record

    def visiting(self, targets: Sequence[ast.expr], call: ast.Call) -> Step:
        names = [_name(target) for target in targets]
        function = _name(call.func)
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
        holds = _test(test)

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
        name = _name(source)

        def step(scope: Scope) -> None:
            turns, items = items_of(scope.read(name))
            with scope.loop(turns, set(body.assigned)) as inside:
                inside.names[item] = items
                body.apply(inside)

        return step


def _unknown(node: ast.AST) -> Refused:
    text = ast.unparse(node).partition("\n")[0]
    return Refused(f"columns cannot do what the tracing program does by {text!r}")


def _name(node: ast.expr) -> str:
    if not isinstance(node, ast.Name):
        raise _unknown(node)
    return node.id


def _numbers(column: Column) -> Array:
    """Return references, or the lengths of lists."""
    match column:
        case np.ndarray():
            return column
        case Data(codes, range()):
            return codes
    raise Refused("it passes an object to a cell")


def _unpacking(targets: list[str], source: str) -> Step:
    def step(scope: Scope) -> None:
        column = scope.read(source)
        if not isinstance(column, tuple):
            raise Refused("it unpacks an object")
        scope.names.update(zip(targets, column, strict=True))

    return step


def _applying(target: str, function: UserFunction, source: str) -> Step:
    def step(scope: Scope) -> None:
        scope.names[target] = function(scope.read(source))

    return step


def _taking(target: str, source: str, key: Any, default: tuple[Any, ...] = ()) -> Step:
    def step(scope: Scope) -> None:
        scope.names[target] = take_item(scope.read(source), key, default)

    return step


def _choosing(target: str, table: Mapping[Any, int], source: str, miss: int) -> Step:
    def step(scope: Scope) -> None:
        keys = scope.read(source)
        if not isinstance(keys, Data):
            raise Refused("it chooses by a node as a whole")
        try:
            cases = [table.get(key, miss) for key in keys.objects]
        except TypeError:
            raise Refused("it chooses by an object that has no hash") from None
        scope.names[target] = np.array(cases, np.int32)[keys.codes]

    return step


def _test(node: ast.expr) -> Callable[[Scope], Array]:
    match node:
        case ast.Compare(ast.Name(name), [ast.Eq()], [ast.Constant(int(number))]):
            return lambda scope: scope.values(name) == number
        case ast.Compare(ast.Name(name), [ast.Lt()], [ast.Constant(int(number))]):
            return lambda scope: scope.values(name) < number
        case ast.Compare(ast.Name(name), [ast.IsNot()], [ast.Constant(None)]):
            return lambda scope: _present(scope.read(name))
        case ast.BoolOp(ast.And(), tests):
            holds = [_test(test) for test in tests]
            return lambda scope: np.logical_and.reduce([hold(scope) for hold in holds])
    raise Refused("it chooses by what columns cannot tell")


def _present(column: Column) -> Array:
    match column:
        case Data(codes, objects):
            return np.array([x is not None for x in objects], bool)[codes]
        case np.ndarray() | tuple():
            raise Refused("it asks whether a tensor is None")
    return np.ones(len(lengths_of(column)), bool)


def _refusing(scope: Scope) -> None:
    scope.refuses = True
    if scope.size:
        raise Refused("there is an example that the program refuses")


def _refusing_rest(name: str, count: int) -> Step:
    def step(scope: Scope) -> None:
        column = scope.read(name)
        if isinstance(column, Data):
            objects = [column.objects[place] for place in column.present().tolist()]
            if not all(type(x) in (list, tuple) and len(x) <= count for x in objects):
                raise Refused("there is an example that the program refuses")
        elif (lengths_of(column) > count).any():
            raise Refused("there is an example that the program refuses")

    return step
