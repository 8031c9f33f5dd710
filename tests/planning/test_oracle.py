"""Schedules and launches of the loops are the same to the bit as those of an oracle in NumPy.

FOLDBATCH_TRACES of the environment says how many random batches are planned each way.
"""

import os
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.engines.bindings import launch_tables
from foldbatch.planning.layout import LAYOUTS
from foldbatch.planning.merge import merge
from foldbatch.planning.policies import COMPILED, POLICIES, Costs, levels, scopes
from foldbatch.planning.sharing import SHARES
from foldbatch.planning.tables import build
from tests.backends import needs_llvm
from tests.planning import launching, placing
from tests.planning.leveling import levels_in
from tests.planning.random_traces import Setting, settings_of
from tests.planning.ways import WAYS, planned_by
from tests.programs import programs

TRACES = int(os.environ.get("FOLDBATCH_TRACES") or 50)


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
@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=TRACES)
@given(
    st.tuples(settings_of(), settings_of(pairs=False)),
    st.sampled_from(list(LAYOUTS.values())),
    st.sampled_from(list(SHARES.values())),
    st.sampled_from([COMPILED, Costs(30.0), Costs(1000.0)]),
    st.booleans(),
    st.booleans(),
)
def test_schedules_are_the_oracles(way, alone, drawn, layout, share, costs, twice, turned):
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
            calls=tuple([rows[order] for rows, order in zip(x.calls, ways, strict=True)]),
            levels=tuple([levels[order] for levels, order in zip(x.levels, ways, strict=True)]),
            feeds=tuple([tuple([data.take(f).astype(f.dtype) for f in columns]) for columns in x.feeds]),
        )
        for x in setting.traces * (1 + twice)
    ]
    arguments = cells, setting.policy, layout, setting.cells.arenas, share, costs
    with planned_by(way):
        merged = merge(traces, cells)
        schedule = build(merged, *arguments)
        right = merge(traces, cells)  # as order is changed in place
        expected = placing.build(right, *arguments)
    assert flat(schedule) == flat(expected)
    feeds = [
        tuple(x.take(order, axis=0) for x in columns)
        for columns, order in zip(right.trace.feeds, expected.orders, strict=True)
    ]
    assert flat(schedule.arranged(merged.trace)) == flat(feeds)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=TRACES)
@given(settings_of(), st.sampled_from(list(POLICIES.values())), st.booleans())
def test_levels_are_the_oracles(way, setting, policy, turned):
    """In any order of calls."""
    trace, cells = setting.merged.trace, setting.signatures
    turns = [slice(None, None, -1 if turned and not cell.sequences else 1) for cell in cells]
    calls = [rows[order] for rows, order in zip(trace.calls, turns, strict=True)]
    with planned_by(way):
        found = levels(policy, cells, calls, trace.elements, trace.values)
    expected = levels_in(cells, scopes(policy.scope, cells), calls, trace.elements, trace.values)
    assert flat(found) == flat(tuple(expected))


@needs_llvm[0]
@needs_llvm[1]
@pytest.mark.parametrize("backend", ["numpy", "llvm"])
def test_loops_are_there_before_the_first_batch(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling a program compiles it, or reads it from disk; batches of any kind need no more."""
    from foldbatch.loops import machine  # noqa: PLC0415 - it needs llvmlite

    tree = fb.ForwardDeclaration(output_type=[2], name="tree")
    node = fb.Map(tree()) >> fb.Sum() >> fb.Function(fb.ops.tanh)
    leaf = fb.Scalar("int32") >> fb.Embedding(9, 2)
    tree.resolve_to(fb.OneOf(lambda x: isinstance(x, list), {True: node, False: leaf}))
    program = fb.compile(tree(), backend, threads=1, debug=True)
    program.run([1])  # which makes the kernels

    def load(name: str, content: bytes) -> int:
        raise AssertionError(f"{name} is loaded in a batch")

    monkeypatch.setattr(machine, "load", load)
    assert len(program.run([[1, [2, 3], []], 4, [[1, 1]]])) == 3
    assert len(program.run([])) == 0


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=25)
@given(programs())
def test_launches_are_the_oracles(way: str, drawn: Any) -> None:
    """Of random programs, forward and backward, with all that is told of rows and of gradients."""
    program = fb.compile(drawn.block, "numpy", threads=1)
    cells, arenas = program.model.signatures, len(program.model.arenas)
    with planned_by(way):
        merged = merge(program.lowered.trace_all(drawn.examples, range(len(drawn.examples))), cells)
        schedule = build(merged, cells, POLICIES["auto"], LAYOUTS["consumer"], arenas)
        for kernels in (program.engine.training, program.engine.inference):
            right = launching.launch_tables(kernels.bound, schedule)
            assert flat(launch_tables(kernels.bound, schedule)) == flat(right)
            assert flat(launch_tables(kernels.bound, replace(schedule))) == flat(right)  # flat no more
