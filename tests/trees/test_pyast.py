"""Python's syntax trees as trees."""

import ast
import sys
import warnings

import pytest

from foldbatch.errors import ReadError
from foldbatch.trees import Tree, python_tree

DEPTH = 20_000


def test_a_function_becomes_a_tree_without_contexts():
    tree = python_tree("def get(self, key=None):\n    return self.rows[key]\n")
    assert tree == Tree.build(
        ["Module", None, ["FunctionDef", "get",
            ["arguments", None, ["arg", "self"], ["arg", "key"], ["Constant:NoneType", "None"]],
            ["Return", None, ["Subscript", None, ["Attribute", "rows", ["Name", "self"]], ["Name", "key"]]]]],
        children=lambda part: part[2:], label=lambda part: part[0], token=lambda part: part[1],
    )  # fmt: skip


def test_statements_name_what_they_bind():
    source = """
global x, y
import os.path as p
from a.b import c
class K(B, metaclass=M): pass
async def f(*args): await g
try: pass
except E as e: pass
match v:
    case {"k": 1, **rest}: pass
    case [*star]: pass
    case None as whole: pass
"""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = python_tree(source)
    tokens = {(node.label, node.token) for node in tree.nodes() if node.token is not None}
    assert tokens >= {
        ("Global", "x,y"), ("alias", "os.path"), ("ImportFrom", "a.b"), ("alias", "c"), ("ClassDef", "K"),
        ("keyword", "metaclass"), ("AsyncFunctionDef", "f"), ("arg", "args"), ("ExceptHandler", "e"),
        ("MatchMapping", "rest"), ("MatchStar", "star"), ("MatchAs", "whole"),
        ("MatchSingleton:NoneType", "None"),
    }  # fmt: skip


def test_a_chain_deeper_than_the_recursion_limit_is_flattened():
    node = ast.Name("x", ast.Load())
    for _ in range(DEPTH):
        node = ast.UnaryOp(ast.Not(), node)
    assert sys.getrecursionlimit() < DEPTH
    assert python_tree(node).height == DEPTH


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = (\n", "a.py:1:5: expected Python source, found '(' was never closed"),
        ("def f():\n  return 1 +\n", "a.py:2:13: expected Python source, found invalid syntax"),
        ("a\0b", "a.py:1:1: expected Python source, found source code string cannot contain null bytes"),
        ("'\ud800'", "a.py:1:1: expected Python source, found 'utf-8' codec can't encode"),
        (b"\xff = 1", "a.py:1:1: expected Python source"),
        ("a + " * 10 * DEPTH + "a", "a.py:1:1: expected nesting that Python can parse, found deeper nesting"),
        ("-" * DEPTH + "1", "a.py:1:1: expected nesting that Python can parse, found deeper nesting"),
        ("(" * 1000 + ")" * 1000, "too many nested parentheses"),
    ],
)
def test_source_that_python_cannot_parse_is_a_read_error(source, message):
    with pytest.raises(ReadError) as caught:
        python_tree(source, "a.py")
    assert message in str(caught.value)
