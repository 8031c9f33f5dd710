"""The case ``sst``: what batching gains on the SST Tree-LSTM, and how PyTorch fares beside it.

Everything is measured in one process, in turn. A training step is loss, gradients and Adam's
update (rows of the embedding sparsely), with traces cached, as from the second epoch on; the
seconds of tracing are reported apart. The peer starts from flat arrays of each tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from foldbatch.bench.by_hand import TorchByHand
from foldbatch.bench.flat import FlatTree
from foldbatch.bench.measure import Timing, interleave
from foldbatch.bench.peers import TorchByLevel, set_torch_threads, torch_version
from foldbatch.bench.workload import tree_lstm
from foldbatch.engine import backend_of
from foldbatch.errors import BackendError, FoldbatchError
from foldbatch.params import Gradient
from foldbatch.program import Program, compile
from foldbatch.runtime.threads import available_cores
from foldbatch.train import LazyAdam, scale
from foldbatch.trees import Tree, Vocabulary

TOLERANCE = 1e-4  # relative difference of losses above which a peer is not the same model


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run of the benchmark found; seconds are medians.

    Attributes:
        options: hidden, batch, repeats, backend.
        trees: number of trees in the batch, `nodes` all their nodes.
        timings: seconds per batch (``train``, ``infer``), per tree one at a time (``train_one``,
            ``infer_one``), and per batch of each peer (its name, then ``train`` or ``infer``).
        phases: seconds of each phase of a training step.
        trace_seconds: tracing the batch when it is first seen.
        report: `Program.describe` of the batch.
        peers: what the peers are called.
        no_peers: why there are none.
    """

    options: dict[str, Any]
    trees: int
    nodes: int
    timings: dict[str, Timing]
    phases: dict[str, float]
    trace_seconds: float
    report: str
    peers: tuple[str, ...]
    no_peers: str

    def rate(self, name: str) -> float:
        """Return trees per second."""
        count = 1 if name.endswith("_one") else self.trees
        return count / self.timings[name].median

    def best_peer(self, task: str) -> str:
        """Return the name of the peer that is fastest at a task."""
        return max(self.peers, key=lambda peer: self.rate(f"{peer} {task}"))

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data, with trees per second."""
        return asdict(self) | {"trees_per_second": {name: self.rate(name) for name in self.timings}}


class Step:
    """A training step of our own: loss, gradients, update."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.optimizer = LazyAdam(lr=1e-3)

    def __call__(self, trees: Sequence[Tree]) -> float:
        """Train on a batch; return its mean loss."""
        loss, gradients = self.program.value_and_grad(trees)
        self.update(gradients, len(trees))
        return loss / len(trees)

    def update(self, gradients: dict[str, Gradient], count: int) -> None:
        """Update the parameters by the gradient of the mean loss over `count` trees."""
        self.optimizer.update(self.program.params, scale(gradients, 1.0 / count))


def run(
    trees: Sequence[Tree], hidden: int, repeats: int, *, peers: bool = True, backend: str = "auto"
) -> Outcome:
    """Measure one batch of trees on a backend of ours (see `foldbatch.compile`).

    Raises:
        FoldbatchError: when the peer computes another loss, which would make the comparison void.
    """
    vocabulary = Vocabulary.count(word for tree in trees for word in tree.words())
    program = compile(tree_lstm(hidden, vocabulary), backend)
    step = Step(program)
    cold = program.describe(list(trees)).phases["trace"]
    singles = [trees[i % len(trees)] for i in range(16)]
    tasks: dict[str, Any] = {
        "train": lambda: step(trees),
        "train_one": lambda: [step([tree]) for tree in singles],
        "infer": lambda: program.run(trees),
        "infer_one": lambda: [program.run([tree]) for tree in singles],
    }
    variants, no_peers = _peers(program, trees, vocabulary, hidden) if peers else ({}, "not asked for")
    for name, variant in variants.items():
        tasks |= {f"{name} train": variant.train, f"{name} infer": variant.infer}
    timings = interleave(tasks, repeats, warmup=2)
    for name in ("train_one", "infer_one"):
        t = timings[name]
        count = len(singles)
        timings[name] = Timing(t.median / count, t.low / count, t.high / count, t.runs)
    phases = _phases(program, step, trees, repeats)
    nodes = sum(tree.size for tree in trees)
    chosen = backend_of(backend).name
    options = {"hidden": hidden, "batch": len(trees), "repeats": repeats, "backend": chosen}
    report = str(program.describe(list(trees)))
    return Outcome(options, len(trees), nodes, timings, phases, cold, report, tuple(variants), no_peers)


@dataclass(frozen=True, slots=True)
class _Variant:
    """A peer with a number of threads."""

    model: TorchByLevel | TorchByHand
    trees: list[FlatTree]
    threads: int

    def train(self) -> None:
        """Take a training step."""
        set_torch_threads(self.threads)
        self.model.step(self.trees)

    def infer(self) -> None:
        """Compute the roots' scores."""
        set_torch_threads(self.threads)
        self.model.infer(self.trees)


def _peers(
    program: Program, trees: Sequence[Tree], vocabulary: Vocabulary, hidden: int
) -> tuple[dict[str, _Variant], str]:
    """Return PyTorch's models with our parameters, on one thread and on all; or why there are none."""
    names = {name.replace(".weight", "_weight").replace(".bias", "_bias"): name for name in program.params}
    parameters = {peer: np.array(program.params[name]) for peer, name in names.items()}
    parameters["embedding"] = parameters.pop("embedding_weight")
    flat = [_flat(tree, vocabulary) for tree in trees]
    ours = program.value_and_grad(trees)[0] / len(trees)
    variants: dict[str, _Variant] = {}
    try:
        for label, kind in (("autograd", TorchByLevel), ("own backward", TorchByHand)):
            for threads in sorted({1, available_cores()}):
                model = kind(hidden, len(vocabulary), parameters)
                theirs = model.loss(flat)
                if abs(ours - theirs) > TOLERANCE * abs(ours):
                    where = f"bench sst, PyTorch by level, {label}"
                    raise FoldbatchError(where, f"a loss of {ours:.6f}", f"{theirs:.6f}", "the models differ")
                name = f"PyTorch {torch_version()} by level, {label}, {threads} thread{'s' * (threads > 1)}"
                variants[name] = _Variant(model, flat, threads)
    except BackendError as error:
        return {}, str(error)
    return variants, ""


def _flat(tree: Tree, vocabulary: Vocabulary) -> FlatTree:
    words = [-1 if token is None else vocabulary[token] for token in tree.tokens]
    return FlatTree(np.asarray(tree.parents), np.array(tree.labels), np.array(words))


def _phases(program: Program, step: Step, trees: Sequence[Tree], repeats: int) -> dict[str, float]:
    """Return the median seconds of each phase of a training step."""
    found: dict[str, list[float]] = {}
    batch = list(trees)
    _, gradients = program.value_and_grad(batch)
    for _ in range(repeats):
        for name, seconds in program.describe(batch).phases.items():
            found.setdefault(name, []).append(seconds)
    update = interleave({"update": lambda: step.update(gradients, len(batch))}, repeats)["update"]
    return {name: float(np.median(seconds)) for name, seconds in found.items()} | {"update": update.median}
