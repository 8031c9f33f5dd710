"""Buffers outlive batches and settle."""

from __future__ import annotations

import numpy as np

from foldbatch.engines.workspace import Workspace
from foldbatch.types import TensorType

V = TensorType((3,))


def test_a_buffer_is_the_same_memory_while_it_suffices() -> None:
    """Fewer rows are its leading part."""
    workspace = Workspace()
    whole = workspace.rows("a", V, 5)
    assert (whole.shape, whole.dtype) == ((5, 3), np.float32)
    whole[:] = 7
    part = workspace.rows("a", V, 2)
    assert part.shape == (2, 3)
    assert np.shares_memory(part, whole)
    assert (part == 7).all()
    assert not np.shares_memory(workspace.rows("b", V, 5), whole)


def test_a_buffer_of_no_rows_is_an_array() -> None:
    """An empty batch asks for such."""
    assert Workspace().rows("a", V, 0).shape == (0, 3)


def test_growth_is_geometric() -> None:
    """A batch a row larger each time allocates seldom."""
    workspace = Workspace()
    seen = {workspace.rows("a", V, rows).ctypes.data for rows in range(1, 1000)}
    assert len(seen) < 40
    assert 1000 * V.nbytes <= workspace.nbytes <= 1.3 * 1000 * V.nbytes


def test_single_has_the_types_own_shape() -> None:
    """Also of a scalar: an array that kernels can write to."""
    workspace = Workspace()
    one = workspace.single("s", TensorType((), "float64"))
    assert one.shape == ()
    one[...] = 3
    assert workspace.single("s", TensorType((), "float64")) == 3


def test_bytes_are_those_of_all_buffers() -> None:
    """Whatever their types."""
    workspace = Workspace()
    workspace.rows("a", V, 2)
    workspace.rows("b", TensorType((), "bool"), 5)
    assert workspace.nbytes == 2 * 12 + 5


def test_poison_fills_what_is_float() -> None:
    """At once where asked to, and ever new buffers of a poisoned workspace."""
    workspace = Workspace()
    floats, ints = workspace.rows("a", V, 2), workspace.rows("b", TensorType((2,), "int32"), 2)
    floats[:] = ints[:] = 1
    workspace.poison()
    assert np.isnan(floats).all()
    assert (ints == 1).all()
    assert np.isnan(Workspace(poisoned=True).rows("a", V, 2)).all()
