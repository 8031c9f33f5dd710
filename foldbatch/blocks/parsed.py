"""Parsed: lines of a tracing program taken apart, and made to call what is left of its cells."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from foldbatch.blocks.drafts import Line, Procedure
from foldbatch.model.drafts import Draft
from foldbatch.model.needed import PrunedDraft

APPENDS = re.compile(r"(row|feed|elements|label)(\d+)(?:_(\d+))?")  # what a call of a cell is recorded with
STEP = "    "


@dataclass(frozen=True, slots=True, eq=False)
class Atom:
    """A statement that stays or goes alone; of a loop or a choice, the header.

    Attributes:
        node: the statement.
        around: the innermost header that it stands under; of `elif`, that of its `if`.
        continues: whether it is an `elif`.
    """

    node: ast.stmt
    around: Atom | None
    continues: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A line, taken apart.

    Attributes:
        line: the line.
        depth: of how many headers it stands under.
        around: the innermost of these; of a chain from `if` to `else`, the first.
        atoms: what it does; of `else`, nothing.
        kind: ``header``, ``plain``, or ``parallel``: one assignment of several variables at once.
    """

    line: Line
    depth: int
    around: Atom | None
    atoms: tuple[Atom, ...]
    kind: str


def take_apart(function: Procedure, renamed: Renamed) -> list[Row]:
    """Take the lines of a function apart; calls of cells are those of what is left of the cells."""
    rows: list[Row] = []
    heads: list[Atom] = []  # the headers around the present line
    chains: dict[int, Atom] = {}  # by depth, the header of the latest chain
    for line in function.lines:
        text = line.text.strip()
        depth = (len(line.text) - len(text)) // len(STEP) - 1
        del heads[depth:]
        around = heads[-1] if heads else None
        if text == "else:":
            rows.append(Row(line, depth, chains[depth], (), "header"))
            heads.append(chains[depth])
        elif text.endswith(":"):
            (node,) = ast.parse(f"{text.removeprefix('el')} pass").body
            continued = text.startswith("elif ")
            atom = Atom(renamed.visit(node), chains[depth] if continued else around, continued)
            chains[depth] = chains[depth] if continued else atom
            rows.append(Row(line, depth, atom.around, (atom,), "header"))
            heads.append(chains[depth])
        else:
            nodes = [new for node in ast.parse(text).body if (new := renamed.visit(node)) is not None]
            parts = _in_parallel(nodes[0]) if len(nodes) == 1 else []
            atoms = tuple(Atom(node, around) for node in parts or nodes)
            rows.append(Row(line, depth, around, atoms, "parallel" if parts else "plain"))
    return rows


def _in_parallel(node: ast.stmt) -> list[ast.stmt]:
    """Return an assignment of several values to as many variables as assignments of one."""
    match node:
        case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)) if len(targets) == len(values):
            return [ast.Assign([target], value) for target, value in zip(targets, values, strict=True)]
    return []


class Renamed(ast.NodeTransformer):
    """Makes lines that call cells those that call what is left of the cells.

    The number of an output that is not computed becomes None.
    """

    def __init__(self, drafts: Sequence[Draft], kept: Mapping[int, PrunedDraft]) -> None:
        self.kept = kept
        self.numbers = {draft.variable: draft.number for draft in drafts}

    def visit_Expr(self, node: ast.Expr) -> ast.stmt | None:
        match node.value:
            case ast.Call(ast.Name(name), [argument]) if match := APPENDS.fullmatch(name):
                return self._append(match[1], int(match[2]), int(match[3] or 0), argument)
        self.generic_visit(node)
        return node

    def _append(self, kind: str, number: int, place: int, argument: ast.expr) -> ast.stmt | None:
        kept = self.kept.get(number)
        if kept is None:
            return None
        if kind == "row":
            assert isinstance(argument, ast.Tuple)
            variable, *arguments = argument.elts
            arguments = [self.visit(arguments[i]) for i in kept.arguments]
            return _call(f"row{kept.draft.number}", ast.Tuple([variable, *arguments], ast.Load()))
        places = {"feed": kept.feeds, "elements": kept.sequences, "label": {place: place}}[kind]
        if place not in places:
            return None
        # a key is the number of the call itself
        is_key = kind == "feed" and places[place] in kept.draft.keys
        name = f"{kind}{kept.draft.number}_{places[place]}"
        return _call(name, argument if is_key else self.visit(argument))

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        match node:
            case ast.BinOp(ast.Name(variable), ast.Add(), ast.Constant(int(output))):
                if variable in self.numbers:
                    return self._output(variable, output)
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.numbers and isinstance(node.ctx, ast.Load):
            return self._output(node.id, 0)
        return node

    def _output(self, variable: str, output: int) -> ast.expr:
        kept = self.kept.get(self.numbers[variable])
        if kept is None or output not in kept.outputs:
            return ast.Constant(None)
        base, new = ast.Name(variable, ast.Load()), kept.outputs[output]
        return ast.BinOp(base, ast.Add(), ast.Constant(new)) if new else base


def _call(name: str, argument: ast.expr) -> ast.Expr:
    return ast.Expr(ast.Call(ast.Name(name, ast.Load()), [argument], []))
