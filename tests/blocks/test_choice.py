"""Choosing by what the example holds."""

import pytest

import foldbatch as fb
from foldbatch.errors import BlockTypeError, BlockValueError, ExampleError, ExampleKeyError

DOUBLE = fb.Scalar() >> fb.Function(lambda x: 2 * x)


def test_the_key_picks_the_case() -> None:
    """A dict, pairs, or a list with keys 0, 1, ... and -1, -2, ... from the end."""
    by_sign = fb.OneOf(lambda x: x > 0, {True: fb.Scalar(), False: DOUBLE})
    assert [float(x) for x in fb.compile(by_sign).run([3, -3])] == [3, -6]
    pairs = fb.OneOf(lambda x: "big" if x > 9 else "small", [("big", DOUBLE), ("small", fb.Scalar())])
    assert [float(x) for x in fb.compile(pairs).run([10, 1])] == [20, 1]
    listed = fb.OneOf(lambda x: x, [fb.Scalar(), DOUBLE])
    assert [float(x) for x in fb.compile(listed).run([0, 1, -1, -2])] == [0, 2, -2, -2]


def test_the_key_may_come_from_a_block_and_the_case_from_a_pre_block() -> None:
    """The key sees the input, the case what the pre_block makes of it."""
    block = fb.OneOf(fb.GetItem("op"), {"+": fb.Identity(), "-": fb.Function(lambda x: -x)}, fb.GetItem("x") >> fb.Scalar())
    assert [float(x) for x in fb.compile(block).run([{"op": "-", "x": 2}, {"op": "+", "x": 3}])] == [-2, 3]


@pytest.mark.parametrize(
    ("key", "kind", "message"),
    [
        (5, ExampleKeyError, "expected a key of 1, 2, found int 5; add a case for it"),
        ([1], ExampleError, "expected a key of 1, 2"),
    ],
)
def test_a_key_without_a_case_is_named(key: object, kind: type[Exception], message: str) -> None:
    """Whether unknown or no key at all."""
    with pytest.raises(kind) as caught:
        fb.compile(fb.OneOf(lambda x: x, {1: fb.Scalar(), 2: fb.Scalar()})).run([1, key])
    assert message in str(caught.value)
    assert "example 1" in str(caught.value)


def test_misuse_is_refused() -> None:
    """At once, or when compiled."""
    with pytest.raises(BlockValueError, match="at least one case"):
        fb.OneOf(len, {})
    with pytest.raises(BlockTypeError, match="key_fn"):
        fb.OneOf(3, {1: fb.Scalar()})
    with pytest.raises(BlockTypeError) as caught:
        fb.compile(fb.OneOf(len, {1: fb.Scalar(), 2: fb.Vector(2)}))
    assert "expected float32, as case 1 yields, found float32[2]" in str(caught.value)
    with pytest.raises(BlockTypeError, match="object"):
        fb.compile(fb.Scalar() >> fb.OneOf(len, {1: fb.Identity()}))


def test_a_key_function_that_raises_is_reported() -> None:
    """With its own error attached."""
    with pytest.raises(ExampleError) as caught:
        fb.compile(fb.OneOf(lambda x: x.kind, {1: fb.Scalar()})).run([3])
    assert "kind" in str(caught.value)
    assert isinstance(caught.value.__cause__, AttributeError)
