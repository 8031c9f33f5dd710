"""Who takes part: models as our blocks, each with what PyTorch has beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.by_hand import TorchByHand
from benchmarks.flat import FlatTree
from benchmarks.gpu.torch_graph import TorchCaptured
from benchmarks.gpu.torch_models import TorchChildSum, TorchTagger
from benchmarks.inside import backend_name, device_of
from benchmarks.peers import Array, TorchByLevel, TorchPeer, TorchPerNode, import_torch
from benchmarks.workload import tree_lstm, unseen
from benchmarks.zoo_models import child_sum, dependencies, tagger
from foldbatch import Block, Program, compile
from foldbatch.train import LazyAdam
from foldbatch.trees import Tree, Vocabulary
from foldbatch.types import BackendName

SST = "SST Tree-LSTM"
PRECISIONS = "fp32", "tf32", "bf16", "3xtf32"
Flat = Sequence[FlatTree]


@dataclass(frozen=True, slots=True)
class Model:
    """A model that both sides have.

    Attributes:
        block: ours, for a size of states, a vocabulary and a dtype.
        names: of parameters whose names peers do not make of ours by dropping what stands before the first
            dot.
        example: what the model reads of a tree.
        peers: by level and otherwise, what makes a peer of the size, the number of words and parameters.
    """

    block: Callable[[int, Vocabulary, str], Block[Any, Any]]
    names: Mapping[str, str]
    example: Callable[[Tree], Tree]
    peers: Mapping[str, Callable[..., TorchPeer]] = field(default_factory=dict)


def _in_float32(block: Callable[[int, Vocabulary], Block[Any, Any]], *arguments: Any) -> Block[Any, Any]:
    hidden, vocabulary, dtype = arguments
    assert dtype == "float32", dtype
    return block(hidden, vocabulary)


_WORDS = {"words.weight": "embedding", "linear.weight": "out_weight", "linear.bias": "out_bias"}
_STEPS = {
    f"{way}.{name}": f"{way}_{name}" for way in ("there", "back") for name in ("weight", "recurrent", "bias")
}
_GATES = {
    f"{cell}.{name}": f"{cell}_{name}" for cell in ("leaf", "node", "out") for name in ("weight", "bias")
}
MODELS = {
    SST: Model(
        tree_lstm,
        {"embedding.weight": "embedding", **_GATES},
        lambda tree: tree,
        {
            "by level, autograd": TorchByLevel,
            "by level, own backward": TorchByHand,
            "node by node": TorchPerNode,
        },
    ),
    "child-sum Tree-LSTM": Model(
        partial(_in_float32, child_sum), _WORDS, dependencies, {"by level, autograd": TorchChildSum}
    ),
    "BiLSTM tagger": Model(
        partial(_in_float32, tagger),
        {**_WORDS, **_STEPS},
        lambda tree: tree,
        {"cuDNN, autograd": TorchTagger},
    ),
}


class OurModel:
    """A model of ours, with what its peers need to compute the same.

    Args:
        model: which one.
        hidden: size of its states and embedding.
        words: rows of the embedding; trees' words are w0, w1, ...
        backend: see `foldbatch.compile`.
        precision: of products, one of `PRECISIONS`.
        dtype: of all numbers.
        engine: how its kernels are launched, see `foldbatch.compile`.

    Raises:
        BackendError: when the backend cannot be had, or not in that precision.
    """

    def __init__(
        self,
        model: Model,
        hidden: int,
        words: int,
        backend: BackendName,
        precision: Any = "fp32",
        dtype: str = "float32",
        engine: Any = "auto",
    ) -> None:
        self.model, self.backend, self.engine = model, backend_name(backend), engine
        self.vocabulary = Vocabulary([f"w{i}" for i in range(1, words)], unknown="w0")
        block = model.block(hidden, self.vocabulary, dtype)
        self.program = compile(block, backend, launch=engine, options={"precision": precision})
        self.optimizer = LazyAdam(lr=1e-3)

    def step(self, examples: Any, count: int) -> Any:
        """Train on a batch of `count` examples; return its summed loss, for which nobody has waited."""
        loss, gradients = self.program.value_and_grad(examples)
        self.optimizer.update(self.program.params, gradients, scale=1.0 / count)
        return loss

    def infer(self, examples: Any) -> list[Any]:
        """Return the results of a batch, on the host. No losses are computed."""
        return list(self.program.run(examples))

    def loss(self, examples: Sequence[Tree]) -> float:
        """Return the mean loss of a batch, without learning from it."""
        return float(self.program.value_and_grad(examples)[0]) / len(examples)

    def parameters(self) -> dict[str, Array]:
        """Return copies of the parameters by the names that peers have for them."""
        return {self.peers_name(name): np.array(self.program.params[name]) for name in self.program.params}

    def peers_name(self, name: str) -> str:
        """Return what peers call a parameter of ours."""
        return self.model.names.get(name, name.rpartition(".")[2])

    def flat(self, tree: Tree) -> FlatTree:
        """Return an example as peers read it."""
        words = [-1 if token is None else self.vocabulary[token] for token in tree.tokens]
        labels = [0 if label is None else label for label in tree.labels]
        return FlatTree(np.asarray(tree.parents), np.array(labels), np.array(words))


def launch_due(program: Program) -> None:
    """Launch the last training step, where the engine puts it off until somebody needs it."""
    device = device_of(program)
    if device is not None:
        device.flush()


@dataclass(frozen=True, slots=True)
class Contender:
    """Who takes part; batches are named by number.

    Attributes:
        name: in tables.
        loss: returns the mean loss of a batch.
        step: trains on a batch, and waits for nothing.
        infer: returns the results of a batch.
        before: what is to be done before each run of all batches, and is not timed.
    """

    name: str
    loss: Callable[[int], float]
    step: Callable[[int], object]
    infer: Callable[[int], object]
    before: Callable[[], object] = lambda: None


def our_contenders(
    ours: OurModel, batches: Sequence[Sequence[Tree]], precision: Any = "fp32"
) -> list[Contender]:
    """Return us three times: on trees whose traces are kept, on new trees, and on batches planned before.

    The first is as from the second epoch on, the last as when the same batches come again.
    """
    fresh: list[Any] = list(batches)
    planned: list[Any] = []

    def renew() -> None:
        fresh[:] = [unseen(trees) for trees in batches]

    def plan() -> None:
        planned[:] = planned or [ours.program.plan(trees) for trees in batches]

    def contender(name: str, of: Sequence[Any], before: Callable[[], object]) -> Contender:
        def step(k: int) -> None:
            ours.step(of[k], len(batches[k]))
            if k == len(batches) - 1:
                launch_due(ours.program)

        return Contender(
            f"foldbatch{name}{_suffix(precision)}",
            lambda k: ours.loss(batches[k]),
            step,
            lambda k: ours.infer(of[k]),
            before,
        )

    kinds = (("", batches, lambda: None), (", new trees", fresh, renew), (", planned before", planned, plan))
    return [contender(*kind) for kind in kinds]


def our_ways(
    ways: Mapping[str, OurModel], batches: Sequence[Sequence[Tree]], precision: Any = "fp32"
) -> list[Contender]:
    """Return us once for each way to launch a step, on trees whose traces are kept.

    Args:
        ways: our model by engine, see `benchmarks.gpu.ways.ways_of`.
        batches: that are run.
        precision: of products.
    """
    return [
        replace(our_contenders(ours, batches, precision)[0], name=f"foldbatch, {engine}{_suffix(precision)}")
        for engine, ours in ways.items()
    ]


def _suffix(precision: str) -> str:
    return "" if precision == "fp32" else f", {precision}"


def torch_contender(name: str, peer: TorchPeer, batches: Sequence[Any], precision: Any = "fp32") -> Contender:
    """Return a peer; it multiplies in TF32 if `precision` says so."""

    def run(method: Callable[[Any], Any]) -> Callable[[int], Any]:
        def do(k: int) -> Any:
            set_precision(peer.torch, precision)
            return method(batches[k])

        return do

    return Contender(
        f"PyTorch {name}{_suffix(precision)}", run(peer.loss), run(peer.advance), run(peer.infer)
    )


def set_precision(torch: Any, precision: str) -> None:
    """Let PyTorch multiply matrices of float32 in TF32, or strictly: cuDNN would not by default."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"


def captured_contenders(
    ours: OurModel, hidden: int, batches: Sequence[Flat], device: str, precision: Any = "fp32"
) -> list[Contender]:
    """Return the peer that is one CUDA graph a batch, on flat trees and on batches planned before."""
    parameters = ours.parameters()
    set_precision(import_torch(), precision)  # a graph multiplies for ever as when it was captured
    peer = TorchCaptured(hidden, len(parameters["embedding"]), parameters, batches, device=device)
    graph, planned = (f"by level, CUDA graph{more}" for more in ("", ", planned before"))
    return [
        torch_contender(graph, peer, batches, precision),
        torch_contender(planned, peer, [peer.planned(trees) for trees in batches], precision),
    ]
