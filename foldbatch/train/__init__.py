"""Training: batches, optimizers, and gradients on their way to them."""

from foldbatch.train import schedules
from foldbatch.train.adams import Adam, AdamW, Eve, LazyAdam
from foldbatch.train.callbacks import (
    Callback,
    Checkpoints,
    EarlyStopping,
    ReduceOnPlateau,
    Schedule,
    TimeLimit,
)
from foldbatch.train.gradients import clip_by_global_norm, scale
from foldbatch.train.metrics import (
    F1,
    Accuracy,
    Confusion,
    MeanAbsoluteError,
    MeanSquaredError,
    Metric,
    Perplexity,
    TopK,
)
from foldbatch.train.optimizer import Optimizer
from foldbatch.train.optimizers import SGD, AdaGrad, RMSprop
from foldbatch.train.prefetch import prefetched
from foldbatch.train.prepared import load_prepared, prepare
from foldbatch.train.samplers import Sampler, bucketed, heights, shuffled, sizes, within_budget
from foldbatch.train.trainer import Trainer

__all__ = [
    "F1",
    "SGD",
    "Accuracy",
    "AdaGrad",
    "Adam",
    "AdamW",
    "Callback",
    "Checkpoints",
    "Confusion",
    "EarlyStopping",
    "Eve",
    "LazyAdam",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "Metric",
    "Optimizer",
    "Perplexity",
    "RMSprop",
    "ReduceOnPlateau",
    "Sampler",
    "Schedule",
    "TimeLimit",
    "TopK",
    "Trainer",
    "bucketed",
    "clip_by_global_norm",
    "heights",
    "load_prepared",
    "prefetched",
    "prepare",
    "scale",
    "schedules",
    "shuffled",
    "sizes",
    "within_budget",
]
