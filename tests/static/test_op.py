"""The table of ops, and the axes results run along."""

import pytest

from foldbatch.errors import GraphError
from foldbatch.static import ops  # noqa: F401 - fills the table
from foldbatch.static.op import CALL, OPS, UNBATCHED, Op, define, fail, ragged


def test_axes_are_ordered_by_how_many_rows_they_have() -> None:
    """Unbatched, calls, elements; every ragged axis is its own."""
    assert UNBATCHED.rank < CALL.rank < ragged().rank
    assert ragged() is not ragged()
    assert repr(ragged("words")) == "words"


def test_an_op_is_defined_once() -> None:
    """A second definition of a name is a mistake of ours."""
    with pytest.raises(AssertionError, match="tanh is defined twice"):
        define(OPS["tanh"])


def test_every_op_has_a_sample_and_its_own_name() -> None:
    """Tests of ops run from the samples."""
    for name, op in OPS.items():
        assert isinstance(op, Op)
        assert op.name == name
        assert op.samples, name
        assert (op.jvp is None) == (op.vjp is None), name


def test_type_rules_fail_in_one_form() -> None:
    """Where, expected, found, fix."""
    with pytest.raises(GraphError, match="ops.name: expected this, found that; do so"):
        fail("name", "this", "that", "do so")
