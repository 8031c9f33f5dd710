"""Python's syntax as `Tree`s: code, functions of the standard library, and expressions over digits.

Sources: naming methods is the task of Allamanis, Barr, Bird and Sutton 2015, cut down to the verb; the other
one is that of Nangia and Bowman 2018 (ListOps), with two of its four operators.
"""

import ast
import hashlib
import os
import random
import re
import sysconfig
import warnings
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from foldbatch.errors import ReadError
from foldbatch.system.processes import in_depth
from foldbatch.trees.text import BYTE_ORDER_MARK
from foldbatch.trees.tree import Label, Tree, flatten, trusted_tree

LONGEST_CONSTANT = 24  # characters; a longer one has no token
PARSER_DEPTH = 10**5  # how deep calls may be nested in a parse; a thread with a large stack has room for more
_TOKEN_FIELDS = ("id", "attr", "arg", "name", "module", "rest")  # no type of node has two of them
_LONGEST_INT = 1 << 80  # the repr of a far longer one would raise


def python_tree(source: str | bytes | ast.AST, name: str = "source") -> Tree:
    """Return the syntax tree of Python source, or of a node that ``ast`` has parsed.

    Args:
        source: a module's text, or any node.
        name: what the source is called in errors, e.g. its path.

    Raises:
        ReadError: when the text is no Python, or nested deeper than Python's parser can follow.

    >>> print(python_tree("area = width * 2").draw())
    Module
    └─ Assign
       ├─ Name area
       └─ BinOp:Mult
          ├─ Name width
          └─ Constant:int 2
    """
    root: object = source if isinstance(source, ast.AST) else parse_python(source, name)
    return trusted_tree(*flatten(root, expand_syntax))


def parse_python(source: str | bytes, name: str = "source") -> ast.Module:
    """Return the module of ``ast.parse``; every failure becomes a `ReadError`.

    A byte order mark at the beginning of a text is dropped, as Python does in files.
    """
    source = source.removeprefix(BYTE_ORDER_MARK) if isinstance(source, str) else source
    try:
        try:
            return ast.parse(source)
        except RecursionError:  # a long sum nests deeper than the limit of this thread
            parsed: ast.Module = in_depth(partial(ast.parse, source), PARSER_DEPTH)
            return parsed
    except SyntaxError as error:
        where = f"{name}:{error.lineno or 1}:{max(error.offset or 1, 1)}"
        fix = "is it written for another version of Python?"
        raise ReadError(where, "Python source", error.msg, fix) from None
    except (RecursionError, MemoryError) as error:
        actual = f"deeper nesting ({type(error).__name__})"
        fix = "split the expression, or run another version of Python: some follow more, and 3.12 fewest"
        raise ReadError(f"{name}:1:1", "nesting that Python can parse", actual, fix) from None
    except ValueError as error:  # a NUL character, a lone surrogate
        raise ReadError(f"{name}:1:1", "Python source", str(error), "save the file as UTF-8 text") from None


def expand_syntax(node: object, _: object) -> tuple[Label, str | None, list[object]]:
    """Return label, token and children of a node of Python's syntax tree."""
    assert isinstance(node, ast.AST)
    label = type(node).__name__
    token: str | None = None
    children: list[object] = []
    for field in node._fields:
        value = getattr(node, field, None)
        if isinstance(value, list):
            parts = [part for part in value if isinstance(part, ast.AST)]
            if field == "ops":
                label += ":" + ",".join(type(part).__name__ for part in parts)
            else:
                children += parts
        elif isinstance(value, ast.AST):
            if field == "op":
                label += ":" + type(value).__name__
            elif field != "ctx":
                children.append(value)
        elif field in _TOKEN_FIELDS and isinstance(value, str):
            token = value
    if isinstance(node, ast.Constant | ast.MatchSingleton):
        label += ":" + type(node.value).__name__
        token = _constant_token(node.value)
    elif isinstance(node, ast.Global | ast.Nonlocal):
        token = ",".join(node.names)
    return label, token, children


def _constant_token(value: object) -> str | None:
    if isinstance(value, int) and abs(value) > _LONGEST_INT:
        return None
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= LONGEST_CONSTANT else None


HIDDEN = "<name>"  # stands wherever the function's own name did
VERBS = 16
FEWEST_NODES, MOST_NODES = 8, 400
_SKIPPED_FOLDERS = frozenset(("site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"))
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# Of the salts below 3,000 this brings the parts nearest to 70, 10 and 20 % of the functions, both
# with the modules of Python 3.11 and without those that later versions dropped.
_SALT = 2079
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Example:
    """A function: its tree, the number of its verb, and where it is from.

    ``name`` is for people: it is what the tree hides.
    """

    tree: Tree
    verb: int
    module: str
    name: str


@dataclass(frozen=True, slots=True)
class Corpus:
    """Functions in three parts that share no module, and the verbs, the most common first."""

    train: tuple[Example, ...]
    dev: tuple[Example, ...]
    test: tuple[Example, ...]
    verbs: tuple[str, ...]


def standard_library_functions(
    folder: str | os.PathLike[str] | None = None, training_verbs: int = VERBS
) -> Corpus:
    """Return the functions of Python's standard library that are named by one of 16 verbs.

    Functions of 8 to 400 nodes are taken. Of those whose trees agree but for their tokens the
    first stays, whatever its verb: copies under other names would tell the answer from one part
    to another, and one idiom would outweigh the rest. Modules that do not parse are passed over.

    Args:
        folder: where the modules lie; by default the running interpreter's standard library.
        training_verbs: how many verbs the training functions may have, the commonest first; those of dev
            and test have the first 16 in any case.

    Raises:
        ReadError: when no function is found there.
    """
    root = Path(sysconfig.get_path("stdlib") if folder is None else folder)
    distinct: dict[tuple[object, ...], tuple[Tree, str, str, str]] = {}  # by shape and labels
    for module, parsed in _modules(root):
        for function in _functions(parsed):
            if verb := leading_verb(function.name):
                tree = python_tree(function)
                if FEWEST_NODES <= tree.size <= MOST_NODES:
                    shape = tree.parents.tobytes(), tree.labels
                    distinct.setdefault(shape, (tree, verb, module, function.name))
    if not distinct:
        fix = "give the folder of a standard library with its sources"
        raise ReadError(str(root), "modules with functions", "none", fix)
    counts = Counter(verb for _, verb, _, _ in distinct.values())
    verbs = tuple(verb for verb, _ in counts.most_common(max(VERBS, training_verbs)))
    parts: dict[str, list[Example]] = {"train": [], "dev": [], "test": []}
    for tree, verb, module, name in distinct.values():
        part = _part_of(module)
        if verb in verbs[: training_verbs if part == "train" else VERBS]:
            parts[part].append(Example(_hide(tree, name), verbs.index(verb), module, name))
    return Corpus(tuple(parts["train"]), tuple(parts["dev"]), tuple(parts["test"]), verbs)


def python_functions(source: str | bytes, name: str = "source") -> list[tuple[str, Tree]]:
    """Return the functions of a module: the name of each, and its tree, which hides name and docstring.

    Args:
        source: the module's text.
        name: what it is called in errors, e.g. its path.

    Raises:
        ReadError: as `foldbatch.trees.python_tree` does.

    >>> [(name, tree.token) for name, tree in python_functions("def get(x): return x")]
    [('get', '<name>')]
    """
    module = parse_python(source, name)
    _drop_docstrings(module)
    return [(function.name, _hide(python_tree(function), function.name)) for function in _functions(module)]


def leading_verb(name: str) -> str:
    """Return the first word of a function's name in lower case, or "" for a name that tells nothing.

    >>> [leading_verb(name) for name in ("_get_foo", "setName", "read", "__init__", "test_x", "f")]
    ['get', 'set', 'read', '', '', '']
    """
    word = _WORD.match(name.lstrip("_"))
    verb = word.group().lower() if word else ""
    is_special = name.startswith("__") and name.endswith("__")
    return "" if is_special or verb == "test" or len(verb) < 2 else verb


def _part_of(module: str) -> str:
    package = module.partition(".")[0]
    digest = hashlib.blake2b(f"{package}/{_SALT}".encode(), digest_size=8).digest()
    share = int.from_bytes(digest, "big") % 10
    return "train" if share < 7 else "dev" if share < 8 else "test"


def _modules(root: Path) -> Iterator[tuple[str, ast.Module]]:
    """Yield name and syntax tree of each module below a folder; skip files that cannot be read."""
    paths = []
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in _SKIPPED_FOLDERS]
        paths += [Path(folder, name).relative_to(root) for name in files if name.endswith(".py")]
    for path in sorted(paths):
        try:
            source = (root / path).read_bytes()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the library's own deprecated spellings
                parsed = parse_python(source, str(path))
        except (OSError, ReadError):
            continue
        _drop_docstrings(parsed)
        yield ".".join(path.with_suffix("").parts).removesuffix(".__init__"), parsed


def _drop_docstrings(module: ast.Module) -> None:
    for function in _functions(module):
        if ast.get_docstring(function, clean=False) is not None:
            del function.body[0]


def _functions(module: ast.Module) -> Iterator[_Function]:
    """Yield the functions of a module, outer ones first, in the order of `ast.walk`.

    Only statements hold functions, and they are a small part of the nodes.
    """
    waiting: deque[ast.AST] = deque([module])
    while waiting:
        statement = waiting.popleft()
        if isinstance(statement, _Function):
            yield statement
        for part in ("body", "handlers", "orelse", "finalbody", "cases"):
            waiting.extend(getattr(statement, part, ()))


def _hide(tree: Tree, name: str) -> Tree:
    whole_word = re.compile(rf"\b{re.escape(name)}\b")  # a message may hold the name, too
    tokens = (HIDDEN if token is not None and whole_word.search(token) else token for token in tree.tokens)
    return trusted_tree(tree.parents, tree.labels, tuple(tokens))


OPERATORS = {"max": max, "min": min}
DIGIT = "digit"  # the label of a leaf
MAX_OPERATOR_LEVELS, MAX_OPERANDS = 3, 3  # levels of operators, and operands of one
SIZES = {"train": 12_000, "dev": 500, "test": 1000}


@cache
def random_expressions(seed: int = 0) -> dict[str, list[tuple[Tree, str]]]:
    """Return trees with their values as text, all different, in the parts train, dev and test.

    >>> part = random_expressions()["test"]
    >>> len(part), part[0][1] in "0123456789"
    (1000, True)
    """
    rng, drawn = random.Random(seed), dict[Any, None]()  # noqa: S311 - no secret is made of it
    while len(drawn) < sum(SIZES.values()):
        nested = _drawn(rng, MAX_OPERATOR_LEVELS)
        if nested[0] != DIGIT:
            drawn[nested] = None
    samples = ((Tree.from_nested(nested), str(_value(nested))) for nested in drawn)
    return {part: [next(samples) for _ in range(size)] for part, size in SIZES.items()}


def parse_expression(text: str, where: str = "expression") -> Tree:
    """Return the tree of an expression as Python writes it.

    >>> print(parse_expression("max(3, min(7, 2))").draw())
    max
    ├─ digit 3
    └─ min
       ├─ digit 7
       └─ digit 2
    """
    try:
        return Tree.from_nested(
            _parsed(ast.parse(text.removeprefix(BYTE_ORDER_MARK).strip(), mode="eval").body)
        )
    except (SyntaxError, ValueError, RecursionError):
        fix = "for example max(3, min(7, 2))"
        raise ReadError(where, "max and min of digits", repr(text.strip()[:40]), fix) from None


def _parsed(node: ast.expr) -> object:
    """Return an expression of digits and operators as nested tuples; raise a ValueError at other ones."""
    match node:
        case ast.Constant(int(digit)) if type(digit) is int and 0 <= digit <= 9:
            return DIGIT, str(digit)
        case ast.Call(ast.Name(name), [_, *_] as operands, []) if name in OPERATORS:
            return name, *map(_parsed, operands)
    raise ValueError


def _drawn(rng: random.Random, depth: int) -> Any:
    if depth == 0 or rng.random() < 1 / 4:
        return DIGIT, str(rng.randrange(10))
    return rng.choice([*OPERATORS]), *(_drawn(rng, depth - 1) for _ in range(rng.randint(2, MAX_OPERANDS)))


def _value(nested: Any) -> int:
    name, *operands = nested
    return int(operands[0]) if name == DIGIT else OPERATORS[name](map(_value, operands))
