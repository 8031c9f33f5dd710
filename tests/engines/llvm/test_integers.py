"""Schedules are the same to the bit, whatever computes them."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.engines.bindings import launch_tables
from foldbatch.engines.llvm import tables
from foldbatch.engines.llvm.integers import compiled
from foldbatch.scheduler.arithmetic import NUMPY
from foldbatch.scheduler.layout import LAYOUTS
from foldbatch.scheduler.merge import merge
from foldbatch.scheduler.policies import POLICIES
from foldbatch.scheduler.sharing import SHARES
from foldbatch.scheduler.tables import build
from tests.backends import needs_llvm
from tests.engines.llvm.test_integer_loops import LOOPS, PLAIN
from tests.programs import programs
from tests.scheduler.random_traces import Setting, settings_of
from tests.scheduler.test_tables import assert_same


def flat(part: Any) -> Any:
    """Return plain numbers for all that a schedule is made of, dtypes included."""
    if isinstance(part, np.ndarray):
        return part.dtype.name, part.tolist()
    if isinstance(part, tuple | list):
        return [flat(x) for x in part]
    if hasattr(part, "__dataclass_fields__"):
        return [flat(getattr(part, field.name)) for field in fields(part) if field.compare]
    return type(part), part


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("name", ["loops", pytest.param("llvm", marks=needs_llvm)])
@given(
    st.tuples(settings_of(), settings_of(pairs=False)),
    st.sampled_from(list(LAYOUTS.values())),
    st.sampled_from(list(SHARES.values())),
    st.booleans(),
    st.booleans(),
)
def test_batches_and_schedules_are_the_same(name, alone, drawn, layout, share, twice, turned):
    """Also of cells that do not call each other, whose batches one call plans; in any order of calls."""
    setting: Setting = drawn[1].under(POLICIES["auto"]) if alone else drawn[0]
    feeds_of = setting.cells.feeds
    cells = tuple(
        replace(x, repeatable=not alone and k % 3 < 2, shareable=x.shareable and not (alone and n > 1))
        for k, (x, n) in enumerate(zip(setting.signatures, feeds_of, strict=True))
    )
    data = np.array([-(2**31), 300, 2**31 - 1])
    ways = [slice(None, None, -1 if turned and not cell.sequences else 1) for cell in cells]
    traces = [
        replace(
            x,
            calls=tuple([own[way] for own, way in zip(x.calls, ways, strict=True)]),
            levels=tuple([own[way] for own, way in zip(x.levels, ways, strict=True)]),
            feeds=tuple([tuple([data.take(f).astype(f.dtype) for f in own]) for own in x.feeds]),
        )
        for x in setting.traces * (1 + twice)
    ]
    found = []
    other = replace(PLAIN if name == "loops" else compiled(), costs=NUMPY.costs)  # so that it chooses alike
    for arithmetic in (NUMPY, other):
        merged = merge(traces, cells, arithmetic)
        schedule = build(merged, cells, setting.policy, layout, setting.cells.arenas, share, arithmetic)
        found.append((merged, schedule))
    (right, expected), (merged, schedule) = found
    assert_same(merged.trace, right.trace)
    assert flat((merged.counts, merged.offsets)) == flat((right.counts, right.offsets))
    assert flat(schedule) == flat(expected)
    feeds = [
        tuple(x.take(order, axis=0) for x in own)
        for own, order in zip(right.trace.feeds, expected.orders, strict=True)
    ]
    assert flat(schedule.arranged(merged.trace)) == flat(feeds)


def test_numpy_computes_where_kernels_are_numpys() -> None:
    assert fb.compile(fb.Scalar(), backend="numpy")._runner.engine.arithmetic is NUMPY
    assert fb.compile(fb.Scalar(), backend="reference")._runner.engine.arithmetic is NUMPY


@pytest.mark.llvm
def test_compiled_arithmetic_is_there_before_the_first_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling a program compiles it, or reads it from disk; batches of any kind need no more."""
    pytest.importorskip("llvmlite", reason="llvmlite is not installed")
    from foldbatch.loops import machine  # noqa: PLC0415 - it needs llvmlite

    tree = fb.ForwardDeclaration(output_type=[2], name="tree")
    node = fb.Map(tree()) >> fb.Sum() >> fb.Function(fb.ops.tanh)
    leaf = fb.Scalar("int32") >> fb.Embedding(9, 2)
    tree.resolve_to(fb.OneOf(lambda x: isinstance(x, list), {True: node, False: leaf}))
    program = fb.compile(tree(), backend="llvm", threads=1, debug=True)
    assert program._runner.engine.arithmetic is compiled()
    program.run([1])  # which makes the kernels

    def load(name: str, content: bytes) -> int:
        raise AssertionError(f"{name} is loaded in a batch")

    monkeypatch.setattr(machine, "load", load)
    assert len(program.run([[1, [2, 3], []], 4, [[1, 1]]])) == 3
    assert len(program.run([])) == 0


@pytest.mark.parametrize("name", ["loops", pytest.param("llvm", marks=needs_llvm)])
@settings(max_examples=25)
@given(programs())
def test_launches_are_the_same(name: str, drawn: Any) -> None:
    """Of random programs, forward and backward, with all that is told of rows and of gradients."""
    program = fb.compile(drawn.block, "numpy", threads=1)
    cells, arenas = program.model.signatures, len(program.model.arenas)
    functions = LOOPS if name == "loops" else tables.compiled()
    arithmetic = PLAIN if name == "loops" else compiled()
    merged = merge(program.lowered.trace_all(drawn.examples, range(len(drawn.examples))), cells)
    schedule = build(merged, cells, POLICIES["auto"], LAYOUTS["consumer"], arenas, arithmetic=arithmetic)
    for kernels in (program.engine.training, program.engine.inference):
        found = tables.launch_writer(functions, kernels.bound)(schedule)
        right = launch_tables(kernels.bound, replace(schedule))  # which is flat no more
        assert flat(found) == flat(right)
