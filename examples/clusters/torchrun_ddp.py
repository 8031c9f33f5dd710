"""The largest number of a nest, by a recursive model that several processes train: torchrun and DDP.

    torchrun --standalone --nproc-per-node 2 examples/clusters/torchrun_ddp.py

Each process, a rank, reads its part of every batch. DistributedDataParallel adds the gradients, so all ranks
take the same step. Other numbers of processes compute the same, to rounding.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import torch
from torch import distributed
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

import foldbatch as fb

SIZE, BATCH = 32, 64


def nest(draws: random.Random, depth: int = 3) -> Any:
    """Return numbers in nested pairs, such as ``((3, 8), 1)``."""
    if depth == 0 or (depth < 3 and draws.random() < 0.3):
        return draws.randrange(10)
    return (nest(draws, depth - 1), nest(draws, depth - 1))


def largest(example: Any) -> int:
    """Return the largest number of a nest."""
    return max(map(largest, example)) if isinstance(example, tuple) else example


def is_pair(example: Any) -> bool:
    """Return whether a nest is a pair, and not a number."""
    return isinstance(example, tuple)


def state() -> fb.Block:
    """Return the block that makes a vector of a nest, whatever its shape."""
    tree = fb.ForwardDeclaration(output_type=SIZE, name="tree")
    number = fb.Scalar("int32") >> fb.Embedding(10, SIZE, name="numbers")
    pair = fb.Record((tree(), tree())) >> fb.Concat() >> fb.Linear(SIZE, "tanh", name="pair")
    tree.resolve_to(fb.OneOf(is_pair, {False: number, True: pair}))
    return tree()


class Model(torch.nn.Module):
    """The block, and a layer of PyTorch on top of it."""

    def __init__(self) -> None:
        super().__init__()
        self.state = fb.torch.Module(state(), threads=1)  # ranks of one machine share its cores
        self.classify = torch.nn.Linear(SIZE, 10)

    def forward(self, nests: Any) -> torch.Tensor:
        """Return the logits of a batch."""
        return self.classify(self.state(nests))

    def collate(self, nests: Any) -> tuple[Any, torch.Tensor]:
        """Return a batch, and its labels; workers of a DataLoader may do this ahead."""
        return self.state.prepare(nests), torch.tensor([largest(each) for each in nests])


def main() -> int:
    """Train, and print how many of the unseen nests are right; status 1 if these are few or ranks differ."""
    distributed.init_process_group("gloo")
    rank, size = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(0)
    draws = random.Random(0)  # noqa: S311 - of examples
    nests = [nest(draws) for _ in range(2000)]
    train, test = nests[:1600], nests[1600:]

    model = Model()
    wrapper = DistributedDataParallel(model)  # then all ranks have the parameters of rank 0
    optimizer = torch.optim.Adam(wrapper.parameters(), lr=0.01)
    sampler = DistributedSampler(train, seed=0)
    loader = DataLoader(train, BATCH // size, sampler=sampler, collate_fn=model.collate)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for batch, labels in loader:
            loss = cross_entropy(wrapper(batch), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    batch, labels = model.collate(test[rank::size])
    with torch.no_grad():
        right = (model(batch).argmax(1) == labels).sum()
    distributed.all_reduce(right)
    mine = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    ranks = [torch.empty_like(mine) for _ in range(size)]
    distributed.all_gather(ranks, mine)
    equal = all(torch.equal(mine, peer) for peer in ranks)
    if rank == 0:
        found = f"{right / len(test):.0%} of unseen nests (always the most frequent number: 41%)"
        print(f"{size} ranks, equal to the bit: {equal}; right: {found}")
    distributed.destroy_process_group()
    return 0 if equal and right > 0.9 * len(test) else 1


if __name__ == "__main__":
    sys.exit(main())
