"""Long lines: what threads of a row find together is what one thread finds alone, and what NumPy finds."""

from functools import cache
from unittest import mock

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.line_texts import LONG, long_phases
from foldbatch.static.op import CALL
from foldbatch.static.places import Place
from foldbatch.static.statements import Statement
from tests.engines.cuda import on_cpu
from tests.ptx.driver import PtxDriver
from tests.ptx.needed import needs_ptx

FUNCTIONS = {
    "softmax": lambda x: ops.softmax(x * 2),
    "log_softmax": ops.log_softmax,
    "logsumexp": ops.logsumexp,
    "max": lambda x: ops.max(x + 1, axis=0),
    "argmax": lambda x: ops.argmax(x, axis=0),
    "sum": lambda x: (x * x).sum(),
    "cross_entropy": lambda x: ops.cross_entropy(x * 3, ops.argmax(x, axis=0)),
}


def model(width: int) -> fb.Block:
    return fb.Map(fb.Vector(width) >> fb.AllOf(*(fb.Function(f) for f in FUNCTIONS.values())))


def examples(width: int) -> list[list[np.ndarray]]:
    """Return sequences of vectors, with equal greatest numbers, infinities and NaN in some."""
    rng = np.random.default_rng(3)
    made = [[rng.normal(size=width).astype("float32") for _ in range(count)] for count in (4, 0, 5)]
    made[0][1][[3, width - 2]] = 9.0
    made[0][2][7] = np.inf
    made[2][0][5] = -np.inf
    made[2][1][[6, width - 1]] = np.nan
    made[2][2][:] = 1.0
    return made


def compared(width: int, backend: str = "cuda-on-cpu") -> None:
    given = examples(width)
    found = fb.compile(model(width), backend, debug=True).run(given)
    right = fb.compile(model(width), "reference").run(given)
    for one, other in zip(found, right, strict=True):
        for values, wanted in zip(one, other, strict=True):
            for name, x, y in zip(FUNCTIONS, values, wanted, strict=True):
                np.testing.assert_allclose(x, y, rtol=3e-6, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("width", [LONG - 1, LONG, 300])
def test_lines_of_any_length_are_those_of_the_reference(width):
    compared(width)


def test_threads_share_long_lines_only():
    texts = [fb.compile(model(width), "cuda-on-cpu").kernels(whole=True) for width in (LONG - 1, LONG)]
    assert ["SHARED" in text for text in texts] == [False, True]


@needs_ptx
def test_threads_of_a_block_find_the_same():
    device = cache(lambda: Device(PtxDriver()))
    with mock.patch.object(on_cpu, "device", device):
        compared(LONG + 5)


def test_other_ops_have_no_phases():
    scratch = Place(0, CALL, 200, 0, (200,), (1,))
    assert long_phases(Statement("tanh", CALL, (scratch,), scratch)) == []
