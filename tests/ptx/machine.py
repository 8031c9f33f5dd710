"""The machine: executes decoded kernels over memory of the host that it watches."""

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from foldbatch.system.cache import cache_directory, write_bytes
from tests.ptx.decode import Kernel
from tests.ptx.instructions import ATOMICS, CONTROL, NUMBERS, cases

SOURCE = Path(__file__).with_name("machine.c")
OPTIONS = ("-O1", "-std=gnu11", "-shared", "-fPIC", "-frounding-math", "-ffp-contract=off", "-w")
INSTRUCTIONS = 1_000_000_000  # of a launch, at most


class PtxFaultError(AssertionError):
    """What a kernel must not do.

    Attributes:
        kind: what, in words.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class _Launch(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_longlong)
        for name in ("blocks", "x", "y", "registers", "shared", "local", "parts", "seed", "limit")
    ]


class _Report(ctypes.Structure):
    _fields_ = [
        *(
            (name, ctypes.c_longlong)
            for name in ("instructions", "pc", "block", "thread", "address", "other")
        ),
        ("kind", ctypes.c_char * 64),
    ]


def has_compiler() -> bool:
    """Whether there is what compiles the machine."""
    return shutil.which("gcc") is not None


def machine_text() -> str:
    """Return the machine in C."""
    numbers = "enum { " + ", ".join(f"{name} = {NUMBERS[name]}" for name in CONTROL) + " };\n"
    atomics = "\n".join(f"case {k}: d = {value}; break;" for k, value in enumerate(ATOMICS.values()))
    text = SOURCE.read_text().replace("{ ATOMICS }", f"{{ {atomics} }}")
    text = text.replace("{ OPERATIONS }", f"{{ {cases()} }}")
    return numbers + text


@cache
def library() -> Any:
    """Return the machine, compiled once for this text and kept where compiled kernels are kept."""
    text = machine_text()
    digest = hashlib.sha256(repr((text, OPTIONS)).encode()).hexdigest()[:32]
    directory = cache_directory()
    path = None if directory is None else directory / f"machine_{digest}.so"
    with tempfile.TemporaryDirectory() as folder:
        if path is None or not path.exists():
            made = Path(folder, "machine.so")
            command = ["gcc", *OPTIONS, "-xc", "-", "-o", str(made), "-lm"]
            done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr[:4000]
            if path is not None:
                write_bytes(path, made.read_bytes())
        loaded = ctypes.PyDLL(str(path if path is not None and path.exists() else made))
    # PyDLL keeps Python's lock: memory is static
    loaded.memory_add.argtypes = (ctypes.c_ulonglong, ctypes.c_ulonglong)
    loaded.memory_remove.argtypes = (ctypes.c_ulonglong,)
    loaded.memory_touch.argtypes = (ctypes.c_ulonglong, ctypes.c_ulonglong, ctypes.c_int)
    loaded.memory_add.restype = loaded.memory_remove.restype = None
    return loaded


def execute(
    kernel: Kernel,
    blocks: int,
    threads: tuple[int, int],
    arguments: Sequence[int],
    seed: int = 0,
    limit: int = INSTRUCTIONS,
) -> int:
    """Run a kernel; return how many instructions its threads executed.

    Args:
        kernel: the kernel.
        blocks: how many.
        threads: of a block, along x and y.
        arguments: its parameters.
        seed: decides the order of blocks and warps.
        limit: how many instructions at most.

    Raises:
        PtxFaultError: at the first fault.
    """
    assert len(arguments) == kernel.parameters, f"{kernel.name} has {kernel.parameters} parameters"
    assert 0 < threads[0] * threads[1] <= kernel.threads, f"a GPU refuses to run {threads} threads"
    assert blocks > 0, "a GPU refuses to run no block"
    constants = kernel.constants.copy()
    constants[: kernel.parameters] = np.array([argument % 2**64 for argument in arguments], np.uint64)
    launch = _Launch(
        blocks,
        *threads,
        kernel.registers,
        kernel.shared_bytes,
        kernel.local_bytes,
        len(kernel.shared),
        seed,
        limit,
    )
    report = _Report()
    places = [array.ctypes.data for array in (kernel.code, constants, kernel.special, kernel.shared)]
    failed = library().run(ctypes.byref(launch), *map(ctypes.c_void_p, places), ctypes.byref(report))
    if failed:
        kind = report.kind.decode()
        x, y = report.thread % threads[0], report.thread // threads[0]
        where = f"kernel {kernel.name}, block {report.block}, thread {x}, {y}"
        line = kernel.lines[report.pc]
        who = f"\n  the other: {_who(report.other, threads)}" if kind.startswith("race") else ""
        raise PtxFaultError(kind, f"{where}: {kind}, address {report.address:#x}\n  {line}{who}")
    return report.instructions


def _who(who: int, threads: tuple[int, int]) -> str:
    """Return who touched memory before, in words; see ``Shadow`` in machine.c."""
    kind, number, size = who >> 30, who & ((1 << 29) - 1), threads[0] * threads[1]
    warps = -(-size // 32)
    thread = f"thread {number % size % threads[0]}, {number % size // threads[0]} of block {number // size}"
    warp = f"threads of warp {number % warps} of block {number // warps}"
    return [thread, warp, f"threads of block {number}", "threads of several blocks"][kind]
