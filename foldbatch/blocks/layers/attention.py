"""Attention: a weighted sum of items, the weights chosen by a query."""

from __future__ import annotations

from math import sqrt
from typing import Any, Literal, TypeAlias, get_args

from foldbatch.blocks.layers.layer import Layer, describe, find_initializer, flat, pair, positive
from foldbatch.errors import BlockValueError, GraphError, UnknownNameError
from foldbatch.params.parameters import Initializer
from foldbatch.static import ops
from foldbatch.static.graph import Node, parameter_node
from foldbatch.types import TensorType, TupleType

Score: TypeAlias = Literal["additive", "dot"]
SCORES = get_args(Score)


class Attention(Layer[TupleType, TensorType]):
    """Sums the items of a sequence, weighted by the softmax over them of ``score(query, item)``.

    Takes ``(query, items)``, a vector and a sequence or tuple of vectors, yields a vector of the items'
    extent: zeros for an empty sequence. The score of item k for query q is ``v . tanh(W q + U k)`` if
    additive; as a scaled dot product it is ``q . k / sqrt(extent)``, which has no parameters.

    Shapes: query ``[N, a]``, items ``[M, b]`` to ``[N, b]``; ``query: [a, size]`` (W), ``items: [b, size]``
    (U), ``score: [size]`` (v).

    Args:
        size: the hidden extent of the additive score; for the dot product the extent of query
            and items, or None for any.
        score: additive or dot.
        init: the initialiser of W, U and v.
        name: the stem of the parameters' names.

    Raises:
        BlockValueError: when `size` is not positive, or None for the additive score.
        UnknownNameError: when there is no such score.
        BlockTypeError: when the input is not as above.

    Source: additive: Bahdanau, Cho and Bengio 2015, Neural Machine Translation by Jointly Learning
    to Align and Translate, section 3.1 and appendix A.1.2; dot: Vaswani et al. 2017, Attention Is
    All You Need, equation 1.

    >>> from foldbatch.blocks.leaves import Vector
    >>> from foldbatch.blocks.sequences import Map
    >>> attend = (Vector(2), Map(Vector(2))) >> Attention(score="dot")
    >>> attend.eval([[0, 0], [[1, 2], [3, 4]]])  # all scores are 0
    array([2., 3.], dtype=float32)
    """

    kind = "attention"

    def __init__(
        self,
        size: int | None = None,
        score: Score = "additive",
        *,
        init: Initializer = "glorot_uniform",
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        if score not in SCORES:
            raise UnknownNameError("Attention score", f"one of {', '.join(SCORES)}", repr(score))
        if size is None and score == "additive":
            fix = "give the extent of its hidden layer, or score='dot'"
            raise BlockValueError("Attention", "a size for the additive score", "None", fix)
        self.size = None if size is None else positive(size, "Attention")
        self.score = score
        self.init = find_initializer(init, "Attention")

    def apply(self, *xs: Any) -> Node:
        query, items = pair(self, xs, "(query, items)")
        query = flat(self, query, "query")
        if query.axis.rank > 1:
            fix = "attend once per element inside a Map"
            raise GraphError(repr(self), "one vector as query", "a sequence of them", fix)
        score = self._additive if self.score == "additive" else self._dot
        if isinstance(items, tuple) and items:
            rows = ops.stack([flat(self, item, "item") for item in items])
            return ops.sum(ops.softmax(score(query, rows), axis=0) * rows, axis=0)
        if not isinstance(items, Node) or items.axis.rank < 2:
            expected = "a sequence or tuple of vectors as items"
            raise GraphError(repr(self), expected, describe(items), "read them with Map(Vector(...))")
        items = flat(self, items, "item")
        return ops.segment_sum(ops.segment_softmax(score(query, items)) * items)

    def _additive(self, query: Node, items: Node) -> Node:
        """Return a score per item, [..., 1], for items [..., b]."""
        assert self.size is not None

        def weight(name: str, *extents: int) -> Node:
            return parameter_node(self.parameter(name, TensorType(extents, query.dtype), self.init))

        asked = ops.matmul(query, weight("query", query.shape[0], self.size))
        offered = ops.matmul(items, weight("items", items.shape[-1], self.size))
        return ops.matmul(ops.tanh(offered + asked), weight("score", self.size)[:, None])

    def _dot(self, query: Node, items: Node) -> Node:
        extent = query.shape[0] if self.size is None else self.size
        if not query.shape[0] == items.shape[-1] == extent:
            expected = f"query and items of extent {extent}"
            found = f"{query.shape[0]} and {items.shape[-1]}"
            raise GraphError(repr(self), expected, found, "use score='additive', or Linear before it")
        return ops.sum(items * query, axis=-1, keepdims=True) * (1 / sqrt(extent))
