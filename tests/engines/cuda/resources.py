"""What compiled kernels take of a GPU, as NVRTC says it."""

import re
from dataclasses import dataclass, replace

from tests.engines.cuda.nvrtc import compiled


@dataclass(frozen=True, slots=True)
class Resources:
    """What one kernel takes of a GPU.

    Attributes:
        registers: of each thread.
        spilled: bytes that each thread writes to memory, and reads back, as its registers do not suffice.
        shared: bytes of shared memory of each block.
        stack: bytes of each thread's stack, which lies in memory.
    """

    registers: int
    spilled: int
    shared: int
    stack: int


def resources(source: str, architecture: str, major: int | None = None) -> dict[str, Resources]:
    """Return what each kernel of a text takes of a GPU, by its name; see `compiled` for the arguments."""
    return read_resources(compiled(source, architecture, major).log)


def read_resources(log: str) -> dict[str, Resources]:
    """Read what ptxas says of each kernel, and after it of the functions that it calls."""
    by_name: dict[str, Resources] = {}
    kernel = ""
    for line in log.splitlines():
        if match := re.search(r"Compiling entry function '(\S+)'", line):
            kernel = match[1]
            by_name[kernel] = Resources(0, 0, 0, 0)
        elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+)", line):
            before = by_name[kernel]
            spilled = before.spilled + int(match[2]) + int(match[3])
            by_name[kernel] = replace(before, spilled=spilled, stack=max(before.stack, int(match[1])))
        elif match := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            by_name[kernel] = replace(
                by_name[kernel], registers=int(match[1]), shared=int(shared[1]) if shared else 0
            )
    return by_name
