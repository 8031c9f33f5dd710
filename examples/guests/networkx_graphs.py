"""networkx: a graph knows the neighbours of its nodes. A graph that is a tree becomes one."""

from typing import Any

import networkx as nx
from graphs import over_graphs

import foldbatch as fb

EXAMPLES = [nx.path_graph(4), nx.star_graph(3), nx.cycle_graph(5)]
for graph in EXAMPLES:
    nx.set_node_attributes(graph, {node: node % 3 for node in graph}, "kind")


def kinds(graph: Any) -> list[int]:
    """Return the kind of each node."""
    return [kind for _, kind in graph.nodes(data="kind")]


def neighbours(graph: Any) -> list[list[int]]:
    """Return the places of each node's neighbours."""
    places = {node: place for place, node in enumerate(graph)}
    return [[places[node] for node in around] for around in graph.adj.values()]


doors = over_graphs(kinds, neighbours, 3)
trees = fb.trees.from_([nx.bfs_tree(graph, 0) for graph in EXAMPLES])
