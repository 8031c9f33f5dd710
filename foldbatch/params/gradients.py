"""The gradients of a batch by key, with what the batch has not used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from foldbatch.params.parameters import Parameter

K = TypeVar("K")


class BatchGradients(dict[K, Any]):
    """The gradients of a batch, with the keys of those parameters that no call of the batch has read.

    Gradients of unused parameters are zeros. What an optimizer does with them is its setting ``unused``.

    >>> BatchGradients({"used": 1.0, "head": 0.0}, {"head"}).unused
    frozenset({'head'})
    """

    def __init__(self, gradients: Mapping[K, object], unused: Iterable[K] = ()) -> None:
        super().__init__(gradients)
        self.unused = frozenset(unused)

    def changed(self, gradients: Mapping[K, object]) -> BatchGradients[K]:
        """Return changed gradients of the same batch, as scaled ones."""
        return BatchGradients(gradients, self.unused)


def by_name(gradients: BatchGradients[Parameter], names: Mapping[str, Parameter]) -> BatchGradients[str]:
    """Return gradients by the names of their parameters, in the order of names."""
    named = {name: gradients[p] for name, p in names.items() if p in gradients}
    unused = [name for name in named if names[name] in gradients.unused] if gradients.unused else ()
    return BatchGradients(named, unused)
