"""The guard of CPython's and NumPy's structs: what it reads, and that each wrong offset is noticed."""

import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.errors import BackendError, SlowPathWarning
from foldbatch.loops import closures, compiling, cpython
from foldbatch.trees import Tree, tree
from tests.backends import lacking

OFFSETS = (
    *("TYPE", "COUNT", "ITEMS", "ROOM", "FIRST", "REAL", "TAG", "DIGITS", "SHIFT", "SIGNS"),
    *("NUMBERS", "AXES", "EXTENTS", "DTYPE", "FLAGS", "LETTER", "ORDER"),
)
OF_ARRAYS = ("TYPE", "NUMBERS", "AXES", "EXTENTS", "DTYPE", "FLAGS", "LETTER", "ORDER")


@pytest.fixture(autouse=True)
def _looks_again() -> Iterator[None]:
    """The guard looks once a process; here it does before and after each test."""
    known = cpython.readable, cpython.array_misfit, compiling.can_compile
    for function in known:
        function.cache_clear()
    yield
    for function in known:
        function.cache_clear()


def test_this_python_fits() -> None:
    assert cpython.misfit() == ""
    assert cpython.readable()


@pytest.mark.parametrize("name", OFFSETS)
@pytest.mark.parametrize("moved", [-1, 1, 2])
def test_a_wrong_offset_is_noticed(name: str, moved: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is read through it."""
    if name == "SIGNS" and sys.version_info < (3, 12):
        pytest.skip("integers have no mask before Python 3.12")
    if (name, moved) == ("SIGNS", -1):
        pytest.skip("signs are 0, 1 and 2: the upper bit of the mask tells negative numbers alone")
    monkeypatch.setattr(cpython, name, getattr(cpython, name) + moved)
    assert cpython.misfit()
    assert bool(cpython.array_misfit()) == (name in OF_ARRAYS)


@given(st.one_of(st.integers(-(2**130), 2**130), st.integers(0, 2**62), st.integers(-(2**31), 2**31)))
def test_whole_numbers_are_read_as_they_are(number: int) -> None:
    assert cpython._whole_number(number) == (number if 0 <= number < 2**60 else -1)


@given(st.one_of(st.floats(), st.booleans(), st.just(None)))
def test_nothing_else_is_a_whole_number(thing: Any) -> None:
    assert cpython._whole_number(thing) == -1


def test_no_byte_behind_an_object_is_read() -> None:
    def allowed(thing: Any, size: int) -> memoryview:
        extent = type(thing).__basicsize__ if type(thing) in (list, np.ndarray) else thing.__sizeof__()
        assert size <= extent, f"{size} bytes of {thing!r}, which has {extent}"
        return taken(thing, size)

    taken = cpython.bytes_of
    with mock.patch.object(cpython, "bytes_of", side_effect=allowed) as read:
        assert cpython.misfit() == ""
    assert read.call_count > 12


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda patch: patch.setattr(sys.implementation, "name", "pypy"), "Python of pypy"),
        (lambda patch: patch.setattr(cpython, "NEWEST", (3, 10)), "CPython 3"),
        (lambda patch: patch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False), "global lock"),
        (lambda patch: patch.setattr(cpython, "FIRST", 1), "tuples with another memory layout"),
    ],
)
def test_the_guard_says_why_it_stands_aside(
    change: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once."""
    change(monkeypatch)
    with pytest.warns(SlowPathWarning, match=reason) as caught:
        assert not cpython.readable()
        assert not cpython.readable()
    assert len(caught) == 1


@pytest.mark.skipif(bool(lacking("llvm")), reason=lacking("llvm"))
def test_programs_are_right_where_the_guard_stands_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks, trees and walks, with the LLVM engine, whose kernels read no objects."""
    word = fb.InputTransform(lambda node: [len(node.token or "")]) >> fb.Vector(1) >> fb.Linear(3)
    forward = fb.ForwardDeclaration(output_type=fb.types.TensorType((3,), "float32"))
    inner = fb.InputTransform(list) >> fb.Map(forward()) >> fb.Sum()
    block = fb.OneOf(lambda node: node.is_leaf, {True: word, False: inner})
    forward.resolve_to(block)
    trees = [Tree.from_nested(("S", ("NP", "a"), ("VP", ("V", "word"), ("N", "here")))), Tree.leaf(None, "x")]
    expected = fb.compile(block, "llvm").run(trees)
    cpython.readable.cache_clear()
    monkeypatch.setattr(cpython, "FIRST", 1)
    monkeypatch.setattr(tree.NodeFactory, "nodes", None)
    with pytest.warns(SlowPathWarning):
        program = fb.compile(block, "llvm")
    again = [Tree(example.parents, example.labels, example.tokens) for example in trees]
    np.testing.assert_array_equal(program.run(again), expected)
    assert tree.NodeFactory.nodes is None
    assert not closures.can_close()


def test_arrays_that_lie_otherwise_leave_all_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing compiled can be called, so the backend llvm is refused."""
    monkeypatch.setattr(cpython, "EXTENTS", cpython.EXTENTS + 1)
    pytest.importorskip("llvmlite")
    with pytest.raises(BackendError, match="backend llvm: expected arrays of NumPy as its C API has them"):
        compiling.llvm()
    with pytest.warns(SlowPathWarning, match="compiled code: expected arrays of NumPy as its C API has them"):
        assert fb.compile(fb.Vector(1) >> fb.Linear(2)).engine.name == "numpy"
