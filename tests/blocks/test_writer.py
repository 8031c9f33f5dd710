"""Writing the tracing program: names, indented lines, and where each line comes from."""

from __future__ import annotations

import pytest

import foldbatch as fb
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.values import Object
from foldbatch.blocks.writer import LONGEST, shown
from foldbatch.types import OBJECT, VOID


@pytest.fixture
def builder():
    """A builder inside a function; its lines are the first function's."""
    return Builder.scratch("root")


def lines(builder):
    return builder.functions[0].lines


def test_the_path_says_where_a_block_stands(builder):
    with builder.at("['a']"), builder.at("[0]"):
        assert builder.path == "root['a'][0]"
        assert builder.where(fb.Identity()) == "root['a'][0] Identity()"
    assert builder.path == "root"


def test_a_path_is_left_even_on_an_error(builder):
    with pytest.raises(ZeroDivisionError), builder.at(".map"), builder.indented("for x in y:"):
        builder.line(str(1 / 0))
    assert builder.path == "root"
    builder.line("after")
    assert lines(builder)[-1].text == "    after"


def test_a_root_that_names_the_block_is_not_repeated(builder):
    block = fb.GetItem(0)
    builder.root = f"Scalar('float32') >> {block!r}"
    assert builder.where(block) == "Scalar('float32') >> GetItem(0)"
    assert builder.where(fb.Identity()) == "Scalar('float32') >> GetItem(0) Identity()"
    with builder.at("[0]"):
        assert builder.where(block) == "Scalar('float32') >> GetItem(0)[0] GetItem(0)"


def test_names_are_new_whatever_their_stem(builder):
    assert len({builder.fresh(stem) for stem in "aab" for _ in range(5)}) == 15


def test_a_constant_is_visible_to_the_program_by_a_name_of_its_own(builder):
    a, b = object(), object()
    names = [builder.constant("key", value) for value in (a, b, a)]
    assert len(set(names)) == 3
    assert [builder.globals[name] for name in names] == [a, b, a]


def test_a_line_remembers_where_it_is_from_and_what_it_looks_at(builder):
    subject = Object("x", ("['a']",))
    with builder.at("[0]"):
        found = builder.assign("x.y", ("['a']", ".y"), subject, "an attribute", calls="y")
        builder.line("pass", where="elsewhere")
    assert found.place == ("['a']", ".y")
    first, second = lines(builder)
    assert (first.text, first.where, first.subject) == (f"    {found.code} = x.y", "root[0]", subject)
    assert (first.expected, first.calls) == ("an attribute", "y")
    assert (second.where, second.subject) == ("elsewhere", None)


def test_a_region_is_indented_and_has_values_of_its_own(builder):
    outer = builder.region
    with builder.indented("if x:") as inner:
        assert builder.region is inner is not outer
        with builder.indented("for y in x:"):
            builder.line("y")
    assert builder.region is outer
    assert [line.text for line in lines(builder)] == [
        "    if x:",
        "        for y in x:",
        "            y",
        "            pass",
        "        pass",
    ]


def test_functions_are_written_apart():
    builder = Builder("root")
    outer, inner = (builder.declare(name, name, OBJECT, VOID) for name in ("outer", "inner"))
    with builder.define(outer, "outer"), builder.at("[1]"):
        with builder.define(inner, "inner"):
            assert builder.path == "inner"
            builder.line("b")
        assert builder.path == "outer[1]"
        builder.line("a")
    assert [[line.text for line in f.lines] for f in (outer, inner)] == [["    a"], ["    b"]]


def test_a_long_block_is_shown_by_its_kind():
    edge = "x" * (LONGEST - 2)
    assert shown(edge) == repr(edge)
    assert shown(edge + "x") == "str(...)"
    assert shown(fb.AllOf(*[fb.Identity()] * 9)) == "AllOf(...)"
