"""Numbered: the tracing program on trees, with the number of a node in the place of the node.

To make a node, and to ask it for a field, takes a call each; lists of the tree's fields take none. A function
of the user is given a node, made when it is called. One that reads nothing but how many children a node has
is called once for each such number, if nothing that the run calls may change what it returns: all
functions of the user are known to be pure, or this one is a reader that nobody can change.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from types import CodeType, FunctionType
from typing import Any

from foldbatch.blocks.drafts import Procedure
from foldbatch.blocks.memo import Kinds
from foldbatch.blocks.printing import TABLE, by_number
from foldbatch.blocks.purity import ATOMS, Reads, is_constant, reads_of
from foldbatch.blocks.tracing import Constant
from foldbatch.trees import Tree, TreeNode
from foldbatch.trees.tree import kids_of

ARITY = {"is_leaf", "arity"}  # what a table of numbers of children tells


@dataclass(slots=True)
class Numbered:
    """The program on trees.

    Attributes:
        code: its compiled functions.
        root: the name of the first one.
        functions: by name of a table, the functions that are looked up by the number of children.
        beside: other functions of the user, which must be pure where those may change.
    """

    code: CodeType
    root: str
    functions: Mapping[str, Any]
    beside: Sequence[Any]
    # the last tables, and the functions with the code that they had then; None where that does not tell all
    _known: tuple[dict[str, dict[int, Any]], list[tuple[FunctionType, CodeType]]] | None = None

    def tables(self) -> dict[str, dict[int, Any]] | None:
        """Return the tables for a run; None where functions mean something else now: read nodes instead."""
        if self._known is not None:
            tables, codes = self._known
            if all(function.__code__ is code for function, code in codes):
                return tables
        if not all(map(_is_pure, self.beside)) or not all(map(_reads_arity, self.functions.values())):
            return None
        tables = {name: _ByArity(function) for name, function in self.functions.items()}
        watched = [*self.beside, *self.functions.values()]
        codes = [(f, f.__code__) for f in watched if type(f) is FunctionType]
        settled = len(codes) + sum(map(_is_fixed, watched)) == len(watched)
        self._known = (tables, codes) if settled else None
        return tables


def suits(example: Any) -> bool:
    """Return whether an example is a tree, or a node of one, and no object of a class of the user."""
    return type(example) is Tree or (type(example) is TreeNode and type(example.tree) is Tree)


def fields_of(example: TreeNode) -> dict[str, Any]:
    """Return the globals that belong to a tree, of which `example` is a node, or the tree itself."""
    tree = example.tree
    node = partial(_node, example)
    return {"kids": kids_of(tree), "labels": tree.labels, "tokens": tree.tokens, "node": node}


def numbered(functions: Sequence[Procedure], globals_: Mapping[str, Any]) -> Numbered | None:
    """Return the program on trees; None where it would gain nothing.

    Args:
        functions: those of the program, the root's first.
        globals_: what the program finds among its globals.
    """
    beside = _user_functions(globals_)
    alone = beside is None or not all(map(_is_pure, beside))
    tables: dict[str, Any] = {}

    def has_table(constant: Constant) -> bool:
        name = f"{TABLE}{constant.name}"
        if name not in tables:
            function = constant.value
            # where others are not known to be pure, a function that they may change has no table
            if _reads_arity(function) and (_is_fixed(function) or not alone):
                tables[name] = function
        return name in tables

    text, root = by_number(functions, has_table)
    if not text:
        return None
    code = compile(text, "<foldbatch trees>", "exec")
    return Numbered(code, root, tables, [] if alone else beside or [])


class _ByArity(dict[int, Any]):
    """The results of a function of the user, by the number of a node's children."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def __missing__(self, arity: int) -> Any:
        result = self.function(_of_arity(arity))
        if type(result) in ATOMS:  # others are looked up by identity in memos
            self[arity] = result
        return result


def _reads_arity(function: Any) -> bool:
    """Return whether a function is pure, and reads nothing but how many children a node has."""
    known = reads_of(function)
    return isinstance(known, Reads) and not known.beyond and known.fields <= ARITY


def _is_fixed(function: Any) -> bool:
    known = reads_of(function)
    return isinstance(known, Reads) and known.fixed


def _is_pure(function: Any) -> bool:
    return isinstance(reads_of(function), Reads)


def _user_functions(globals_: Mapping[str, Any]) -> list[Any] | None:
    """Return the functions of the user among a program's globals; None where more may run code of the user.

    These are keys, which are compared, and defaults, which stand for what an example lacks.
    """
    functions = []
    for value in globals_.values():
        match value:
            case _ if is_constant(value) or type(value) is Kinds or _is_ours(value):
                pass
            case slice(start=start, stop=stop, step=step) if is_constant((start, stop, step)):
                pass
            case dict() if type(value) is dict and all(map(is_constant, value)):  # cases by key
                pass
            case _ if callable(value):
                functions.append(value)
            case _:
                return None
    return functions


def _is_ours(value: Any) -> bool:
    """Return whether a function is of the room of blocks, and holds nothing of the user's.

    A decorator may copy a function's names, but not its globals.
    """
    if type(value) is not FunctionType or not all(
        is_constant(c.cell_contents) for c in value.__closure__ or ()
    ):
        return False
    name = value.__globals__.get("__name__", "")
    return name.startswith("foldbatch.blocks.") and vars(sys.modules[name]) is value.__globals__


@lru_cache(100)
def _of_arity(arity: int) -> Tree:
    """Return a tree whose root has so many children."""
    return Tree([arity] * arity + [-1])


def _node(example: TreeNode, number: int) -> TreeNode:
    return example if number == example.index else TreeNode(example.tree, number)
