"""By number: the tracing program on a tree, with the number of a node in the place of the node.

To make a node, and to ask it for a field, takes a call each; lists of the tree's fields take none. A function
of the user is given a node, made when it is called. One that reads nothing but how many children a node has
is called once for each such number in a run, if nothing that the run calls may change what it returns: all
functions of the user are known to be pure, or this one is a reader that nobody can change.

====================================  =============================================================
in a program of functions             here
====================================  =============================================================
``t = x['token']``                    ``t = tokens[x]``
``t = x['is_leaf']``                  ``t = not kids[x]``
``t = x[1]``                          ``t = kids[x][1]``
``t = plain_run_tree(x, left)``       ``t = numbered_run_tree(x, left)``
``t = is_leaf(x)``                    ``t = by_arity_is_leaf[len(kids[x])]``
``t = fn(x)``                         ``t = fn(node(x))``
====================================  =============================================================
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache, partial
from types import CodeType
from typing import Any

from foldbatch.blocks.columnar.calling import UserFunction, user_functions
from foldbatch.blocks.columnar.code import ATOMS
from foldbatch.blocks.direct import PLAIN
from foldbatch.trees import Tree, TreeNode
from foldbatch.trees.tree import kids_of

NUMBERED, TABLE = "numbered_", "by_arity_"  # prefixes of functions, and of what these look results up in
FIELDS = ("kids", "labels", "tokens", "node")  # globals that belong to the tree being read
LISTS = {"label": "labels", "token": "tokens"}
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


def by_number(module: ast.Module, globals_: Mapping[str, Any]) -> Numbered | None:
    """Return the program on trees; None where it would gain nothing.

    Args:
        module: what `foldbatch.blocks.direct.direct` returns; the root's function stands first.
        globals_: what the program finds among its globals.
    """
    functions = {f.name: f for f in module.body if isinstance(f, ast.FunctionDef)}
    beside = user_functions(globals_)
    alone = beside is None or not all(
        function.is_pure for function in beside
    )  # a function that others may change has no table
    first = module.body[0]
    assert isinstance(first, ast.FunctionDef), "a program is functions"
    tables: dict[str, UserFunction] = {}
    made: dict[str, ast.FunctionDef] = {}
    wanted: list[tuple[str, tuple[bool, ...]]] = [(first.name, (True,))]
    while wanted:
        name, given = wanted.pop()
        if _named(name, given) not in made:
            variant = _Variant(functions, given, globals_, tables, alone)
            made[_named(name, given)] = variant.of(functions[name])
            wanted += variant.called
    body: list[ast.stmt] = list(made.values())
    numbered = ast.fix_missing_locations(ast.Module(body, []))
    reads = {n.id for n in ast.walk(numbered) if isinstance(n, ast.Name)} & {"kids", *LISTS.values()}
    if not reads:
        return None
    code = compile(numbered, "<foldbatch trees>", "exec")
    return Numbered(code, _named(first.name, (True,)), tables, [] if alone else beside or [])


def _named(name: str, given: Sequence[bool]) -> str:
    places = "".join(f"{place}_" for place, number in enumerate(given) if number)
    return f"{NUMBERED}{places}{name.removeprefix(PLAIN)}"


@dataclass(slots=True)
class _Variant(ast.NodeTransformer):
    """Makes a function with numbers in the place of some arguments.

    Attributes:
        functions: those of the program.
        given: which arguments are numbers.
        globals: what the program finds among its globals.
        tables: gets the functions that are looked up.
        alone: whether only those are looked up that nobody can change.
        called: gets the functions that are called with numbers, and which of their arguments these are.
        numbers: the variables that hold numbers.
        lists: those that hold lists of numbers, the children of a node.
        keyless: whether a memo is left out, which holds no nodes.
    """

    functions: Mapping[str, ast.FunctionDef]
    given: Sequence[bool]
    globals: Mapping[str, Any]
    tables: dict[str, UserFunction]
    alone: bool
    called: list[tuple[str, tuple[bool, ...]]] = field(default_factory=list)
    numbers: set[str] = field(default_factory=set)
    lists: set[str] = field(default_factory=set)
    keyless: bool = False

    def of(self, function: ast.FunctionDef) -> ast.FunctionDef:
        """Return a function with another name, and with numbers."""
        made = deepcopy(function)
        made.name = _named(function.name, self.given)
        names = [argument.arg for argument in made.args.args]
        self.numbers = {name for name, number in zip(names, self.given, strict=False) if number}
        assigned = [n.id for n in ast.walk(made) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
        self.numbers -= set(assigned)
        size = -1
        while size < (size := len(self.numbers) + len(self.lists)):
            for node in ast.walk(made):
                target, kind = self._held(node)
                if assigned.count(target) == 1:
                    kind.add(target)
        made.body = [new for node in made.body if (new := self.visit(node)) is not None]
        if self.keyless:
            made.body.pop()  # another return
        return made

    def _held(self, node: ast.AST) -> tuple[str, set[str]]:
        """Return the variable that a statement gives a number or a list, and `numbers` or `lists`."""
        match node:
            case ast.Assign([ast.Name(target)], ast.Subscript(ast.Name(x), ast.Constant("children"))):
                if x in self.numbers:
                    return target, self.lists
            case ast.Assign([ast.Name(target)], ast.Subscript(ast.Name(x), key)) if _is_place(key):
                if x in self.numbers | self.lists:
                    return target, self.numbers
            case ast.For(ast.Tuple([_, ast.Name(item)]), ast.Call(ast.Name("enumerate"), [ast.Name(x)])):
                if x in self.numbers | self.lists:
                    return item, self.numbers
        return "", set()

    def _kids(self, name: str) -> ast.expr:
        """Return the children of a variable's node, or its list."""
        return ast.Name(name, ast.Load()) if name in self.lists else _list("kids", name)

    def visit_Assign(self, node: ast.Assign) -> ast.stmt | None:
        match node:
            case ast.Assign([ast.Name("key")], test) if _kinds(test) and _kinds(test) <= self.numbers:
                self.keyless = True
                return None
            case ast.Assign([ast.Name("result")], value) if self.keyless:
                return ast.Return(self.visit(value))  # the memo would come between
            case ast.Assign([ast.Name(target)], ast.Subscript(ast.Name(x), key)) if target in self.numbers:
                node.value = ast.Subscript(self._kids(x), key, ast.Load())
                return node
            case ast.Assign([ast.Name(target)], ast.Subscript(ast.Name(x))) if target in self.lists:
                node.value = _list("kids", x)
                return node
            case ast.Assign([_], ast.Subscript(ast.Name(x), ast.Constant(str(key)))) if (
                x in self.numbers and key in LISTS
            ):
                node.value = _list(LISTS[key], x)
                return node
            case ast.Assign([_], ast.Subscript(ast.Name(x), ast.Constant("is_leaf"))) if x in self.numbers:
                node.value = ast.UnaryOp(ast.Not(), _list("kids", x))
                return node
            case ast.Assign([_], ast.Call(ast.Name(name), [ast.Name(x)])) if x in self.numbers:
                if self._has_table(name):
                    table = ast.Name(f"{TABLE}{name}", ast.Load())
                    node.value = ast.Subscript(table, _length(x), ast.Load())
                    return node
        self.generic_visit(node)
        return node

    def visit_If(self, node: ast.If) -> ast.stmt | None:
        match node.test:
            case ast.Name("key") | ast.BoolOp(ast.And(), [ast.Name("key"), *_]) if self.keyless:
                return None
        self.generic_visit(node)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        match node.value:
            case ast.Call(ast.Name("refuse_rest"), [ast.Name(x), count]) if x in self.numbers:
                test = ast.Compare(_length(x), [ast.Gt()], [count])
                self.generic_visit(node)
                return ast.If(test, [node], [])
        self.generic_visit(node)
        return node

    def visit_For(self, node: ast.For) -> ast.stmt:
        match node:
            case ast.For(ast.Tuple([_, ast.Name(item)]), ast.Call(_, [ast.Name(x)])) if item in self.numbers:
                self.generic_visit(node)
                node.iter = ast.Call(ast.Name("enumerate", ast.Load()), [self._kids(x)], [])
                return node
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        match node.func:
            case ast.Name(name) if name in self.functions:
                *arguments, left = node.args
                given = tuple(isinstance(x, ast.Name) and x.id in self.numbers for x in arguments)
                if any(given):
                    self.called.append((name, given))
                    pairs = zip(arguments, given, strict=True)
                    node.args = [*(x if number else self.visit(x) for x, number in pairs), left]
                    node.func = ast.Name(_named(name, given), ast.Load())
                    return node
            case ast.Name("len"):
                match node.args:
                    case [ast.Name(x)] if x in self.numbers | self.lists:
                        node.args = [self._kids(x)]
                        return node
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.numbers and isinstance(node.ctx, ast.Load):
            return ast.Call(ast.Name("node", ast.Load()), [node], [])
        if node.id in self.lists and isinstance(node.ctx, ast.Load):
            return ast.parse(f"[*map(node, {node.id})]", mode="eval").body
        return node

    def _has_table(self, name: str) -> bool:
        """Return whether a function is looked up by the number of children."""
        if f"{TABLE}{name}" not in self.tables and callable(self.globals.get(name)):
            function = UserFunction(self.globals[name])
            if _reads_arity(function) and not (self.alone and function.known().watched):
                self.tables[f"{TABLE}{name}"] = function
        return f"{TABLE}{name}" in self.tables


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


def _is_place(key: ast.expr) -> bool:
    match key:
        case ast.Constant(value) | ast.UnaryOp(ast.USub(), ast.Constant(value)):
            return type(value) is int
    return False


def _kinds(test: ast.expr) -> set[str]:
    """Return the variables whose kinds a memo's key asks for."""
    return {
        call.args[0].id
        for call in ast.walk(test)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "type"
        and isinstance(call.args[0], ast.Name)
    }


def _list(name: str, number: str) -> ast.Subscript:
    return ast.Subscript(ast.Name(name, ast.Load()), ast.Name(number, ast.Load()), ast.Load())


def _length(number: str) -> ast.Call:
    return ast.Call(ast.Name("len", ast.Load()), [_list("kids", number)], [])
