"""Finding the processes that a launcher started, by what it sets in the environment."""

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from foldbatch.communicators.communicator import Alone, Communicator
from foldbatch.errors import BackendError
from foldbatch.system.extras import install

TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR")
# of MPICH and Intel MPI, Open MPI, Slurm without one of them, MVAPICH
SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "MV2_COMM_WORLD_SIZE")


def launched(environment: Mapping[str, str]) -> tuple[str, int]:
    """Return what started this process, ``torch``, ``mpi`` or nothing, and how many processes it started.

    ``torchrun`` comes first, because it may itself be started by Slurm or MPI, once on each machine.

    >>> launched({"PMI_RANK": "0", "PMI_SIZE": "4"}), launched({})
    (('mpi', 4), ('', 1))
    """
    if all(environment.get(name) for name in TORCHRUN):
        return "torch", int(environment["WORLD_SIZE"])
    for name in SIZES:
        if environment.get(name, "").isdigit():
            return "mpi", int(environment[name])
    return "", 1


def _group_size() -> int:
    """Return how many processes a group of torch.distributed has that is there already, or 0."""
    torch: Any = sys.modules.get("torch.distributed")  # who made a group has imported it
    return int(torch.get_world_size()) if torch and torch.is_available() and torch.is_initialized() else 0


def find() -> Communicator:
    """Return the processes that ``mpiexec``, ``srun`` or ``torchrun`` started, or this process alone.

    A group of several processes of torch.distributed that is there already comes first.

    No library is imported where there is no launcher, or a single process. Call it once.

    Raises:
        BackendError: when there are several processes and the library that connects them is not installed, or
            belongs to another launcher: else each process would train alone, and overwrite the others' files.

    >>> find().size
    1
    """
    group = _group_size()
    launcher, size = ("torch", group) if group > 1 else launched(os.environ)
    if size == 1:
        return Alone()
    library, fix = {
        "mpi": ("mpi4py", f"{install('mpi')} brings mpi4py, and an mpiexec that fits it"),
        "torch": ("torch", install("torch")),
    }[launcher]
    try:
        communicator: Communicator = (
            import_module("foldbatch.communicators.mpi").MPICommunicator()
            if launcher == "mpi"
            else import_module("foldbatch.communicators.torch").TorchCommunicator()
        )
    except (ImportError, RuntimeError, ValueError) as error:
        # mpi4py finds no MPI library: RuntimeError; torch no MASTER_PORT: ValueError
        expected = f"{library}, which connects the {size} processes that were started"
        raise BackendError("communicators.find", expected, f"none ({error})", fix) from error
    if communicator.size != size:
        found = f"{communicator.size} that know of each other"
        fix = "start them with the mpiexec of the MPI library that mpi4py uses (under Slurm: srun --mpi=pmi2)"
        raise BackendError("communicators.find", f"{size} processes", found, fix)
    return communicator
