"""Finding the processes of a training: those that a launcher started, or this one alone."""

import os
import sys
from collections.abc import Mapping
from typing import Any

from foldbatch.communicators.communicator import Alone, Communicator
from foldbatch.errors import BackendError, install

# of MPICH and Intel MPI, Open MPI, Slurm without one of them, MVAPICH; and of torchrun and Ray, so that their
# processes, which MPI does not connect, are refused
SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "MV2_COMM_WORLD_SIZE", "WORLD_SIZE")


def launched(environment: Mapping[str, str]) -> int:
    """Return how many processes the launcher of this one started, 1 where there was none.

    >>> launched({"PMI_RANK": "0", "PMI_SIZE": "4"}), launched({})
    (4, 1)
    """
    return next((int(environment[name]) for name in SIZES if environment.get(name, "").isdecimal()), 1)


def _grouped() -> int:
    """Return how many processes a group of torch.distributed holds that the program has made, else 1."""
    torch: Any = sys.modules.get("torch.distributed")
    return int(torch.get_world_size()) if torch and torch.is_available() and torch.is_initialized() else 1


def find() -> Communicator:
    """Return the processes that ``mpiexec`` or ``srun`` started, or this process alone.

    No library is imported where there is no launcher, or a single process. Call it once.

    Raises:
        BackendError: when there are several processes and the library that connects them is not installed, or
            belongs to another launcher: else each process would train alone, and overwrite the others' files.

    >>> find().size
    1
    """
    size = max(launched(os.environ), _grouped())
    if size == 1:
        return Alone()
    try:
        from foldbatch.communicators.mpi import MPICommunicator  # noqa: PLC0415 - it needs an extra

        communicator: Communicator = MPICommunicator()
    except (ImportError, RuntimeError) as error:  # mpi4py finds no MPI library: RuntimeError
        fix = f"{install('mpi')} brings mpi4py, and an mpiexec that fits it"
        expected = f"mpi4py, which connects the {size} processes that were started"
        raise BackendError("communicators.find", expected, f"none ({error})", fix) from error
    if communicator.size != size:
        actual = f"{communicator.size} that know of each other"
        fix = "start them with the mpiexec of the MPI library that mpi4py uses (under Slurm: srun --mpi=pmi2)"
        raise BackendError("communicators.find", f"{size} processes", actual, fix)
    return communicator
