"""The embedded data set: functions of Python's standard library, and the verbs of their names.

Source: the task is that of Allamanis, Barr, Bird and Sutton 2015 (naming methods), cut down to
the verb.
"""

import ast
import hashlib
import os
import re
import sysconfig
import warnings
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from foldbatch.errors import ReadError
from foldbatch.trees.pyast import parse_python, python_tree
from foldbatch.trees.tree import Tree, trusted_tree

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
    return [(one.name, _hide(python_tree(one), one.name)) for one in _functions(module)]


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
