"""The backends by name: how each spells the ops, and what its kernels see as globals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from foldbatch.engines.numba.compiling import numba as _import_numba
from foldbatch.errors import BackendError, UnknownNameError
from foldbatch.static.backends import numba as _numba
from foldbatch.static.backends import numpy as _numpy
from foldbatch.static.graph import Node
from foldbatch.static.loops import Loop


@dataclass(frozen=True, slots=True)
class Loops:
    """How a backend fuses.

    Attributes:
        takes: whether a loop can compute a node.
        alone: whether it is worth a loop of its own.
        spell: the text of a loop, a function called ``loop``.
        compile: that function.
        gapped: the spellings of ops some of whose arrays have gaps, where these differ.
        compiles: whether a node's statements may stand in a loop over levels.
        compile_levels: such a loop's function, given its text and those of the loops it calls.
    """

    takes: Callable[[Node], bool]
    alone: Callable[[Node], bool]
    spell: Callable[[Loop], str]
    compile: Callable[[str], Callable[..., None]]
    gapped: Mapping[str, Callable[..., list[str]]]
    compiles: Callable[[Node, Sequence[str]], bool]
    compile_levels: Callable[[str, tuple[str, ...]], Callable[..., None]]


@dataclass(frozen=True, slots=True)
class Backend:
    """A spelling of the ops; `overwrites` says which operand buffers a result may reuse.

    One that has `loops` computes groups of elementwise ops in them instead. `called_by` gives, by name,
    what a kernel of this text calls besides; `sum_rows` is the expression of a table's gradient.
    """

    name: str
    spellings: Mapping[str, Callable[..., list[str]]]
    overwrites: Mapping[str, Sequence[int]]
    globals: Mapping[str, Any]
    loops: Loops | None = None
    called_by: Callable[[str], Mapping[str, Any]] = lambda text: {}
    sum_rows: Callable[[Node, Sequence[str]], str] = _numpy.sum_rows_call


NUMBA = "numba"
BACKENDS = {"numpy": Backend("numpy", _numpy.SPELLINGS, _numpy.OVERWRITES, _numpy.GLOBALS)}
if find_spec(NUMBA) is not None:  # only looked for: importing it takes a second
    BACKENDS[NUMBA] = Backend(
        NUMBA,
        _numba.SPELLINGS,
        _numpy.OVERWRITES,
        _numpy.GLOBALS,
        Loops(
            _numba.takes,
            _numba.alone,
            _numba.spell,
            _numba.COMPILE,
            _numba.GAPPED,
            _numba.compiles,
            _numba.COMPILE_LEVELS,
        ),
        _numba.CALLED_BY,
        _numba.sum_rows_call,
    )
AUTO = (NUMBA, "numpy")  # the fastest first


def find_backend(name: str) -> Backend:
    """Return a backend by name; ``auto`` is the fastest that is installed.

    Raises:
        UnknownNameError: when there is none of that name.
        BackendError: when what it needs is not installed, or cannot be imported.

    >>> find_backend("numpy").name
    'numpy'
    """
    if name == "auto":
        name = next(choice for choice in AUTO if choice in BACKENDS and _works(choice))
    if name == NUMBA:
        _import_numba()
    if name not in BACKENDS:
        raise UnknownNameError("backend", f"one of auto, {', '.join(AUTO)}, reference", repr(name))
    return BACKENDS[name]


def _works(name: str) -> bool:
    try:
        return name != NUMBA or bool(_import_numba())
    except BackendError:
        return False
