"""Kernels run by real threads, one for each lane of a block, in a process that looks for races and stray accesses."""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
import weakref
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from foldbatch.engines.cuda.drivers.driver import ARGUMENTS, HEADER
from tests.engines.cuda.emulator import Emulator, HostBuffer, parameters
from tests.engines.cuda.spans import span_of

AT_ONCE = 8  # blocks; as in emulator_threads.h
THREADS_AT_ONCE = 512
OPTIONS = ("-std=c++20", "-O0", "-g", "-w", "-ffp-contract=off", "-pthread")
SANITIZERS = {
    None: (),
    "thread": ("-fsanitize=thread",),
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
}
SETTINGS = {"TSAN_OPTIONS": "halt_on_error=1", "ASAN_OPTIONS": "detect_leaks=0", "PATH": "/usr/bin:/bin"}
_SHARED = re.compile(r"\bSHARED\s+(\w+)\s+([^;]+);")
_KEPT: list[tempfile.TemporaryDirectory] = []  # with the programs of this process


def run_threaded(
    source: str,
    kernel: str,
    blocks: int,
    threads: tuple[int, int],
    arguments: Sequence[int],
    buffers: Sequence[np.ndarray],
    sanitize: str | None = None,
) -> None:
    """Run a kernel of a text with a thread for each lane.

    Args:
        source: the text, which begins after ``device.h``.
        kernel: its name.
        blocks: how many.
        threads: of a block, along x and y.
        arguments: as of `Driver.launch`; addresses of memory in `buffers` stay so, there and in words of `buffers`.
        buffers: all memory that it may touch; changed in place.
        sanitize: "thread" looks for races, "address" for accesses out of bounds and undefined behaviour.

    Raises:
        AssertionError: with the report; or because threads pass different numbers of barriers.
    """
    counts = parameters(source)
    assert counts[kernel] == len(arguments), f"{kernel} has {counts[kernel]} parameters"
    at_once = max(1, min(blocks, AT_ONCE, THREADS_AT_ONCE // (threads[0] * threads[1])))
    numbers = [list(counts).index(kernel), blocks, *threads, at_once, len(buffers), *arguments]
    numbers += [0] * (ARGUMENTS - len(arguments))
    data = [struct.pack(f"{len(numbers)}q", *numbers)]
    for buffer in buffers:
        assert buffer.flags.c_contiguous
        data += [struct.pack("2q", *span_of(buffer)), buffer.tobytes()]
    done = subprocess.run(
        [_compiled(source, sanitize)],
        input=b"".join(data),
        capture_output=True,
        env=SETTINGS,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, f"{kernel}: status {done.returncode}\n{done.stderr.decode()[:4000]}"
    start = 0
    for buffer in buffers:
        if buffer.nbytes:
            piece = np.frombuffer(done.stdout, buffer.dtype, buffer.size, start)
            buffer[...] = piece.reshape(buffer.shape)
        start += buffer.nbytes


class Threaded(Emulator):
    """An emulator whose launches are run by real threads, which have all memory of the device.

    Args:
        sanitize: see `run_threaded`.
        most: blocks of a launch, and threads of a block along x and y, at most: kernels take any number.
    """

    name = "the CPU, a thread for each lane"

    def __init__(self, sanitize: str | None = None, most: tuple[int, int, int] = (8, 1024, 1024)) -> None:
        self.sanitize = sanitize
        self.most = most
        self._buffers: weakref.WeakSet[HostBuffer] = weakref.WeakSet()

    def allocate(self, nbytes: int) -> HostBuffer:
        buffer = HostBuffer(nbytes)
        self._buffers.add(buffer)
        return buffer

    def load(self, source: str) -> Any:
        return SimpleNamespace(function=lambda name: (source, name))

    def launch(
        self,
        function: tuple[str, str],
        blocks: int,
        threads: tuple[int, int],
        arguments: Sequence[int],
        stream: Any,
    ) -> None:
        self.enqueue(stream, self._run, function, blocks, threads, tuple(arguments))

    def _run(
        self, function: tuple[str, str], blocks: int, threads: tuple[int, int], arguments: Sequence[int]
    ) -> None:
        source, kernel = function
        blocks, *lanes = (min(pair) for pair in zip((blocks, *threads), self.most, strict=True))
        memory = [buffer.array((buffer.nbytes,), "uint8") for buffer in self._buffers]
        run_threaded(source, kernel, blocks, (lanes[0], lanes[1]), arguments, memory, self.sanitize)


def address_of(array: np.ndarray) -> int:
    """Return the address of an array's first element."""
    return span_of(array).pointer


def _shared(match: re.Match) -> str:
    """Return a declaration of memory that a block shares, as C++ that finds it by block."""
    kind, declared = match.groups()
    lines = []
    for each in declared.split(","):
        name, dims = re.fullmatch(r"\s*(\w+)\s*((?:\[[^\]]*\]\s*)*)", each).groups()
        lines.append(f"auto& {name} = Shared<{kind} {dims}, __COUNTER__>::here();")
    return " ".join(lines)


@cache
def _compiled(source: str, sanitize: str | None) -> str:
    here = Path(__file__).parent
    text = "\n".join(
        [
            (here / "emulator_threads.h").read_text(),
            HEADER.read_text(),
            _SHARED.sub(_shared, source),
            f"Emulated emulated_kernels[] = {{{', '.join(f'(Emulated){name}' for name in parameters(source))}}};",
        ]
    )
    _KEPT.append(tempfile.TemporaryDirectory(prefix="foldbatch_threads_"))
    path = Path(_KEPT[-1].name, "kernels")
    command = ["g++", *OPTIONS, *SANITIZERS[sanitize], "-xc++", "-", "-o", str(path)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr}\n{text}"
    return str(path)
