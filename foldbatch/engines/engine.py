"""The protocol of an engine: it makes kernels of a Model once, and runs batches of it.

`ENGINES` is the table of all engines; a new one is a module with a `Backend` called ``BACKEND``, which
says all that is to be known before there is an engine, and one line here.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from foldbatch.engines.batch import ScheduledBatch
from foldbatch.engines.report import Captures
from foldbatch.engines.watching import Watch
from foldbatch.errors import BackendError, UnknownNameError, frames_inside, install
from foldbatch.loops.compiling import can_compile
from foldbatch.model.model import Model
from foldbatch.model.small_batches import Round, SmallBatch, SmallRun
from foldbatch.params.parameters import Array, Gradient, Parameter, RemoteUpdates, Updates
from foldbatch.planning.policies import COMPILED, Costs
from foldbatch.static.routines import Target

Memory = TypeVar("Memory")
Ready = TypeVar("Ready")
Cotangents = Sequence[tuple[int, Array]]  # numbers of values, each with its cotangent


class Run(Protocol):
    """A batch under way, or done."""

    @property
    def within(self) -> Callable[[], AbstractContextManager[object]]:
        """Context manager entered when a pending number is read; it adds block names to errors."""

    @property
    def launches(self) -> int:
        """Kernels launched so far."""

    @property
    def metrics(self) -> Mapping[tuple[int, int], Array]:
        """By cell and number, ``[n, *shape]``, by rank."""

    @property
    def inputs(self) -> Mapping[tuple[int, int], Array]:
        """After backward, the gradients of data where cells yield them: by cell and feed, ``[n, *shape]``."""

    def loss_sums(self) -> Mapping[tuple[int, int], float]:
        """Return the sum over the batch of each loss, by cell and number; see `foldbatch.engines.pending`.

        Where they are pending, reading one may raise what `Engine.forward` raises.
        """

    def fetch(self, numbers: Sequence[int]) -> list[Array]:
        """Return copies of values, by their numbers in the batch."""

    def take(self, arena: int, numbers: NDArray[np.int64]) -> Array:
        """Return copies of values of an arena, by their numbers in the batch ``[n]``: ``[n, *shape]``."""

    def backward(self, cotangents: Cotangents = ()) -> dict[Parameter, Gradient]:
        """Return the gradients of parameters: of all losses, and of the values with cotangents given."""


class Capturing(Protocol):
    """Runs batches by captured graphs, and learns their capacities from the batches that it has seen."""

    def learn(self) -> None:
        """Learn capacities from the batches that were made ready."""

    def captures(self) -> Captures:
        """Return the capacity classes so far, and how many batches fitted into them."""


class EngineOf(Protocol[Memory, Ready]):
    """A model's kernels, and what runs them; what has a default here is for engines without kernels.

    `Memory` is the class of what its batches run in, and `Ready` that of batches made ready for it.
    """

    name: str  # in `ENGINES`
    target: Target  # what its kernels can do
    gpu: str = ""  # what tells its GPU from all others, also of other machines; empty where it has none
    one_by_one: bool = False  # whether each example is a batch of its own
    splits: int = 0  # how many times the usual calls are worth a thread of their own; 0 where no batch is cut
    helped: bool = False  # whether another core may help with a batch that is not cut; set before it runs
    costs: Costs = COMPILED  # what its steps cost, and planning them
    # steps of optimizers, compiled or on a device; None where there are none
    updates: Updates | RemoteUpdates | None = None

    def sum_copies(self, dtype: str, /) -> Callable[..., None] | None:
        """Return a function that sums rows of equal id (see `sums.total`); None for NumPy's way."""
        return None

    def memory(self) -> Memory:
        """Return memory for batches that run one after the other."""

    def limit_memory(self, memory: Memory, nbytes: int, *, training: bool) -> None:
        """Let memory grow to so many bytes at most, and free what it holds for the other phase.

        The caller has seen to it that batches need no more (`nbytes`); without a call memory grows ahead.
        """
        return

    def ready(self, batch: ScheduledBatch, *, training: bool) -> Ready:
        """Return a scheduled batch as the engine runs it: without parameters, data and memory."""

    def forward(self, ready: Ready, feeds: Sequence[Sequence[Array]], memory: Memory) -> Run:
        """Compute all values, losses and metrics of a batch that `ready` has made, in what `memory` made.

        Feeds are the examples' data by rank, per cell and feed.

        Raises:
            OutOfRangeError: when a computed id is out of range; see `foldbatch.engines.launch`. An engine
                that does not wait for a device raises it when a loss, a metric or a value is read.
        """

    def expect(self, run: Run, numbers: Sequence[int]) -> bool:
        """Note values that will be fetched of a run, by their numbers in the batch.

        Returns:
            Whether they may be fetched after the backward pass, and are better: both passes are then launched
            together. Else a backward pass spoils them.
        """
        return False

    def run_small(
        self,
        memory: Memory,
        notes: SmallBatch | Round,
        asides: Collection[str] = (),
        *,
        training: bool = False,
    ) -> SmallRun | None:
        """Run a small batch of inference, or a round, from its notes; None where a schedule must run it.

        This alone decides which batches are small, and whether the engine can run them. Nothing that the
        notes hold has changed where it returns None.

        Args:
            memory: made by `memory`.
            notes: the notes of all examples of the batch.
            asides: which of ``losses`` and ``metrics`` are asked for.
            training: whether a round computes as in training.
        """
        return None

    def wait(self) -> None:
        """Wait until a device has done what was launched; elsewhere it is done."""
        return

    def launched(self, ready: Ready) -> tuple[int, int]:
        """Return how many kernels a batch calls forward and backward, each once a level."""
        return 0, 0

    def nbytes(self, ready: Ready) -> int:
        """Return the bytes of memory that a batch needs, of which `ready` made this."""
        return 0

    def source(self, cells: Collection[int]) -> str:
        """Return the kernels of some cells as text, for people to read."""
        return ""

    def watch(self) -> AbstractContextManager[Watch]:
        """Return a context manager that collects, while batches run, the times of their kernels."""
        return nullcontext(Watch())

    def launcher(self, *, training: bool) -> Capturing | None:
        """Return the object that captures batches of a phase as graphs; None if the engine has none."""
        return None


# An engine of any kind; `LoadedEngine` is one to those that run batches, which pass on what it has made.
Engine: TypeAlias = EngineOf[Any, Any]
LoadedEngine: TypeAlias = EngineOf[object, object]


class EngineSettings(NamedTuple):
    """Settings that an engine is loaded with."""

    debug: bool = False  # whether memory is filled with NaN before each batch
    precision: str = "fp32"  # how matrices of float32 are multiplied, one of its backend's
    launch: str = "auto"  # how kernels are launched, one of its backend's
    # how small batches are planned, as any other: the policy, the layout, and whether examples run together
    policy: str = "by_component"
    layout: str = "consumer"
    batched: bool = True
    bounded: bool = False  # whether the memory of a batch is bounded, which a plan must see to
    helped: bool = False  # whether another core may help with a small batch
    # the device that it computes on, of an engine that can be given one; None for the engine's own choice
    device: Any = None


DEFAULTS = EngineSettings()


@dataclass(frozen=True, slots=True)
class Backend:
    """How engines of one kind are made, and what they can do."""

    load: Callable[[Model, EngineSettings], Engine]  # makes the engine of a model
    # raises a `BackendError` that says what the machine lacks, where that is more than a package
    check: Callable[[], object] | None = None
    precisions: tuple[str, ...] = ("fp32",)  # those that it has, of `PRECISIONS`
    launches: tuple[str, ...] = ("auto",)  # the ways to launch that it has, of `LAUNCHES`
    # raises a `BackendError` that says what the machine lacks for a precision
    suits: Callable[[str], object] | None = None


# By name, the module that has `BACKEND`, and what must be installed for it.
ENGINES: dict[str, tuple[str, str]] = {
    "cuda": ("foldbatch.engines.cuda", "cupy"),
    "llvm": ("foldbatch.engines.llvm", "llvmlite.binding"),
    "numpy": ("foldbatch.engines.numpy", ""),
    "reference": ("foldbatch.engines.reference", ""),
}
RENAMED = {"numba": "llvm"}  # for one release, with a warning
VARIABLE = "FOLDBATCH_BACKEND"  # of the environment: what the backend ``auto`` is
LAUNCH_VARIABLE = "FOLDBATCH_LAUNCH"  # what the launch ``auto`` is, of backends that have several
Precision: TypeAlias = Literal["fp32", "tf32", "bf16", "3xtf32", "mixed"]
PRECISIONS = get_args(Precision)
Launch: TypeAlias = Literal["auto", "straight", "captured"]  # how a batch's kernels are launched
LAUNCHES = get_args(Launch)


def choose_engine(name: str) -> str:
    """Return the name of an engine that this machine can run.

    ``auto`` is the engine that the variable `VARIABLE` of the environment names. Where that is not set, it is
    ``llvm``; where this process cannot compile, it is ``numpy``, and a `SlowPathWarning` says so once. A GPU
    is used only where its engine is named.

    Raises:
        UnknownNameError: when there is none of that name.
        BackendError: when what it needs is not installed, or cannot be imported.
    """
    where = "backend"
    if name == "auto":
        where, name = VARIABLE, os.environ.get(VARIABLE) or "auto"
    if name == "auto":
        return "llvm" if can_compile() else "numpy"
    if name in list(RENAMED):
        new = RENAMED[name]
        warnings.warn(f"{where}: {name} is called {new} now", DeprecationWarning, stacklevel=frames_inside())
        name = new
    if name not in list(ENGINES):  # what cannot be hashed is no name either
        raise UnknownNameError(where, f"one of {', '.join(['auto', *ENGINES])}", repr(name))
    _import(name)
    return name


def check_precision(precision: str, name: str) -> None:
    """Refuse a precision that a backend does not compute in.

    Raises:
        UnknownNameError: when there is none of that name.
        BackendError: when the backend has others only, or the machine lacks what it needs.
    """
    if precision not in PRECISIONS:
        raise UnknownNameError("precision", f"one of {', '.join(PRECISIONS)}", repr(precision))
    backend = _backend(name)
    _refuse_missing("precision", precision, backend.precisions, name)
    if backend.suits is not None:
        backend.suits(precision)


def choose_launch(launch: str, name: str) -> str:
    """Return how a backend is to launch; ``auto`` is what `LAUNCH_VARIABLE` of the environment names.

    Raises:
        UnknownNameError: when there is no such way.
        BackendError: when the backend launches in one way only.
    """
    has, named = _backend(name).launches, os.environ.get(LAUNCH_VARIABLE) or "auto"
    for where, value in ("launch", launch), (LAUNCH_VARIABLE, named):
        if value not in LAUNCHES:
            raise UnknownNameError(where, f"one of {', '.join(LAUNCHES)}", repr(value))
    if launch == "auto" and len(has) > 1:
        launch = named
    _refuse_missing("launch", launch, has, name)
    return launch


def choose_straight(launch: str, name: str) -> str:
    """Return the way to launch where memory is bounded: kernel by kernel.

    A graph has room for the largest batch of its class.

    Raises:
        UnknownNameError: when there is no such way.
        BackendError: when graphs are asked for, or the backend does not have the way.
    """
    choose_launch(launch, name)
    if launch == "captured":
        expected, fix = "straight or auto where the option memory is set", "leave one of them out"
        raise BackendError("launch", expected, "'captured'", fix)
    return "straight" if "straight" in _backend(name).launches else launch


def _refuse_missing(option: str, asked: str, has: Sequence[str], name: str) -> None:
    """Raise an error if a backend does not have the value of an option that was asked for."""
    if asked not in has:
        fix = f"leave {option} out, or take the backend cuda"
        expected = f"{' or '.join(has)}, the only one{'s' * (len(has) > 1)} of the backend {name}"
        raise BackendError(option, expected, repr(asked), fix)


def load_engine(name: str, model: Model, settings: EngineSettings = DEFAULTS) -> Engine:
    """Return an engine for a model, by its name; its kernels are made now, or when they are first needed."""
    _import(name)
    return _backend(name).load(model, settings)


def _backend(name: str) -> Backend:
    backend: Backend = import_module(ENGINES[name][0]).BACKEND
    return backend


def _import(name: str) -> Any:
    """Return an engine's module, where the machine has what it needs."""
    module, needed = ENGINES[name]
    imported = import_module(module)
    if (check := imported.BACKEND.check) is not None:
        check()
    elif needed:
        try:
            import_module(needed)
        except (ImportError, OSError) as error:  # its library may find no room
            fix = f"{install(name)}, or take the backend numpy"
            expected = f"{needed.partition('.')[0]} to be installed"
            raise BackendError(f"backend {name}", expected, str(error), fix) from None
    return imported
