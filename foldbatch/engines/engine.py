"""What an engine is: it makes kernels of a Model once, and runs batches of it.

`ENGINES` is the table of all engines; a new one is a module with a function `load` and one line here. Where
an engine needs more of a machine than a package, its module has a function ``check()``, which raises a
`BackendError` that says what is missing. Where an
engine can compute in several precisions, its `load` has an argument ``precision``; where it can launch
in several ways, ``launch``.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

from foldbatch.engines.batch import Batch
from foldbatch.engines.report import Launched
from foldbatch.engines.watching import Watch
from foldbatch.errors import BackendError, UnknownNameError
from foldbatch.model.model import Model
from foldbatch.params import Array, Gradient, Parameter
from foldbatch.scheduler.arithmetic import NUMPY, Arithmetic
from foldbatch.static.routines import Target

Cotangents = Sequence[tuple[int, Array]]  # numbers of values, each with its cotangent


class Run(Protocol):
    """A batch under way, or done.

    Attributes:
        metrics: by cell and number, ``[n, *shape]``, by rank.
        inputs: after backward, by cell and feed, ``[n, *shape]``, by rank: the gradients of data, where cells
            yield them.
        launches: kernels launched so far.
        within: what is entered where losses and gradients are read later, and may change errors; set by a
            runner.
    """

    metrics: Mapping[tuple[int, int], Array]
    inputs: Mapping[tuple[int, int], Array]
    launches: int
    within: Callable[[], AbstractContextManager[Any]]

    def loss_sums(self) -> Mapping[tuple[int, int], float]:
        """Return the sum over the batch of each loss, by cell and number; see `foldbatch.engines.pending`.

        Where they are pending, reading one may raise what `Engine.forward` raises.
        """
        ...

    def fetch(self, numbers: Sequence[int]) -> list[Array]:
        """Return copies of values, by their numbers in the batch."""
        ...

    def backward(self, cotangents: Cotangents = ()) -> dict[Parameter, Gradient]:
        """Return the gradients of parameters: of all losses, and of the values with cotangents given."""
        ...


class Engine(Protocol):
    """A model's kernels, and what runs them.

    Attributes:
        name: in `ENGINES`.
        target: what its kernels can do.
        one_by_one: whether each example is a batch of its own.
        splits: how many times the usual calls are worth a thread of their own; 0 where no batch is cut.
        helped: whether another core may help with a batch that is not cut; set before it runs.
        arithmetic: what the scheduler computes on whole arrays with.
        updates: compiled steps of optimizers, or None.
        sum_copies: by dtype, what sums rows of equal id (see `sums.total`), or None for NumPy's way.
    """

    name: str
    target: Target
    one_by_one: bool
    splits: int
    helped: bool
    arithmetic: Arithmetic
    updates: Any
    sum_copies: Callable[[str], Callable[..., None] | None]

    def memory(self) -> Any:
        """Return memory for batches that run one after the other."""
        ...

    def ready(self, batch: Batch, *, training: bool) -> Any:
        """Return what running a batch takes besides parameters, data and memory."""
        ...

    def forward(self, ready: Any, feeds: Sequence[Sequence[Array]], memory: Any) -> Run:
        """Compute all values, losses and metrics of a batch.

        Args:
            ready: what `ready` made of the batch, for training or for inference.
            feeds: per cell and feed, the examples' data by rank.
            memory: what `memory` made.

        Raises:
            OutOfRangeError: when a computed id is out of range; see `foldbatch.engines.ranges`. An engine
                that does not wait for a device raises it when a loss, a metric or a value is read.
        """
        ...

    def wait(self) -> None:
        """Wait until a device has done what was launched; elsewhere it is done."""
        ...

    def launched(self, ready: Any) -> Sequence[Launched]:
        """Return the launch table of a batch for a report; nothing where there is none."""
        ...

    def nbytes(self, ready: Any) -> int:
        """Return the bytes of memory that a batch needs, of which `ready` made this."""
        ...

    def source(self, cells: Collection[int]) -> str:
        """Return the kernels of some cells as text, for people to read."""
        ...

    def watch(self) -> AbstractContextManager[Watch]:
        """Return what is entered while batches run, and collects when their kernels ran."""
        ...


# By name, the module that has `load(model, *, debug) -> Engine`, and what must be installed for it.
ENGINES: dict[str, tuple[str, str]] = {
    "cuda": ("foldbatch.engines.cuda", "cupy"),
    "numba": ("foldbatch.engines.numba", "numba"),
    "numpy": ("foldbatch.engines.numpy", ""),
    "reference": ("foldbatch.engines.reference", ""),
}
AUTO = ("numba", "numpy")  # the faster first; a GPU is taken where somebody asks for it
VARIABLE = "FOLDBATCH_BACKEND"  # of the environment: what the backend ``auto`` is
LAUNCH_VARIABLE = "FOLDBATCH_LAUNCH"  # what the launch ``auto`` is, of backends that have several
PLAIN = ("reference", "numpy")  # engines that plan with NumPy's functions
PRECISIONS = ("fp32", "tf32", "bf16")
LAUNCHES = ("auto", "straight", "captured")  # how a batch's kernels are launched


def choose_engine(name: str) -> str:
    """Return the name of an engine that can be had; ``auto`` is the fastest that is installed and works.

    Where the variable `VARIABLE` of the environment is set, ``auto`` is the engine that it names.

    Raises:
        UnknownNameError: when there is none of that name.
        BackendError: when what it needs is not installed, or cannot be imported.

    >>> choose_engine("numpy")
    'numpy'
    """
    where = "backend"
    if name == "auto":
        where, name = VARIABLE, os.environ.get(VARIABLE) or "auto"
    if name == "auto":
        return next(choice for choice in AUTO if _works(choice))
    if name not in list(ENGINES):  # what cannot be hashed is no name either
        raise UnknownNameError(where, f"one of {', '.join(['auto', *ENGINES])}", repr(name))
    _import(name)
    return name


def check_precision(precision: str, name: str) -> None:
    """Refuse a precision that an engine does not compute in.

    Raises:
        UnknownNameError: when there is none of that name.
        BackendError: when the engine has only ``fp32``.
    """
    if precision not in PRECISIONS:
        raise UnknownNameError("precision", f"one of {', '.join(PRECISIONS)}", repr(precision))
    load = import_module(ENGINES[name][0]).load
    if precision != "fp32" and "precision" not in inspect.signature(load).parameters:
        fix = "leave precision out, or take the backend cuda"
        raise BackendError("precision", f"fp32, the only one of the backend {name}", repr(precision), fix)


def choose_launch(launch: str, name: str) -> str:
    """Return how an engine is to launch; ``auto`` is what `LAUNCH_VARIABLE` of the environment names.

    Raises:
        UnknownNameError: when there is no such way.
        BackendError: when the backend launches in one way only.
    """
    where = "launch"
    has_several = _has_several(name)
    if launch == "auto" and has_several:
        where, launch = LAUNCH_VARIABLE, os.environ.get(LAUNCH_VARIABLE) or "auto"
    if launch not in LAUNCHES:
        raise UnknownNameError(where, f"one of {', '.join(LAUNCHES)}", repr(launch))
    if launch != "auto" and not has_several:
        fix = "leave launch out, or take the backend cuda"
        raise BackendError("launch", f"auto, the only one of the backend {name}", repr(launch), fix)
    return launch


def _has_several(name: str) -> bool:
    """Whether an engine launches in several ways."""
    return "launch" in inspect.signature(import_module(ENGINES[name][0]).load).parameters


def load_engine(
    name: str, model: Model, *, debug: bool = False, precision: str = "fp32", launch: str = "auto"
) -> Engine:
    """Return an engine for a model; its kernels are made now, or when they are first needed.

    Args:
        name: of the engine, as `choose_engine` gives it.
        model: what it is to run.
        debug: whether it fills memory with NaN before each batch.
        precision: how it multiplies matrices of float32, one that `check_precision` lets pass.
        launch: how it launches, as `choose_launch` gives it.
    """
    others = {} if precision == "fp32" else {"precision": precision}
    others |= {"launch": launch} if _has_several(name) else {}
    loaded: Engine = _import(name).load(model, debug=debug, **others)
    return loaded


def planning_arithmetic(name: str) -> Arithmetic:
    """Return what an engine plans with: NumPy's functions in one of NumPy, else Numba's loops if installed.

    >>> planning_arithmetic("numpy") is NUMPY
    True
    """
    if name in PLAIN or not _works("numba"):
        return NUMPY
    arithmetic: Arithmetic = _import("numba").arithmetic()
    return arithmetic


def _import(name: str) -> Any:
    """Return an engine's module, where the machine has what it needs."""
    module, needed = ENGINES[name]
    imported = import_module(module)
    if hasattr(imported, "check"):
        imported.check()
    elif needed:
        try:
            import_module(needed)
        except ImportError as error:
            fix = f"pip install 'foldbatch[{needed}]', or take the backend numpy"
            expected = f"{needed.capitalize()} to be installed"
            raise BackendError(f"backend {name}", expected, str(error), fix) from None
    return imported


def _works(name: str) -> bool:
    """Whether ``auto`` may take an engine."""
    needed = ENGINES[name][1]
    if needed and find_spec(needed) is None:
        return False
    try:
        return bool(_import(name))
    except BackendError:
        return False
