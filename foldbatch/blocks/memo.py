"""Memos: a part of an example that is reached on several ways is visited once.

A declared function of the tracing program looks up its arguments, objects by identity and tensors by the
number of the value, before it visits them. Scalars, strings and other values without an identity of their
own are not looked up; neither are trees and their nodes, which lie below one node only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foldbatch.blocks.drafts import Procedure
from foldbatch.model.wires import components
from foldbatch.trees import Tree, TreeNode

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


def decide_memos(functions: Sequence[Procedure]) -> list[str]:
    """Decide which functions have a memo; return the variables that hold the memos.

    A function that may choose (`memo` is None) has one if it calls itself, directly or through others, and
    if it has no effects, nor anything that it calls: losses, metrics, collected values and random numbers.
    There is one of these for each visit, so it matters how many visits there are.
    """
    component = components([f.name for f in functions], {f.name: f.calls for f in functions})
    effects = {component[f.name] for f in functions if f.effects}
    for function in sorted(functions, key=lambda f: component[f.name], reverse=True):  # called ones first
        if any(component[name] in effects for name in function.calls):
            effects.add(component[function.name])
    for function in functions:
        if function.memo is None:
            own = component[function.name]
            recurs = any(component[name] == own for name in function.calls)
            function.memo = recurs and own not in effects
    return [f"memo_{function.name}" for function in functions if function.memo]
