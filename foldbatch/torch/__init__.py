"""Blocks inside PyTorch: `Module`, the rows of tensors that examples hold, layers taken over from PyTorch."""

from foldbatch.errors import BackendError, install

try:
    import torch as _torch  # noqa: F401 - named in an error of ours where it is missing
except ImportError as error:
    raise BackendError("foldbatch.torch", "PyTorch to be installed", str(error), install("torch")) from error

from foldbatch.torch.gradients import Row, rows
from foldbatch.torch.module import Module, Nodes, from_torch

__all__ = ["Module", "Nodes", "Row", "from_torch", "rows"]
