"""Writing the tracing program: names, bodies, and where each statement comes from."""

from __future__ import annotations

import pytest

import foldbatch as fb
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.tracing import Blame, Return
from foldbatch.blocks.values import Object
from foldbatch.blocks.writer import LONGEST, shown
from foldbatch.types import OBJECT, VOID
from tests.blocks.printed import lines, lines_of


@pytest.fixture
def builder():
    """A builder inside a function; its lines are the first function's."""
    return Builder.scratch("root")


def test_the_path_says_where_a_block_stands(builder):
    with builder.at("['a']"), builder.at("[0]"):
        assert builder.path == "root['a'][0]"
        assert builder.where(fb.Identity()) == "root['a'][0] Identity()"
    assert builder.path == "root"


def test_a_path_is_left_even_on_an_error(builder):
    with pytest.raises(ZeroDivisionError), builder.at(".map"), builder.inside(loop=True):
        builder.assign("x", str(1 / 0))
    assert builder.path == "root"
    builder.assign("x", "after")
    assert lines(builder) == ["x = after"]


def test_a_root_that_names_the_block_is_not_repeated(builder):
    block = fb.GetItem(0)
    builder.root = f"Scalar('float32') >> {block!r}"
    assert builder.where(block) == "Scalar('float32') >> GetItem(0)"
    assert builder.where(fb.Identity()) == "Scalar('float32') >> GetItem(0) Identity()"
    with builder.at("[0]"):
        assert builder.where(block) == "Scalar('float32') >> GetItem(0)[0] GetItem(0)"


def test_names_are_new_whatever_their_stem(builder):
    assert len({builder.fresh(stem) for stem in "aab" for _ in range(5)}) == 15


def test_a_constant_has_a_name_of_its_own(builder):
    a, b = object(), object()
    constants = [builder.constant("key", value) for value in (a, b, a)]
    assert len({constant.name for constant in constants}) == 3
    assert [constant.value for constant in constants] == [a, b, a]


def test_a_statement_remembers_where_it_is_from_and_what_it_looks_at(builder):
    subject = Object("x", ("['a']",))
    with builder.at("[0]"):
        function = builder.constant("fn", len)
        found = builder.apply(function, subject, place=("['b']",), expected="a length", calls="len")
        builder.add(Return(builder.blame(where="elsewhere"), ()))
    assert found.place == ("['b']",)
    first, second = (statement.blame for statement in builder._body)
    assert lines(builder) == [f"{found.expression} = {function.name}(x)", "return ()"]
    assert first == Blame("root[0]", "x", ("['a']",), "a length", "len")
    assert second == Blame("elsewhere")


def test_a_body_has_a_region_of_its_own(builder):
    outer = builder.region
    with builder.inside() as body:
        assert (inner := builder.region) is not outer
        with builder.inside() as other:
            assert builder.region is not inner
            builder.assign("y", "x")
        builder.assign("z", "x")
    assert builder.region is outer
    assert [lines_of(tuple(part)) for part in (other, body)] == [["y = x"], ["z = x"]]
    assert lines(builder) == []


def test_functions_are_written_apart():
    builder = Builder("root")
    outer, inner = (builder.declare(name, name, OBJECT, VOID) for name in ("outer", "inner"))
    with builder.define(outer, "outer"), builder.at("[1]"):
        with builder.define(inner, "inner"):
            assert builder.path == "inner"
            builder.assign("b", "x")
        assert builder.path == "outer[1]"
        builder.assign("a", "x")
    assert [lines_of(f.body) for f in (outer, inner)] == [["a = x"], ["b = x"]]


def test_a_long_block_is_shown_by_its_kind():
    edge = "x" * (LONGEST - 2)
    assert shown(edge) == repr(edge)
    assert shown(edge + "x") == "str(...)"
    assert shown(fb.AllOf(*[fb.Identity()] * 9)) == "AllOf(...)"
