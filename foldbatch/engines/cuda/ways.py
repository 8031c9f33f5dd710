"""Three ways to run a batch's step on a card, and what each takes by the model of cost.

*Straight*: each call is a launch from the host, products are cuBLAS's. *Captured*: all calls are one graph.
*Persistent*: a kernel runs call after call, with a barrier between. There, and in graphs that can, *wide*
products are left to cuBLAS. The model knows the rates of a card and what each call does. It leaves out what
happens once, such as capturing, and copies, which hide behind the batch before. The host launches a step and
plans the next batch while the card works: the slower of the two is what a step takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

from foldbatch.engines.cuda.cost import Timed, kernel_seconds, library_seconds, own_seconds
from foldbatch.engines.cuda.rates import Rates
from foldbatch.engines.cuda.work import Work

ENGINES = "straight", "captured", "persistent"
MOST = 7  # launches of a persistent step of 12: one more begins backward, and up to 4 update parameters
# Of the host, measured on one core of an AMD EPYC, without a card; see benchmarks/NOTES.md.
STEP = 0.26e-3  # seconds to make a step ready that is planned
PLAN = 0.4e-3  # to plan a batch, and for each of its calls, and for each call of a cell
PLAN_CALL = 3.1e-6
PLAN_ROW = 0.053e-6


@dataclass(frozen=True, slots=True)
class Way:
    """A step run in one way.

    Attributes:
        between: seconds before each call: until it is launched, or all blocks have met.
        within: seconds of each call, and what limits them.
        wide_from: operations of a product from which on it is cuBLAS's.
        launches: from the host.
        host: seconds that the host takes to launch it, and to plan the next one.
    """

    between: tuple[float, ...]
    within: tuple[Timed, ...]
    wide_from: float
    launches: int
    host: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds of the step: the card's, or the host's where it takes longer."""
        return max(self.host, self.card)

    @property
    def card(self) -> float:
        """Seconds that the card takes."""
        return sum(self.between) + sum(timed.seconds for timed in self.within)


class _Both(NamedTuple):
    """What a call takes by our own kernels, and by cuBLAS where it is a product."""

    own: Timed
    library: Timed


def ways_of(
    works: Sequence[Work],
    rates: Rates,
    precision: str = "fp32",
    *,
    held: bool = False,
    idle: int = 0,
    barriers: Sequence[bool] = (),
    mixed: bool = False,
    planned: int = 0,
) -> Mapping[str, Way]:
    """Return the step run in each of `ENGINES`.

    Args:
        works: what the calls of the step do, in order.
        rates: of the card.
        precision: of products of float32.
        held: whether the cache of the card holds the batch.
        idle: calls of the captured graph that the batch does not have.
        barriers: whether a barrier must follow each call; empty where one follows all.
        mixed: whether a graph is cut at wide products, which are cuBLAS's.
        planned: calls of cells in the batch that the host plans meanwhile; 0 where all is planned before.
    """
    timed = [_timed(work, rates, precision, held=held) for work in works]
    host = STEP + (PLAN + PLAN_CALL * len(works) + PLAN_ROW * planned if planned else 0.0)
    ways = {
        "straight": _straight(timed, rates),
        "captured": _captured(works, timed, rates, idle, mixed=mixed),
        "persistent": _persistent(works, timed, rates, barriers),
    }
    return {engine: replace(way, host=host + way.launches * rates.launch) for engine, way in ways.items()}


def _timed(work: Work, rates: Rates, precision: str, *, held: bool) -> _Both:
    """Return what a call takes, without what is between calls."""
    if not work.is_product:
        kernel = kernel_seconds(work, rates, held=held)
        return _Both(kernel, kernel)
    own = own_seconds(work, rates, held=held)
    return _Both(own, library_seconds(work, rates, precision, held=held))


def _straight(timed: Sequence[_Both], rates: Rates) -> Way:
    """Return the way straight: a launch waits for the host, or for the call before."""
    # the host goes on to the next launch while the card works
    between = [max(rates.node, rates.launch - both.library.seconds) for both in timed]
    library = tuple(both.library for both in timed)
    return Way(tuple(between), library, 1.0, len(timed))


def _captured(works: Sequence[Work], timed: Sequence[_Both], rates: Rates, idle: int, *, mixed: bool) -> Way:
    """Return the captured way; where wide products are cuBLAS's, the graph is cut at each."""
    between = [rates.node] * len(works)
    way = _quickest(works, timed, rates, rates.node, between, cuts=mixed)
    if not works:
        return way
    empty = idle * (rates.node + 2 * rates.near)  # their kernels read the record, and return
    return replace(way, between=(way.between[0] + empty, *way.between[1:]))


def _persistent(works: Sequence[Work], timed: Sequence[_Both], rates: Rates, barriers: Sequence[bool]) -> Way:
    """Return the persistent way with the products by cuBLAS that make it quickest."""
    needed = [True, *barriers][: len(works)] if barriers else [True] * len(works)
    between = [rates.barrier if one else 0.0 for one in needed]
    return _quickest(works, timed, rates, rates.together, between, cuts=True)


def _quickest(
    works: Sequence[Work],
    timed: Sequence[_Both],
    rates: Rates,
    begin: float,
    between: Sequence[float],
    *,
    cuts: bool,
) -> Way:
    """Return the quickest way in `MOST` launches, of those that leave products from some size on to cuBLAS.

    Args:
        works: what the calls do.
        timed: how long they take.
        rates: of the card.
        begin: seconds before the first call of a kernel or graph that runs several.
        between: seconds before each other call of it.
        cuts: whether any product is left to cuBLAS.
    """
    sizes = sorted({work.operations for work in works if work.operations}, reverse=True)[: MOST * cuts]
    ways = [_cut_from(size, works, timed, rates, begin, between) for size in (inf, *sizes)]
    return min((way for way in ways if way.launches <= MOST), key=lambda way: way.card)


def _cut_from(
    wide_from: float,
    works: Sequence[Work],
    timed: Sequence[_Both],
    rates: Rates,
    begin: float,
    between: Sequence[float],
) -> Way:
    waits, within, launches = [], [], 0
    several = False  # whether the call before runs in a kernel, or graph, of several
    for work, both, wait in zip(works, timed, between, strict=True):
        if work.operations >= wide_from:
            waits.append(rates.node)
            within.append(both.library)
            launches, several = launches + 1, False
            continue
        waits.append(wait if several else begin)
        launches, several = launches + (not several), True
        # its kernel reads where its record stands, and the record
        within.append(both.own._replace(seconds=both.own.seconds + 2 * rates.near))
    return Way(tuple(waits), tuple(within), wide_from, launches)
