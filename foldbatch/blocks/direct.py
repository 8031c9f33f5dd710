"""Direct: the tracing program as functions that call each other, with loops that note calls in bulk.

A loop that makes one call for each element, and does nothing else that depends on the element before but hand
on the number of its call, need not run statement by statement: the numbers of its calls follow each other.

====================================  =============================================================
in a program of generators            here
====================================  =============================================================
``t, u = yield run_tree(x)``          ``t, u = plain_run_tree(x, calls_left - 1)``
``for i, word in enumerate(words):``  ``items_v = [*words]``
``    t = fn(word)``                  ``column_v_0 = [fn(word) for word in items_v]``
``    v = call(); row0((v, s))``      ``all_v = [*islice(numbers, len(items_v))]``
``    feed0_0(t)``                    ``row0(chain.from_iterable(zip(all_v, chain((s,), all_v))))``
``    s = v``                         ``feeds0_0(column_v_0)``; ``if all_v: s = all_v[-1]``
====================================  =============================================================
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from typing import Any

from foldbatch.blocks.parsed import APPENDS

PLAIN = "plain_"  # the prefix of functions
LEFT, DRIVEN = "calls_left", "driven"  # names in functions
TOOLS: dict[str, Any] = {"chain": chain, "islice": islice, "repeat": repeat}  # globals that functions need


def direct(source: str) -> ast.Module:
    """Return the program with functions in place of generators.

    They have one argument more: how many calls within calls there may be. Where there may be none, the
    generator goes on.

    Args:
        source: the text of the program.
    """
    module: ast.Module = _Direct().visit(ast.parse(source))
    return ast.fix_missing_locations(module)


class _Direct(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        arguments = ", ".join(argument.arg for argument in node.args.args)
        deeper = ast.parse(f"if not {LEFT}: return {DRIVEN}({node.name}({arguments}))").body
        node.body.pop()  # the unreachable yield
        self.generic_visit(node)
        node.body[:0] = deeper
        node.args.args.append(ast.arg(LEFT))
        node.name = PLAIN + node.name
        return node

    def visit_Yield(self, node: ast.Yield) -> ast.expr:
        call = node.value
        assert isinstance(call, ast.Call), "a generator yields its calls"
        assert isinstance(call.func, ast.Name), "they are called by name"
        call.func.id = PLAIN + call.func.id
        call.args.append(ast.BinOp(ast.Name(LEFT, ast.Load()), ast.Sub(), ast.Constant(1)))
        return call

    def visit_For(self, node: ast.For) -> ast.stmt | list[ast.stmt]:
        match node:
            case ast.For(
                ast.Tuple([ast.Name(), ast.Name(item)]), ast.Call(ast.Name("enumerate"), [sequence])
            ):
                loop = _Loop(item, sequence)
                if all(map(loop.reads, deepcopy(node.body))):
                    lines = loop.in_bulk()
                    if lines is not None:
                        return ast.parse("\n".join(lines)).body
        self.generic_visit(node)
        return node


@dataclass(slots=True)
class _Loop:
    """What a loop does for each element.

    Attributes:
        item: the variable of the element.
        sequence: what the loop goes through.
        made: the expressions of variables that are made of the element, until they are read.
        read: those that have been read; `twice` tells whether one was read again.
        call: the variable of the number of its call.
        row: the function that notes the call, and its arguments.
        noted: what else is noted of it: functions and expressions.
        appended: the lists that the number is put into.
        states: the variables that hand it on to the next element, and what is added to it.
    """

    item: str
    sequence: ast.expr
    made: dict[str, ast.expr] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    twice: bool = False
    call: str = ""
    row: tuple[str, list[ast.expr]] | None = None
    noted: list[tuple[str, ast.expr]] = field(default_factory=list)
    appended: list[str] = field(default_factory=list)
    states: dict[str, int] = field(default_factory=dict)

    def reads(self, statement: ast.stmt) -> bool:
        """Take in a statement; return whether it is one of a loop that can be run in bulk."""
        match statement:
            case ast.Pass():
                return True
            case ast.Assign([ast.Name(name)], ast.Call(ast.Name("call"), [])) if not self.call:
                self.call = name
                return True
            case ast.Expr(ast.Call(ast.Name(name), [argument])) if match := APPENDS.fullmatch(name):
                return self._notes(name, match[1], argument)
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "append"), [ast.Name(self.call)])):
                self.appended.append(name)
                return True
            case ast.Assign([ast.Name(name)], value) if not self.call:
                self.made[name] = self._whole(value)
                return True
            case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)) if len(targets) == len(values):
                return all(map(self._hands_on, targets, values))
            case ast.Assign([target], value):
                return self._hands_on(target, value)
        return False

    def _notes(self, name: str, kind: str, argument: ast.expr) -> bool:
        if kind == "row" and isinstance(argument, ast.Tuple):
            self.row = name, argument.elts[1:]
            return True
        self.noted.append((name.replace(kind, f"{kind}s"), self._whole(argument)))
        return kind in ("feed", "label")

    def _whole(self, expression: ast.expr) -> ast.expr:
        """Return an expression in terms of the element; `twice` notes variables that are read again."""
        names = [name for name in _names(expression) if name in self.made or name in self.read]
        self.twice |= len(names) > len({*names} - self.read)
        self.read |= {*names}
        whole: ast.expr = _Replaced({name: self.made.pop(name) for name in {*names} & {*self.made}}).visit(
            expression
        )
        return whole

    def _hands_on(self, target: ast.expr, value: ast.expr) -> bool:
        match target, value:
            case ast.Name(name), ast.Name(self.call):
                self.states[name] = 0
            case ast.Name(name), ast.BinOp(ast.Name(self.call), ast.Add(), ast.Constant(int(output))):
                self.states[name] = output
            case _:
                return False
        return True

    def in_bulk(self) -> list[str] | None:
        """Return lines in place of the loop; None where it must run statement by statement."""
        own, columns = {self.item, self.call, *self.states}, f"column_{self.call}"
        read = [expression for _, expression in self.noted if not _is(expression, self.call)]
        calls = sum(any(isinstance(part, ast.Call) for part in ast.walk(expression)) for expression in read)
        # functions of the user are called in the order in which the loop calls them
        if not self.call or self.row is None or self.made or self.twice or calls > 1:
            return None
        if any((own - {self.item}) & {*_names(expression)} for expression in read):
            return None
        name, arguments = self.row
        everything, items = f"all_{self.call}", f"items_{self.call}"
        sources = [self._source(argument, own) for argument in arguments]
        if None in sources:
            return None
        lines = [f"{items} = [*{ast.unparse(self.sequence)}]"]  # iterators can be read once only
        lines += [
            f"{columns}_{i} = [{ast.unparse(part)} for {self.item} in {items}]" for i, part in enumerate(read)
        ]
        lines.append(f"{everything} = [*islice(numbers, len({items}))]")
        rows = f"chain.from_iterable(zip({', '.join([everything, *map(str, sources)])}))"
        lines.append(f"{name}({rows if sources else everything})")
        places = iter(range(len(read)))
        for note, part in self.noted:
            lines.append(f"{note}({everything if _is(part, self.call) else f'{columns}_{next(places)}'})")
        lines += [f"{target}.extend({everything})" for target in self.appended]
        if self.states:
            values = [f"{everything}[-1]{f' + {output}' * bool(output)}" for output in self.states.values()]
            lines.append(f"if {everything}: {', '.join(self.states)} = {', '.join(values)}")
        return lines

    def _source(self, argument: ast.expr, own: set[str]) -> str | None:
        """Return an iterable of what is read at a place by all calls; None where there is no simple one."""
        everything = f"all_{self.call}"
        match argument:
            case ast.Name(self.item):
                return f"items_{self.call}"
            case ast.Name(name) if name in self.states:
                output = self.states[name]
                more = f"map(({output}).__add__, {everything})" if output else everything
                return f"chain(({name},), {more})"
        return None if own & set(_names(argument)) else f"repeat({ast.unparse(argument)})"


class _Replaced(ast.NodeTransformer):
    """Puts expressions in the place of the variables that hold them."""

    def __init__(self, made: dict[str, ast.expr]) -> None:
        self.made = made

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.made.get(node.id, node)


def _is(expression: ast.expr, name: str) -> bool:
    return isinstance(expression, ast.Name) and expression.id == name


def _names(expression: ast.expr) -> Iterator[str]:
    return (part.id for part in ast.walk(expression) if isinstance(part, ast.Name))
