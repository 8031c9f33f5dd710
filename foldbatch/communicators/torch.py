"""Processes that ``torchrun`` started, or a program that set up torch.distributed, over that library."""

import atexit
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from torch import distributed

from foldbatch.communicators.communicator import Bytes
from foldbatch.errors import ProcessError


class TorchCommunicator:
    """The processes of a group of torch.distributed.

    Where there is no default group yet, one is made from the environment that ``torchrun`` sets up, with the
    backend gloo; it ends with the process. Where there is one, such as NCCL's, it is used, and left to who
    made it; bytes then pass through the GPU.
    """

    def __init__(self, group: Any = None) -> None:
        if not distributed.is_initialized():
            distributed.init_process_group("gloo")
            atexit.register(_end, distributed.group.WORLD)
        self._group = group
        self._device = "cuda" if distributed.get_backend(group) == "nccl" else "cpu"
        self.rank: int = distributed.get_rank(group)
        self.size: int = distributed.get_world_size(group)

    def all_gather(self, data: Bytes, sizes: Sequence[int] | None = None) -> list[Bytes]:
        if sizes is None:
            own = np.array([len(data)]).view(np.uint8)
            sizes = [int(size.view(np.int64)[0]) for size in self.all_gather(own, [8] * self.size)]
        longest = max(sizes)  # gloo gathers equal sizes only
        padded = np.zeros(longest, np.uint8)
        padded[: len(data)] = data
        received = [torch.empty(longest, dtype=torch.uint8, device=self._device) for _ in sizes]
        self._do(lambda: distributed.all_gather(received, self._tensor(padded), group=self._group))
        return [whole.cpu().numpy()[:size] for whole, size in zip(received, sizes, strict=True)]

    def all_to_all(self, data: Bytes, sizes: Sequence[int]) -> list[Bytes]:
        own, sent = [sizes[self.rank]] * self.size, self._tensor(data)
        received = torch.empty(sum(own), dtype=torch.uint8, device=self._device)
        self._do(lambda: distributed.all_to_all_single(received, sent, own, list(sizes), group=self._group))
        return list(received.cpu().numpy().reshape(self.size, -1))

    def abort(self, reason: str) -> NoReturn:
        distributed.destroy_process_group(self._group)
        fix = "mend it, and go on from the last checkpoint"
        raise ProcessError(f"rank {self.rank} of {self.size}", "all processes to go on", reason, fix)

    def _tensor(self, data: Bytes) -> torch.Tensor:
        return torch.from_numpy(data).to(self._device)

    def _do(self, exchange: Callable[[], object]) -> None:
        try:
            exchange()
        except RuntimeError as error:
            where, fix = f"rank {self.rank} of {self.size}", "go on from the last checkpoint"
            raise ProcessError(where, f"{self.size} processes", "one that has ended", fix) from error


def _end(group: Any) -> None:
    if distributed.is_initialized() and distributed.group.WORLD is group:
        distributed.destroy_process_group()
