"""PyTorch Geometric: a `Data` holds the kinds of nodes, and edges as pairs of places."""

from typing import Any

import torch
from graphs import over_graphs
from torch_geometric.data import Data

EDGES = [[[0, 1], [1, 2]], [[0, 1], [0, 2], [1, 2]]]
EXAMPLES = [
    Data(x=torch.tensor([0, 1, 2]), edge_index=torch.tensor([*pairs, *[[b, a] for a, b in pairs]]).T)
    for pairs in EDGES
]


def kinds(graph: Any) -> list[int]:
    """Return the kind of each node."""
    return list(graph.x.tolist())


def neighbours(graph: Any) -> list[list[int]]:
    """Return the places from which edges lead to each node."""
    places: list[list[int]] = [[] for _ in range(graph.num_nodes)]
    for source, target in graph.edge_index.T.tolist():
        places[target].append(source)
    return places


doors = over_graphs(kinds, neighbours, 3)
