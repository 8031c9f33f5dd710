"""What only losses and metrics read is neither traced nor computed where they are not asked for."""

from __future__ import annotations

import pytest

import foldbatch as fb
from foldbatch.blocks.drafts import Line, Procedure
from foldbatch.blocks.lower import Lowered, lower
from foldbatch.blocks.unused import without_unused
from foldbatch.blocks.values import Terminal
from foldbatch.scheduler.policies import find_policy
from foldbatch.types import OBJECT

ADD = fb.Function(lambda a, b: a + b)
LOSS = fb.Scalar() >> fb.Loss()
SUM = fb.Map(fb.Scalar()) >> fb.Sum()


def lowered(block: fb.Block, *asides: str) -> Lowered:
    return lower(block, find_policy("by_depth"), asides=frozenset(asides))


def left(block: fb.Block, *asides: str) -> str:
    """Return the lines of the root's function that are left."""
    return lowered(block, *asides).tracer.source.partition("    yield\n")[0]


def program(*functions: tuple[str, str, int, str]) -> list[Procedure]:
    """Return functions of a tracing program: name, parameters, number of results, lines."""
    return [
        Procedure(
            name,
            name,
            OBJECT,
            OBJECT,
            [Terminal(code, OBJECT) for code in parameters.split()],
            [Terminal(f"r{i}", OBJECT) for i in range(results)],
            [Line(f"    {line}", name) for line in lines.strip("\n").split("\n")],
        )
        for name, parameters, results, lines in functions
    ]


def written(*functions: tuple[str, str, int, str]) -> dict[str, list[str]]:
    """Return the lines that are left of a program without cells, by function."""
    return {f.name: [line.text[4:] for line in f.lines] for f in without_unused(program(*functions), [], {})}


# -- lines


def test_what_nobody_uses_is_left_out():
    lines = "a = x0['a']\nb = fn(a)\nc = x0['c']\nreturn (c,)"
    assert written(("root", "x0", 1, lines)) == {"root": ["c = x0['c']", "return (c,)"]}


def test_of_a_parallel_assignment_parts_stay():
    lines = "a = f(x0)\nb = g(x0)\nc = h(x0)\np, q, r = c, a, b\nreturn (p, r)"
    found = written(("root", "x0", 2, lines))["root"]
    assert found == ["b = g(x0)", "c = h(x0)", "p, r = (c, b)", "return (p, r)"]
    lines = "a = f(x0)\nb = g(x0)\np, q = b, a\nreturn (q,)"
    assert written(("root", "x0", 1, lines))["root"] == ["a = f(x0)", "q = a", "return (q,)"]


LOOP = """
some = []
none = []
for i, item in enumerate(x0):
    a = item[0]
    some.append(a)
    b = item[1]
    none.append(b)
    pass
for j, other in enumerate(none):
    check(other)
    pass
return (some,)
"""


def test_a_loop_stays_with_what_is_used_of_it():
    assert written(("root", "x0", 1, LOOP))["root"] == [
        "some = []",
        "for i, item in enumerate(x0):",
        "    a = item[0]",
        "    some.append(a)",
        "    pass",
        "return (some,)",
    ]


CHOICE = """
key = fn(x0)
case = index.get(key, -1)
if case == 0:
    a = x0[0]
    pass
elif case == 1:
    a = x0[1]
    b = x0[2]
    pass
else:
    refuse(key)
return ({},)
"""


def test_a_chain_of_cases_stays_or_goes_whole():
    assert written(("root", "x0", 1, CHOICE.format("x0")))["root"] == ["return (x0,)"]
    found = written(("root", "x0", 1, CHOICE.format("b")))["root"]
    assert found == [
        "key = fn(x0)",
        "case = index.get(key, -1)",
        "if case == 0:",
        "    pass",
        "elif case == 1:",
        "    b = x0[2]",
        "    pass",
        "else:",
        "    refuse(key)",
        "return (b,)",
    ]


def test_a_check_stays_where_what_it_looks_at_does():
    lines = "a = x0[0]\ncheck(a)\nb = x0[1]\ncheck(b)\nreturn (b,)"
    assert written(("root", "x0", 1, lines))["root"] == ["b = x0[1]", "check(b)", "return (b,)"]


def test_arguments_and_results_of_calls_count_one_by_one():
    root = "a = x0[0]\nb = x0[1]\np, q = yield f(a, b)\nr, s = yield f(x0, b)\nt, u = yield f(b, a)\nreturn (p, s)"
    found = written(("root", "x0", 2, root), ("f", "x0 x1", 2, "c = fn(x1)\nreturn (x0, c)"))
    assert found["root"] == [
        "a = x0[0]",
        "b = x0[1]",
        "p, q = (yield f(a, b))",
        "r, s = (yield f(x0, b))",
        "return (p, s)",
    ]
    assert found["f"] == ["c = fn(x1)", "return (x0, c)"]
    root = "a = x0[0]\nb = x0[1]\np, q = yield f(a, b)\nyield g(b)\nreturn (p,)"
    found = written(
        ("root", "x0", 1, root), ("f", "x0 x1", 2, "c = fn(x1)\nreturn (x0, c)"), ("g", "x0", 0, "return ()")
    )
    assert found == {
        "root": ["a = x0[0]", "p, q = (yield f(a, None))", "return (p,)"],
        "f": ["return (x0, None)"],
    }


def test_a_function_that_collects_is_called_for_that():
    root = (
        "mark = len(nodes0)\nyield f(x0)\nyield g(x0)\nlist1 = nodes0[mark:]; del nodes0[mark:]\nreturn ({},)"
    )
    functions = ("f", "x0", 0, "nodes0.append(x0)\nreturn ()"), ("g", "x0", 0, "nodes1.append(x0)\nreturn ()")
    found = written(("root", "x0", 1, root.format("list1")), *functions)
    assert found["root"] == [
        "mark = len(nodes0)",
        "yield f(x0)",
        "list1 = nodes0[mark:]; del nodes0[mark:]",
        "return (list1,)",
    ]
    assert list(found) == ["root", "f"]
    assert written(("root", "x0", 1, root.format("x0")), *functions) == {"root": ["return (x0,)"]}


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
