"""Unused: lines of a tracing program whose outcome nobody uses are left out of it.

A line is one *atom* or several: statements that stay or go alone. *Facts* imply facts: that a variable is
used implies the atoms that give it its value; an atom implies the variables that it reads, and the loops and
cases around it; a call implies that its function runs. What follows from the results of an example, from
losses and from metrics stays. The functions of the user are taken to have no effect but what they return.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from foldbatch.blocks.drafts import Line, Procedure
from foldbatch.blocks.parsed import APPENDS, STEP, Atom, Renamed, Row, take_apart
from foldbatch.model.drafts import Draft
from foldbatch.model.needed import PrunedDraft

# An atom that stays; or ("name", function, variable), ("result", function, number), ("run", function), or
# ("effect", function): something is changed that callers can see.
Fact: TypeAlias = Hashable
Name: TypeAlias = tuple[str, str, str]


def without_unused(
    functions: Sequence[Procedure], drafts: Sequence[Draft], kept: Mapping[int, PrunedDraft]
) -> list[Procedure]:
    """Return the functions of a tracing program without the lines whose outcome nobody uses.

    Args:
        functions: the functions, the root's first.
        drafts: the cells that the lines call.
        kept: what is left of each, by number; the new lines call that.
    """
    renamed = Renamed(drafts, kept)
    rows = {f.name: take_apart(f, renamed) for f in functions}
    facts = _Facts({f.name: f for f in functions}, {k.draft.number: k.draft for k in kept.values()})
    for function in functions:
        facts.read(function, rows[function.name])
    live = facts.live(functions[0])
    return [
        replace(f, lines=list(_written(f, rows[f.name], facts, live)))
        for f in functions
        if ("run", f.name) in live
    ]


class _Facts:
    """What implies what in a program.

    Args:
        functions: the functions, by name.
        drafts: what is left of cells, by new number.
    """

    def __init__(self, functions: Mapping[str, Procedure], drafts: Mapping[int, Draft]) -> None:
        self.functions = functions
        self.drafts = drafts
        self.locals: dict[str, set[str]] = {}
        self.implied: defaultdict[Fact, list[Fact]] = defaultdict(list)
        self.together: defaultdict[Fact, list[tuple[Fact, list[Name]]]] = defaultdict(list)
        self.sinks: list[Fact] = []

    def read(self, function: Procedure, rows: Sequence[Row]) -> None:
        """Learn from the lines of a function."""
        atoms = [atom for row in rows for atom in row.atoms]
        stored = {
            n.id
            for atom in atoms
            for n in ast.walk(atom.node)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        self.locals[function.name] = stored | {slot.code for slot in function.parameters}
        for atom in atoms:
            if atom.around is not None:
                self.implied[atom].append(atom.around)
            self._learn(function.name, atom)

    def name(self, function: str, variable: str) -> Name:
        """Return the fact that a variable of a function, or of the whole program, is used."""
        return "name", function if variable in self.locals[function] else "", variable

    def _names(self, function: str, *parts: ast.AST) -> list[Name]:
        """Return the facts that the variables in parts of a statement are used."""
        found = [n for part in parts for n in ast.walk(part) if isinstance(n, ast.Name)]
        return [self.name(function, n.id) for n in found if isinstance(n.ctx, ast.Load)]

    def _learn(self, function: str, atom: Atom) -> None:
        match atom.node:
            case ast.Return(ast.Tuple(values)):
                self.implied["run", function].append(atom)
                for j, value in enumerate(values):
                    self.implied["result", function, j] += self._names(function, value)
            case ast.Assign([ast.Name() as target], ast.Yield(ast.Call() as call)):
                self._call(function, atom, call, [target])
            case ast.Assign([ast.Tuple(targets)], ast.Yield(ast.Call() as call)):
                self._call(function, atom, call, targets)
            case ast.Expr(ast.Yield(ast.Call() as call)):
                self._call(function, atom, call, [])
            case ast.Assign([ast.Name() | ast.Tuple() as target], value) | ast.For(target, value):
                for variable in ast.walk(target):
                    if isinstance(variable, ast.Name):
                        self.implied[self.name(function, variable.id)].append(atom)
                self.implied[atom] += self._names(function, value)
            case ast.If(test) | ast.While(test):
                self.implied[atom] += self._names(function, test)
                if atom.continues and atom.around is not None:
                    self.implied[atom.around].append(atom)
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(variable), "append"))):
                self._change(function, atom, variable)
            case ast.Delete([ast.Subscript(ast.Name(variable))]):
                self._change(function, atom, variable)
            case ast.Expr(ast.Call(ast.Name(name))) if match := APPENDS.fullmatch(name):
                draft = self.drafts[int(match[2])]
                self._change(function, atom, draft.variable)
                if draft.losses or draft.metrics:
                    self.implied[atom].append(("effect", function))
                    self.sinks.append(atom)
            case ast.Expr() | ast.Pass():
                pass  # a check: it stays where what it looks at does
            case _:
                raise AssertionError(ast.unparse(atom.node))

    def _change(self, function: str, atom: Atom, variable: str) -> None:
        """Learn that an atom changes what a variable holds."""
        fact = self.name(function, variable)
        self.implied[fact].append(atom)
        self.implied[atom] += self._names(function, atom.node)
        if variable not in self.locals[function]:
            self.implied[atom].append(("effect", function))

    def _call(self, function: str, atom: Atom, call: ast.Call, targets: Sequence[ast.expr]) -> None:
        assert isinstance(call.func, ast.Name)
        callee = self.functions[call.func.id]
        self.implied[atom].append(("run", callee.name))
        self.implied["effect", callee.name] += [atom, ("effect", function)]
        for j, target in enumerate(targets):
            assert isinstance(target, ast.Name)
            self.implied[self.name(function, target.id)] += [atom, ("result", callee.name, j)]
        for parameter, argument in zip(callee.parameters, call.args, strict=True):
            read = ("name", callee.name, parameter.code)
            names = self._names(function, argument)
            self.together[atom].append((read, names))
            self.together[read].append((atom, names))

    def live(self, root: Procedure) -> set[Fact]:
        """Return all facts that follow from the results of the root, and from losses and metrics."""
        waiting: list[Fact] = [("run", root.name), *self.sinks]
        waiting += [("result", root.name, j) for j in range(len(root.results))]
        live: set[Fact] = set()
        while waiting:
            fact = waiting.pop()
            if fact not in live:
                live.add(fact)
                waiting += self.implied.get(fact, [])
                for other, facts in self.together.get(fact, []):
                    waiting += facts if other in live else []
        return live

    # -- what stays

    def left(self, function: str, atom: Atom, live: set[Fact]) -> ast.stmt | None:
        """Return what is left of an atom, if anything: results and arguments nobody reads become None."""
        match atom.node:
            case ast.Return(ast.Tuple(values)):
                results = [("result", function, j) in live for j in range(len(values))]
                return ast.Return(_only(values, results)) if atom in live else None
            case ast.Assign(_, ast.Yield(ast.Call() as call)) | ast.Expr(ast.Yield(ast.Call() as call)):
                assert isinstance(call.func, ast.Name)
                callee = self.functions[call.func.id]
                read = [("name", callee.name, slot.code) in live for slot in callee.parameters]
                call.args = _only(call.args, read).elts
            case ast.Expr(ast.Call(ast.Name(name))) if not APPENDS.fullmatch(name):
                own = [fact for fact in self._names(function, atom.node) if fact[1]]
                seen = atom.around is None or atom.around in live
                return atom.node if seen and live.issuperset(own) else None
            case ast.Pass():
                return atom.node if atom.around in live else None
        return atom.node if atom in live else None


def _only(values: Sequence[ast.expr], wanted: Sequence[bool]) -> ast.Tuple:
    parts = [value if keep else ast.Constant(None) for value, keep in zip(values, wanted, strict=True)]
    return ast.Tuple(parts, ast.Load())


def _written(function: Procedure, rows: Sequence[Row], facts: _Facts, live: set[Fact]) -> Iterator[Line]:
    """Yield the lines that are left of a function."""
    for row in rows:
        nodes = [node for atom in row.atoms if (node := facts.left(function.name, atom, live)) is not None]
        if row.kind == "header":
            if nodes or (not row.atoms and row.around in live):
                yield _line(row, _header(row))
        elif row.kind == "parallel" and len(nodes) > 1:
            pairs = [(node.targets[0], node.value) for node in nodes if isinstance(node, ast.Assign)]
            targets, values = zip(*pairs, strict=True)
            target, value = ast.Tuple([*targets], ast.Store()), ast.Tuple([*values], ast.Load())
            yield _line(row, _text(ast.Assign([target], value)))
        elif nodes:
            yield _line(row, "; ".join(map(_text, nodes)))


def _line(row: Row, text: str) -> Line:
    return replace(row.line, text=STEP * (row.depth + 1) + text)


def _header(row: Row) -> str:
    if not row.atoms:
        return "else:"
    (atom,) = row.atoms
    return ("el" if atom.continues else "") + _text(atom.node).splitlines()[0]


def _text(node: ast.stmt) -> str:
    return ast.unparse(ast.fix_missing_locations(node))
