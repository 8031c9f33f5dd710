"""Visits: calls of the program's functions, each applied to all its visits at once.

A function that does not recur is applied to the lanes that call it. One that does is applied once to all
nodes of the trees that it is entered with: every node is a lane. What a visit passes to the visits below it,
and what it gets from them, are links.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from foldbatch.blocks.columnar.clock import Frame, Recursion, Visits
from foldbatch.blocks.columnar.forest import Forest
from foldbatch.blocks.columnar.kinds import Array, Column, Data, Nodes, Refused, unstored
from foldbatch.blocks.columnar.scope import Scope
from foldbatch.blocks.columnar.statements import Body
from foldbatch.blocks.purity import ATOMS

MOST_NODES = 2_000_000  # of a tree; the program refuses what is deeper


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the program.

    Attributes:
        name: its name.
        parameters: the names of its parameters.
        results: how many terminals it returns.
        recurs: whether it calls itself, directly or through others.
        memo: whether it visits an object once that stands in several places.
        body: its statements.
    """

    name: str
    parameters: tuple[str, ...]
    results: int
    recurs: bool
    memo: bool
    body: Body


class Again(Exception):  # noqa: N818 - starts anew
    """It turned out which nodes a recursion visits, and that these are not all."""


@dataclass(slots=True, eq=False)
class Visiting:
    """A recursion while its function is applied.

    Attributes:
        function: the function.
        forest: the trees.
        lane_of: per node, its lane.
        links: per result, references to the links of all lanes.
        given: per parameter the same; of the node, None.
        visited: the lanes that are visited from others.
        recursion: what comes of it.
        inside: the functions that are being applied, innermost last.
    """

    function: Function
    forest: Forest
    lane_of: Array
    links: list[Array]
    given: list[Array | None]
    recursion: Recursion
    visited: list[Array] = field(default_factory=list)


def visit(
    functions: Mapping[str, Function], scope: Scope, name: str, arguments: list[Column]
) -> list[Column]:
    """Return the results of a function, called in each lane of a scope.

    Raises:
        Refused: where it recurs in a way that columns do not follow.
    """
    function = functions[name]
    visiting: Visiting | None = scope.function
    if function.memo:
        arguments = [*map(unstored, arguments)]
    if function.memo and any(
        isinstance(x, Data) and not set(map(type, x.objects)) <= {*ATOMS} for x in arguments
    ):
        raise Refused("an object that may stand in several places is visited once for all of them")
    if not function.recurs:
        return _apply(function, scope, arguments)
    if visiting is None:
        return _enter(function, scope, arguments)
    if visiting.function is not function:
        raise Refused("a recursion calls another function that recurs")
    return _descend(visiting, scope, arguments)


def _apply(function: Function, scope: Scope, arguments: list[Column]) -> list[Column]:
    """Apply a function that does not recur to the lanes of a scope."""
    inner = Scope(scope.run, scope.frame, scope.lanes, scope.size)
    inner.function = scope.function
    return _run(function, inner, arguments)


def _run(function: Function, scope: Scope, arguments: Sequence[Column]) -> list[Column]:
    scope.names.update(zip(function.parameters, arguments, strict=True))
    function.body.apply(scope)
    assert scope.result is not None, "every function returns"
    return scope.result


def _descend(visiting: Visiting, scope: Scope, arguments: list[Column]) -> list[Column]:
    """Visit a child of each lane's node."""
    lanes = np.zeros(0, np.int64)
    for argument, links in zip(arguments, visiting.given, strict=True):
        match argument:
            case Nodes(forest, index, depth) if links is None and forest is visiting.forest:
                if depth != 1:
                    raise Refused("a recursion goes on to a node that is no child")
                lanes = visiting.lane_of[index]
            case Data() if links is None and not scope.size:
                pass
            case np.ndarray() if links is not None:
                scope.run.link(links[lanes], argument)
            case _:
                raise Refused("a recursion passes an object on that is no child")
    scope.frame.events.append(Visits(scope.lanes, visiting.recursion, lanes))
    visiting.visited.append(lanes)
    return [links[lanes] for links in visiting.links]


def _enter(function: Function, scope: Scope, arguments: list[Column]) -> list[Column]:
    """Apply a function that recurs to all nodes of some trees."""
    run = scope.run
    nodes = [x for x in arguments if not isinstance(x, np.ndarray)]
    if len(nodes) != 1 or not (
        isinstance(nodes[0], Nodes) or (isinstance(nodes[0], Data) and not scope.size)
    ):
        raise Refused("a recursion reads something else than one tree")
    tops = nodes[0] if isinstance(nodes[0], Nodes) else Nodes(Forest([]), np.zeros(0, np.int64))
    forest, entry = tops.forest, len(run.recursions)
    if forest.most > MOST_NODES:
        raise Refused("a tree is so large that it may be deeper than the program allows")
    lanes = run.chosen[entry] if entry in run.chosen else _below(forest, tops.index)
    lane_of: Array = lanes
    low = forest.first
    if lanes is not forest.nodes:
        lane_of = np.full(forest.size, -1)
        lane_of[lanes] = np.arange(len(lanes))
        before = np.zeros(forest.size + 1, np.int64)
        before[lanes + 1] = 1
        low = np.cumsum(before)[low[lanes]]
    recursion = Recursion(Frame(len(lanes)), low)
    run.recursions.append(recursion)
    links = [run.new_links(len(lanes)) for _ in range(function.results)]
    given = [run.new_links(len(lanes)) if isinstance(x, np.ndarray) else None for x in arguments]
    visiting = Visiting(function, forest, lane_of, links, given, recursion)
    inner = Scope(run, recursion.frame, None, len(lanes))
    inner.function = visiting
    own = [Nodes(forest, lanes) if x is None else x for x in given]
    results = _run(function, inner, own)
    for references, column in zip(links, results, strict=True):
        if not isinstance(column, np.ndarray):
            raise Refused("a recursion returns an object")
        run.link(references, column)
    top = lane_of[tops.index]
    for argument, passed in zip(arguments, given, strict=True):
        if isinstance(argument, np.ndarray) and passed is not None:
            run.link(passed[top], argument)
    _check_visits(visiting, top, lanes, entry, run.chosen)
    recursion.count()
    scope.frame.events.append(Visits(scope.lanes, recursion, top))
    return [references[top] for references in links]


def _below(forest: Forest, tops: Array) -> Array:
    """Return the nodes of some subtrees, in order; they do not overlap."""
    if len(tops) == len(forest.roots) and np.array_equal(tops, forest.roots):
        return forest.nodes
    depth = np.zeros(forest.size + 1, np.int64)
    np.add.at(depth, forest.first[tops], 1)
    np.add.at(depth, tops + 1, -1)
    depth = np.cumsum(depth)[:-1]
    if len(depth) and depth.max() > 1:
        raise Refused("a tree is visited twice")
    return np.flatnonzero(depth)


def _check_visits(visiting: Visiting, top: Array, lanes: Array, entry: int, chosen: dict[int, Array]) -> None:
    """Make sure that each lane is visited once.

    Raises:
        Refused: where one is visited twice.
        Again: where one is not visited, with the others in `chosen`.
    """
    visited = np.concatenate([top, *visiting.visited])
    reached = np.zeros(len(lanes), bool)
    reached[visited] = True
    if np.count_nonzero(reached) < len(visited):
        raise Refused("a node is visited twice")
    if len(visited) == len(lanes):
        return
    # a visit is made where all around it are; those that are not, are a sum over the path to the root
    missing = np.flatnonzero(~reached)
    low = visiting.recursion.low[missing]
    gaps = np.zeros(len(lanes) + 1, np.int64)
    np.add.at(gaps, low, 1)
    np.add.at(gaps, missing + 1, -1)
    chosen[entry] = lanes[np.cumsum(gaps)[:-1] == 0]
    raise Again
