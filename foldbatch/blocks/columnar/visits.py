"""Visits: calls of the program's functions, each applied to all its visits at once.

A function that does not recur is applied to the lanes that call it. One that does is applied once to all
nodes of the trees that it is entered with: every node is a lane. What a visit gets from the visits below
it are links.
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


@dataclass(slots=True, eq=False)
class Visiting:
    """A recursion while its function is applied.

    Attributes:
        function: the function.
        forest: the trees; each node is a lane.
        links: per result, references to the links of all lanes.
        recursion: what comes of it.
        visited: the lanes that are visited from others.
    """

    function: Function
    forest: Forest
    links: list[Array]
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
        if any(isinstance(x, Data) and not set(map(type, x.objects)) <= {*ATOMS} for x in arguments):
            raise Refused("an object that may stand in several places is visited once for all of them")
    if not function.recurs:
        inner = Scope(scope.run, scope.frame, scope.lanes, scope.size)
        inner.function = visiting
        return _run(function, inner, arguments)
    (tree,) = arguments if len(arguments) == 1 else (None,)
    if isinstance(tree, Data) and not scope.size:  # nothing is visited
        tree = (
            Nodes(Forest([]), np.zeros(0, np.int64), 1)
            if visiting is None
            else Nodes(visiting.forest, np.zeros(0, np.int64), 1)
        )
    if not isinstance(tree, Nodes):
        raise Refused("a recursion reads something else than one tree")
    if visiting is None:
        return _enter(function, scope, tree)
    if visiting.function is not function or visiting.forest is not tree.forest or tree.depth != 1:
        raise Refused("a recursion calls another one, or goes on to a node that is no child")
    scope.frame.events.append(Visits(scope.lanes, visiting.recursion, tree.index))
    visiting.visited.append(tree.index)
    return [links[tree.index] for links in visiting.links]


def _run(function: Function, scope: Scope, arguments: Sequence[Column]) -> list[Column]:
    scope.names.update(zip(function.parameters, arguments, strict=True))
    function.body.apply(scope)
    assert scope.result is not None, "every function returns"
    return scope.result


def _enter(function: Function, scope: Scope, tops: Nodes) -> list[Column]:
    """Apply a function that recurs to all nodes of some trees."""
    run, forest = scope.run, tops.forest
    if forest.most > MOST_NODES:
        raise Refused("a tree is so large that it may be deeper than the program allows")
    recursion = Recursion(Frame(forest.size), forest.first)
    run.recursions.append(recursion)
    links = [run.new_links(forest.size) for _ in range(function.results)]
    visiting = Visiting(function, forest, links, recursion)
    inner = Scope(run, recursion.frame, None, forest.size)
    inner.function = visiting
    for references, column in zip(links, _run(function, inner, [Nodes(forest, forest.nodes)]), strict=True):
        if not isinstance(column, np.ndarray):
            raise Refused("a recursion returns an object")
        run.link(references, column)
    reached = np.zeros(forest.size, bool)
    visited = np.concatenate([tops.index, *visiting.visited])
    reached[visited] = True
    if len(visited) != forest.size or not reached.all():
        raise Refused("a recursion does not visit each node once")
    recursion.count()
    scope.frame.events.append(Visits(scope.lanes, recursion, tops.index))
    return [references[tops.index] for references in links]
