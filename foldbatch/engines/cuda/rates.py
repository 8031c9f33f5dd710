"""What GPUs can do a second, and how long their smallest steps take: the numbers of the model of cost.

Each figure says where it is from. *Data sheet* is NVIDIA's of the card, dense rates; *measured* was read on
such a card, though not by this project; *guess* is nobody's measurement. ``python -m benchmarks.gpu``
measures most of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Rates:
    """What a card can do.

    Attributes:
        card: its name, for people.
        multiprocessors: how many blocks of kernels it runs side by side, one on each.
        products: operations a second by precision, ``fp32``, ``tf32``, ``bf16`` and ``fp64``.
        memory: bytes a second that kernels read and write.
        cache: bytes of the cache that all multiprocessors share.
        cached: bytes a second that kernels read of this cache.
        upload: bytes a second from the host.
        launch: seconds that the host takes to launch a kernel, from Python.
        node: seconds from the end of a kernel to the start of the next one, in a graph or in a stream.
        together: seconds the same takes before a cooperative kernel.
        barrier: seconds of a barrier between all blocks of a kernel.
        near: seconds until a number comes from the cache.
        far: seconds until a number comes from memory.
    """

    card: str
    multiprocessors: int
    products: Mapping[str, float]
    memory: float
    cache: float
    cached: float
    upload: float = 50e9  # guess: PCIe 5 with 16 lanes has 63e9
    launch: float = 7e-6  # 5e-6 of Python, measured on a CPU without a card; 2e-6 for CUDA, a guess
    node: float = 1.5e-6  # guess; 1.2e-6 is another one (kernels of a graph that depend on each other)
    together: float = 4e-6  # guess
    barrier: float = 1.5e-6  # guess: notes of others' measurements go from 0.6e-6 to 3e-6
    near: float = 0.15e-6  # guess: 270 clocks
    far: float = 0.4e-6  # guess: 700 clocks


CACHED = 21  # bytes of the shared cache a clock and multiprocessor: guess, 5.5e12 a second on an H100


def _products(fp32: float, tf32: float, bf16: float, fp64: float) -> Mapping[str, float]:
    return MappingProxyType({"fp32": fp32, "tf32": tf32, "bf16": bf16, "fp64": fp64})


CARDS: Mapping[str, Rates] = MappingProxyType(
    {
        # products: data sheet, but bf16, measured (989e12 by the data sheet); memory: measured by a copy of
        # 8.6 GB, bytes read and written (4.8e12 by the data sheet); multiprocessors, cache: read from a card
        "H200": Rates(
            "H200", 132, _products(67e12, 495e12, 788e12, 34e12), 4.3e12, 60e6, CACHED * 132 * 1.98e9
        ),
        # products: those of the H200, which has the same processor; memory: nine tenths of the data sheet's
        # 3.35e12, a guess; cache: data sheet
        "H100": Rates(
            "H100", 132, _products(67e12, 495e12, 788e12, 34e12), 3.0e12, 50e6, CACHED * 132 * 1.98e9
        ),
        # products: data sheet; memory: nine tenths of the data sheet's 2.04e12, a guess; cache: data sheet
        "A100": Rates(
            "A100", 108, _products(19.5e12, 156e12, 312e12, 9.7e12), 1.8e12, 40e6, CACHED * 108 * 1.41e9
        ),
        # products: lists of third parties; memory: nine tenths of their 7.7e12, a guess; cache: a guess
        "B200": Rates(
            "B200", 148, _products(75e12, 1125e12, 2250e12, 37e12), 6.9e12, 126e6, CACHED * 148 * 1.98e9
        ),
    }
)


def rates_of(name: str, multiprocessors: int = 0, clock: float = 1.7e9) -> Rates:
    """Return the rates of a card, or guesses for a card that no table knows.

    Args:
        name: as its driver calls it: a card of the table is known by the word that it contains.
        multiprocessors: of the card; 0 where nobody knows. A part of a card, and a smaller one of the same
            name, do less in proportion.
        clock: of its multiprocessors, a second, for cards that no table knows.

    >>> rates_of("NVIDIA H200").multiprocessors, rates_of("NVIDIA H100 PCIe", 114).products["fp32"] / 1e12
    (132, 57.86363636363637)
    >>> rates_of("a new card", 100, 2e9).card
    'a new card (guessed)'
    """
    known = next((rates for word, rates in CARDS.items() if word in name), None)
    if known is None:
        return _guessed(name, multiprocessors or 100, clock)
    share = (multiprocessors or known.multiprocessors) / known.multiprocessors
    products = MappingProxyType({kind: share * rate for kind, rate in known.products.items()})
    return replace(
        known,
        multiprocessors=multiprocessors or known.multiprocessors,
        products=products,
        memory=share * known.memory,
        cached=share * known.cached,
    )


def _guessed(name: str, multiprocessors: int, clock: float) -> Rates:
    """Return rates of a card of which only the number of multiprocessors and the clock are known: guesses.

    A multiprocessor does 128 multiplications and additions a clock, as those of all cards since 2017 but
    few; matrices of tf32 go four times as fast, as on cards between those for games and those for halls.
    """
    fp32 = 2 * 128 * multiprocessors * clock
    products = _products(fp32, 4 * fp32, 8 * fp32, fp32 / 32)
    cached = CACHED * multiprocessors * clock
    return Rates(f"{name} (guessed)", multiprocessors, products, cached / 5, 40e6, cached)
