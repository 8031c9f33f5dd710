"""What only losses and metrics read is neither traced nor computed where they are not asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import foldbatch as fb
from foldbatch.blocks.drafts import Procedure
from foldbatch.blocks.lower import Lowered, lower
from foldbatch.blocks.pruning import pruned
from foldbatch.blocks.tracing import (
    Append,
    Apply,
    Assign,
    Blame,
    Branch,
    Case,
    Constant,
    Count,
    Expression,
    Invoke,
    Listed,
    Loop,
    Read,
    Return,
    Statement,
    Tuple,
)
from foldbatch.blocks.values import Terminal
from foldbatch.scheduler.policies import find_policy
from foldbatch.types import OBJECT
from tests.blocks.printed import lines_of

ADD = fb.Function(lambda a, b: a + b)
LOSS = fb.Scalar() >> fb.Loss()
SUM = fb.Map(fb.Scalar()) >> fb.Sum()


def lowered(block: fb.Block, *asides: str) -> Lowered:
    return lower(block, find_policy("by_depth"), asides=frozenset(asides))


def left(block: fb.Block, *asides: str) -> str:
    """Return the lines of the root's function that are left."""
    return lowered(block, *asides).tracer.source.partition("\n\n")[0]


# -- statements

NOBODY = Blame("")


def fn(name: str, target: str | None, *arguments: Expression, changed: str | None = None) -> Apply:
    return Apply(NOBODY, target, Constant(name, len), arguments, changed)


def item(target: str, source: str, key: Any) -> Read:
    return Read(NOBODY, target, source, Constant("", key))


def function(name: str, parameters: str, *body: Statement) -> Procedure:
    """Return a function of a tracing program, which ends with its results."""
    (*_, last) = body
    assert isinstance(last, Return)
    slots = [Terminal(x, OBJECT) for x in parameters.split()]
    return Procedure(name, name, OBJECT, OBJECT, slots, [Terminal("r", OBJECT)] * len(last.values), body)


def written(*functions: Procedure) -> dict[str, list[str]]:
    """Return the lines that are left of a program without cells, by function."""
    found = pruned(functions, {})
    return {f.name: lines_of(f.body, {f.name: f for f in found}) for f in found}


def result(*values: Expression) -> Return:
    return Return(NOBODY, values)


def test_what_nobody_uses_is_left_out():
    root = function("root", "x0", item("a", "x0", "a"), fn("f", "b", "a"), item("c", "x0", "c"), result("c"))
    assert written(root) == {"root": ["c = x0['c']", "return (c,)"]}


def test_of_a_parallel_assignment_parts_stay():
    made = [fn(name, target, "x0") for name, target in (("f", "a"), ("g", "b"), ("h", "c"))]
    several = Assign(NOBODY, ("p", "q", "r"), Tuple(("c", "a", "b")))
    found = written(function("root", "x0", *made, several, result("p", "r")))["root"]
    assert found == ["b = g(x0)", "c = h(x0)", "p, r = (c, b)", "return (p, r)"]
    found = written(function("root", "x0", *made, several, result("q")))["root"]
    assert found == ["a = f(x0)", "q = a", "return (q,)"]


def test_a_loop_stays_with_what_is_used_of_it():
    lists = [Assign(NOBODY, (name,), Listed(())) for name in ("some", "none")]
    body = (
        item("a", "item", 0),
        Append(NOBODY, "some", "a"),
        item("b", "item", 1),
        Append(NOBODY, "none", "b"),
    )
    loops = (
        Loop(NOBODY, "i", "item", "x0", body),
        Loop(NOBODY, "j", "other", "none", (fn("check", None, "other"),)),
    )
    assert written(function("root", "x0", *lists, *loops, result("some")))["root"] == [
        "some = []",
        "for i, item in enumerate(x0):",
        "    a = item[0]",
        "    some.append(a)",
        "return (some,)",
    ]


def test_a_chain_of_cases_stays_or_goes_whole():
    cases = (
        (item("a", "x0", 0),),
        (item("a", "x0", 1), item("b", "x0", 2)),
        (fn("refuse", None, "key"),),
    )
    chosen = Branch(NOBODY, Case("case", Constant("index", {}), "key"), cases)
    start = (fn("fn", "key", "x0"), chosen)
    assert written(function("root", "x0", *start, result("x0")))["root"] == ["return (x0,)"]
    assert written(function("root", "x0", *start, result("b")))["root"] == [
        "key = fn(x0)",
        "case = index.get(key, 2)",
        "if case == 0:",
        "    pass",
        "elif case == 1:",
        "    b = x0[2]",
        "else:",
        "    refuse(key)",
        "return (b,)",
    ]


def test_a_check_stays_where_what_it_looks_at_does():
    checks = [fn("check", None, name) for name in "ab"]
    body = (item("a", "x0", 0), checks[0], item("b", "x0", 1), checks[1], result("b"))
    assert written(function("root", "x0", *body))["root"] == ["b = x0[1]", "check(b)", "return (b,)"]


def test_arguments_and_results_of_calls_count_one_by_one():
    parts = (item("a", "x0", 0), item("b", "x0", 1))
    f = function("f", "x0 x1", fn("fn", "c", "x1"), result("x0", "c"))
    first, second, third = (
        Invoke(NOBODY, tuple(results), "f", tuple(arguments))
        for results, arguments in (("pq", ("a", "b")), ("rs", ("x0", "b")), ("tu", ("b", "a")))
    )
    found = written(function("root", "x0", *parts, first, second, third, result("p", "s")), f)
    assert found["root"] == [
        "a = x0[0]",
        "b = x0[1]",
        "p, q, = f(a, b, left - 1)",
        "r, s, = f(x0, b, left - 1)",
        "return (p, s)",
    ]
    assert found["f"] == ["c = fn(x1)", "return (x0, c)"]
    unused = Invoke(NOBODY, (), "g", ("b",))
    found = written(
        function("root", "x0", *parts, first, unused, result("p")), f, function("g", "x0", result())
    )
    assert found == {
        "root": ["a = x0[0]", "p, q, = f(a, None, left - 1)", "return (p,)"],
        "f": ["return (x0, None)"],
    }


def test_a_function_that_collects_is_called_for_that():
    f, g = (function(name, "x0", Append(NOBODY, f"nodes{i}", "x0"), result()) for i, name in enumerate("fg"))
    start = (
        Assign(NOBODY, ("mark",), Count("nodes0")),
        *(Invoke(NOBODY, (), name, ("x0",)) for name in "fg"),
        fn("cut_off", "list1", "nodes0", "mark", changed="nodes0"),
    )
    found = written(function("root", "x0", *start, result("list1")), f, g)
    assert found["root"] == [
        "mark = len(nodes0)",
        "f(x0, left - 1)",
        "list1 = cut_off(nodes0, mark)",
        "return (list1,)",
    ]
    assert list(found) == ["root", "f"]
    assert written(function("root", "x0", *start, result("x0")), f, g) == {"root": ["return (x0,)"]}


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


def test_lines_keep_what_errors_say_of_them():
    block = fb.Record({"y": LOSS, "x": fb.InputTransform(lambda x: 1 / x) >> fb.Scalar()}) >> fb.GetItem(1)
    with pytest.raises(
        fb.errors.ExampleError, match=r"model\['x'\] InputTransform.* at example 0 \['x'\]: .*Zero"
    ):
        fb.compile(block, "numpy").run([{"x": 0}])


# -- blocks

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
    assert "tree" not in lowered(block).tracer.source
    assert "tree" in lowered(block, "losses").tracer.source


def test_a_recursion_that_is_used_is_walked_where_it_is_used():
    """And for its losses everywhere."""
    tree = fb.ForwardDeclaration(output_type="float32", name="tree")
    tree.resolve_to(
        fb.OneOf(lambda x: isinstance(x, list), {True: fb.Map(tree()) >> fb.Sum(), False: fb.Scalar()})
    )
    error = fb.Record((tree(), tree())) >> fb.AllOf(fb.GetItem(0), ADD >> fb.Loss()) >> fb.GetItem(0)
    assert lowered(error).tracer.trace(([1, [2]], "unknown")).size == 4
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
