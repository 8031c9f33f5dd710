"""Paths: where in an example the data lie that calls read, as far as a tracer can tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

from foldbatch.trees.tree import TreeNode


class Through(str):
    """A part of a place that adds no text to it: data were passed through a function there."""

    __slots__ = ("function",)
    function: Callable[..., object]

    def __new__(cls, function: Callable[..., object]) -> Self:
        part = super().__new__(cls, "")
        part.function = function
        return part


@dataclass(frozen=True, slots=True)
class ReadingPath:
    """Where a call's datum lies in its example."""

    text: str  # as Python would index the example, such as ``[0]['token']``; empty for the whole
    exact: bool = False  # whether the datum itself lies there; else it is a part of what lies there
    node: TreeNode | None = None  # the innermost node of a tree on the way
    source: object = None  # the object that lies there, where it is exact


# For each cell and feed, one a call, in the order of calls; feed -1 is for the calls themselves.
ReadingPaths: TypeAlias = Mapping[tuple[int, int], Sequence[ReadingPath]]


def parts_of(example: object) -> dict[object, str]:
    """Return the paths of what an example holds in lists, tuples, dicts and objects, by `identity_of`.

    A part that the example holds in several places has the first one's path.

    >>> inner = [1, 2]
    >>> parts_of({"a": [inner]})[identity_of(inner)]
    "['a'][0]"
    """
    paths: dict[object, str] = {}
    waiting = [(example, "")]
    while waiting:
        part, path = waiting.pop()
        key = identity_of(part)
        if key is None or key in paths:
            continue
        paths[key] = path
        items: list[tuple[object, str]] = []
        if isinstance(part, TreeNode):
            items = [(child, f"[{number}]") for number, child in enumerate(part.children)]
        elif isinstance(part, Mapping):
            items = [(item, f"[{name!r}]") for name, item in part.items()]
        elif isinstance(part, list | tuple):
            names = getattr(part, "_fields", None)
            steps = [f".{name}" for name in names] if names else [f"[{i}]" for i in range(len(part))]
            items = [*zip(part, steps, strict=True)]
        else:
            items = [(item, f".{name}") for name, item in getattr(part, "__dict__", {}).items()]
        waiting += [(item, path + step) for item, step in reversed(items)]
    return paths


def identity_of(part: object) -> object:
    """Return a key that tells a part of an example from others; None for numbers and texts."""
    if isinstance(part, TreeNode):
        return id(part.tree), part.index
    if part is None or isinstance(part, str | bytes | int | float | complex | type) or callable(part):
        return None
    return id(part)
