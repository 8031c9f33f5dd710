"""Communicators: the processes of one training, over MPI, over torch.distributed, or none but this one."""

from foldbatch.communicators.communicator import Alone, Communicator, in_threads
from foldbatch.communicators.finding import find
from foldbatch.communicators.sharing import cores, from_first, share, together

__all__ = ["Alone", "Communicator", "cores", "find", "from_first", "in_threads", "share", "together"]
