"""Training: optimizers, and gradients on their way to them."""

from foldbatch.train.gradients import clip_by_global_norm, scale
from foldbatch.train.optimizer import Optimizer
from foldbatch.train.optimizers import SGD, AdaGrad, Adam, LazyAdam

__all__ = ["SGD", "AdaGrad", "Adam", "LazyAdam", "Optimizer", "clip_by_global_norm", "scale"]
