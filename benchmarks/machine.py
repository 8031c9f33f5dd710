"""The machine line: what figures depend on, and what about this machine should keep anyone from comparing."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

FORCED = "OPENBLAS_CORETYPE"


@dataclass(frozen=True, slots=True)
class Blas:
    """A BLAS library that is loaded.

    Attributes:
        name: the library's, `version` its own.
        kernels: the processor that it computes for (its kernel architecture).
        threads: that it uses, unless held to fewer, as programs do.
    """

    name: str
    version: str
    kernels: str
    threads: int


@dataclass(frozen=True, slots=True)
class Machine:
    """What figures depend on.

    Attributes:
        processor: its model's name.
        cores: of the machine; `usable` are those this process may use.
        load: the mean number of processes that wanted to run in the last minute, before this one did.
        blas: the libraries that NumPy multiplies with.
        versions: of Python and of the packages that matter; of what is not installed there is none.
        forced: the kernels that the environment forces on OpenBLAS; empty if none.
    """

    processor: str
    cores: int
    usable: int
    load: float
    blas: tuple[Blas, ...]
    versions: dict[str, str]
    forced: str

    def __str__(self) -> str:
        libraries = [
            f"{b.name} {b.version} ({b.kernels} kernels, {b.threads} thread{'s' * (b.threads > 1)})"
            for b in self.blas
        ]
        cores = f"{self.cores} cores" + (f" ({self.usable} usable)" if self.usable != self.cores else "")
        packages = [f"{name} {number}" for name, number in self.versions.items()]
        parts = [self.processor, cores, " and ".join(libraries) or "unknown BLAS", *packages]
        lines = [", ".join([*parts, f"load {self.load:.2f} at the start"])]
        if self.forced:
            lines.append(
                f"{FORCED}={self.forced} forces these kernels on OpenBLAS: products may run slower than the "
                "processor can."
            )
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def machine() -> Machine:
    """Return what is known of this machine now."""
    blas = tuple(
        Blas(
            library["internal_api"],
            str(library["version"]),
            library.get("architecture", "unknown"),
            library["num_threads"],
        )
        for library in threadpool_info()
        if library["user_api"] == "blas"
    )
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Machine(
        _processor(),
        os.cpu_count() or 1,
        usable,
        os.getloadavg()[0],
        blas,
        {"Python": platform.python_version(), "NumPy": np.__version__, **_packages("llvm", "foldbatch")},
        os.environ.get(FORCED, ""),
    )


def _packages(*names: str) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123 - no real file
            names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
