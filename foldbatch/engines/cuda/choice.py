"""Which way to run a batch's step on a card, by the model of cost, with its reason for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from foldbatch.engines.cuda.control import Call
from foldbatch.engines.cuda.rates import Rates
from foldbatch.engines.cuda.ways import ENGINES, Way, ways_of
from foldbatch.engines.cuda.work import Work, operations_of
from foldbatch.engines.report_text import table

LAUNCHES = {"straight": "launches", "captured": "nodes", "persistent": "barriers"}  # what is between calls


@dataclass(frozen=True, slots=True)
class Level:
    """What calls of one level take.

    Attributes:
        name: of the level; ``around`` for what is no level.
        calls: how many.
        rows: of the call with most.
        seconds: by engine.
        limit: what takes most of them with the chosen engine.
    """

    name: str
    calls: int
    rows: int
    seconds: Mapping[str, float]
    limit: str


@dataclass(frozen=True, slots=True)
class Choice:
    """How a step is run, and why.

    Attributes:
        engine: ``straight``, ``captured`` or ``persistent``.
        reason: one sentence.
        seconds: that a step takes, by engine: estimates, also of engines that cannot be had.
        launches: from the host, by engine.
        lacking: engines that cannot be had, and why.
        wide_from: operations of a product from which on the chosen engine leaves it to cuBLAS.
        wide: how many products these are.
        card: whose rates were taken.
        parts: seconds of the chosen engine by what they are limited by: what is between calls (``launches``,
            ``nodes`` or ``barriers``), ``operations``, ``bytes`` and ``latency``.
        levels: what each level takes.
        host: seconds that the host takes, by engine: they are the step's where the card takes less.
    """

    engine: str
    reason: str
    seconds: Mapping[str, float]
    launches: Mapping[str, int]
    lacking: Mapping[str, str]
    wide_from: float
    wide: int
    card: str
    parts: Mapping[str, float]
    levels: tuple[Level, ...]
    host: Mapping[str, float]

    def is_wide(self, call: Call) -> bool:
        """Return whether a call is a product that goes to cuBLAS."""
        return operations_of(call) >= self.wide_from

    def table(self) -> str:
        """Return what each level takes, by engine, and what limits the chosen one, for people."""
        rows = [
            (
                level.name,
                str(level.calls),
                str(level.rows),
                *(f"{1e6 * level.seconds[engine]:.1f}" for engine in ENGINES),
                level.limit,
            )
            for level in self.levels
        ]
        header = ("level", "calls", "rows", *(f"{engine} us" for engine in ENGINES), "limited by")
        return table(f"a step on {self.card}, estimated; {self.reason}", header, rows)


def choose(
    works: Sequence[Work],
    rates: Rates,
    *,
    asked: str = "auto",
    precision: str = "fp32",
    nbytes: int = 0,
    idle: int = 0,
    barriers: Sequence[bool] = (),
    mixed: bool = False,
    planned: int = 0,
    lacking: Mapping[str, str] | None = None,
) -> Choice:
    """Return how to run a step. It takes some milliseconds: once for batches that are alike, not for each.

    Args:
        works: what the calls of the step do, in order.
        rates: of the card.
        asked: the engine that the user named, or ``auto``: the quickest of those that can be had.
        precision: of products of float32.
        nbytes: of the batch's buffers: where they fit in half of the cache, kernels find them there.
        idle: calls of the captured graph that the batch does not have.
        barriers: whether a barrier must follow each call; empty where one follows all.
        mixed: whether a graph is cut at wide products, which are cuBLAS's.
        planned: calls of cells in the batch that the host plans meanwhile; 0 where all is planned before.
        lacking: by engine, why it cannot be had. An engine that is asked for and cannot be had is straight.

    >>> from foldbatch.engines.cuda.rates import CARDS
    >>> works = [Work("p", product=(8, 64, 64, 1)), Work("k", blocks=4, nbytes=4096)] * 20
    >>> choice = choose(works, CARDS["H200"], lacking={"captured": "no graph fits the batch"})
    >>> choice.engine, choice.launches["straight"], choice.launches["persistent"]
    ('persistent', 40, 1)
    >>> choose(works, CARDS["H200"], lacking={"captured": "none", "persistent": "none"}).engine
    'straight'
    """
    lacking = lacking or {}
    held = 0 < nbytes <= rates.cache / 2
    more = {"idle": idle, "planned": planned}
    ways = ways_of(works, rates, precision, held=held, barriers=barriers, mixed=mixed, **more)
    seconds = {engine: way.seconds for engine, way in ways.items()}
    able = [engine for engine in ENGINES if engine == "straight" or engine not in lacking]
    engine = min(able, key=lambda name: (seconds[name], ways[name].card)) if asked == "auto" else asked
    engine = engine if engine in able else "straight"
    way = ways[engine]
    wide = sum(work.operations >= way.wide_from for work in works)
    return Choice(
        engine,
        _reason(engine, asked, seconds, lacking, 0 if engine == "straight" else wide, way.host),
        seconds,
        {name: one.launches for name, one in ways.items()},
        dict(lacking),
        way.wide_from,
        wide,
        rates.card,
        _parts(way, engine, range(len(works))),
        tuple(_levels(works, ways, engine)),
        {name: one.host for name, one in ways.items()},
    )


def choice_lines(choice: Choice) -> list[str]:
    """Return lines on a choice for a report: the reason, and why other engines cannot be had.

    >>> from foldbatch.engines.cuda.rates import CARDS
    >>> lacking = {"captured": "no graph fits the batch"}
    >>> works = [Work("p", product=(8, 64, 64, 1)), Work("k", blocks=4, nbytes=4096)] * 20
    >>> first, second = choice_lines(choose(works, CARDS["H200"], lacking=lacking))
    >>> first[:11], second
    ('persistent:', 'captured: no graph fits the batch')
    """
    others = [f"{engine}: {why}" for engine, why in choice.lacking.items() if why not in choice.reason]
    return [choice.reason, *others]


def _reason(
    engine: str,
    asked: str,
    seconds: Mapping[str, float],
    lacking: Mapping[str, str],
    wide: int,
    host: float,
) -> str:
    others = sorted((name for name in ENGINES if name != engine), key=lambda name: seconds[name])
    against = " and ".join(f"{1e3 * seconds[name]:.2f} {name}" for name in others)
    head = f"{engine}: "
    if asked not in ("auto", engine):
        head += f"asked for {asked}, which cannot be had ({lacking[asked]}); "
    elif asked != "auto":
        head += "asked for; "
    waits = " for the host" if seconds[engine] == host else ""
    text = f"{head}{1e3 * seconds[engine]:.2f} ms estimated{waits}, against {against}"
    if wide:
        text += f"; {wide} wide product{'s go' if wide > 1 else ' goes'} to cuBLAS"
    return text


def _parts(way: Way, engine: str, numbers: Iterable[int]) -> dict[str, float]:
    """Return the seconds of some calls by what limits them."""
    parts = dict.fromkeys((LAUNCHES[engine], "operations", "bytes", "latency"), 0.0)
    for number in numbers:
        timed = way.within[number]
        parts[LAUNCHES[engine]] += way.between[number]
        parts[timed.limit] += timed.seconds
    return parts


def _levels(works: Sequence[Work], ways: Mapping[str, Way], engine: str) -> Iterator[Level]:
    for name, numbers in groupby(range(len(works)), key=lambda number: works[number].where):
        own = list(numbers)
        seconds = {
            other: sum(way.between[i] + way.within[i].seconds for i in own) for other, way in ways.items()
        }
        parts = _parts(ways[engine], engine, own)
        limit = max(parts, key=lambda part: parts[part])
        yield Level(name or "around", len(own), max(works[i].rows for i in own), seconds, limit)
