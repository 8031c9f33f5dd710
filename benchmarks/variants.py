"""Who takes part beside us: peers by name, each in one or several variants, made when they are asked for.

A peer may run in an interpreter that has not even rich installed: this module and all that it imports
need NumPy alone until a variant is made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from benchmarks.by_hand import TorchByHand
from benchmarks.dynet_peer import DynetAutobatch, dynet_version
from benchmarks.flat import FlatTree
from benchmarks.jax_peer import JaxByLevel, jax_version
from benchmarks.peers import TorchByLevel, TorchPerNode, set_torch_threads, torch_version
from benchmarks.sequence_peer import TorchGRU, TorchLSTM
from benchmarks.task import Task

OURS = "foldbatch"


class Model(Protocol):
    """A model with parameters of its own that it trains."""

    def step(self, trees: Sequence[FlatTree]) -> float:
        """Train on a batch; return its mean loss before the update."""

    def loss(self, trees: Sequence[FlatTree]) -> float:
        """Return the mean loss of a batch, without learning from it."""

    def infer(self, trees: Sequence[FlatTree]) -> Any:
        """Return the logits of the roots: ``[trees, 5]``."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way in which a peer runs the model.

    Attributes:
        name: what it is called beside the peer's name.
        make: makes its model.
        set_threads: is called before it runs.
        batched: whether it gains anything from a batch; what does not is not run on large ones.
    """

    name: str
    make: Callable[[Task], Model]
    set_threads: Callable[[], None] = lambda: None
    batched: bool = True


@dataclass(frozen=True, slots=True)
class Peer:
    """A library that the model is written in.

    Attributes:
        title: its name in tables.
        version: returns its version; raises `BackendError` where it is not installed.
        variants: in which it runs.
        pooled: whether it takes all of its memory ahead, so that measuring it says nothing.
    """

    title: str
    version: Callable[[], str]
    variants: Callable[[], list[Variant]]
    pooled: bool = False


def _thread_counts() -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield numbers of threads in words, and what lets PyTorch use them: one, and one for each core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for threads in sorted({1, cores}):
        yield f"{threads} thread{'s' * (threads > 1)}", partial(set_torch_threads, threads)


def _torch() -> list[Variant]:
    found = []
    for used, set_threads in _thread_counts():
        found += [
            Variant(f"by level, autograd, {used}", _level, set_threads),
            Variant(f"by level, own backward, {used}", _by_hand, set_threads),
            Variant(f"by level, own backward, oneDNN, {used}", _by_hand_onednn, set_threads),
        ]
    return [*found, Variant("per node, 1 thread", _per_node, lambda: set_torch_threads(1), batched=False)]


def _torch_layer(model: Callable[..., Model], layer: str) -> list[Variant]:
    def make(task: Task) -> Model:
        return model(task.hidden, task.vocabulary_size, task.parameters)

    return [Variant(f"{layer}, packed, {used}", make, set_threads) for used, set_threads in _thread_counts()]


def _level(task: Task) -> Model:
    return TorchByLevel(task.hidden, task.vocabulary_size, task.parameters)


def _by_hand(task: Task) -> Model:
    return TorchByHand(task.hidden, task.vocabulary_size, task.parameters)


def _by_hand_onednn(task: Task) -> Model:
    return TorchByHand(task.hidden, task.vocabulary_size, task.parameters, onednn=True)


def _per_node(task: Task) -> Model:
    return TorchPerNode(task.hidden, task.vocabulary_size, task.parameters)


def _ours(task: Task) -> Model:
    from benchmarks.ours import OursOfFlat  # noqa: PLC0415 - needs all of the package

    return OursOfFlat(task.hidden, task.parameters)


def _our_version() -> str:
    import benchmarks.ours  # noqa: F401, PLC0415 - as above
    from benchmarks.inside import backend_name  # noqa: PLC0415 - needs all of the package

    backend_name("auto")  # so that its memory counts as imported
    return ""


def _dynet() -> list[Variant]:
    return [Variant("autobatch", lambda task: DynetAutobatch(task.hidden, task.parameters))]


def _jax() -> list[Variant]:
    name = "by level, padded, jitted"
    return [Variant(name, lambda task: JaxByLevel(task.hidden, task.parameters, task.batches))]


PEERS: dict[str, Peer] = {
    "torch": Peer("PyTorch", torch_version, _torch),
    "dynet": Peer("DyNet", dynet_version, _dynet, pooled=True),
    "jax": Peer("JAX", jax_version, _jax),
    OURS: Peer("foldbatch", _our_version, lambda: [Variant("", _ours)]),
    "torch-lstm": Peer("PyTorch", torch_version, partial(_torch_layer, TorchLSTM, "nn.LSTM")),
    "torch-gru": Peer("PyTorch", torch_version, partial(_torch_layer, TorchGRU, "nn.GRU")),
}
RIVALS = "torch", "dynet", "jax"  # those that run the model of trees
