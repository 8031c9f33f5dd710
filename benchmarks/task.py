"""A task for peers: the model's parameters and the batches to run, as arrays that fit into one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.flat import FlatTree

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Task:
    """What peers compute.

    Attributes:
        hidden: size of h, c and the embedding.
        parameters: by the names and in the shapes of `benchmarks.peers.parameter_shapes`.
        batches: of trees; a tree may be in several.
    """

    hidden: int
    parameters: Mapping[str, Array]
    batches: Sequence[Sequence[FlatTree]]

    @property
    def vocabulary_size(self) -> int:
        """Rows of the embedding."""
        return len(self.parameters["embedding"])

    def save(self, path: Path) -> None:
        """Write it as ``npz``."""
        trees = [tree for batch in self.batches for tree in batch]
        parameters: dict[str, Any] = {f"parameter {name}": a for name, a in self.parameters.items()}
        np.savez(
            path,
            hidden=self.hidden,
            batch_sizes=[len(batch) for batch in self.batches],
            tree_sizes=[len(tree.parents) for tree in trees],
            parents=_joined([tree.parents for tree in trees]),
            labels=_joined([tree.labels for tree in trees]),
            words=_joined([tree.words for tree in trees]),
            **parameters,
        )


def _joined(arrays: list[Array]) -> Array:
    return np.concatenate(arrays) if arrays else np.zeros(0, np.int64)


def load_task(path: Path) -> Task:
    """Read what `Task.save` wrote."""
    with np.load(path) as file:
        parameters = {
            name.partition(" ")[2]: file[name] for name in file.files if name.startswith("parameter ")
        }
        ends = np.cumsum(file["tree_sizes"])[:-1]
        columns = (np.split(file[name], ends) for name in ("parents", "labels", "words"))
        trees = [FlatTree(*arrays) for arrays in zip(*columns, strict=True)]
        ends = np.cumsum(file["batch_sizes"]).tolist()
        batches = [trees[first:last] for first, last in zip([0, *ends], ends, strict=False)]
        return Task(int(file["hidden"]), parameters, batches)
