"""Names: what gives rows of a model's parameters their names, such as a vocabulary.

A model sees the numbers of words only, so two models that differ in the words of these numbers are the same
to it. The words are found in what its tracing program calls: vocabularies, lists of distinct texts, and dicts
from names to distinct numbers, in functions' closures, arguments and globals, in attributes of objects, and
in lists and dicts of these.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np

from foldbatch.errors import TrainingError, counted
from foldbatch.program import Program
from foldbatch.train.contents import PLAIN, Digests, digests
from foldbatch.trees import Tree, TreeNode
from foldbatch.trees.vocabulary import Vocabulary

FEW: Final = 1000  # entries of a list or dict that is looked into
RESERVED: Final = 16  # rows before the first that has a name, as for what is unknown
LIBRARIES: Final = frozenset(("foldbatch", "numpy", *sys.stdlib_module_names)) - {"__main__"}
LEAVES: Final = (*PLAIN, type, np.ndarray, np.generic, Tree, TreeNode, ModuleType)
CACHED: Final = type(cache(len))


@dataclass(slots=True)
class Table:
    """Names of rows.

    Attributes:
        source: what lists them; a dict may get more while training.
        names: of rows, in their order.
        digests: of the names, ``[rows] uint64``.
        size: of the source, when it was looked at.
    """

    source: Any
    names: list[Any]
    digests: Digests
    size: int = 0

    def refresh(self) -> Digests:
        """Return the digests, with those of names that have come since."""
        if isinstance(self.source, dict) and len(self.source) != self.size:
            self.names, self.size = _rows(self.source) or self.names, len(self.source)
            self.digests = digests(self.names)
        return self.digests


def tables(program: Program) -> dict[str, Table]:
    """Return the names of rows that a program's tracing functions know, table by table.

    >>> import foldbatch as fb
    >>> word = fb.InputTransform(Vocabulary(["good", "film"])) >> fb.Scalar("int32")
    >>> found = tables(fb.compile(word >> fb.Embedding(3, 2), "numpy"))
    >>> {name: table.names for name, table in found.items()}
    {'vocabulary': ['<unk>', 'good', 'film']}
    """
    found: dict[str, Table] = {}
    seen: dict[int, object] = {}
    stack: list[Any] = [program.lowered.tracer.globals]
    while stack:
        value = stack.pop()
        if id(value) in seen or isinstance(value, LEAVES):
            continue
        seen[id(value)] = value
        names = _rows(value)
        if names is None:
            stack += reversed(list(_inside(value)))
        elif all(names != table.names for table in found.values()):
            kind = "vocabulary" if isinstance(value, Vocabulary) else "names of rows"
            number = sum(name.startswith(kind) for name in found)
            found[f"{kind} {number + 1}" if number else kind] = Table(
                value, names, digests(names), len(value)
            )
    return found


def check_names(present: Mapping[str, Table], kept: Mapping[str, Digests], where: str) -> None:
    """Refuse rows whose names are not those that a checkpoint was trained with; more may have come.

    Raises:
        TrainingError: that says which row is the first one.
    """
    for name in [name for name in kept if name in present]:
        names, now, before = present[name].names, present[name].digests, kept[name]
        shared = min(len(now), len(before))
        differing = np.flatnonzero(now[:shared] != before[:shared])
        if len(now) >= len(before) and not len(differing):
            continue
        found = f"{counted(shared, 'name')}, and none for row {shared}"
        if len(differing):
            row = int(differing[0])
            formerly = np.flatnonzero(before == now[row])
            was = f"was the name of row {formerly[0]}" if len(formerly) else "is new"
            found = f"{names[row]!r} at row {row}, which {was}"
        expected = f"the {counted(len(before), 'name')} that the checkpoint was trained with"
        fix = "resume with the data that the training began with, or give another folder"
        raise TrainingError(f"{where}: {name}", expected, found, fix)


def _rows(value: Any) -> list[Any] | None:
    """Return the names of rows that a value lists, if it does."""
    if isinstance(value, Vocabulary):
        return list(value.words)
    if isinstance(value, list | tuple):
        distinct = value and all(type(each) is str for each in value) and len(set(value)) == len(value)
        return list(value) if distinct else None
    if isinstance(value, dict) and value:
        numbers = list(value.values())
        whole = all(type(number) is int and number >= 0 for number in numbers)
        if whole and len(set(numbers)) == len(numbers):
            first, names = min(numbers), sorted(value, key=value.__getitem__)
            if first <= RESERVED and max(numbers) - first == len(numbers) - 1:
                return [None] * first + names
            return [(value[name], name) for name in names]
    return None


def _inside(value: Any) -> Iterator[Any]:
    """Yield what a value of the tracing program refers to."""
    match value:
        case FunctionType():
            yield from (cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell))
            yield from value.__defaults__ or ()
            yield from (value.__kwdefaults__ or {}).values()
            if _is_of_user(value):
                yield from _globals(value)
        case MethodType():
            yield from (value.__self__, value.__func__)
        case BuiltinMethodType():
            yield value.__self__
        case partial():
            yield from (value.func, *value.args, *value.keywords.values())
        case dict() | list() | tuple():
            if len(value) <= FEW:
                yield from value.values() if isinstance(value, dict) else value
        case _ if isinstance(value, CACHED):
            yield value.__wrapped__
        case _ if _is_of_user(type(value)):
            state = object.__getstate__(value)  # its attributes, and those in slots
            for part in state if isinstance(state, tuple) else (state,):
                yield from (part or {}).values()


def _globals(function: FunctionType) -> Iterator[Any]:
    """Yield the globals that a function reads, and what it reads of modules among them."""
    names = list(dict.fromkeys(_names(function.__code__)))
    for value in (function.__globals__[name] for name in names if name in function.__globals__):
        if not isinstance(value, ModuleType):
            yield value
        elif value.__name__.partition(".")[0] not in LIBRARIES:
            yield from (vars(value)[name] for name in names if name in vars(value))


def _is_of_user(value: Any) -> bool:
    """Return whether a function or a class is none of a library that is known to have no names of rows."""
    return str(value.__module__).partition(".")[0] not in LIBRARIES


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that a function, and functions within it, look up."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False
