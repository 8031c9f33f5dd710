"""The number of a process among those of its machine, as its launcher says: which GPU it takes."""

from collections.abc import Mapping

# of torchrun and of libraries that set its variables, which counts before those of who started torchrun; then
# of Open MPI, MPICH and Intel MPI, MVAPICH, Slurm
LOCAL = (
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
)


def local_rank(environment: Mapping[str, str]) -> int:
    """Return the number of this process among those of its machine, 0 where no launcher says it.

    >>> local_rank({"LOCAL_RANK": "3", "SLURM_LOCALID": "0"}), local_rank({})
    (3, 0)
    """
    return next((int(environment[name]) for name in LOCAL if environment.get(name, "").isdecimal()), 0)


def gpu_of(current: int, count: int, place: int) -> int:
    """Return the number of the GPU that a process takes, of those that it sees.

    A current one that is not the first was chosen by the program, which knows better. Where a launcher shows
    each process a GPU of its own, that is its only one. Processes beyond the number of GPUs share them.

    >>> [gpu_of(current=0, count=4, place=place) for place in range(6)]
    [0, 1, 2, 3, 0, 1]
    >>> gpu_of(current=2, count=4, place=1), gpu_of(current=0, count=1, place=1)
    (2, 0)
    """
    return current or place % max(1, count)
