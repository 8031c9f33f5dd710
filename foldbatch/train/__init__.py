"""Training: batches, optimizers, and gradients on their way to them."""

from foldbatch.train.adams import Adam, AdamW, Eve, LazyAdam
from foldbatch.train.callbacks import Callback
from foldbatch.train.gradients import clip_by_global_norm, scale
from foldbatch.train.metrics import Accuracy
from foldbatch.train.optimizer import Optimizer
from foldbatch.train.optimizers import SGD, AdaGrad, RMSprop
from foldbatch.train.prefetch import prefetched
from foldbatch.train.prepared import load_prepared, prepare
from foldbatch.train.samplers import Sampler, bucketed, heights, shuffled, sizes, within_budget
from foldbatch.train.trainer import Trainer

__all__ = [
    "SGD",
    "Accuracy",
    "AdaGrad",
    "Adam",
    "AdamW",
    "Callback",
    "Eve",
    "LazyAdam",
    "Optimizer",
    "RMSprop",
    "Sampler",
    "Trainer",
    "bucketed",
    "clip_by_global_norm",
    "heights",
    "load_prepared",
    "prefetched",
    "prepare",
    "scale",
    "shuffled",
    "sizes",
    "within_budget",
]
