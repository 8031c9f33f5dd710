"""The backends by name: how each spells the ops, and what its kernels see as globals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foldbatch.errors import UnknownNameError
from foldbatch.static.backends import numpy as _numpy


@dataclass(frozen=True, slots=True)
class Backend:
    """A spelling of the ops; `overwrites` says which operand buffers a result may reuse."""

    name: str
    spellings: Mapping[str, Callable[..., list[str]]]
    overwrites: Mapping[str, Sequence[int]]
    globals: Mapping[str, Any]


BACKENDS = {"numpy": Backend("numpy", _numpy.SPELLINGS, _numpy.OVERWRITES, _numpy.GLOBALS)}
AUTO = ("numpy",)  # the fastest first


def find_backend(name: str) -> Backend:
    """Return a backend by name; ``auto`` is the fastest that is installed.

    Raises:
        UnknownNameError: when there is none of that name.
    """
    if name == "auto":
        name = AUTO[0]
    if name not in BACKENDS:
        raise UnknownNameError("backend", f"one of auto, {', '.join(BACKENDS)}", repr(name))
    return BACKENDS[name]
