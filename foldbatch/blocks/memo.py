"""Memos: a part of an example that is reached on several ways is visited once.

A declared function of the tracing program looks up its arguments, objects by identity and tensors by the
number of the value, before it visits them. Scalars, strings and other values without an identity of their
own are not looked up; neither are trees and their nodes, which lie below one node only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foldbatch.blocks.drafts import Line, Procedure
from foldbatch.model.wires import components
from foldbatch.trees import Tree, TreeNode
from foldbatch.types import TensorType

KINDS = "has_identity"  # the table of kinds, to the program
_VALUES = (int, float, complex, str, bytes, type(None), np.generic, Tree, TreeNode)


class Kinds(dict[type, bool]):
    """Whether objects of a type are looked up by identity: containers and users' objects are.

    An iterator is another one after each reading, so it is visited each time.

    >>> kinds = Kinds()
    >>> [kinds[type(x)] for x in ([], (), {}, 1, "a", None, iter(()))]
    [True, True, True, False, False, False, False]
    """

    def __missing__(self, kind: type) -> bool:
        self[kind] = not issubclass(kind, _VALUES) and not hasattr(kind, "__next__")
        return self[kind]


def add_memos(functions: Sequence[Procedure]) -> list[str]:
    """Give a memo to each function that is to have one; return the variables that hold the memos.

    A function that may choose (`memo` is None) has one if it calls itself, directly or through others, and
    if it has no effects, nor anything that it calls: losses, metrics, collected values and random numbers.
    There is one of these for each visit, so it matters how many visits there are.
    """
    component = components([f.name for f in functions], {f.name: f.calls for f in functions})
    effects = {component[f.name] for f in functions if f.effects}
    for function in sorted(functions, key=lambda f: component[f.name], reverse=True):  # called ones first
        if any(component[name] in effects for name in function.calls):
            effects.add(component[function.name])
    memos = []
    for function in functions:
        own = component[function.name]
        recurs = any(component[name] == own for name in function.calls)
        if function.memo or (function.memo is None and recurs and own not in effects):
            memos.append(f"memo_{function.name.removeprefix('run_')}")
            _add_memo(function, memos[-1])
    return memos


def _add_memo(function: Procedure, memo: str) -> None:
    """Wrap the lines of a function: the first ones look its arguments up, the last ones enter its result.

    The memo holds the objects too, for the id of one that is freed may become that of another.
    """
    objects = [slot.code for slot in function.parameters if not isinstance(slot.type, TensorType)]
    ids = [f"id({slot.code})" if slot.code in objects else slot.code for slot in function.parameters]
    known = " or ".join(f"{KINDS}[type({code})]" for code in objects)
    key = f"({known}) and ({', '.join(ids)})" if len(ids) > 1 else f"{known} and {ids[0]}"
    returning = function.lines.pop()
    result = returning.text.strip().removeprefix("return ")
    lines = [
        f"key = {key}",
        f"if key and key in {memo}: return {memo}[key][0]",
        *function.lines,
        f"result = {result}",
        f"if key: {memo}[key] = result, {', '.join(objects)}",
        "return result",
    ]
    function.lines[:] = [
        line if isinstance(line, Line) else Line(f"    {line}", returning.where) for line in lines
    ]
