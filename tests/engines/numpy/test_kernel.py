"""Kernels are ordinary functions whose text can be read, in tracebacks too."""

from __future__ import annotations

import traceback

import numpy as np
import pytest

from foldbatch.engines.numpy.kernel import NumPyKernel, load
from foldbatch.engines.numpy.text import text_of
from foldbatch.static import ops
from foldbatch.static.graph import Graph, input_node
from foldbatch.types import TensorType
from tests.static.run_kernel import interpret, random_rows, routine_of_graph, run_graph


def _graph(scale: float) -> Graph:
    x = input_node(TensorType((2,), "float64"))
    return Graph((x,), (ops.exp(x) * np.array([1.0, scale]),))


def _kernel(name: str, scale: float) -> NumPyKernel:
    return load(routine_of_graph(_graph(scale)), name)


def test_a_kernel_is_the_function_of_its_text() -> None:
    kernel = _kernel("doubling", 2.0)
    assert kernel.name == "doubling"
    assert kernel.source == text_of(routine_of_graph(_graph(2.0)))
    assert kernel.function.__name__ == "kernel"


def test_kernels_of_one_text_compute_with_constants_of_their_own() -> None:
    """An array stands in a buffer of the batch, not in the text."""
    assert _kernel("a", 2.0).source == _kernel("a", 3.0).source
    for scale in (2.0, 3.0):
        graph = _graph(scale)
        rows = random_rows(np.random.default_rng(0), graph, 3)
        np.testing.assert_allclose(run_graph(graph, rows)[0], interpret(graph, rows)[0])


def test_a_traceback_shows_the_line_that_failed() -> None:
    """The text is registered, also where two kernels of one name differ."""
    kernel = _kernel("same name", 2.0)
    x = input_node(TensorType((2,), "float64"))
    load(routine_of_graph(Graph((x,), (ops.tanh(x),))), "same name")
    with pytest.raises(TypeError) as error:
        kernel.function(np.array([[0, 1]]), None, np.zeros(0, np.int64), [])  # type: ignore[arg-type]
    text = "".join(traceback.format_tb(error.value.__traceback__))
    assert kernel.source.splitlines()[1].strip() in text
    assert "<foldbatch numpy kernel same name" in text
    assert "same name" in text
