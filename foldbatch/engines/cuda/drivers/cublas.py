"""Matrix products by cuBLAS, called by ctypes: a handle of our own, for one stream, with memory of its own.

CuPy's functions would do but for one thing: each call binds the handle to CuPy's current stream, and with
that cuBLAS forgets the memory it was given. Without such memory a CUDA graph can hold no product.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from foldbatch.engines.cuda.drivers.driver import MatrixProduct
from foldbatch.errors import BackendError

WORKSPACE = 1 << 25  # bytes, which is what NVIDIA recommends for its largest GPUs

# Values of cuBLAS's and CUDA's enumerations.
KINDS = {"float32": 0, "float64": 1}
COMPUTE = {"fp32": 68, "tf32": 77, "bf16": 75}
COMPUTE_F8 = 70
DEFAULT_MATH = 0  # as exact as the operands: with `COMPUTE["fp32"]`, no operand is shortened
DEFAULT_ALGORITHM = -1


def as_columns(p: MatrixProduct) -> tuple[int, ...]:
    """Return a product of matrices row by row as the same product column by column.

    A matrix that lies row by row is, read column by column, the transposed one. So cuBLAS is asked for
    ``C^T = B^T A^T``: the operands change places, and nothing is transposed that was not across before.

    It is whether op(A) and op(B) are transposed (1 or 0); rows, columns and what is summed over; and of each
    matrix the address of the first, from one column to the next, and from one matrix to the next.

    >>> as_columns(MatrixProduct("float32", 2, 3, 4, a=256, b=512, c=768, a_lead=4, b_lead=3, c_lead=3))[:5]
    (0, 0, 3, 2, 4)
    """
    operands = p.b, p.b_lead, p.b_step, p.a, p.a_lead, p.a_step, p.c, p.c_lead, p.c_step
    return int(p.b_across), int(p.a_across), p.n, p.m, p.k, *operands


def stretches(p: MatrixProduct) -> list[tuple[int, int]]:
    """Return where the results of a product lie: the address and the bytes of each stretch of memory."""
    size = 4 if p.dtype == "float32" else 8
    rows, row = (1, p.m * p.n) if p.c_lead == p.n else (p.m, p.n)
    count, step = p.count, p.c_step
    if rows == 1 and step == row:
        count, row = 1, row * count
    return [
        (p.c + (i * step + r * p.c_lead) * size, row * size) for i in range(count) for r in range(rows) if row
    ]


class Blas:
    """Products on one stream, for one thread at a time.

    Args:
        library: cuBLAS, loaded by ctypes.
        stream: the address of the stream.
        workspace: memory for cuBLAS alone, of `WORKSPACE` bytes.
        precision: a name in `COMPUTE`: what products of float32 are computed with.

    Raises:
        BackendError: when cuBLAS cannot work.
    """

    def __init__(self, library: Any, stream: int, workspace: Any, precision: str) -> None:
        self._library = library
        self._workspace = workspace  # held as long as the handle may use it
        self._handle = ctypes.c_void_p()
        library.cublasGetStatusString.restype = ctypes.c_char_p
        self._checked(library.cublasCreate_v2(ctypes.byref(self._handle)))
        self._checked(library.cublasSetStream_v2(self._handle, ctypes.c_void_p(stream)))
        memory, size = ctypes.c_void_p(workspace.pointer), ctypes.c_size_t(workspace.nbytes)
        self._checked(library.cublasSetWorkspace_v2(self._handle, memory, size))  # after the stream
        self._checked(library.cublasSetMathMode(self._handle, DEFAULT_MATH))
        self._compute = {"float32": COMPUTE[precision], "float64": COMPUTE_F8}
        self._numbers = {
            "float32": (ctypes.c_float(0), ctypes.c_float(1)),
            "float64": (ctypes.c_double(0), ctypes.c_double(1)),
        }
        self._constants = {
            dtype: [ctypes.c_void_p(ctypes.addressof(number)) for number in numbers]
            for dtype, numbers in self._numbers.items()
        }
        # Objects of 64 bits are used again: to make them takes as long as a call. Other numbers are C ints.
        self._words = [ctypes.c_void_p() for _ in "abc"], [ctypes.c_longlong() for _ in "abc"]

    def multiply(self, product: MatrixProduct) -> None:
        """Do products of matrices, none of which is empty.

        Raises:
            BackendError: when cuBLAS refuses.
        """
        (a, b, c), (step_a, step_b, step_c) = self._words
        across_a, across_b, m, n, k, *places = as_columns(product)
        a.value, lead_a, step_a.value, b.value, lead_b, step_b.value, c.value, lead_c, step_c.value = places
        kind, compute = KINDS[product.dtype], self._compute[product.dtype]
        zero, one = self._constants[product.dtype]
        beta = one if product.adds else zero
        head = (self._handle, across_a, across_b, m, n, k, one)
        if product.count == 1:
            operands = (a, kind, lead_a, b, kind, lead_b, beta, c, kind, lead_c)
            status = self._library.cublasGemmEx(*head, *operands, compute, DEFAULT_ALGORITHM)
        else:
            batched = (a, kind, lead_a, step_a, b, kind, lead_b, step_b, beta, c, kind, lead_c, step_c)
            status = self._library.cublasGemmStridedBatchedEx(
                *head, *batched, product.count, compute, DEFAULT_ALGORITHM
            )
        if status:
            self._checked(status)

    def _checked(self, status: int) -> None:
        if status:
            said = self._library.cublasGetStatusString(status).decode()
            fix = "look for an earlier error of the GPU, and whether its memory suffices"
            raise BackendError("backend cuda", "cuBLAS to multiply matrices", said, fix)

    def __del__(self) -> None:
        if self._handle.value and not sys.is_finalizing():
            self._library.cublasDestroy_v2(self._handle)
