"""Callbacks: what a `Trainer` calls at fixed moments while it fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foldbatch.train.trainer import Trainer


class Callback:
    """Something that watches or steers a `Trainer`; every method does nothing until a subclass says what.

    Callbacks are called in the order in which they are given; `Checkpoints` comes last, so that a checkpoint
    has what the others did.

    A checkpoint holds what `state` returns. Where training is resumed from it, `load_state` is called before
    `on_fit_start`, with the state of the callback of the same class; of several in their order.

    Where several processes train together (`foldbatch.train.DataParallel`), each calls its callbacks, so that
    all steer alike.

    Attributes:
        first_only: whether rank 0 alone calls it, because it prints or writes files.
        steers: whether its settings and its state must be the same on all ranks, which is then checked.
    """

    first_only = False
    steers = False

    def on_fit_start(self, trainer: Trainer) -> None:
        """Be called once, before the first epoch of a `fit`."""

    def on_epoch_start(self, trainer: Trainer) -> None:
        """Be called before the first batch of an epoch; `trainer.epoch` counts epochs done.

        It is also called where training is resumed within an epoch; `trainer.position` has the batches done.
        """

    def on_step_start(self, trainer: Trainer) -> None:
        """Be called before a batch is run: `trainer.batch` has its examples."""

    def on_gradients(self, trainer: Trainer) -> None:
        """Be called between gradients and update: `trainer.batch` has loss and gradients."""

    def on_step_end(self, trainer: Trainer) -> None:
        """Be called after an update; `trainer.steps` counts it."""

    def on_epoch_end(self, trainer: Trainer) -> None:
        """Be called after the last batch of an epoch and the dev set: `trainer.figures` has both."""

    def on_interrupt(self, trainer: Trainer) -> None:
        """Be called where Ctrl-C, SIGTERM or the end of another process ends a `fit`, between two steps.

        Then comes `on_fit_end`.
        """

    def on_fit_end(self, trainer: Trainer) -> None:
        """Be called once, after the last epoch, also where a callback or an error ended the `fit`."""

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps: a dict of plain data and arrays."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned."""
