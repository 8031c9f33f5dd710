"""How long a call takes on a card by a model: operations, bytes, and how long one waits for numbers.

Blocks of a product compute tiles. A tile takes as long as the slowest of three: its operations at a share of
what one multiprocessor can do; its operands' bytes at a multiprocessor's share of the cache; and one wait for
numbers of the cache a panel. Tiles run in rounds, one tile on each multiprocessor. So a product of few rows
takes as long as one tile, however many multiprocessors there are.
"""

from __future__ import annotations

from typing import NamedTuple

from foldbatch.engines.cuda.rates import Rates
from foldbatch.engines.cuda.texts.tile_bodies import CHUNK, SIDE, SIZES
from foldbatch.engines.cuda.work import Work

ITEM = {"float32": 4, "float64": 8}


class Tile(NamedTuple):
    """How a kernel cuts products.

    Attributes:
        rows: of a tile of the result.
        columns: of it.
        depth: of a panel: how much is added up between two loads.
        share: of what a multiprocessor can do, reached while it computes: a guess, all of them.
        units: the same of tf32 and bf16, by matrix units; 0 where a kernel uses none, and computes in fp32.
        parts: into how many parts a long sum may be cut, each computed side by side.
    """

    rows: int
    columns: int
    depth: int
    share: float
    units: float = 0.0
    parts: int = 1


class Timed(NamedTuple):
    """Seconds, and what they are limited by: ``operations``, ``bytes`` or ``latency``."""

    seconds: float
    limit: str


# Of the kernels in `foldbatch.engines.cuda.tiles`. A thread loads 4 numbers from shared memory for every 4
# multiplications with small tiles, and 8 for 16 with large ones. A load takes as long as 4 multiplications.
# So no more than 0.25 and 0.5 of what a multiprocessor can do is to be had.
OWN = tuple(
    Tile(SIDE * size, SIDE * size, CHUNK, share) for size, share in zip(SIZES, (0.2, 0.4), strict=True)
)
# A library picks among many. It starts somewhat later than a kernel of ours: it looks at more arguments.
LIBRARY = (
    Tile(128, 256, 32, 0.85, 0.7, 16),
    Tile(128, 128, 16, 0.85, 0.6, 16),
    Tile(64, 64, 16, 0.65, 0.4, 16),
    Tile(32, 32, 32, 0.4, 0.2, 16),
)
LATER = 1e-6  # guess


def own_seconds(work: Work, rates: Rates, *, held: bool = False) -> Timed:
    """Return how long a product takes by a kernel of our own, without its launch.

    Args:
        work: the product.
        rates: of the card.
        held: whether the cache of the card holds the batch.

    >>> from foldbatch.engines.cuda.rates import CARDS
    >>> one, more = (Work("p", product=(m, 300, 750, 1)) for m in (1, 32))
    >>> own_seconds(one, CARDS["H200"]) == own_seconds(more, CARDS["H200"])
    True
    """
    if not work.operations:
        return Timed(0.0, "latency")
    small, large = OWN
    chosen = large if _count(work, large) >= rates.multiprocessors else small
    return tile_seconds(work, rates, chosen, held=held)


def library_seconds(work: Work, rates: Rates, precision: str = "fp32", *, held: bool = False) -> Timed:
    """Return how long a product takes by cuBLAS; see `own_seconds`.

    Products of float32 are computed in the precision, those of float64 as they are.
    """
    if not work.operations:
        return Timed(0.0, "latency")
    timed = min(
        tile_seconds(work, rates, tile, parts, precision, held=held)
        for tile in LIBRARY
        for parts in (1, 2, 4, 8, 16)
        if parts <= tile.parts
    )
    return timed._replace(seconds=timed.seconds + LATER)


def _count(work: Work, tile: Tile) -> int:
    """Return how many tiles a product has."""
    m, _, n, count = work.product
    return -(-m // tile.rows) * -(-n // tile.columns) * count


def tile_seconds(
    work: Work, rates: Rates, tile: Tile, parts: int = 1, precision: str = "fp32", *, held: bool = False
) -> Timed:
    """Return how long a product takes by tiles whose sums are cut into so many parts; see `own_seconds`."""
    m, k, n, count = work.product
    single, item = work.dtype == "float32", ITEM[work.dtype]
    kind = (precision if tile.units else "fp32") if single else "fp64"
    there, cut = rates.multiprocessors, parts * _count(work, tile)
    panels = -(-k // (tile.depth * parts))
    depth, rounds, busy = panels * tile.depth, -(-cut // there), min(cut, there)
    share = tile.share if kind in ("fp32", "fp64") else tile.units
    feed = rates.cached / max(busy, there / 4)
    longest, limit = max(
        (2 * tile.rows * tile.columns * depth * there / (rates.products[kind] * share), "operations"),
        (item * (tile.rows + tile.columns) * depth / feed, "bytes"),
        (panels * rates.near, "latency"),
    )
    seconds = rounds * longest + 2 * rates.near + rates.far  # the first loads, and the sums' way out
    if parts > 1:
        seconds += 2 * item * parts * m * n * count / rates.cached + rates.near
    moved = work.nbytes / (rates.cached if held else rates.memory)
    return Timed(seconds, limit) if seconds >= moved else Timed(moved, "bytes")


def kernel_seconds(work: Work, rates: Rates, *, held: bool = False) -> Timed:
    """Return how long a kernel that is no product takes, without its launch.

    It waits for the table, an index, a number, and for what it writes. Its bytes move at the rate of as many
    multiprocessors as it has blocks.

    >>> from foldbatch.engines.cuda.rates import CARDS
    >>> kernel_seconds(Work("k", blocks=1), CARDS["H200"]).limit
    'latency'
    """
    waits = 3 * rates.near + rates.far
    busy = min(max(1, work.blocks), rates.multiprocessors)
    whole = rates.cached if held else rates.memory
    rate = min(whole, 2 * busy * rates.cached / rates.multiprocessors)
    moved = work.nbytes / rate
    return Timed(waits + moved, "bytes" if moved > waits else "latency")
