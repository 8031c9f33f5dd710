"""Graphs as text: every kind of line, names that depend on the graph alone, and back again."""

from collections.abc import Callable

from foldbatch.params.parameters import Parameter
from foldbatch.static import ops
from foldbatch.static.graph import Graph, Node, input_node
from foldbatch.static.printer import print_graph
from foldbatch.types import TensorType

VECTOR = TensorType((3,))


def test_the_text_does_not_depend_on_what_was_built_before() -> None:
    """Neither on constants and parameters met earlier, nor on the order in which operands were built."""

    def built(*, reverse: bool) -> str:
        x, w = input_node(VECTOR), Parameter(TensorType((3, 3)))
        makers: list[Callable[[], Node]] = [lambda: ops.tanh(x) * 77.5, lambda: x @ ops.transpose(w)]
        if reverse:
            right, left = [make() for make in makers[::-1]]
        else:
            left, right = [make() for make in makers]
        return print_graph(Graph((x,), (left + right,)))

    assert built(reverse=False) == built(reverse=True)
