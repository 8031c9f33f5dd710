"""Callbacks of a `foldbatch.train.Trainer`."""

from foldbatch.train.callbacks.averaging import AverageWeights
from foldbatch.train.callbacks.callback import Callback
from foldbatch.train.callbacks.checkpoints import Checkpoints
from foldbatch.train.callbacks.clipping import ClipGradients
from foldbatch.train.callbacks.functions import LambdaCallback
from foldbatch.train.callbacks.guard import NaNGuard
from foldbatch.train.callbacks.logs import CSVLog, JSONLinesLog
from foldbatch.train.callbacks.plateau import ReduceOnPlateau
from foldbatch.train.callbacks.plots import Plots
from foldbatch.train.callbacks.progress import Progress
from foldbatch.train.callbacks.schedule import Schedule
from foldbatch.train.callbacks.statistics import ParameterStatistics
from foldbatch.train.callbacks.stopping import EarlyStopping, TimeLimit
from foldbatch.train.callbacks.tensorboard import TensorBoardLog

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
    "ReduceOnPlateau",
    "Schedule",
    "TensorBoardLog",
    "TimeLimit",
]
