"""Memory: the most that a fresh process holds while it trains a few steps, ours and the peers' alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.remote import Remote
from benchmarks.variants import PEERS
from foldbatch.errors import BackendError

STEPS = 2  # over all batches


@dataclass(frozen=True, slots=True)
class Peak:
    """Bytes that a process held at most, its own code included.

    Attributes:
        imported: once the library was imported.
        ready: once the model was made and the batches were read.
        trained: after training.
    """

    imported: int
    ready: int
    trained: int


def peaks(
    task: Path, batches: list[int], pythons: Mapping[str, str]
) -> tuple[dict[str, Peak], dict[str, str]]:
    """Train every variant that gains from batches in a process of its own.

    Args:
        task: the file of the task.
        batches: numbers of the batches to train on.
        pythons: by peer, the interpreter.

    Returns:
        The peaks by name; and by peer, why there are none.
    """
    found: dict[str, Peak] = {}
    absent: dict[str, str] = {}
    for peer, python in pythons.items():
        if PEERS[peer].pooled:
            absent[peer] = "takes its memory ahead, however little it needs"
            continue
        try:
            with Remote(peer, python) as first:
                names = [variant.name for variant in first.variants if variant.batched]
            for name in names:
                with Remote(peer, python) as remote:
                    ready = remote.ask("setup", file=str(task), variants=[name])["memory"]
                    remote.ask("train", variant=name, batches=batches * STEPS)
                    trained = remote.ask("memory")["memory"]
                    found[f"{remote.title} {name}".strip()] = Peak(remote.imported, ready, trained)
        except BackendError as error:
            absent[peer] = str(error)
    return found, absent
