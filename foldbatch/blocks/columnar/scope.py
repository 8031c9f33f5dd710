"""Scope: the variables of the tracing program as columns, and what its statements leave behind.

Numbers of values are not known while statements are applied, for they depend on the order of all calls. So
columns hold *references*: that to output j of call i is ``i * width + j``; one below 0, ``~s``, stands for
whatever the link s refers to. The result of a function at a node is a link, and so is the state that a turn
of a loop finds. Links may refer to links; all are followed in the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foldbatch.blocks.columnar.clock import Calls, Frame, Recursion, Turns
from foldbatch.blocks.columnar.kinds import Array, Column, ListColumn, ObjectColumn, Refused, merge, take

MOST = 2**31 - 1


@dataclass(slots=True)
class CallColumns:
    """Calls of a cell, by one statement.

    Attributes:
        first: the number of the first call.
        size: how many calls there are.
        arguments: per argument the references, per sequence the lists' lengths.
        feeds, elements, labels: what each call is given besides.
    """

    first: int
    size: int
    arguments: list[Array]
    feeds: dict[int, Column] = field(default_factory=dict)
    elements: dict[int, ListColumn] = field(default_factory=dict)
    labels: dict[int, ObjectColumn] = field(default_factory=dict)


class CallLog:
    """What the statements leave behind.

    Attributes:
        width: how many references each call reserves.
        calls: the number of calls so far.
        parts: per cell, its calls.
        links: what each link refers to, in pieces.
        recursions: those that were entered.
    """

    def __init__(self, cells: int, width: int) -> None:
        self.width = width
        self.calls = 0
        self.parts: list[list[CallColumns]] = [[] for _ in range(cells)]
        self.links: list[Array] = []
        self.linked = 0
        self.recursions: list[Recursion] = []

    def new_links(self, size: int) -> Array:
        """Return references to new links."""
        links = np.zeros(size, np.int32)
        references = ~np.arange(self.linked, self.linked + size, dtype=np.int32)
        self.links.append(links)
        self.linked += size
        return references

    def link(self, references: Array, targets: Array) -> None:
        """Say what links refer to; the references are of one `new_links`."""
        if len(references):
            places = ~references
            piece, first = self._piece(int(places[0]))
            piece[places - first] = targets

    def _piece(self, place: int) -> tuple[Array, int]:
        first = self.linked
        for piece in reversed(self.links):
            first -= len(piece)
            if first <= place:
                return piece, first
        raise AssertionError(place)

    def follow(self) -> Array:
        """Return the references that links stand for: of calls alone."""
        links = np.concatenate([np.zeros(0, np.int32), *self.links])
        while len(open_ := np.flatnonzero(links < 0)):
            links[open_] = links[~links[open_]]  # half as far each time
        return links


class Scope:
    """The variables that some lanes of a frame see.

    Args:
        run: what is left behind.
        frame: the frame.
        lanes: the lanes of the frame; None stands for all.
        size: how many these are.
        outer: the scope around this one, within the same function.
        chosen: where its lanes stand in the outer scope.
    """

    def __init__(
        self,
        run: CallLog,
        frame: Frame,
        lanes: Array | None,
        size: int,
        outer: Scope | None = None,
        chosen: Array | None = None,
    ) -> None:
        self.run, self.frame, self.lanes, self.size = run, frame, lanes, size
        self.outer, self.chosen = outer, chosen
        self.names: dict[str, Column] = {}
        self.seen: dict[str, Column] = {}
        self.appended: dict[str, tuple[Column, ...]] = {}
        self.result: list[Column] | None = None
        self.refuses = False  # whether the program raises an error here
        self.function: Any = outer.function if outer is not None else None

    def has(self, name: str) -> bool:
        """Return whether a variable is known."""
        return name in self.names or (self.outer is not None and self.outer.has(name))

    def read(self, name: str) -> Column:
        """Return a variable's column."""
        if name in self.names:
            return self.names[name]
        if name not in self.seen:
            if self.outer is None:
                raise Refused(f"a variable of the tracing program has no column: {name}")
            self.seen[name] = take(self.outer.read(name), self.chosen)
        return self.seen[name]

    def values(self, name: str) -> Array:
        """Return a variable's references."""
        column = self.read(name)
        if not isinstance(column, np.ndarray):
            raise Refused("it passes an object on where columns hold tensors only")
        return column

    def make_calls(self) -> Array:
        """Make a call in each lane; return references to their first values."""
        run = self.run
        first = run.calls
        run.calls += self.size
        if run.calls * run.width > MOST:
            raise Refused("there are too many calls for one batch")
        self.frame.events.append(Calls(self.lanes, first))
        return np.arange(first * run.width, run.calls * run.width, run.width, dtype=np.int32)

    def among(self, chosen: Array) -> Scope:
        """Return a scope of some of the lanes."""
        if len(chosen) == self.size:
            return Scope(self.run, self.frame, self.lanes, self.size, self)
        lanes = chosen if self.lanes is None else self.lanes[chosen]
        return Scope(self.run, self.frame, lanes, len(chosen), self, chosen)

    def gather(self, branches: list[Scope]) -> None:
        """Take over what branches have assigned, each in its lanes."""
        ending = [branch for branch in branches if not branch.refuses]
        self.refuses = not ending
        if any(self.has(name) for branch in branches for name in branch.names):
            raise Refused("a variable changes in some cases only")
        filled = [branch for branch in ending if branch.size] or ending[:1]
        for name in filled[0].names if filled else ():
            if len(filled) == 1:
                self.names[name] = filled[0].names[name]
            elif all(name in branch.names for branch in filled):
                parts = [(b.chosen, b.names[name]) for b in filled if b.chosen is not None]
                self.names[name] = merge(parts, self.size)

    @contextmanager
    def loop(self, turns: Array, assigned: set[str]) -> Iterator[Scope]:
        """Enter the body of a loop, whose lanes are all turns.

        Args:
            turns: ``[lanes]``: the number of turns.
            assigned: the variables that the body assigns; those known before it are passed from turn to turn.
        """
        total = int(turns.sum())
        frame = Frame(total)
        self.frame.events.append(Turns(self.lanes, frame, turns))
        inside = Scope(self.run, frame, None, total, self, np.repeat(np.arange(self.size), turns))
        ends = np.cumsum(turns)
        first, some = (ends - turns)[turns > 0], turns > 0
        carried = {}
        for name in sorted(assigned):
            if self.has(name):
                links = self.run.new_links(total)
                before = np.concatenate([links[:1], links[:-1]])
                before[first] = self.values(name)[some]
                inside.names[name] = before
                carried[name] = links
        yield inside
        for name, links in carried.items():
            self.run.link(links, inside.values(name))
            last = self.values(name).copy()
            last[some] = links[ends[some] - 1]
            self.names[name] = last
        for name, items in inside.appended.items():
            self.names[name] = ListColumn(turns, items)
