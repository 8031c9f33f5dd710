"""Numbered: the tracing program on trees, with the number of a node in the place of the node.

To make a node, and to ask it for a field, takes a call each; lists of the tree's fields take none. A function
of the user is given a node, made when it is called. One that reads nothing but how many children a node has
is called once for each such number in a run, if nothing that the run calls may change what it returns: all
functions of the user are known to be pure, or this one is a reader that nobody can change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from types import CodeType
from typing import Any

from foldbatch.blocks.columnar.calling import UserFunction, user_functions
from foldbatch.blocks.columnar.code import ATOMS
from foldbatch.blocks.drafts import Procedure
from foldbatch.blocks.printing import TABLE, by_number
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
    functions: Mapping[str, UserFunction]
    beside: Sequence[UserFunction]

    def tables(self) -> dict[str, dict[int, Any]] | None:
        """Return the tables for a run; None where functions mean something else now: read nodes instead."""
        pure = all(function.is_pure for function in self.beside)
        if not pure or not all(map(_reads_arity, self.functions.values())):
            return None
        return {name: _Results(function.function) for name, function in self.functions.items()}


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
    beside = user_functions(globals_)
    alone = beside is None or not all(function.is_pure for function in beside)
    tables: dict[str, UserFunction] = {}

    def has_table(constant: Constant) -> bool:
        name = f"{TABLE}{constant.name}"
        if name not in tables:
            function = UserFunction(constant.value)
            # where others are not known to be pure, a function that they may change has no table
            if _reads_arity(function) and not (alone and function.known().watched):
                tables[name] = function
        return name in tables

    text, root = by_number(functions, has_table)
    if not text:
        return None
    code = compile(text, "<foldbatch trees>", "exec")
    return Numbered(code, root, tables, [] if alone else beside or [])


class _Results(dict[int, Any]):
    """The results of a function of the user, by the number of a node's children."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def __missing__(self, arity: int) -> Any:
        result = self.function(_of_arity(arity))
        if type(result) in ATOMS:  # others are looked up by identity in memos
            self[arity] = result
        return result


def _reads_arity(function: UserFunction) -> bool:
    """Return whether a function is pure, and reads nothing but how many children a node has."""
    return function.is_pure and not function.known().beyond and function.known().fields <= ARITY


@lru_cache(100)
def _of_arity(arity: int) -> Tree:
    """Return a tree whose root has so many children."""
    return Tree([arity] * arity + [-1])


def _node(example: TreeNode, number: int) -> TreeNode:
    return example if number == example.index else TreeNode(example.tree, number)
