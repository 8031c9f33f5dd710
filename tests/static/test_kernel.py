"""Kernels are ordinary functions whose text can be read."""

from __future__ import annotations

import linecache
import traceback

import numpy as np
import pytest

from foldbatch.static import ops
from foldbatch.static.graph import Graph, input_node
from foldbatch.static.kernel import Kernel, load
from foldbatch.types import TensorType
from tests.static.run_kernel import NUMPY, compile_graph


def _kernel(name: str, scale: float) -> Kernel:
    x = input_node(TensorType((2,), "float64"))
    graph = Graph((x,), (ops.exp(x) * np.array([1.0, scale]),))
    return load(name, compile_graph(graph), (("value", 0),), NUMPY)


def test_a_kernel_computes_with_the_constants_of_its_text() -> None:
    """Rows in, rows out, in the buffer that it is given."""
    kernel = _kernel("doubling", 2.0)
    out = np.empty((3, 2))
    arrays = {"operand": np.zeros((3, 2)), "rows": 3, "scratch": out}
    (found,) = kernel.function(*[arrays[argument.kind] for argument in kernel.arguments])
    assert found is out
    assert out.tolist() == [[1.0, 2.0]] * 3
    assert kernel.calls == 2
    assert kernel.results == (("value", 0),)


def test_a_traceback_shows_the_line_that_failed() -> None:
    """The text is registered, also where two kernels of one name differ."""
    kernel = _kernel("same name", 2.0)
    x = input_node(TensorType((2,), "float64"))
    load("same name", compile_graph(Graph((x,), (ops.tanh(x),))), (("value", 0),), NUMPY)
    with pytest.raises(TypeError) as error:
        kernel.function(None, 3, None)
    text = "".join(traceback.format_tb(error.value.__traceback__))
    assert "np.exp(x0, out=s0)" in text
    assert "same name" in text


def test_loading_again_registers_no_second_text() -> None:
    """The registered texts are bounded by the texts there are."""
    _kernel("again", 2.0)
    before = len(linecache.cache)
    _kernel("again", 2.0)
    assert len(linecache.cache) == before
