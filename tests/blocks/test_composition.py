"""Compositions: blocks wired in any acyclic way, used like any other block."""

import threading

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import BlockTypeError, BlockUseError, BlockValueError
from tests.blocks.results import yields

ONE = fb.Scalar()
V = fb.Vector(2)
ADD = fb.Function(lambda a, b: a + b)
LESS = fb.Function(lambda a, b: a - b)
TWICE = fb.Function(lambda x: 2 * x)


def wired(wire, name="c"):
    """A composition that a function wires."""
    c = fb.Composition(name)
    with c.scope() as opened:
        assert opened is c
        wire(c)
    return c


def test_what_is_read_is_one_value_a_tuple_or_nothing():
    keep = fb.Identity()
    for wire, right in [
        (lambda c, a, b: c.output.reads(a), 1.0),
        (lambda c, a, b: c.output.reads(a, b), (1.0, 2.0)),
        (lambda c, a, b: c.output.reads((a, b)), (1.0, 2.0)),
        (lambda c, a, b: c.output.reads([a, b]), (1.0, 2.0)),
        (lambda c, a, b: c.output.reads((a,)), (1.0,)),
        (lambda c, a, b: c.output.reads(()), ()),
        (lambda c, a, b: c.output.reads(a, (b, (a,))), (1.0, (2.0, (1.0,)))),
        (lambda c, a, b: c.output.reads(keep.reads(a, b)), (1.0, 2.0)),
        (lambda c, a, b: c.output.reads(keep.reads((a, b), a)), ((1.0, 2.0), 1.0)),
        (lambda c, a, b: c.output.reads(LESS.reads(a, b)), -1.0),
        (lambda c, a, b: c.output.reads(LESS.reads(keep.reads(b, a))), 1.0),
        (lambda c, a, b: c.output.reads(fb.FromTensor(np.float32(3)).reads()), 3.0),
        (lambda c, a, b: c.output.reads(fb.Void().reads(a, b)), None),
    ]:
        block = fb.Composition()
        with block.scope():
            a, b = ONE.reads(block.input["a"]), ONE.reads(block.input["b"])
            fb.Void().reads(a, b)  # or what is not read would be refused
            wire(block, a, b)
        yields(block, ({"a": 1, "b": 2}, right))


def test_connect_is_reads_as_fold_writes_it():
    c, less = fb.Composition("c"), fb.Function(lambda a, b: a - b)
    with c.scope():
        c.connect((c.input[1], c.input[0]), less)
        c.connect(less, c.output)
    yields(fb.Record((ONE, ONE)) >> c, ([5.0, 2.0], -3.0))


def test_wires_select_items_and_slices_of_objects_tuples_and_sequences():
    three = fb.Record((ONE, ONE, ONE))
    numbers = fb.Map(ONE)
    for wire, right in [
        (lambda c: three.reads(c.input)[1], 2.0),
        (lambda c: three.reads(c.input)[-1], 3.0),
        (lambda c: three.reads(c.input)[1:], (2.0, 3.0)),
        (lambda c: three.reads(c.input)[::-1][0], 3.0),
        (lambda c: numbers.reads(c.input)[1], 2.0),
        (lambda c: numbers.reads(c.input)[:2], [1.0, 2.0]),
        (lambda c: ONE.reads(c.input[2]), 3.0),
        (lambda c: c.input[1:], [2, 3]),
        (lambda c: three.reads(c.input)[0] >> TWICE, 2.0),
        (lambda c: c.input >> numbers >> fb.Sum(), 6.0),
    ]:
        yields(wired(lambda c: c.output.reads(wire(c))), ([1, 2, 3], right))


def test_a_record_of_names_is_read_by_its_names():
    record = fb.Record({"a": ONE, "b": V, 0: fb.Identity()})
    example = {"a": 1, "b": [2, 3], 0: "x"}
    rights = {"a": 1.0, "b": [2.0, 3.0], 0: "x", 1: [2.0, 3.0]}
    for key, right in [*rights.items(), (slice(1, None), ([2.0, 3.0], "x"))]:
        block = wired(lambda c: c.output.reads(record.reads(c.input)[key]))
        yields(block, (example, right))
        yields(wired(lambda c: [record.reads(c.input), c.output.reads(record[key])]), (example, right))
    with pytest.raises(BlockValueError, match="expected a name of 'a', 'b', 0, found 'c'"):
        wired(lambda c: record.reads(c.input)["c"])


def test_blocks_that_read_nothing_may_be_sources_unsaid():
    weight = fb.Parameter(fb.types.TensorType(()), 5.0, "w")
    constant = fb.FromTensor(np.float32(2))
    for source in (constant, np.float32(2), fb.Pipe(constant, fb.Identity())):
        yields(wired(lambda c: c.output.reads(ADD.reads(ONE.reads(c.input), source))), (3, 5.0))
    yields(wired(lambda c: c.output.reads(weight, fb.Zeros(2))), (3, (5.0, [0.0, 0.0])))


def test_scopes_nest_and_compositions_are_blocks():
    outer, inner = fb.Composition("outer"), fb.Composition("inner")
    with outer.scope():
        a = ONE.reads(outer.input)
        with inner.scope():
            inner.output.reads(ADD.reads(inner.input[0], TWICE.reads(inner.input[1])))
        outer.output.reads(inner.reads(a, inner.reads(a, a)))
    yields(outer, (1, 7.0), (2, 14.0))
    yields(fb.Map(outer) >> fb.Fold(inner, fb.Zeros([])), ([1, 2], 42.0))


def test_a_scope_is_a_threads_own():
    found = []

    def other():
        try:
            ONE.reads(fb.Identity())
        except BlockUseError as error:
            found.append(error.found)

    def wire(c):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        c.output.reads(c.input)

    wired(wire)
    assert found == ["none open"]


def test_a_scope_that_fails_is_closed():
    c = fb.Composition()
    with pytest.raises(ZeroDivisionError), c.scope():
        c.output.reads(1 / 0)
    with pytest.raises(BlockUseError, match="none open"):
        ONE.reads(c.input)


def test_a_scope_may_be_opened_again_to_go_on():
    c = fb.Composition()
    with c.scope():
        a = ONE.reads(c.input)
    with c.scope():
        c.output.reads(TWICE.reads(a))
    yields(c, (2, 4.0))
    with pytest.raises(BlockTypeError, match="expected every result to be read"), c.scope():
        ONE.reads(c.input)


def test_types_are_known_of_inputs_that_are_read_as_objects():
    block = wired(lambda c: c.output.reads(TWICE.reads(ONE.reads(c.input)), c.input))
    assert (str(block.input_type), str(block.output_type)) == ("object", "(float32, object)")
    constant = wired(lambda c: c.output.reads(fb.Zeros(2)))
    assert (str(constant.input_type), str(constant.output_type)) == ("void", "float32[2]")
    yields(fb.Map(V) >> fb.Fold(fb.GetItem(0), constant), ([[1, 2]], [0.0, 0.0]))
    either = wired(lambda c: c.output.reads(c.input[0]))
    assert (either.input_type, either.output_type) == (None, None)
    assert str((fb.Record((ONE, V)) >> either).output_type) == "float32"
    with pytest.raises(BlockTypeError, match=r"^Scalar\('float32'\) >> Composition\('c'\)\.c GetItem\(0\): "):
        ONE >> either


def test_circles_are_refused_however_long():
    for n in (1, 2, 5):
        blocks = [fb.Identity() for _ in range(n)]

        def wire(c, blocks=blocks):
            for a, b in zip(blocks, blocks[1:] + blocks[:1], strict=True):
                a.reads(b)
            c.output.reads(blocks[0])

        with pytest.raises(BlockValueError, match="expected wires without a circle"):
            wired(wire)


def test_a_result_that_nobody_reads_is_refused_unless_it_is_nothing():
    for forgotten in (lambda c: ONE.reads(c.input), lambda c: fb.Identity().reads(ONE.reads(c.input))):
        with pytest.raises(BlockTypeError, match="expected every result to be read, found wire of"):
            wired(lambda c: [forgotten(c), c.output.reads(c.input)])
    yields(wired(lambda c: [c.input[7], c.output.reads(c.input)]), ("x", "x"))  # a mere item
    quiet = wired(lambda c: [(ONE >> fb.Metric("m")).reads(c.input), c.output.reads(c.input)])
    assert quiet.eval(3) == (3, {"m": [3.0]})
    each = fb.Map(ONE >> fb.Metric("m"))  # a sequence of nothing is nothing, too
    quiet = wired(lambda c: [each.reads(c.input), c.output.reads(fb.GetItem(0).reads(c.input))])
    assert quiet.eval([3, 4]) == (3, {"m": [3.0, 4.0]})
