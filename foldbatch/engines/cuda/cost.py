"""How long a call takes on a card by a model: operations, bytes, and how long one waits for numbers.

Blocks of a product compute tiles. A tile takes as long as the slowest of three: its operations at a share of
what one multiprocessor can do; its operands' bytes at a multiprocessor's share of the cache; and one wait for
numbers of the cache a panel. Tiles run in rounds, one tile on each multiprocessor. So a product of few rows
takes as long as one tile, however many multiprocessors there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from foldbatch.engines.cuda.rates import Rates
from foldbatch.engines.cuda.work import Work

ITEM = {"float32": 4, "float64": 8}


class Tile(NamedTuple):
    """How a kernel cuts products.

    Attributes:
        rows: of a tile of the result.
        columns: of it.
        depth: of a panel: how much is added up between two loads.
        share: of what a multiprocessor can do, reached while it computes: a guess, all of them.
        exact: the same of tf32 and bf16, where matrix units wait for loads sooner.
        parts: into how many parts a long sum may be cut, each computed side by side.
    """

    rows: int
    columns: int
    depth: int
    share: float
    exact: float
    parts: int = 1


class Timed(NamedTuple):
    """Seconds, and what they are limited by: ``operations``, ``bytes`` or ``latency``."""

    seconds: float
    limit: str


# The kernels of products that a batch's own launches have, see `texts.tiles`.
OWN = (Tile(64, 64, 16, 0.5, 0.25),)
# A library picks among many. It starts somewhat later than a kernel of ours: it looks at more arguments.
LIBRARY = (
    Tile(128, 256, 32, 0.85, 0.7, 16),
    Tile(128, 128, 16, 0.85, 0.6, 16),
    Tile(64, 64, 16, 0.65, 0.4, 16),
    Tile(32, 32, 32, 0.4, 0.2, 16),
)
LATER = 1e-6  # guess


def product_seconds(
    work: Work, rates: Rates, precision: str = "fp32", tiles: Sequence[Tile] = OWN, *, held: bool = False
) -> Timed:
    """Return how long a product takes by the best of some tiles, without its launch.

    Args:
        work: the product.
        rates: of the card.
        precision: of products of float32; those of float64 are as they are.
        tiles: to choose from.
        held: whether the cache of the card holds the batch.

    >>> from foldbatch.engines.cuda.rates import CARDS
    >>> narrow, wide = (Work("p", product=(m, 300, 750, 1)) for m in (3, 60))
    >>> product_seconds(narrow, CARDS["H200"]) == product_seconds(wide, CARDS["H200"])
    True
    """
    if not work.operations:
        return Timed(0.0, "latency")
    return min(
        _tiled(work, rates, precision, tile, parts, held=held)
        for tile in tiles
        for parts in (1, 2, 4, 8, 16)
        if parts <= tile.parts
    )


def library_seconds(work: Work, rates: Rates, precision: str = "fp32", *, held: bool = False) -> Timed:
    """Return how long a product takes by cuBLAS; see `product_seconds`."""
    timed = product_seconds(work, rates, precision, LIBRARY, held=held)
    return timed._replace(seconds=timed.seconds + LATER) if work.operations else timed


def _tiled(work: Work, rates: Rates, precision: str, tile: Tile, parts: int, *, held: bool) -> Timed:
    """Return how long a product takes by tiles whose sums are cut in so many parts."""
    m, k, n, count = work.product
    single, item = work.dtype == "float32", ITEM[work.dtype]
    kind = precision if single else "fp64"
    there = rates.multiprocessors
    cut = -(-m // tile.rows) * -(-n // tile.columns) * count * parts
    panels = -(-k // (tile.depth * parts))
    depth, rounds, busy = panels * tile.depth, -(-cut // there), min(cut, there)
    share = tile.share if kind in ("fp32", "fp64") else tile.exact
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
