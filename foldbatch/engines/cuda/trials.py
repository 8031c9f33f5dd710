"""Kernels on trial: right on the CPU, measured by no card yet, so none runs unless the environment names it.

``FOLDBATCH_CUDA_TRIALS=rows,readers`` lets programs that are compiled from then on use these kernels in place
of those that do the same work by default. `benchmarks.gpu.trials` measures each beside the default.
"""

from __future__ import annotations

from collections.abc import Mapping

from foldbatch.errors import UnknownNameError

VARIABLE = "FOLDBATCH_CUDA_TRIALS"
TRIALS = {  # what each does otherwise than the default
    "rows": "products of few rows compute 8 or 16 rows a block from 64 rows on, and go up to 384 rows",
    "readers": "a value is written by reader, and the cotangents of its readers are summed 32 at a time",
}


def trials_of(environment: Mapping[str, str]) -> frozenset[str]:
    """Return the trials that an environment names, separated by commas; none where it has no such variable.

    Raises:
        UnknownNameError: when a name is no trial's.

    >>> sorted(trials_of({"FOLDBATCH_CUDA_TRIALS": "rows, readers"})), sorted(trials_of({}))
    (['readers', 'rows'], [])
    """
    names = frozenset(name.strip() for name in environment.get(VARIABLE, "").split(",") if name.strip())
    for name in sorted(names - TRIALS.keys()):
        raise UnknownNameError(VARIABLE, f"some of {', '.join(TRIALS)}", repr(name))
    return names
