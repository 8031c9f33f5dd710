"""Cells to explain: the textbook's d = a * b + 1, and a node of a tree with weights and a loss."""

from foldbatch.engines.numpy import TARGET
from foldbatch.params.parameters import Parameter
from foldbatch.static import ops
from foldbatch.static.cell import Cell, stage_cell
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import input_node
from foldbatch.types import TensorType
from foldbatch.views.explain import CellExplanation, explain_cell


def textbook() -> Cell:
    """a and b are products, so that they have buffers; then d = a * b + 1."""
    x, y = input_node(TensorType((3,))), input_node(TensorType((3,)))
    w, v = (Parameter(TensorType((3, 4)), "normal", name) for name in "wv")
    return stage_cell(CellGraph("d", (), (x, y), ((x @ w) * (y @ v) + 1,)), Ends())


def tree_node() -> Cell:
    """h = tanh(both children @ w + data @ v), of which the loss is a sum of squares; only h is recursive.

    Two products that do nothing stand in it for the passes to remove.
    """
    children, data = input_node(TensorType((2, 2))), input_node(TensorType((3,)))
    w, v = Parameter(TensorType((4, 2)), "normal", "w"), Parameter(TensorType((3, 2)), "normal", "v")
    frozen = Parameter(TensorType((2,)), "normal", "scale", trainable=False)
    h = ops.tanh(ops.reshape(children, 4) @ w + (data * 1) @ v)
    loss = ops.sum(ops.square(h * frozen)) * 1
    graph = CellGraph("node", (children,), (data,), (h,), (loss,))
    both = frozenset((0,))
    return stage_cell(graph, Ends(both, both, both, both))


def explained(cell: Cell) -> CellExplanation:
    return explain_cell(cell, TARGET)
