"""The largest number of a nest, by a recursive model that workers of Ray Train train.

    python examples/clusters/ray_train.py --workers 2

Ray starts the workers, on this machine or on its cluster, and connects them as torchrun does. `train` runs in
each of them.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import ray
import torch
from ray.train import Checkpoint, RunConfig, ScalingConfig, get_context, report
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
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


def train(settings: dict[str, Any]) -> None:
    """Train, and report how many of the unseen nests are right; rank 0 with a checkpoint."""
    torch.manual_seed(0)
    draws = random.Random(0)  # noqa: S311 - of examples
    nests = [nest(draws) for _ in range(2000)]
    rank, workers = get_context().get_world_rank(), get_context().get_world_size()

    model = Model()
    wrapper = prepare_model(model)  # a DistributedDataParallel
    optimizer = torch.optim.Adam(wrapper.parameters(), lr=settings["lr"])
    size = BATCH // workers
    loader = DataLoader(nests[:1600], size, shuffle=True, collate_fn=model.collate)
    loader = prepare_data_loader(loader)  # a share of each epoch's nests
    for epoch in range(5):
        loader.sampler.set_epoch(epoch)
        for batch, labels in loader:
            loss = cross_entropy(wrapper(batch), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    batch, labels = model.collate(nests[1600:])
    with torch.no_grad():
        right = (model(batch).argmax(1) == labels).float().mean().item()
    figures = {"right": right, "workers": workers, "sum": sum(p.sum().item() for p in model.parameters())}
    with tempfile.TemporaryDirectory() as folder:
        torch.save(model.state_dict(), Path(folder, "model.pt"))
        report(figures, checkpoint=Checkpoint.from_directory(folder) if rank == 0 else None)


def main(argv: list[str] | None = None) -> int:
    """Start the workers, and print how many of the unseen nests are right; status 1 if these are few."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--folder", type=Path, default=Path("runs/ray").resolve(), help="what Ray keeps")
    args = parser.parse_args(argv)
    ray.init(num_cpus=args.workers, include_dashboard=False)
    trainer = TorchTrainer(
        train,
        train_loop_config={"lr": 0.01},
        scaling_config=ScalingConfig(num_workers=args.workers),
        run_config=RunConfig(name="nests", storage_path=str(args.folder)),
    )
    result = trainer.fit()
    with result.checkpoint.as_directory() as folder:
        model = Model()
        model.load_state_dict(torch.load(Path(folder, "model.pt")))
    kept = sum(p.sum().item() for p in model.parameters()) == result.metrics["sum"]
    found = f"{result.metrics['right']:.0%} of unseen nests (always the most frequent number: 41%)"
    print(f"{result.metrics['workers']} workers, a checkpoint of the model: {kept}; right: {found}")
    ray.shutdown()
    return 0 if kept and result.metrics["right"] > 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
