"""Finding the processes of a training: those that a launcher started, or this one alone.

Which library connects them is asked in this order. A group of torch.distributed that the program has made
counts first: it was made on purpose. Then the variables of torchrun do, since ``srun torchrun`` has those of
Slurm as well, which count torchruns. Then those of MPI's launchers.
"""

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from foldbatch.communicators.communicator import Alone, Communicator
from foldbatch.errors import BackendError, install

WHERE = "communicators.find"
# of MPICH and Intel MPI, Open MPI, Slurm without one of them, MVAPICH; and of torchrun and Ray, so that their
# processes are refused where nothing connects them
SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "MV2_COMM_WORLD_SIZE", "WORLD_SIZE")
TORCH = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # of torchrun, and Kubernetes' PyTorchJob


def launched(environment: Mapping[str, str]) -> int:
    """Return how many processes the launcher of this one started, 1 where there was none.

    >>> launched({"PMI_RANK": "0", "PMI_SIZE": "4"}), launched({})
    (4, 1)
    """
    return next((int(environment[name]) for name in SIZES if environment.get(name, "").isdecimal()), 1)


def launched_by_torchrun(environment: Mapping[str, str]) -> int:
    """Return how many processes torchrun started, or a launcher that sets its variables; else 1.

    >>> launched_by_torchrun({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "29500"})
    2
    >>> launched_by_torchrun({"WORLD_SIZE": "2"})
    1
    """
    whole = all(environment.get(name) for name in TORCH)
    return int(environment["WORLD_SIZE"]) if whole and environment["WORLD_SIZE"].isdecimal() else 1


def _grouped() -> int:
    """Return how many processes a group of torch.distributed holds that the program has made, else 1."""
    torch: Any = sys.modules.get("torch.distributed")
    return int(torch.get_world_size()) if torch and torch.is_available() and torch.is_initialized() else 1


def find() -> Communicator:
    """Return the processes that this one trains with, or this process alone.

    These are, by the first that is there: a group of torch.distributed which the program has initialised;
    the processes that ``torchrun`` started, or any launcher that sets its four variables; those that
    ``mpiexec`` or ``srun`` started. No library is imported where there is no launcher, or a single process.
    Call it once, in all processes.

    Raises:
        BackendError: when there are several processes and the library that connects them is not installed, or
            belongs to another launcher: else each process would train alone, and overwrite the others' files.

    >>> find().size
    1
    """
    grouped, by_torchrun = _grouped(), launched_by_torchrun(os.environ)
    if grouped > 1:
        return _by_torch(grouped)
    if by_torchrun > 1 and find_spec("torch"):
        return _by_torch(by_torchrun)
    size = max(launched(os.environ), by_torchrun)
    return Alone() if size == 1 else _by_mpi(size)


def _by_torch(size: int) -> Communicator:
    """Return the processes that torch.distributed connects."""
    expected = f"torch.distributed, which connects the {size} processes that were started"
    fix = (
        "look at what the others say, and whether MASTER_ADDR and MASTER_PORT are those of rank 0; "
        "where torchrun begins anew on several machines, set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 for it"
    )
    try:
        from foldbatch.communicators.distributed import TorchCommunicator  # noqa: PLC0415 - it needs an extra

        return TorchCommunicator()
    except (ImportError, RuntimeError, ValueError) as error:
        raise BackendError(WHERE, expected, f"none ({_line(error)})", fix) from error


def _by_mpi(size: int) -> Communicator:
    """Return the processes that MPI connects."""
    torchrun = f"or start them with torchrun, which {install('torch')} brings"
    try:
        from foldbatch.communicators.mpi import MPICommunicator  # noqa: PLC0415 - it needs an extra

        communicator: Communicator = MPICommunicator()
    except (ImportError, RuntimeError) as error:  # mpi4py finds no MPI library: RuntimeError
        fix = f"{install('mpi')} brings mpi4py, and an mpiexec that fits it; {torchrun}"
        expected = f"mpi4py, which connects the {size} processes that were started"
        raise BackendError(WHERE, expected, f"none ({_line(error)})", fix) from error
    if communicator.size != size:
        actual = f"{communicator.size} that know of each other"
        fix = "start them with the mpiexec of the MPI library that mpi4py uses (under Slurm: srun --mpi=pmi2)"
        raise BackendError(WHERE, f"{size} processes", actual, f"{fix}, {torchrun}")
    return communicator


def _line(error: Exception) -> str:
    """Return the first line of what an error says."""
    return str(error).partition("\n")[0]
