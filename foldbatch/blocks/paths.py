"""Import paths: functions and classes by the names under which Python finds them again, ``module:name``.

A path may come from a file that nobody vouches for. So no module is imported for its sake but those of this
package that hold functions for models; of Python's own library, of NumPy and of what else this package is
built on, only a list of functions that compute is found; and a path must be that of the definition, so that
no path leads through one module into another.
"""

from __future__ import annotations

import ast
import builtins
import collections
import json
import math
import operator
import re
import string
import sys
import unicodedata
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from foldbatch.errors import ModelError
from foldbatch.static import ops
from foldbatch.trees.vocabulary import Vocabulary

OURS = ("foldbatch.schema", "foldbatch.trees", "foldbatch.zoo")  # rooms whose functions models call
# of these, only what is listed below
REFUSED = frozenset(sys.stdlib_module_names) - {"__main__"} | {
    *("cupy", "foldbatch", "joblib", "llvmlite", "matplotlib", "msgspec", "numba", "numpy", "pytest", "rich"),
    *("safetensors", "scipy", "sklearn", "tensorboardX", "threadpoolctl", "tqdm"),
}
BUILTINS = (
    "abs all any bool bytes chr dict divmod enumerate float frozenset int isinstance len list max min ord "
    "pow range repr reversed round set sorted str sum tuple type zip"
)
OTHERS = {
    collections: "Counter OrderedDict deque",
    json: "dumps loads",
    np: "array asarray bool float32 float64 int32 int64",
    string: "capwords",
    unicodedata: "category combining decimal name normalize numeric",
}
TYPES = (bytes, dict, float, frozenset, int, list, set, str, tuple)
CALLING = {"attrgetter", "call", "itemgetter", "methodcaller"}  # of operator: they reach what has no path
HIDDEN = {"format", "format_map"}  # methods that read attributes
SPECIAL = {"__call__", "__contains__", "__getitem__"}


def path_of(value: Any) -> str | None:
    """Return the import path of a function or a class, or None where no path leads back to it.

    >>> import foldbatch as fb
    >>> path_of(fb.ops.tanh), path_of(str.lower), path_of(lambda x: x), path_of(Path.unlink)
    ('foldbatch.ops:tanh', 'builtins:str.lower', None, None)
    """
    listed = _listed()[1].get(id(value))
    if listed is not None:
        return listed
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    path = f"{_name_of_main() if module == '__main__' else module}:{name}"
    try:
        found = find(path)
    except ModelError:
        return None
    return path if found is value or (isinstance(value, type(found)) and bool(found == value)) else None


def find(path: str) -> Any:
    """Return the function or class of an import path.

    Raises:
        ModelError: when there is none, its module has not been imported, or it is none that a file may name.

    >>> find("builtins:len"), find("foldbatch.trees.vocabulary:Vocabulary.count")("aab")["b"]
    (<built-in function len>, 2)
    >>> find("os:system")
    Traceback (most recent call last):
    ...
    foldbatch.errors.ModelError: os:system: expected a function of your modules or of foldbatch.ops, or ...
    """
    listed = _listed()[0]
    if path in listed:
        return listed[path]
    module, _, names = path.partition(":")
    found: Any = _module(path, module)
    for name in names.split("."):
        if isinstance(found, ModuleType):
            found = vars(found).get(name)
        else:
            found = getattr(found, name, None) if isinstance(found, type) else None
    home = "__main__" if sys.modules.get(module) is None else module
    defined = getattr(found, "__module__", None), getattr(found, "__qualname__", None)
    if not callable(found) or defined != (home, names):
        raise ModelError(path, "a function or class that is defined there", "none", "define it, or rename it")
    return found


def method_of(owner: Any, name: str) -> Any:
    """Return a method of plain data, of a vocabulary, a pattern or a dataclass.

    Raises:
        ModelError: when it is no such thing, or has no such method that a file may name.

    >>> method_of({"a": 1}, "get")("a")
    1
    """
    plain = type(owner) in {*TYPES, Vocabulary, re.Pattern}
    plain = plain or (is_dataclass(owner) and not isinstance(owner, type))
    public = name in SPECIAL or not (name.startswith("_") or name in HIDDEN)
    if isinstance(owner, np.ndarray):
        plain, public = True, name in {"__getitem__", "item", "take"}  # others write files
    method = getattr(owner, name, None) if plain and public else None
    if not callable(method):
        found = f"{name} of {type(owner).__name__}"
        raise ModelError(found, "a method of plain data", "another one", "write a function of your own")
    return method


def _module(path: str, name: str) -> ModuleType:
    """Return the module of a path."""
    root = name.partition(".")[0]
    if any(name == room or name.startswith(f"{room}.") for room in OURS):
        try:
            return import_module(name)
        except ImportError:
            fix = "install the foldbatch that wrote the file"
            raise ModelError(path, "a function of this foldbatch", "no such module", fix) from None
    if root in REFUSED:
        expected = "a function of your modules or of foldbatch.ops, or one of Python's that only compute"
        raise ModelError(path, expected, "another one", "wrap it in a function of a module of yours")
    if name in sys.modules:
        return sys.modules[name]
    if name == _name_of_main():
        return sys.modules["__main__"]
    raise ModelError(path, "a function of a module that is imported", "none", f"import {name} first")


def _name_of_main() -> str:
    """Return the name under which another script would import the one that runs."""
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    name = spec.name if spec is not None else Path(file).stem if file else ""
    return name if name and name.partition(".")[0] not in REFUSED else "__main__"


@cache
def _listed() -> tuple[dict[str, Any], dict[int, str]]:
    """Return what has a path of its own: by path, and the paths by id."""
    named: dict[str, Any] = {f"foldbatch.ops:{name}": getattr(ops, name) for name in ops.__all__}
    named |= {f"builtins:{name}": getattr(builtins, name) for name in BUILTINS.split()}
    named["builtins:NoneType"] = type(None)
    for module in (math, operator):
        public = [name for name in vars(module) if not name.startswith("_") and name not in CALLING]
        named |= {f"{module.__name__}:{name}": vars(module)[name] for name in public}
    for module, names in OTHERS.items():
        named |= {f"{module.__name__}:{name}": getattr(module, name) for name in names.split()}
    named |= {f"numpy:{name}": value for name, value in vars(np).items() if isinstance(value, np.ufunc)}
    named |= {
        f"ast:{name}": value
        for name, value in vars(ast).items()
        if isinstance(value, type) and issubclass(value, ast.AST)
    }
    for type_ in TYPES:
        for name in vars(type_):
            if name in SPECIAL or not (name.startswith("_") or name in HIDDEN):
                named[f"builtins:{type_.__name__}.{name}"] = getattr(type_, name)
    named = {path: value for path, value in named.items() if callable(value)}
    ids: dict[int, str] = {}
    for path, value in named.items():
        ids.setdefault(id(value), path)
    return named, ids
