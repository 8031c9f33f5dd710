"""Flat graphs, ``python -m benchmarks.graphs``: a gated graph network beside PyTorch's ``index_add``.

In: molecules, drawn: a chain of 10 to 30 atoms with branches and a few rings. A node adds up its neighbours'
states and takes a step of a GRU, four times; the sum of all states tells one of two classes (Li et al. 2016,
"Gated graph sequence neural networks", section 3). PyTorch's program is the usual one by hand: the graphs of
a batch are numbered as one, and a step is one ``index_add`` and one `GRUCell`. Both train with Adam.

CPU time of one process on one thread, by turns. *New* graphs are Python lists when the clock starts; *ready*
ones are prepared (`Program.prepare`), or tensors.
"""

from __future__ import annotations

import random
import time
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from itertools import product
from statistics import median
from typing import Any

import numpy as np

import foldbatch as fb
from benchmarks.options import add_backend, add_repeats, positive
from foldbatch.errors import FoldbatchError

STEPS, KINDS, CLASSES = 4, 10, 2


def molecule(draw: random.Random) -> dict[str, Any]:
    """Return a graph: ``atoms``, the ``edges`` of each to its neighbours, and a ``label``."""
    count = draw.randint(10, 30)
    pairs = [(i, draw.randrange(max(0, i - 3), i)) for i in range(1, count)]
    pairs += [(i, j) for i, j in (draw.sample(range(count), 2) for _ in range(count // 6))]
    edges: list[list[int]] = [[] for _ in range(count)]
    for i, j in pairs:
        edges[i].append(j)
        edges[j].append(i)
    return {"atoms": draw.choices(range(KINDS), k=count), "edges": edges, "label": draw.randrange(CLASSES)}


def network(size: int) -> Callable[[dict[str, Any]], Any]:
    """Return the network as a function of one graph."""
    embed, message = fb.Embedding(KINDS, size, name="embed"), fb.Linear(size, name="message")
    step, classify = fb.GRUCell(size, name="step"), fb.Linear(CLASSES, name="classify")

    @fb.cell
    def first(kind: Any) -> Any:
        return embed(kind)

    @fb.cell
    def update(own: Any, neighbours: Any) -> Any:
        return step(message(fb.ops.segment_sum(neighbours)), own)[0]

    @fb.cell
    def score(states: Any, label: Any) -> Any:
        scores = classify(fb.ops.segment_sum(states))
        fb.loss(fb.ops.cross_entropy(scores, label))
        return scores

    def graph(given: dict[str, Any]) -> Any:
        states = [first(kind) for kind in given["atoms"]]
        for _ in range(STEPS):
            near = [[states[j] for j in edges] for edges in given["edges"]]
            states = [*map(update, states, near)]
        return score(states, given["label"])

    return graph


class ByHand:
    """The same in PyTorch, with the parameters that a program begins with."""

    def __init__(self, params: Mapping[str, Any], size: int) -> None:
        import torch  # noqa: PLC0415 - optional

        torch.set_num_threads(1)
        self.torch = torch
        self.embed, self.message = torch.nn.Embedding(KINDS, size), torch.nn.Linear(size, size)
        self.step, self.classify = torch.nn.GRUCell(size, size), torch.nn.Linear(size, CLASSES)
        values = {name: np.array(params[name]) for name in params}
        n, r, z = np.split(np.arange(3 * size), 3)
        gates = np.concatenate([r, z, n])  # the order of PyTorch
        zeros = np.zeros(2 * size, "float32")
        own = [values["embed.weight"], values["message.weight"].T, values["message.bias"]]
        own += [values["step.weight"][:, gates].T, values["step.recurrent"][:, gates].T]
        own += [values["step.bias"][gates], np.concatenate([zeros, values["step.recurrent_bias"]])]
        own += [values["classify.weight"].T, values["classify.bias"]]
        parts = (self.embed, self.message, self.step, self.classify)
        self.parameters = [parameter for part in parts for parameter in part.parameters()]
        for parameter, value in zip(self.parameters, own, strict=True):
            parameter.data = torch.tensor(value)
        self.optimizer = torch.optim.Adam(self.parameters)

    def flat(self, graphs: list[dict[str, Any]]) -> tuple[Any, ...]:
        """Return a batch as tensors: atoms, both ends of edges, the graph of each atom, labels."""
        atoms: list[int] = []
        ends: list[int] = []
        begins: list[int] = []
        owners: list[int] = []
        for number, graph in enumerate(graphs):
            first = len(atoms)
            for i, edges in enumerate(graph["edges"]):
                begins += [first + j for j in edges]
                ends += [first + i] * len(edges)
            atoms += graph["atoms"]
            owners += [number] * len(graph["atoms"])
        lists = atoms, begins, ends, owners, [graph["label"] for graph in graphs]
        return tuple(map(self.torch.tensor, lists))

    def loss(self, atoms: Any, begins: Any, ends: Any, owners: Any, labels: Any) -> Any:
        """Return the sum of the losses of a batch."""
        torch, h = self.torch, self.embed(atoms)
        for _ in range(STEPS):
            h = self.step(self.message(torch.zeros_like(h).index_add(0, ends, h[begins])), h)
        total = torch.zeros(len(labels), h.shape[1]).index_add(0, owners, h)
        return torch.nn.functional.cross_entropy(self.classify(total), labels, reduction="sum")

    def train(self, batch: tuple[Any, ...]) -> float:
        """Take a step, and return the loss before it."""
        self.optimizer.zero_grad()
        loss = self.loss(*batch)
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())


def compared(size: int, batch: int, repeats: int, backend: Any) -> dict[str, tuple[float, float]]:
    """Return ours and PyTorch's CPU milliseconds of a training step, of new graphs and of ready ones.

    Raises:
        AssertionError: when the losses of the first step are not equal.
    """
    draw = random.Random(0)  # noqa: S311 - no secrets
    batches = [[molecule(draw) for _ in range(batch)] for _ in range(4)]
    program, optimizer = fb.compile(network(size), backend, threads=1), fb.Adam(lr=1e-3)
    program.warm(batches[0])
    peer = ByHand(program.params, size)

    def train(examples: Any) -> float:
        loss, gradients = program.value_and_grad(examples)
        optimizer.update(program.params, gradients)
        return loss

    flats = [*map(peer.flat, batches)]
    np.testing.assert_allclose(train(batches[0]), peer.train(flats[0]), rtol=1e-4)
    prepared = [program.prepare(each) for each in batches]
    rows: dict[str, tuple[float, float]] = {}
    given: Any
    theirs: Any
    for what, given, theirs in (("new", batches, _read), ("ready", prepared, ByHand.train)):
        spent: tuple[list[float], list[float]] = ([], [])
        for k in [*range(len(batches))] * repeats:
            start = time.process_time()
            train(given[k])
            between = time.process_time()
            theirs(peer, batches[k] if what == "new" else flats[k])
            spent[0].append(1e3 * (between - start))
            spent[1].append(1e3 * (time.process_time() - between))
        rows[what] = median(spent[0]), median(spent[1])
    return rows


def _read(peer: ByHand, graphs: Any) -> float:
    return peer.train(peer.flat(graphs))


def main() -> None:
    """Print a line for each size of states and batch."""
    parser = ArgumentParser("python -m benchmarks.graphs", description=__doc__.split("\n")[0])
    add_backend(parser)
    add_repeats(parser, 5)
    parser.add_argument("--hidden", type=positive, nargs="+", default=[32, 64, 128], help="sizes of states")
    parser.add_argument("--batch", type=positive, nargs="+", default=[16, 64], help="sizes of batches")
    options = parser.parse_args()
    print("hidden  batch  graphs  ours, ms  PyTorch, ms  ratio")
    try:
        for size, batch in product(options.hidden, options.batch):
            for what, (ours, theirs) in compared(size, batch, options.repeats, options.backend).items():
                print(f"{size:6}{batch:7}  {what:6}{ours:10.1f}{theirs:13.1f}{theirs / ours:7.2f}")
    except ModuleNotFoundError as error:
        parser.exit(1, f"error: {error}: expected PyTorch; pip install -e '.[torch]'\n")
    except FoldbatchError as error:
        parser.exit(1, f"error: {error}\n")


if __name__ == "__main__":
    main()
