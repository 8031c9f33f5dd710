"""No calls upward by hook: no room assigns to a class, a module or a collection of another room.

What a lower floor calls is passed down to it as an object of a protocol that the lower floor declares.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PACKAGE = Path(__file__).resolve().parents[1] / "foldbatch"
GROWING = {"add", "append", "clear", "extend", "insert", "pop", "remove", "setdefault", "update"}
# assignments to modules of Python, where it has no other way: by file, what is set and why
DECLARED = {
    ("errors.py", "sys.excepthook"),  # errors of users are printed without the package's own frames
    ("train/trackers.py", "sys.excepthook"),  # that which wandb set is taken back with its run
    ("communicators/communicator.py", "sys.excepthook"),  # an error of one rank ends all
    ("cli.py", "sys.stderr"),  # warnings and bars go on in lines of their own
    ("cli.py", "warnings.showwarning"),
    ("commands/bench.py", "sys.modules[name]"),  # the user's module, under its name
    ("blocks/lower.py", "linecache.cache[FILENAME]"),  # tracebacks show printed programs
    (
        "serve/workers.py",
        "os.environ[SHARED_FIGURES]",
    ),  # a library reads it in the processes, when it is imported
    ("engines/numpy/kernel.py", "linecache.cache[filename]"),
    ("functions/mixed.py", "linecache.cache[file]"),
}


def room_of(module: str) -> str:
    """Return the room that a module of the package stands in, or the name of another package."""
    parts = module.split(".")
    return parts[1] if parts[0] == "foldbatch" and len(parts) > 1 else parts[0]


def imported(tree: ast.AST) -> dict[str, str]:
    """Return the names that a module imports, each with the module that it comes from."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = node.module == "foldbatch"
                names[alias.asname or alias.name] = f"foldbatch.{alias.name}" if whole else node.module
        elif isinstance(node, ast.Import):
            names.update({alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names})
    return names


def assigned(node: ast.AST, bound: frozenset[str] = frozenset()) -> Iterator[tuple[str, str]]:
    """Yield what is set or grown inside names that a function does not bind itself, with its outermost name."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        arguments = node.args
        listed = [
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            arguments.vararg,
            arguments.kwarg,
        ]
        bound |= {argument.arg for argument in listed if argument is not None}
        stored = [x for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)]
        bound |= {name.id for name in stored}
    target: ast.expr | None = None
    if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        target = node
    elif isinstance(node, ast.Call):
        match node.func:
            case ast.Name("setattr" | "delattr"):
                target = node.args[0]
            case ast.Attribute(ast.Name(name), method) if name.lstrip("_").isupper() and method in GROWING:
                target = node.func.value
    base = target
    while isinstance(base, ast.Attribute | ast.Subscript):
        base = base.value
    if target is not None and isinstance(base, ast.Name) and base.id not in bound:
        yield base.id, ast.unparse(target)
    for child in ast.iter_child_nodes(node):
        yield from assigned(child, bound)


def hooks_in(file: str, text: str) -> set[tuple[str, str]]:
    """Return what a module sets in other rooms, or in modules that are not of the package."""
    tree = ast.parse(text)
    names, room = imported(tree), Path(file).parts[0].removesuffix(".py")
    return {(file, place) for name, place in assigned(tree) if name in names and room_of(names[name]) != room}


def test_no_room_sets_what_another_one_holds():
    found = set()
    for path in PACKAGE.rglob("*.py"):
        found |= hooks_in(path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8"))
    assert found == DECLARED


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("from foldbatch.operators import Hooks\nHooks.layer = len", "Hooks.layer"),
        ("from foldbatch import operators\ndef f():\n  operators.layer, x = len, 1", "operators.layer"),
        ("from foldbatch.operators import HOOKS\nHOOKS['layer'] = len", "HOOKS['layer']"),
        ("from foldbatch.operators import HOOKS\nHOOKS.append(len)", "HOOKS"),
        ("from foldbatch.trees.tree import Nodes\nsetattr(Nodes, 'make', len)", "Nodes"),
        ("from foldbatch.functions.notes import State\nState.notes = None", None),  # of the same room
        ("from foldbatch.operators import kept\ndef f(kept):\n  kept.x = 1", None),  # an argument
    ],
)
def test_a_planted_hook_is_found(text, place):
    assert hooks_in("functions/loose.py", text) == (
        set() if place is None else {("functions/loose.py", place)}
    )
