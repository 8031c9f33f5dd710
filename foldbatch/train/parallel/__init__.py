"""Training by several processes: who runs what, and how gradients are added."""

from foldbatch.train.parallel.data_parallel import DataParallel

__all__ = ["DataParallel"]
