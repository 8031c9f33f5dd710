"""Random numbers that are a function of a key: the same for the same call, wherever and whenever it runs.

There is no generator and no state, so neither the order of calls nor what shares a batch with
them matters, and the interpreter draws the very numbers that kernels draw.

Source: Steele, Lea and Flood 2014 (Fast splittable pseudorandom number generators): each key
and site seed a SplitMix64, whose n-th number needs none of those before it.
"""

from __future__ import annotations

import itertools
from math import prod

import numpy as np
from numpy.typing import NDArray

from foldbatch.params.parameters import Array
from foldbatch.static.graph import input_node
from foldbatch.static.op import CALL, Attrs, Sample, define, fail
from foldbatch.types import TensorType

_KEY = TensorType((), "int64")
BITS = 24  # so that float32 holds every number exactly

KEY = input_node(_KEY, CALL, "key")
"""The key of a call, the same in all cells of the call; the engine that runs a cell provides it."""

SITES = itertools.count()
"""Numbers for the places in models that draw: each draws its own numbers from the same key."""

GAMMA = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio, made odd
WORD_MASK = 2**64 - 1


def random_bits(key: Array, site: int, shape: tuple[int, ...]) -> NDArray[np.uint64]:
    """Return integers below ``2**BITS``, evenly spread and, by all appearance, independent.

    Args:
        key: ``[*]`` of int64, for example one per row.
        site: any whole number.
        shape: of the numbers for one key; the result is ``[*, *shape]``.

    >>> random_bits(np.array([1, 2]), 0, (3,)).tolist()
    [[6177195, 15830380, 759286], [6580300, 1421222, 14129947]]
    """
    keys = np.asarray(key, np.int64).reshape(-1, 1).astype(np.uint64)
    seeds = mixed(keys + np.uint64((site + 1) * GAMMA & WORD_MASK))
    bits = mixed(seeds + np.arange(1, prod(shape) + 1, dtype=np.uint64) * np.uint64(GAMMA))
    bits >>= np.uint64(64 - BITS)
    return bits.reshape((*np.shape(key), *shape))


def mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return numbers of the same shape, each bit of which depends on all: the finaliser of SplitMix64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _infer(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    """Return the type of random numbers, refusing all but a key and float dtypes."""
    if types[0] != _KEY:
        fail("random", f"a key of {_KEY}", str(types[0]), "cast it with ops.cast")
    type_ = TensorType(attrs["shape"], attrs["dtype"])
    if not type_.is_float:
        fail("random", "a float dtype", type_.dtype, "draw floats and compare or cast them")
    return type_


def _evaluate(attrs: Attrs, key: Array) -> Array:
    return (random_bits(key, attrs["site"], attrs["shape"]) * 2.0**-BITS).astype(attrs["dtype"])


define(
    "random",  # uniform numbers in [0, 1)
    _infer,
    _evaluate,
    samples=tuple(Sample((_KEY,), {"shape": shape, "site": 5, "dtype": "float64"}) for shape in ((), (2, 3))),
)
