"""Communicators: the processes of one training, over MPI or torch.distributed, or none but this one."""

from foldbatch.communicators.communicator import Alone, Communicator, cores, from_first, share, together
from foldbatch.communicators.finding import find

__all__ = ["Alone", "Communicator", "cores", "find", "from_first", "share", "together"]
