"""What only losses and metrics read is neither traced nor computed where they are not asked for."""

from dataclasses import dataclass
from typing import Any

import pytest

import foldbatch as fb
from foldbatch.blocks.drafts import Procedure, Terminal
from foldbatch.blocks.lower import Lowered, lower, pruned
from foldbatch.blocks.tracing import Blame, Constant, Expression, Read, Return, Statement
from foldbatch.planning.policies import find_policy
from foldbatch.types import OBJECT

ADD = fb.Function(lambda a, b: a + b)
LOSS = fb.Scalar() >> fb.Loss()
SUM = fb.Map(fb.Scalar()) >> fb.Sum()


def lowered(block: fb.Block, *asides: str) -> Lowered:
    return lower(block, find_policy("by_depth"), asides=frozenset(asides))


def left(block: fb.Block, *asides: str) -> str:
    return lowered(block, *asides).source.partition("\n\n")[0]


NOBODY = Blame("")


def item(target: str, source: str, key: Any) -> Read:
    return Read(NOBODY, target, source, Constant("", key))


def function(name: str, parameters: str, *body: Statement) -> Procedure:
    """Return a function of a tracing program, which ends with its results."""
    (*_, last) = body
    assert isinstance(last, Return)
    slots = [Terminal(x, OBJECT) for x in parameters.split()]
    return Procedure(name, name, OBJECT, OBJECT, slots, [Terminal("r", OBJECT)] * len(last.values), body)


def result(*values: Expression) -> Return:
    return Return(NOBODY, values)


@dataclass(frozen=True, slots=True, eq=False)
class Doubled(Statement):
    """A kind of statement that pruning has never heard of."""

    target: str
    source: str

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.target,)

    @property
    def reads(self) -> tuple[Expression, ...]:
        return (self.source,)


def test_a_new_kind_of_statement_is_pruned_as_any():
    body = (item("a", "x0", 0), item("b", "x0", 1), Doubled(NOBODY, "c", "a"), Doubled(NOBODY, "d", "b"))
    (root,) = pruned([function("root", "x0", *body, result("d"))], {})
    assert root.body[:2] == body[1::2]


SIDES = {
    "a datum": LOSS,
    "a function": fb.InputTransform(lambda x: x.missing) >> LOSS,
    "a map": fb.Map(fb.Record((fb.Scalar(), fb.Scalar())) >> fb.GetItem(1) >> fb.Loss()),
    "a choice": fb.OneOf(lambda x: x[0], {1: fb.GetItem(0) >> LOSS, 2: fb.Void()}),
    "an option": fb.Optional(LOSS, fb.Void()),
    "a fold": fb.Map(fb.Scalar()) >> fb.Fold(ADD, fb.Zeros([])) >> fb.Loss(),
    "a network": fb.Map(fb.Vector(2))
    >> fb.RNN(fb.GRUCell(2))
    >> fb.GetItem(1)
    >> fb.Function(fb.ops.sum)
    >> fb.Loss(),
    "a reduction": fb.Map(fb.Scalar()) >> fb.Reduce(ADD) >> fb.Loss(),
    "neighbours": fb.Map(fb.Scalar()) >> fb.NGrams(2) >> fb.Map(ADD >> fb.Loss()),
    "a collection": fb.blocks.Collected(fb.Map(fb.Scalar() >> fb.blocks.Collect()))
    >> fb.GetItem(1)
    >> fb.Sum()
    >> fb.Loss(),
    "a length": fb.Length() >> fb.Loss(),
    "a labelled metric": fb.Record({"a": fb.Scalar(), "b": fb.GetItem("name")}) >> fb.Metric("m"),
}


@pytest.mark.parametrize("side", SIDES.values(), ids=SIDES)
def test_a_side_that_nobody_asks_for_is_not_read(side):
    for main in (fb.Scalar(), SUM):
        alone = left(fb.GetItem("x") >> main)
        for block in (
            fb.Record({"x": main, "y": side}) >> fb.GetItem(0),
            fb.Record({"y": side, "x": main}) >> fb.GetItem(1),
        ):
            assert len(left(block).splitlines()) == len(alone.splitlines())
            assert "'y'" not in left(block)
    assert fb.compile(fb.Record({"x": fb.Scalar(), "y": side}) >> fb.GetItem(0), "numpy").run([{"x": 3}]) == [
        3
    ]


def test_a_recursion_of_losses_alone_is_not_walked():
    tree = fb.ForwardDeclaration(output_type=fb.types.VOID, name="tree")
    tree.resolve_to(fb.OneOf(lambda x: isinstance(x, list), {True: fb.Map(tree()) >> fb.Void(), False: LOSS}))
    block = fb.AllOf(fb.GetItem(0) >> fb.Scalar(), fb.GetItem(1) >> tree()) >> fb.GetItem(0)
    assert "tree" not in lowered(block).source
    assert "tree" in lowered(block, "losses").source


def test_a_recursion_that_is_used_is_walked_where_it_is_used():
    """And for its losses everywhere."""
    tree = fb.ForwardDeclaration(output_type="float32", name="tree")
    tree.resolve_to(
        fb.OneOf(lambda x: isinstance(x, list), {True: fb.Map(tree()) >> fb.Sum(), False: fb.Scalar()})
    )
    error = fb.Record((tree(), tree())) >> fb.AllOf(fb.GetItem(0), ADD >> fb.Loss()) >> fb.GetItem(0)
    assert lowered(error).trace_all([([1, [2]], "unknown")], [0])[0].size == 4
    assert float(fb.compile(error, "numpy").run([(1, 2), (3, 4)], losses=True).loss) == 10


def test_of_pairs_in_a_sequence_only_what_is_used_is_read():
    items = fb.Map(fb.Record((fb.Scalar() >> fb.Function(lambda x: x * 2), fb.Scalar("int32"))))
    words = fb.Map(fb.GetItem(0)) >> fb.Sum()
    errors = fb.Map(fb.Function(lambda x, label: x * fb.ops.cast(label, "float32")) >> fb.Loss())
    block = items >> fb.AllOf(words, errors) >> fb.GetItem(0)
    found = fb.compile(block, "numpy")
    assert [float(x) for x in found.run([[(1,), (2, "unknown")], []])] == [6, 0]
    assert found.run([[(1, 3), (2, 1)]], losses=True).loss == 10


def test_an_output_that_only_a_loss_reads_is_not_computed():
    """Its cell is smaller, and other outputs have new numbers."""
    pair = fb.Map(fb.Scalar() >> fb.Function(lambda x: (fb.ops.exp(x), x * x)))
    block = (
        pair
        >> fb.AllOf(fb.Map(fb.GetItem(0) >> fb.Loss()), fb.Map(fb.GetItem(1)) >> fb.Sum())
        >> fb.GetItem(1)
    )
    (cell, *_) = lowered(block).model.cells
    assert [len(cell.graph.outputs), "exp" in str([n.op.name for n in cell.graph.outputs])] == [1, False]
    assert float(fb.compile(block, "numpy").run([[1, 2, 3]])[0]) == 14


def test_with_all_losses_and_metrics_nothing_is_left_out():
    block = fb.Record({"x": fb.Scalar(), "y": LOSS, "z": fb.Scalar()}) >> fb.GetItem(0)
    assert "'z'" in left(block, "losses", "metrics")
    assert "'z'" in left(block, "losses")  # there are no metrics
    assert "'z'" not in left(block, "metrics")
