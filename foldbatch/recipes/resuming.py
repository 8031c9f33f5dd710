"""Resuming: what a run that goes on must have in common with the run that began, besides its data and model.

An option of the command line counts, or it is refused; none is ignored. Those that count are listed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from foldbatch.errors import TrainingError, shortened
from foldbatch.recipes.configuration import plain
from foldbatch.recipes.settings import Configuration
from foldbatch.train import Callback, checkpoint

FIX: Final = "leave them as they were, or train in another folder"
# that may be others than when the run began: what is read there to train on is compared, and the rest changes
# no step that is done
FREE: Final = frozenset(
    [
        *("data.folder", "data.train", "data.dev", "data.test", "words.vectors"),
        *("train.epochs", "train.backend", "train.patience"),
        *("train.checkpoint", "train.plots", "train.tensorboard"),
    ]
)


class Run(Callback):
    """Keeps the options of a run and the names of its classes in its checkpoints.

    >>> Run(Configuration(), ["no", "yes"]).state()["classes"]
    ['no', 'yes']
    """

    def __init__(self, configuration: Configuration, classes: Sequence[str]) -> None:
        self._kept = {"options": plain(configuration), "classes": list(classes)}

    def state(self) -> dict[str, Any]:
        """Return the options and the names."""
        return self._kept


def check_run(run: Run, path: Path) -> None:
    """Refuse a checkpoint of a run with other options or other classes.

    Raises:
        TrainingError: that names the options.
        ReadError: when the checkpoint is damaged.
        OSError: when it cannot be read.
    """
    present, kept = run.state(), checkpoint.read(path)["callbacks"].get(Run.__name__)
    if kept is None:
        raise TrainingError(str(path), "a checkpoint of foldbatch train", "one of another program", FIX)
    now, before = _flat(present["options"]), _flat(kept["options"])
    names = [name for name in now | before if name not in FREE and now.get(name) != before.get(name)]
    if names:
        found = ", ".join(f"{name} {now.get(name)!r} in place of {before.get(name)!r}" for name in names)
        raise TrainingError(str(path), "the options that the run began with", found, FIX)
    if present["classes"] != kept["classes"]:
        expected = f"the classes {shortened(kept['classes'])}, which the run began with"
        fix = "resume with the data that the run began with, or train in another folder"
        raise TrainingError(str(path), expected, shortened(present["classes"]), fix)


def _flat(options: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{section}.{key}": value for section, part in options.items() for key, value in part.items()}
