"""Training: batches, optimizers, and gradients on their way to them."""

from foldbatch.train.gradients import clip_by_global_norm, scale
from foldbatch.train.optimizer import Optimizer
from foldbatch.train.optimizers import SGD, AdaGrad, Adam, LazyAdam
from foldbatch.train.prefetch import prefetched
from foldbatch.train.prepared import load_prepared, prepare
from foldbatch.train.samplers import Sampler, bucketed, heights, shuffled, sizes, within_budget

__all__ = [
    "SGD",
    "AdaGrad",
    "Adam",
    "LazyAdam",
    "Optimizer",
    "Sampler",
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
