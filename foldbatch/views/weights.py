"""The parameters of a cell: who reads each, and where its gradient comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from foldbatch.static.cell import Cell
from foldbatch.static.graph import Node, parameter_node
from foldbatch.static.statements import Binding
from foldbatch.types import TensorType
from foldbatch.views.parts import StageParts


@dataclass(frozen=True, slots=True)
class Weight:
    """A parameter, its readers, and the source of its gradient: none, if it is frozen or without a loss.

    Attributes:
        name: as in graphs.
        type: of its array.
        trainable: whether it may have a gradient at all.
        readers: the routines that read it.
        gradient: the routines that yield its gradient, dense.
        rows: names of nodes, values and ids, where its gradient is a sum of rows of values by ids.
        sparse: whether its whole gradient is such sums.
    """

    name: str
    type: TensorType
    trainable: bool
    readers: tuple[str, ...]
    gradient: tuple[str, ...]
    rows: tuple[tuple[str, str], ...]
    sparse: bool


def weights(cell: Cell, parts: StageParts, names: Mapping[Node, str]) -> Iterator[Weight]:
    """Return the parameters that a cell reads; `parts` are the stages that train it."""
    nodes = {Binding("feed", i): node for i, node in enumerate(cell.graph.feeds)}
    nodes |= {Binding("kept", i): node for part in parts for node, i in part.stage.kept.items()}
    for parameter in cell.parameters:
        sums = [rows for rows in cell.sums if rows.parameter is parameter]
        yield Weight(
            names[parameter_node(parameter)],
            parameter.type,
            parameter.trainable,
            tuple(part.name for part in parts if parameter in part.graph.parameters),
            tuple(
                part.name
                for part in parts
                if any(key == ("gradient", parameter) for key, _ in part.stage.results)
            ),
            tuple((names[nodes[rows.values]], names[nodes[rows.ids]]) for rows in sums),
            parameter in cell.sparse,
        )
