"""Callbacks of a `foldbatch.train.Trainer`."""

from foldbatch.train.callbacks.callback import Callback

__all__ = ["Callback"]
