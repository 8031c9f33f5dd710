"""Import paths: functions and classes by the names under which Python finds them again, ``module:name``.

A path may come from a file that nobody vouches for, so `find` knows two kinds. What is `LISTED` computes
something of what it is given and has no other effect: it opens, imports, prints and changes nothing, calls
nothing but the function that a file put beside it (``key`` of ``max``), and makes no class. All else is found
only where the caller of `find` has named it, as a function or by its module.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from foldbatch.errors import ModelError, UnknownNameError
from foldbatch.static import ops
from foldbatch.trees.vocabulary import Vocabulary
from foldbatch.types import describe_value

Trusted: TypeAlias = str | ModuleType | Callable[..., object]

# methods that read, by class; those that change their object, and those whose result may be as long as an
# argument says, are left out
READ = "__contains__ __getitem__"
METHODS: dict[type, str] = {
    str: f"{READ} capitalize casefold count encode endswith find index isalnum isalpha isascii isdecimal "
    "isdigit islower isnumeric isspace istitle isupper join lower lstrip partition removeprefix "
    "removesuffix replace rfind rindex rpartition rsplit rstrip split splitlines startswith strip "
    "swapcase title upper",
    dict: f"{READ} get items keys values",
    list: f"{READ} count index",
    tuple: f"{READ} count index",
    set: "__contains__",
    frozenset: "__contains__",
    int: "bit_length",
    float: "is_integer",
}
# methods of objects that a file holds, besides
OF_OBJECTS: dict[type, str] = {
    Vocabulary: f"{READ} __call__ numbers",
    re.Pattern: "findall fullmatch match search split sub",
    np.ndarray: "__getitem__ item take",
}
LISTED: dict[str, str] = {
    # what OneOf asks of an example, and what InputTransform makes of a text, a number or a list
    "builtins": "abs all any bool chr dict float frozenset int len list max min ord range round set "
    "sorted str sum tuple type NoneType",
    "math": "ceil copysign cos exp expm1 fabs floor fmod isfinite isinf isnan log log10 log1p log2 sin "
    "sqrt tan tanh trunc",
    # operators, also of symbolic tensors; none that change their operand, no power of whole numbers
    "operator": "abs add and_ contains eq floordiv ge getitem gt index inv invert is_ is_not le lt matmul "
    "mod mul ne neg not_ or_ pos sub truediv truth xor",
    "unicodedata": "category normalize",  # of letters and words
    # those that symbolic tensors take, and the types of numbers, which are keys of OneOf(type, ...)
    "numpy": "abs absolute add asarray cos divide equal exp floor floor_divide greater greater_equal less "
    "less_equal log logical_and logical_not logical_or matmul maximum minimum mod multiply negative "
    "not_equal power remainder rint sign sin sqrt square subtract tanh true_divide bool float32 float64 "
    "int32 int64",
    # with these a schema's block reads values
    "foldbatch.schema.embedding": "small",
    "foldbatch.schema.pooling": "log_count log_sum_exp over_root steps faint doubled unseen added seen_of",
    "foldbatch.schema.reading": "Place read_category read_code read_fields read_flag read_list read_moment "
    "read_moment_position read_ngrams read_number read_pairs read_position read_spelled "
    "read_repeats read_spelled_position read_tokens "
    "as_category as_fields as_flag as_list as_ngrams as_number as_pairs",
    # and with these the models of the zoo read words and labels, and compute losses
    "foldbatch.zoo.child_sum": "logarithms",
    "foldbatch.zoo.tasks": "as_tree class_loss class_or_minus_one class_or_none first_scores number_or_nan "
    "of_scales only_element squared_error",
    "foldbatch.zoo.votes": "features_of",
    "foldbatch.zoo.words": "lowered name_of normal reversed_words_of subwords words_of",
}
# functions that additional arguments make dangerous: a class, another coding, an array that is written to
ALONE = re.compile("builtins:(type|str|str.encode)|numpy:.*")
WORDS = {
    "base",
    "default",
    "key",
    "ndigits",
    "reverse",
    "start",
}  # keyword arguments that all other functions may get
# modules that errors do not propose to trust: they have functions that a file must not call
LIBRARIES = {"foldbatch", "numpy", *sys.stdlib_module_names}
MAX_SHOWN_PATH = 100  # characters of a path that an error shows


@dataclass(frozen=True, slots=True)
class Trust:
    """The modules, functions and classes that a file may name besides the list, as its reader allows."""

    modules: tuple[str, ...] = ()  # names of modules; those below them are meant, too
    # functions and classes by import path; None stands for one that is looked up when it is asked for
    values: Mapping[str, object] = field(default_factory=dict)

    def covers(self, module: str, names: str) -> bool:
        """Return whether a file may name this part of a module, given by dotted names."""
        if any(f"{module}.".startswith(f"{name}.") for name in self.modules):
            return True
        return any(f"{module}:{names}.".startswith(f"{path}.") for path in self.values)


@dataclass(frozen=True, slots=True)
class _AllTrust(Trust):
    """The trust of a process in the one that began it."""

    def covers(self, module: str, names: str) -> bool:
        return True


NO_TRUST, ALL_TRUST = Trust(), _AllTrust()
# the module of the running script; a process that it begins has the script's functions in the second one
MAIN = ("__main__", "__mp_main__")


def trust_in(entries: Iterable[Trusted]) -> Trust:
    """Return the trust that callers state by names of modules, by import paths, or by modules and functions.

    Raises:
        UnknownNameError: when an entry is none of these.

    >>> trust_in(["models", "text:clean", len]).covers("models.trees", "Cell.of")
    True
    """
    expected = "modules, functions and classes, or their names"
    fix = 'for example trust=("mymodels",) or trust=("mymodels:clean",)'
    if isinstance(entries, str) or not isinstance(entries, Iterable):
        raise UnknownNameError("trust", f"a tuple of {expected}", describe_value(entries), fix)
    modules, values = [], {}
    for entry in entries:
        name = entry if isinstance(entry, str) else _name_of(entry)
        module, colon, names = name.partition(":")
        if not _is_plain(module, names if colon else "x"):
            raise UnknownNameError("trust", expected, describe_value(entry), fix)
        module = called(module)
        if colon:
            values[f"{module}:{names}"] = None if isinstance(entry, str) else entry
        else:
            modules.append(module)
    return Trust(tuple(modules), values)


def path_of(value: object) -> str | None:
    """Return the import path of a function or a class, or None where no path leads back to it.

    >>> path_of(fb.ops.tanh), path_of(str.lower), path_of(lambda x: x)
    ('foldbatch.ops:tanh', 'builtins:str.lower', None)
    """
    listed = _by_id().get(id(value))
    if listed is not None:
        return listed
    home, _, names = _name_of(value).partition(":")
    definition = _defined(sys.modules.get(home), home, names)
    path = f"{called(home)}:{names}"
    matches = definition is value or (isinstance(value, type(definition)) and bool(definition == value))
    return path if definition is not None and matches and _listed().get(path) is None else None


def find(path: object, trust: Trust = NO_TRUST) -> object:
    """Return the function or class of an import path.

    It may be one that the caller trusts besides the list; modules are imported when they are asked for.

    Raises:
        ModelError: when there is none, or it is neither on the list nor trusted.

    >>> find("builtins:len")
    <built-in function len>
    >>> find("os:system")
    Traceback (most recent call last):
    ...
    foldbatch.errors.ModelError: os:system: expected a function of foldbatch or one that the caller ...
    """
    if not isinstance(path, str):
        raise ModelError("a function", "its import path", describe_value(path), "save the model anew")
    module, _, names = path.partition(":")
    if path in _listed():
        value = _listed()[path]
        return getattr(import_module(module), names) if value is None else value
    shown, home = _trusted(path, trust)
    trusted_value = trust.values.get(path)
    if trusted_value is not None:
        return trusted_value
    definition = _defined(_imported(home, shown), home, names)
    if definition is None:
        fix = "define it, or rename it"
        raise ModelError(shown, "a function or class that is defined there", "none", fix)
    return definition


def variable_of(path: object, trust: Trust) -> object:
    """Return the variable of a module by import path; errors are those of `find`.

    >>> variable_of("math:tau", trust_in(["math"])) > 6
    True
    """
    if not isinstance(path, str):
        raise ModelError("a variable", "its import path", describe_value(path), "save the model anew")
    shown, home = _trusted(path, trust)
    name = path.partition(":")[2]
    variables = vars(_imported(home, shown))
    if name not in variables:
        raise ModelError(shown, "a name that the module defines", "none", "define it, or rename it")
    return variables[name]


def _trusted(path: str, trust: Trust) -> tuple[str, str]:
    """Return a trusted path as errors show it, and its module; refuse any other path."""
    module, _, names = path.partition(":")
    shown = path if path.isprintable() and len(path) <= MAX_SHOWN_PATH else "a function"
    if not trust.covers(module, names) or not _is_plain(module, names):
        expected = "a function of foldbatch or one that the caller trusts"
        raise ModelError(shown, expected, "another one", _way_to(module))
    return shown, "__main__" if module == _name_of_main() else module


def _imported(home: str, shown: str) -> ModuleType:
    try:
        return import_module(home)
    except ImportError as error:
        fix = "install it, or name its folder in PYTHONPATH"
        raise ModelError(shown, "a module that can be imported", f"none: {error}", fix) from None


def method_of(owner: object, name: str, trust: Trust = NO_TRUST) -> object:
    """Return a method of plain data, of a vocabulary, a pattern, an array or a dataclass.

    Raises:
        ModelError: when it is no such thing, or has no such method that a file may name.

    >>> method_of({"a": 1}, "get")("a")
    1
    """
    if is_dataclass(owner) and not isinstance(owner, type):
        covered = trust.covers(called(type(owner).__module__), type(owner).__qualname__)
        allowed = covered and (name == "__call__" or not name.startswith("_"))
    else:
        names = METHODS.get(type(owner)) or OF_OBJECTS.get(type(owner), "")
        allowed = name in names.split() and (type(owner), name) != (str, "encode")
    method = getattr(owner, name, None) if allowed else None
    if not callable(method):
        actual = f"{name} of {type(owner).__name__}"
        raise ModelError(actual, "a method of plain data", "another one", "write a function of your own")
    return method


def takes(function: object, words: Iterable[str]) -> bool:
    """Return whether a file may give a function arguments of these names, besides those of blocks.

    >>> takes(int, ["base"]), takes(sorted, ["key"]), takes(type, []), takes(len, ["file"])
    (True, True, False, False)
    """
    path = _by_id().get(id(function), "")
    if ALONE.fullmatch(path) or isinstance(getattr(function, "__self__", None), np.ndarray):
        return False
    return not path or path.startswith("foldbatch.") or WORDS.issuperset(words)


def _way_to(module: str) -> str:
    """Return the fix for a function of a module that is not trusted."""
    root = module.partition(".")[0]
    if root in LIBRARIES or not _is_plain(module, "x"):
        return "write a function of your own that calls it, and trust that"
    return f'pass trust=("{root}",), or --trust {root}, if you know where the file comes from'


def _is_plain(module: str, names: str) -> bool:
    """Return whether dotted names are names; a package's ``__main__`` is run, and not imported."""
    parts = module.split(".")
    return "__main__" not in parts[1:] and all(part.isidentifier() for part in (*parts, *names.split(".")))


def _name_of(value: object) -> str:
    """Return the name of a module, or the import path under which a function or class was defined."""
    if isinstance(value, ModuleType):
        return value.__name__
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    return f"{module}:{name}" if isinstance(module, str) and isinstance(name, str) else ""


def _defined(module: ModuleType | None, home: str, names: str) -> object:
    """Return the function or class that a module itself defines under dotted names, or None."""
    value: Any = module
    for name in names.split("."):
        if isinstance(value, ModuleType):
            value = vars(value).get(name)
        else:
            value = getattr(value, name, None) if isinstance(value, type) else None
    defined = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    homes = MAIN if home in MAIN else (home,)
    return value if callable(value) and defined in [(name, names) for name in homes] else None


def called(module: str) -> str:
    """Return the name of a module in paths; of the running script, the name that imports would use."""
    return _name_of_main() if module in MAIN else module


def _name_of_main() -> str:
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    name = spec.name if spec is not None else Path(file).stem if file else ""
    return name if name and name.partition(".")[0] not in LIBRARIES else "__main__"


@cache
def _listed() -> Mapping[str, object]:
    """Return the listed functions and classes by path; None for those in higher modules of foldbatch."""
    named: dict[str, object] = {f"foldbatch.ops:{name}": getattr(ops, name) for name in ops.__all__}
    for module, names in LISTED.items():
        home = None if module.startswith("foldbatch.") else import_module(module)
        named |= {f"{module}:{name}": getattr(home, name, None) for name in names.split()}
    for type_, names in METHODS.items():
        named |= {f"builtins:{type_.__name__}.{name}": getattr(type_, name) for name in names.split()}
    return named | {"builtins:NoneType": type(None)}


@cache
def _by_id() -> Mapping[int, str]:
    """Return the import paths of the listed functions and classes, by the identity of the object."""
    paths: dict[int, str] = {}
    for path, value in _listed().items():
        if value is not None:
            paths.setdefault(id(value), path)
    return paths
