"""The largest number of a nest, by a recursive model that Lightning trains, stops and goes on with.

    python examples/clusters/lightning_trainer.py --devices 2

Lightning starts the other processes itself, splits the data, and adds the gradients of all processes.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
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


class Model(lightning.LightningModule):
    """The block, and a layer of PyTorch on top of it."""

    def __init__(self) -> None:
        super().__init__()
        self.state = fb.torch.Module(state(), threads=1)  # ranks of one machine share its cores
        self.classify = torch.nn.Linear(SIZE, 10)

    def collate(self, nests: Any) -> tuple[Any, torch.Tensor]:
        """Return a batch, and its labels; Lightning would look into the nests themselves."""
        return self.state.prepare(nests), torch.tensor([largest(each) for each in nests])

    def forward(self, nests: Any) -> torch.Tensor:
        """Return the logits of a batch."""
        return self.classify(self.state(nests))

    def training_step(self, batch: Any) -> torch.Tensor:
        """Return the loss of a batch."""
        nests, labels = batch
        return cross_entropy(self(nests), labels)

    def test_step(self, batch: Any) -> None:
        """Note how many nests of a batch are right."""
        nests, labels = batch
        right = (self(nests).argmax(1) == labels).float().mean()
        self.log("right", right, batch_size=len(labels), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters(), lr=0.01)


def fitted(
    train: list[Any], epochs: int, folder: Path, *, resume: bool = False, shuffle: bool = True, **options: Any
) -> Any:
    """Return a trainer that has trained a model for a number of epochs, and has kept a checkpoint of it."""
    torch.manual_seed(0)
    model = Model()
    size = BATCH // options["devices"]
    loader = DataLoader(train, size, shuffle=shuffle, collate_fn=model.collate)
    trainer = lightning.Trainer(
        max_epochs=epochs,
        default_root_dir=folder,
        callbacks=[ModelCheckpoint(folder, save_last=True)],
        logger=False,
        enable_progress_bar=False,
        **options,
    )
    trainer.fit(model, loader, ckpt_path=folder / "last.ckpt" if resume else None)
    return trainer


def main(argv: list[str] | None = None) -> int:
    """Train, stop, go on, and print how many of the unseen nests are right; status 1 if these are few."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--devices", type=int, default=2, help="processes")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir(), "nests"), help="checkpoints"
    )
    args = parser.parse_args(argv)
    draws = random.Random(0)  # noqa: S311 - of examples
    nests = [nest(draws) for _ in range(2000)]

    options = {"accelerator": "cpu", "strategy": "ddp", "devices": args.devices}
    fitted(nests[:1600], 2, args.folder, **options)
    trainer = fitted(nests[:1600], 5, args.folder, resume=True, **options)
    loader = DataLoader(nests[1600:], BATCH, collate_fn=trainer.model.collate)
    (figures,) = trainer.test(trainer.lightning_module, loader, verbose=False)
    if trainer.is_global_zero:
        found = f"{figures['right']:.0%} of unseen nests (always the most frequent number: 41%)"
        print(f"{trainer.world_size} ranks, epochs {trainer.current_epoch}; right: {found}")
    return 0 if figures["right"] > 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
