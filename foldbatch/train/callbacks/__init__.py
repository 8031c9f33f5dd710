"""Callbacks of a `foldbatch.train.Trainer`."""

from foldbatch.train.callbacks.callback import Callback
from foldbatch.train.callbacks.checkpoints import Checkpoints
from foldbatch.train.callbacks.plateau import ReduceOnPlateau
from foldbatch.train.callbacks.schedule import Schedule
from foldbatch.train.callbacks.stopping import EarlyStopping, TimeLimit

__all__ = [
    "Callback",
    "Checkpoints",
    "EarlyStopping",
    "ReduceOnPlateau",
    "Schedule",
    "TimeLimit",
]
