"""Training: batches, optimizers, and gradients on their way to them."""

from foldbatch.train import schedules
from foldbatch.train.callbacks import (
    AverageWeights,
    ClipGradients,
    EarlyStopping,
    LambdaCallback,
    NaNGuard,
    ReduceLROnPlateau,
    Schedule,
)
from foldbatch.train.finding import LRFinder
from foldbatch.train.history import History
from foldbatch.train.libraries import AUROC, R2, AveragePrecision, TorchMetric
from foldbatch.train.logs import CSVLog, JSONLinesLog, Progress
from foldbatch.train.metrics import (
    F1,
    Accuracy,
    CalibrationError,
    Confusion,
    MeanAbsoluteError,
    MeanSquaredError,
    Metric,
    Perplexity,
    SideAccuracy,
    TopK,
    majority_share,
)
from foldbatch.train.optimizer import Optimizer, clip_by_global_norm, scale
from foldbatch.train.optimizers import SGD, AdaGrad, Adam, AdamW, Eve, LazyAdam, RMSprop
from foldbatch.train.parallel import DataParallel
from foldbatch.train.prefetching import prefetched
from foldbatch.train.samplers import Sampler, bucketed, heights, shuffled, sizes, within_budget
from foldbatch.train.streams import Stream
from foldbatch.train.trackers import MLflow, TensorBoard, Tracker, WandB
from foldbatch.train.trainer import Callback, Checkpoints, Trainer

__all__ = [
    "AUROC",
    "F1",
    "R2",
    "SGD",
    "Accuracy",
    "AdaGrad",
    "Adam",
    "AdamW",
    "AveragePrecision",
    "AverageWeights",
    "CSVLog",
    "CalibrationError",
    "Callback",
    "Checkpoints",
    "ClipGradients",
    "Confusion",
    "DataParallel",
    "EarlyStopping",
    "Eve",
    "History",
    "JSONLinesLog",
    "LRFinder",
    "LambdaCallback",
    "LazyAdam",
    "MLflow",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "Metric",
    "NaNGuard",
    "Optimizer",
    "Perplexity",
    "Progress",
    "RMSprop",
    "ReduceLROnPlateau",
    "Sampler",
    "Schedule",
    "SideAccuracy",
    "Stream",
    "TensorBoard",
    "TopK",
    "TorchMetric",
    "Tracker",
    "Trainer",
    "WandB",
    "bucketed",
    "clip_by_global_norm",
    "heights",
    "majority_share",
    "prefetched",
    "scale",
    "schedules",
    "shuffled",
    "sizes",
    "within_budget",
]


def __dir__() -> list[str]:
    return __all__
