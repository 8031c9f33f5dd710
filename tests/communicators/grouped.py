"""Train in a group that the program has made, and uses meanwhile: ``python -m tests.communicators.grouped FOLDER``."""

import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

import foldbatch as fb
from tests.communicators.checks import check
from tests.communicators.work import fitted


def main(folder: Path) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=90))
    communicator = fb.communicators.find()
    rank = communicator.rank
    check(communicator)
    numbers = torch.full((1000,), float(rank + 1))
    work = dist.all_reduce(numbers, async_op=True)  # as DDP does
    made, said = fitted(communicator)
    work.wait()
    assert numbers.tolist() == [3.0] * 1000 and said == "done"
    np.savez(folder / f"whole-{rank}", **made.program.params)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
