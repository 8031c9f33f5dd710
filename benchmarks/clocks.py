"""Clocks in kernels: what a program's statements do, and where its CPU time goes."""

from __future__ import annotations

import ast
import builtins
import time
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from foldbatch.static.kernel import Kernel

from foldbatch import Program

KINDS = GEMM, ELEMENTWISE, OTHER = "GEMM", "elementwise", "other work of kernels"
MOVES = frozenset({"reshape", "transpose", "squeeze", "asarray"})  # calls that touch no elements

Seconds: TypeAlias = dict[str, float]  # of CPU, by kind of statement


def timed(program: Program, spent: Seconds) -> Program:
    """Return the program with clocks in its kernels, which add to `spent`, where all `KINDS` must be.

    Parameters are shared with it; inference has no clocks. What a clock costs counts as the next kind's.
    """
    cells = []
    for cell in program.lowered.cells:
        forward, backward = (
            {stage: _timed(kernel, spent) for stage, kernel in side.items()}
            for side in (cell.forward, cell.backward)
        )
        cells.append(replace(cell, forward=forward, backward=backward, hoisted=None))
    return Program(replace(program.lowered, cells=tuple(cells)), program.options, program.seed)


def _timed(kernel: Kernel, spent: Seconds) -> Kernel:
    """Return a kernel that reads the clock wherever the kind of its statements changes."""
    function = _function(kernel)
    body = ast.parse("_then = _clock()").body
    kinds = [kind_of(statement) for statement in function.body[:-1]]
    for i, (kind, statement) in enumerate(zip(kinds, function.body[:-1], strict=True)):
        body.append(statement)
        if kinds[i + 1 : i + 2] != [kind]:
            lap = f"_now = _clock(); _spent[{kind!r}] += _now - _then; _then = _now"
            body += ast.parse(lap).body
    function.body = [*body, function.body[-1]]
    scope = {**kernel.function.__globals__, "_clock": time.thread_time, "_spent": spent}
    module = ast.fix_missing_locations(ast.Module([function], []))
    exec(builtins.compile(module, f"<timed {kernel.name}>", "exec"), scope)  # noqa: S102 - the text is our own
    # level by level, or there would be no statements to time
    return replace(kernel, function=scope[function.name], levels=None)


def kind_of(statement: ast.stmt) -> str:
    """Return the kind of a kernel's statement; a view's work is not elementwise, nor is a reduction's.

    >>> [kind_of(line) for line in ast.parse("np.matmul(x, w, out=s0); np.tanh(s0, out=s0)").body]
    ['GEMM', 'elementwise']
    >>> [kind_of(line) for line in ast.parse("np.sum(x, axis=0, out=s0); v0 = x[:, 0:3]").body]
    ['other work of kernels', 'other work of kernels']
    """
    if not isinstance(statement, ast.Expr) or array_calls(statement) != 1:
        return OTHER
    assert isinstance(statement.value, ast.Call), ast.unparse(statement)
    name = _called(statement.value)
    if name == "matmul" or name.startswith("product_"):
        return GEMM
    return ELEMENTWISE if name.startswith("loop_") or isinstance(getattr(np, name, None), np.ufunc) else OTHER


def array_calls(statement: ast.stmt) -> int:
    """Return the array calls of a kernel's statement: functions and arithmetic, but not views.

    >>> array_calls(ast.parse("np.multiply(x, y.reshape(3), out=s0)").body[0])
    1
    >>> array_calls(ast.parse("np.log(np.exp(x - top).sum(-1), out=s1)").body[0])
    4
    """
    found = sum(isinstance(node, ast.BinOp) for node in ast.walk(statement))
    found += sum(_called(node) not in MOVES for node in ast.walk(statement) if isinstance(node, ast.Call))
    return found + (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript))


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def array_calls_of(kernel: Kernel) -> int:
    """Return the array calls of one call of a kernel; a loop is one."""
    return sum(map(array_calls, _function(kernel).body))


def _function(kernel: Kernel) -> ast.FunctionDef:
    first = ast.parse(kernel.source).body[0]  # loops follow
    assert isinstance(first, ast.FunctionDef), kernel.name
    return first
