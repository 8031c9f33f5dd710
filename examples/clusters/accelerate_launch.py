"""The largest number of a nest, by a recursive model that Hugging Face Accelerate trains.

    accelerate launch --cpu --num_processes 2 examples/clusters/accelerate_launch.py

The loop is that of one process. Accelerate splits the data, and adds the gradients of all processes.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import torch
from accelerate import Accelerator
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

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
    """Train, and print how many of the unseen nests are right; status 1 if these are few."""
    accelerator = Accelerator()
    torch.manual_seed(0)
    draws = random.Random(0)  # noqa: S311 - of examples
    nests = [nest(draws) for _ in range(2000)]

    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    size, collate = BATCH // accelerator.num_processes, model.collate
    train = DataLoader(nests[:1600], size, shuffle=True, collate_fn=collate)
    test = DataLoader(nests[1600:], size, collate_fn=collate)
    model, optimizer, train, test = accelerator.prepare(model, optimizer, train, test)
    for _ in range(5):
        for batch, labels in train:
            loss = cross_entropy(model(batch), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()

    right = torch.zeros(())
    for batch, labels in test:
        with torch.no_grad():
            logits = model(batch)
        predicted, expected = accelerator.gather_for_metrics((logits.argmax(1), labels))
        right += (predicted == expected).sum()
    found = f"{right / 400:.0%} of unseen nests (always the most frequent number: 41%)"
    accelerator.print(f"{accelerator.num_processes} ranks; right: {found}")
    accelerator.end_training()
    return 0 if right > 0.9 * 400 else 1


if __name__ == "__main__":
    sys.exit(main())
