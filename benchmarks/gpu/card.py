"""The card: what the driver says of it, how to wait for it, and which library asks it to work."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from foldbatch.types import BackendName

ASKED = (
    "name",
    "driver_version",
    "memory.total",
    "clocks.sm",
    "clocks.mem",
    "clocks.max.sm",
    "clocks.max.mem",
    "power.draw",
    "temperature.gpu",
)
PACKAGES = "foldbatch", "numpy", "llvm", "torch", "cupy-cuda13x", "cupy-cuda12x", "triton"


@dataclass(frozen=True, slots=True)
class Card:
    """A device that is measured.

    Attributes:
        torch: PyTorch, or None where it is not installed.
        cupy: CuPy, or None.
        device: where PyTorch computes: ``cuda`` or ``cpu``.
        wait: returns when the device has nothing left to do.
    """

    torch: Any
    cupy: Any
    device: str
    wait: Callable[[], None]

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU; else the CPU stands for one, and figures say nothing of GPUs."""
        return self.device == "cuda"

    def forget(self) -> None:
        """Give memory that nobody uses any more back to the card."""
        if self.is_gpu and self.torch is not None:
            self.torch.cuda.empty_cache()
        if self.is_gpu and self.cupy is not None:
            self.cupy.get_default_memory_pool().free_all_blocks()


def find_card(backend: BackendName) -> Card:
    """Return the card that a backend computes on; the CPU stands for one unless the backend is ``cuda``."""
    torch, cupy = imported("torch"), imported("cupy") if backend == "cuda" else None
    if backend != "cuda":
        if torch is not None:
            torch.set_num_threads(1)  # models are tiny there
        return Card(torch, None, "cpu", lambda: None)
    if torch is not None and torch.cuda.is_available():
        return Card(torch, cupy, "cuda", torch.cuda.synchronize)  # one context: it waits for CuPy's work, too
    wait = (lambda: None) if cupy is None else lambda: cupy.cuda.Device().synchronize()
    return Card(None, cupy, "cuda", wait)


def imported(name: str) -> Any:
    """Return a module; None where it is not installed, or cannot be imported."""
    try:
        return import_module(name)
    except (ImportError, OSError):
        return None


def facts() -> dict[str, Any]:
    """Return what is known of the machine: the driver's words on the card, processor, versions."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "card": told(ASKED),
        "processor": platform.machine(),
        "python": platform.python_version(),
        **versions,
    }


def told(fields: tuple[str, ...]) -> dict[str, str]:
    """Return what ``nvidia-smi`` says of the first card, by field; nothing where there is none."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return {}
    try:
        done = subprocess.run(  # noqa: S603 - fixed arguments
            [command, f"--query-gpu={','.join(fields)}", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    values = done.stdout.strip().splitlines()[:1]
    if done.returncode or not values:
        return {}
    return dict(zip(fields, (value.strip() for value in values[0].split(",")), strict=False))
