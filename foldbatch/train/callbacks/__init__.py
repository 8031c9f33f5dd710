"""Callbacks of a `foldbatch.train.Trainer`."""

from foldbatch.train.callbacks.logs import (
    CSVLog,
    JSONLinesLog,
    ParameterStatistics,
    Plots,
    Progress,
    TensorBoardLog,
)
from foldbatch.train.callbacks.steering import (
    EarlyStopping,
    LambdaCallback,
    ReduceLROnPlateau,
    ReduceOnPlateau,
    Schedule,
    TimeLimit,
)
from foldbatch.train.callbacks.weights import AverageWeights, ClipGradients, NaNGuard
from foldbatch.train.trainer import Callback, Checkpoints

__all__ = [
    "AverageWeights",
    "CSVLog",
    "Callback",
    "Checkpoints",
    "ClipGradients",
    "EarlyStopping",
    "JSONLinesLog",
    "LambdaCallback",
    "NaNGuard",
    "ParameterStatistics",
    "Plots",
    "Progress",
    "ReduceLROnPlateau",
    "ReduceOnPlateau",
    "Schedule",
    "TensorBoardLog",
    "TimeLimit",
]
