"""Graphs of one driver in the hands of another, which knows what memory they touch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from foldbatch.engines.cuda.drivers.driver import Graph, Touched
from foldbatch.engines.cuda.drivers.spans import joined


class Held(NamedTuple):
    """A graph of another driver, with what its work said to touch when it was kept.

    Attributes:
        inner: the other driver's graph.
        number: of the graph, from 0 on.
        touched: by all of its work.
    """

    inner: Graph
    number: int
    touched: Touched

    def with_more(self, touched: Callable[[], Touched] | None) -> Touched:
        """Return what the graph touches when it is replayed, where it may touch more than was said before."""
        return self.touched if touched is None else together([self.touched, touched()])


def together(each: Iterable[Touched]) -> Touched:
    """Return what several pieces of work touch.

    >>> from foldbatch.engines.cuda.drivers.driver import Span
    >>> together([Touched([Span(0, 4)], []), Touched([Span(4, 4)], [Span(8, 1)])])
    Touched(reads=[Span(pointer=0, nbytes=8)], writes=[Span(pointer=8, nbytes=1)])
    """
    each = list(each)
    reads = joined(span for touched in each for span in touched.reads)
    return Touched(reads, joined(span for touched in each for span in touched.writes))
