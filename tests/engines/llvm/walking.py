"""Tests that NumPy's kernels pass, for codes: a fixture that lets the walker run their launches."""

from collections.abc import Iterator, Sequence
from ctypes import CFUNCTYPE, c_void_p
from typing import Any

import numpy as np
import pytest

from foldbatch.engines.launch import LaunchTable
from foldbatch.engines.llvm.op_code import encode
from foldbatch.params.parameters import Array
from foldbatch.static.statements import Routine
from tests.engines.numpy import launching

CALLED = CFUNCTYPE(None, c_void_p, c_void_p)  # what `compiling.native` makes


def run_table(table: LaunchTable, routine: Routine, buffers: Sequence[Array]) -> None:
    """Run a table of launches of one routine as the LLVM engine does."""
    from foldbatch.engines.llvm.walker import Walker  # noqa: PLC0415 - it needs llvmlite

    whole = [
        np.ascontiguousarray(buffer) for buffer in buffers
    ]  # of data, which is read: as engines bring it
    addresses = np.array([buffer.__array_interface__["data"][0] for buffer in whole], np.int64)
    Walker([encode(routine)]).run(table, addresses)


def run_native(text: str, rows: int, places: Sequence[Array], statics: Sequence[int]) -> None:
    """Call a text's function on arrays that lie in memory anyhow."""
    from foldbatch.loops.compiling import native  # noqa: PLC0415 - it needs llvmlite

    call_native(native(text), rows, places, statics)


def call_native(function: Any, rows: int, places: Sequence[Array], statics: Sequence[int]) -> None:
    told = np.array([rows, *(place.__array_interface__["data"][0] for place in places)], np.int64)
    numbers = np.array([*statics, 0], np.int64)
    CALLED(function.address)(told.ctypes.data, numbers.ctypes.data)


@pytest.fixture(autouse=True)
def by_llvm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    pytest.importorskip("llvmlite", reason="llvmlite is not installed")
    monkeypatch.setattr(launching, "run_table", run_table)
    yield
