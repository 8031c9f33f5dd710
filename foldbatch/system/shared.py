"""Memory that two processes share: blocks without a name, which end with the last process that has them.

No file and no segment is left behind, however a process ends, and no limit of ``/dev/shm`` counts.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Sequence
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
# where an array lies in a block: its first byte, shape and dtype
Place: TypeAlias = "tuple[int, tuple[int, ...], str]"
ALIGNED = 64  # bytes, at a multiple of which each array begins


def can_share() -> bool:
    """Return whether this system passes memory from process to process."""
    return hasattr(os, "fork") and bool(getattr(reduction, "HAVE_SEND_HANDLE", False))


class Block:
    """A block of memory that another process may have, too."""

    def __init__(self, file: int) -> None:
        """Map the memory of an open file, and close that."""
        try:
            self.size = os.fstat(file).st_size
            self.memory = mmap.mmap(file, self.size)
        finally:
            os.close(file)

    @classmethod
    def new(cls, size: int, connection: Connection) -> Block:
        """Return a new block of at least so many bytes, and send it through a connection of two processes.

        The other process takes it by ``Block.received(connection)`` as what comes next.
        """
        file = _new_file(max(size, mmap.PAGESIZE))
        try:
            reduction.send_handle(connection, file, None)
        except BaseException:
            os.close(file)
            raise
        return cls(file)

    @classmethod
    def received(cls, connection: Connection) -> Block:
        """Return the block that the other process has sent just now."""
        return cls(reduction.recv_handle(connection))

    def lent(self, free: list[Block]) -> Array:
        """Return the memory as bytes, ``[size] uint8``; the block is added to `free` when nothing views it.

        >>> from multiprocessing import Pipe
        >>> left, right = Pipe()
        >>> block, free = Block.new(8, left), []
        >>> view = block.lent(free)[:4]
        >>> free
        []
        >>> del view
        >>> free == [block]
        True
        """
        view = np.frombuffer(self.memory, np.uint8)
        weakref.finalize(view, free.append, self).atexit = False
        return view


def _new_file(size: int) -> int:
    """Return an open file without a name, of so many bytes, all of which there is room for."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("foldbatch")
    else:
        with tempfile.TemporaryFile(prefix="foldbatch") as temporary:
            file = os.dup(temporary.fileno())
    try:
        os.ftruncate(file, size)
    except BaseException:
        os.close(file)
        raise
    return file


def room_for(arrays: Sequence[Array]) -> int:
    """Return how many bytes of a block arrays need.

    >>> room_for([np.zeros(3, np.uint8), np.zeros(2)])
    128
    """
    return sum(_rounded(array.nbytes) for array in arrays)


def _rounded(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


def put(memory: mmap.mmap | Array, arrays: Sequence[Array]) -> list[Place]:
    """Copy arrays into memory, that of a block or an array of bytes, and return where they are."""
    places, begin = list[Place](), 0
    for array in arrays:
        np.ndarray(array.shape, array.dtype, memory, begin)[...] = array
        places.append((begin, array.shape, array.dtype.str))
        begin += _rounded(array.nbytes)
    return places


def views(memory: Array, places: Sequence[Place]) -> list[Array]:
    """Return the arrays that another process has put into a block, as views of its memory.

    >>> from multiprocessing import Pipe
    >>> left, right = Pipe()
    >>> block = Block.new(256, left)
    >>> views(block.lent([]), put(Block.received(right).memory, [np.arange(3), np.array("no")]))
    [array([0, 1, 2]), array('no', dtype='<U2')]
    """
    return [np.ndarray(shape, dtype, memory, begin) for begin, shape, dtype in places]
