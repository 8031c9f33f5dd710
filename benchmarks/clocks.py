"""Clocks in kernels: where a program's CPU time goes, by what its statements do.

An engine makes its kernels of `Statement`s. Here it makes them once more, and the clock is read before
and after each statement that is a matrix product or elementwise: by a line of the kernel's text in the
NumPy engine, by an instruction in the LLVM engine.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from foldbatch import Program
from foldbatch.engines.arrays import ArrayEngine, BatchMemory, Kernels
from foldbatch.engines.bindings import Bound
from foldbatch.engines.launch import LaunchTable
from foldbatch.engines.numpy import kernel as numpy_kernel
from foldbatch.engines.numpy.spelling import SPELLINGS
from foldbatch.static.op import OPS, UNBATCHED
from foldbatch.static.statements import Statement

KINDS = GEMM, ELEMENTWISE, OTHER = "GEMM", "elementwise", "other work of kernels"
PRODUCTS = frozenset({"linear", "linear_by", "matmul", "sum_outer", "sum_outer_by"})

Seconds: TypeAlias = dict[str, float]  # of CPU, by kind of statement


def kind_of(statement: Statement) -> str:
    """Return the kind of a statement; sums, gathering and copies are other work, as are checks.

    >>> from foldbatch.static.op import CALL
    >>> [kind_of(Statement(op, CALL)) for op in ("linear", "loop", "tanh", "sum", "copy")]
    ['GEMM', 'elementwise', 'elementwise', 'other work of kernels', 'other work of kernels']
    """
    if statement.op in PRODUCTS:
        return GEMM
    elementwise = statement.op == "loop" or (statement.op in OPS and OPS[statement.op].elementwise)
    return ELEMENTWISE if elementwise else OTHER


def timed(program: Program, spent: Seconds) -> Program:
    """Return the program with clocks in its kernels, which add to `spent`, where all `KINDS` must be.

    It must run on one thread. Parameters are shared with it. What a clock costs counts as what comes next.
    """
    clock = Clock(spent)
    copy = Program(program.lowered, program.options, program.seed)
    engine = copy._runner.engine
    assert isinstance(engine, ArrayEngine), engine.name

    def make(bound: Bound) -> Kernels:
        with INSERTED[engine.name](clock):
            kernels = engine._make(bound)

        def walk(table: LaunchTable, memory: BatchMemory) -> None:
            clock.start()
            kernels.walk(table, memory)
            clock.lap(OTHER)

        return replace(kernels, walk=walk)

    copy._runner.engine = ArrayEngine(
        engine.name, engine.model, engine.target, make, engine.arithmetic, engine.updates, engine.sum_copies
    )
    return copy


class Clock:
    """A stop watch of the CPU time of the thread that runs, which `spent` is told of."""

    def __init__(self, spent: Seconds) -> None:
        self.spent = spent
        self._then = 0.0

    def start(self) -> None:
        """Begin to measure."""
        self._then = time.thread_time()

    def lap(self, kind: str) -> None:
        """Add what has been spent since the last call to a kind."""
        now = time.thread_time()
        self.spent[kind] += now - self._then
        self._then = now


@contextmanager
def replaced(module: Any, name: str, value: object) -> Iterator[None]:
    """Let a module have another value of a name."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


# -- the NumPy engine: lines in the text of a kernel


@contextmanager
def _in_texts(clock: Clock) -> Iterator[None]:
    spelled = {op: partial(_clocked, spelling) for op, spelling in SPELLINGS.items()}
    called = numpy_kernel.GLOBALS | {"lap": clock.lap}
    with replaced(numpy_kernel, "SPELLINGS", spelled), replaced(numpy_kernel, "GLOBALS", called):
        yield


def _clocked(spelling: Callable[..., list[str]], statement: Statement, *parts: Any) -> list[str]:
    """Return the lines of a statement, between lines that read the clock if its kind is of interest."""
    lines, kind = spelling(statement, *parts), kind_of(statement)
    return lines if kind == OTHER else [f"lap({OTHER!r})", *lines, f"lap({kind!r})"]


# -- the LLVM engine: instructions in the code of a kernel


# How an instruction is called: with pointers to rows and addresses, and to whole numbers.
_INSTRUCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_CALLED: list[Any] = []  # functions whose addresses are in codes


@contextmanager
def _in_codes(clock: Clock) -> Iterator[None]:
    from foldbatch.engines.llvm import op_code  # noqa: PLC0415 - it needs llvmlite
    from foldbatch.engines.llvm.compiling import Native  # noqa: PLC0415

    def stop(kind: str, *arguments: int) -> None:
        clock.lap(kind)

    def native(kind: str) -> Native:
        function = _INSTRUCTION(partial(stop, kind))
        _CALLED.append(function)
        address = ctypes.cast(function, ctypes.c_void_p).value
        assert address is not None, "a function lies somewhere"
        return Native(address, 0)

    laps = {kind: native(kind) for kind in KINDS}
    encode = op_code.encode_statement

    def clocked(coder: Any, statement: Statement) -> None:
        kind = kind_of(statement)
        if kind == OTHER:
            encode(coder, statement)
        else:
            coder.add(laps[OTHER], UNBATCHED, [])
            encode(coder, statement)
            coder.add(laps[kind], UNBATCHED, [])

    with replaced(op_code, "encode_statement", clocked):
        yield


INSERTED: dict[str, Callable[[Clock], AbstractContextManager[None]]] = {
    "numpy": _in_texts,
    "llvm": _in_codes,
}  # by engine, what makes it insert clocks in the kernels that it makes
