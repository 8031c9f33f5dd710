"""Where the elements of a value lie in the memory of another: views as offsets and strides.

A slice, a reshape or a transpose moves nothing, so a loop can read its elements where they lie.
Strides are found by letting NumPy take the same views of an array of bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from foldbatch.params.parameters import Array
from foldbatch.static.graph import Node, is_view


@dataclass(frozen=True, slots=True)
class Access:
    """The elements of a value in the buffer of `root`, which lies there row by row without gaps.

    Element ``(i, j, ...)`` of row `r` is number ``r * row + offset + i * strides[0] + j * strides[1] ...``
    of the buffer; `row` is 0 where the root is the same for all rows.
    """

    root: Node
    row: int
    offset: int
    strides: tuple[int, ...]

    def at(self, root: Node, row: int, offset: int) -> Access:
        """Return the same elements in the buffer of another root, which holds this root from `offset` on."""
        return replace(self, root=root, row=row, offset=self.offset + offset)


def access(node: Node) -> Access:
    """Return where a value's elements lie; its root is the node itself unless it is a view.

    A view that NumPy would have to copy (a reshape of a transpose) is a root too.

    >>> from foldbatch.static.graph import input_node
    >>> from foldbatch.types import TensorType
    >>> x = input_node(TensorType((2, 5)))
    >>> part = access(x[1, 2:])
    >>> part.root is x, part.row, part.offset, part.strides
    (True, 10, 7, (1,))
    """
    chain = [node]
    while is_view(chain[-1]):
        chain.append(chain[-1].inputs[0])
    root, start = chain[-1], _bytes(chain[-1])
    seen = start
    for view in reversed(chain[:-1]):
        view_of_seen = seen if view.op.name == "batch" else np.asarray(view.op.evaluate(view.attrs, seen))
        if view.type.size and not np.may_share_memory(view_of_seen, start):
            root, start = view, _bytes(view)
            view_of_seen = start
        seen = view_of_seen
    offset = _address(seen) - _address(start) if node.type.size else 0
    return Access(root, root.type.size if root.axis.rank else 0, offset, seen.strides)


def broadcast(access_of_operand: Access, shape: Sequence[int], wanted: Sequence[int]) -> Access:
    """Return the access to an operand of one shape in an op whose result has the shape `wanted`."""
    missing = len(wanted) - len(shape)
    strides = (
        0 if i < missing or shape[i - missing] != extent else access_of_operand.strides[i - missing]
        for i, extent in enumerate(wanted)
    )
    return replace(access_of_operand, strides=tuple(strides))


def _bytes(node: Node) -> Array:
    return np.empty(node.shape, np.int8)


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])
