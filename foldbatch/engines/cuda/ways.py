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
ROOM = 1.2  # rows that a captured product of cuBLAS computes, for each that a batch has: a guess


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
        mixed: whether a graph leaves wide products to cuBLAS.
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
    """Return the captured way; a product of cuBLAS has the rows of its class, more than the batch has."""
    record = 2 * rates.near  # each kernel reads where its record stands, and the record
    roomy = [both.library._replace(seconds=ROOM * both.library.seconds) for both in timed]
    wide_from, gain, best = inf, 0.0, 0.0
    products = [number for number, work in enumerate(works) if mixed and work.operations]
    for number in sorted(products, key=lambda number: works[number].operations, reverse=True):
        gain += timed[number].own.seconds + record - roomy[number].seconds
        if gain > best:
            wide_from, best = works[number].operations, gain
    within = tuple(
        roomy[number]
        if work.operations >= wide_from
        else both.own._replace(seconds=both.own.seconds + record)
        for number, (work, both) in enumerate(zip(works, timed, strict=True))
    )
    between = [rates.node] * len(works)
    if between:
        between[0] += idle * (rates.node + record)
    return Way(tuple(between), within, wide_from, 1)


def _persistent(works: Sequence[Work], timed: Sequence[_Both], rates: Rates, barriers: Sequence[bool]) -> Way:
    """Return the persistent way with the products to cuBLAS that make it quickest, in `MOST` launches."""
    sizes = sorted({work.operations for work in works if work.operations}, reverse=True)
    ways = [_persistent_from(wide, works, timed, rates, barriers) for wide in (inf, *sizes[:MOST])]
    return min((way for way in ways if way.launches <= MOST), key=lambda way: way.seconds)


def _persistent_from(
    wide_from: float,
    works: Sequence[Work],
    timed: Sequence[_Both],
    rates: Rates,
    barriers: Sequence[bool],
) -> Way:
    between, within, launches = [], [], 0
    narrow = False  # whether the call before runs in a cooperative kernel
    for number, (work, both) in enumerate(zip(works, timed, strict=True)):
        if work.operations >= wide_from:
            between.append(rates.node)
            within.append(both.library)
            launches, narrow = launches + 1, False
            continue
        if not narrow:
            between.append(rates.together)
            launches, narrow = launches + 1, True
        else:
            between.append(rates.barrier if not barriers or barriers[number - 1] else 0.0)
        within.append(both.own._replace(seconds=both.own.seconds + 2 * rates.near))
    return Way(tuple(between), tuple(within), wide_from, launches)
