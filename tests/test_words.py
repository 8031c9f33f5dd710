"""The package's words: names are nouns and verbs, docstrings say a thing, a constant's name has one value.

`words.toml` has the words that are no names, and what to write instead.
"""

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.reading import drawn

PACKAGE = Path(__file__).resolve().parents[1] / "foldbatch"
MODULES = sorted(PACKAGE.rglob("*.py"))
WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
LINES = 5  # a private function with a longer body than this has a docstring
Function = ast.FunctionDef | ast.AsyncFunctionDef


def parsed() -> Iterator[tuple[str, ast.Module]]:
    for path in MODULES:
        yield str(path.relative_to(PACKAGE)), ast.parse(path.read_text(encoding="utf-8"))


def bound_names(tree: ast.AST, function: str = "") -> Iterator[tuple[int, str, str]]:
    """Yield each name that is bound: its line, the function that it is in, and the name."""
    for node in ast.iter_child_nodes(tree):
        scope = function
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, function, name
            case ast.arg(arg=name):
                yield node.lineno, function, name
            case (
                ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
                | ast.ExceptHandler(name=str(name))
            ):
                yield node.lineno, function, name
            case ast.alias(asname=str(name)):
                yield node.lineno, function, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, function, name
                scope = name
        yield from bound_names(node, scope)


def is_allowed(file: str, function: str, name: str) -> bool:
    """Python's own convention, an error's part ``found Y``, and names that users write already."""
    operator = name == "other" and function.startswith("__") and function.endswith("__")
    return operator or name in WORDS["public"].get(file, ()) or (name == "found" and file == "errors.py")


def wrong_names(file: str, tree: ast.Module) -> list[str]:
    return [
        f"{file}:{line}: {name}; write {WORDS['names'][word]}"
        for line, function, name in bound_names(tree)
        if (word := name.strip("_").lower()) in WORDS["names"] and not is_allowed(file, function, name)
    ]


def wrong_docstrings(file: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, Function | ast.ClassDef | ast.Module):
            text = ast.get_docstring(node) or ""
            for beginning, better in WORDS["docstrings"].items():
                if text.startswith(beginning):
                    yield f"{file}:{getattr(node, 'lineno', 1)}: {text.splitlines()[0]!r}; write {better}"


def undocumented(file: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, Function) and ast.get_docstring(node) is None and not node.name.startswith("__"):
            last = node.body[-1].end_lineno
            assert last is not None
            if last - node.body[0].lineno + 1 > LINES:
                yield f"{file}:{node.lineno}: {node.name}"


def constants(file: str, tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Yield the names of constants of a module that are numbers, with their values and places."""
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[target], value=value)
                | ast.AnnAssign(target=target, value=ast.expr() as value)
            ):
                pairs = [(target, value)]
                if (
                    isinstance(target, ast.Tuple)
                    and isinstance(value, ast.Tuple)
                    and len(target.elts) == len(value.elts)
                ):
                    pairs = list(zip(target.elts, value.elts, strict=True))
                for name, number in pairs:
                    if isinstance(name, ast.Name) and name.id.isupper() and is_number(number):
                        yield name.id, ast.unparse(number), f"{file}:{node.lineno}"


def is_number(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=int() | float()):
            return True
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
    return False


def test_names_are_nouns_and_verbs():
    assert [line for file, tree in parsed() for line in wrong_names(file, tree)] == []


def test_docstrings_name_a_thing():
    assert [line for file, tree in parsed() for line in wrong_docstrings(file, tree)] == []


def test_functions_of_more_than_five_lines_have_a_docstring():
    assert [line for file, tree in parsed() for line in undocumented(file, tree)] == []


def test_the_name_of_a_constant_has_one_value():
    values = defaultdict(lambda: defaultdict(list))
    for file, tree in parsed():
        for name, value, place in constants(file, tree):
            values[name][value].append(place)
    assert {name: dict(places) for name, places in values.items() if len(places) > 1} == {}


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("def f(own): return own", 1),
        ("def f(x):\n    found, y = x", 1),
        ("class A:\n    def __eq__(self, other): ...", 0),
        ("def f(other): ...", 1),
        ("def f(x):\n    match x:\n        case [told, *rest]: ...", 2),
        ("def told(): ...", 1),
        ("self._left = 1", 1),
        ("WHOLE = 1", 1),
        ("for each in rows: ...", 1),
        ("x = [some for some in rows]", 1),
        ("rows = left_rows = 1", 0),
    ],
)
def test_the_check_sees_bound_names(source, count):
    assert len(wrong_names("x.py", ast.parse(source))) == count


def test_the_check_sees_docstrings_and_constants():
    tree = ast.parse('FEW, MANY = 2, 3\n\ndef f():\n    """Return what is known."""')
    assert len(list(wrong_docstrings("x.py", tree))) == 1
    assert [name for name, *_ in constants("x.py", tree)] == ["FEW", "MANY"]
    assert len(list(undocumented("x.py", ast.parse("def f():\n" + "    pass\n" * 6)))) == 1


def test_functions_are_drawn_for_a_blind_reader():
    first = drawn(1, 30)
    assert len({function.place for function in first}) == 30
    assert first == drawn(1, 30) != drawn(2, 30)
    assert all(function.text.startswith("def ") for function in first)
