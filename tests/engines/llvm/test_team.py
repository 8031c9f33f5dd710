"""A helper takes parts of instructions: the same numbers to the bit, whoever does which part, and whether it is there."""

import ctypes
import os
import sys
import time
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops

pytestmark = pytest.mark.llvm
WIDTH = 96


@pytest.fixture
def team(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module, where this process has two cores and a team that nobody has used."""
    pytest.importorskip("llvmlite", reason="llvmlite is not installed")
    from foldbatch.engines.llvm import team  # noqa: PLC0415 - it needs llvmlite

    monkeypatch.setattr(team, "available_cores", lambda: 2)
    fresh = team.Team()
    monkeypatch.setattr(team, "team", lambda: fresh)
    return fresh


@pytest.fixture
def chains() -> list[Any]:
    rng = np.random.default_rng(0)
    return [list(rng.normal(size=(n, WIDTH)).astype("float32")) for n in (9, 7, 8, 2, 9, 6, 7, 8, 9, 9, 9, 8)]


def program(threads: int) -> fb.Program:
    step = fb.Linear(2 * WIDTH, name="step")

    def mix(h: Any, x: Any) -> Any:  # a loop of several sweeps, with a row between them
        gate, new = ops.split(ops.sigmoid(step(ops.concat([h, x]))), 2)
        return ops.tanh(gate * new + ops.sigmoid(h))

    fold = fb.Fold(fb.Function(mix), fb.Zeros(WIDTH))
    loss = fb.Function(lambda h: ops.sum(h * h)) >> fb.Loss()
    block = fb.Map(fb.Vector(WIDTH)) >> fold >> fb.AllOf(fb.Identity(), loss) >> fb.GetItem(0)
    return fb.compile(block, "llvm", threads=threads)


def everything(program: fb.Program, examples: list[Any]) -> list[Any]:
    made = program.step(examples, step=0)
    return [*program.run(examples), *made.results, *made.gradients.values(), np.array(made.loss)]


def test_a_helper_changes_no_bit(team: Any, chains: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from foldbatch.engines.llvm import team as module  # noqa: PLC0415 - it needs llvmlite

    alone, together = program(1), program(2)
    expected = everything(alone, chains)
    monkeypatch.setattr(module, "MIN_REST", 0.0)
    team._rest_seconds, end = 0.0, time.monotonic() + 20
    while team.helped < 20 and time.monotonic() < end:  # a busy machine may have no core for the helper
        for a, b in zip(everything(together, chains), expected, strict=True):
            np.testing.assert_array_equal(a, b)
    assert team.helped > 0


def test_without_the_helper_the_walker_does_all_parts(team, chains, monkeypatch):
    monkeypatch.setattr(team, "_wake", lambda: None)
    expected = everything(program(1), chains)
    for a, b in zip(everything(program(2), chains), expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert team.jobs > 0
    assert team.helped == 0


def test_a_program_on_one_thread_asks_for_no_helper(team: Any, chains: list[Any]) -> None:
    program(1).run(chains)
    assert team.jobs == 0


def test_the_helper_serves_one_at_a_time(team: Any) -> None:
    assert team.take()
    assert not team.take()
    team.leave()
    assert team.take()
    team.leave()


def test_after_a_stall_the_helper_is_left_alone_for_a_while(team, monkeypatch):
    """It is longer each time, until stalls are rare."""
    from foldbatch.engines.llvm import team as module  # noqa: PLC0415 - it needs llvmlite

    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    rests = []
    for number in range(13):
        now[0] += 2 * module.RARE * (number == 12)
        assert team.take()
        team._lines[module.Lines.stalls] += 1
        team.leave()
        start = now[0]
        while not team.take():
            now[0] += module.MIN_REST / 2
        rests.append(now[0] - start)
        team.leave()
    assert rests[:6] == sorted(rests[:6])
    assert module.MIN_REST <= rests[0] < 2 * module.MIN_REST
    assert module.MAX_REST * 0.9 < rests[-2] < 2 * module.MAX_REST
    assert module.MIN_REST <= rests[-1] < 2 * module.MIN_REST


def test_a_helper_that_is_no_help_is_left_alone(team: Any, chains: list[Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(team, "_wake", lambda: None)
    monkeypatch.setattr(sys.modules[type(team).__module__], "MAX_REST", 60.0)
    team._rest_seconds = 60.0
    together = program(2)
    together.run(chains)
    assert team.jobs > 0
    assert not team.take()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_a_helper_of_its_own(team: Any, chains: list[Any]) -> None:
    shared = program(2)
    expected = shared.run(chains)[0]
    child = os.fork()
    if not child:
        os._exit(0 if np.array_equal(shared.run(chains)[0], expected) and team.jobs > 0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("asleep", [0, 1])
def test_a_helper_gives_way_until_it_is_to_sleep(team: Any, asleep: int) -> None:
    from foldbatch.engines.llvm import team as module  # noqa: PLC0415 - it needs llvmlite
    from foldbatch.loops.compiling import compiled_function  # noqa: PLC0415 - beside it

    calls: list[int] = []
    give_way = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: calls.append(1) or 0)
    words = np.zeros(module.LINE_WORDS * (module.Lines.size + 1), np.int64)
    lines = words[:: module.LINE_WORDS]
    lines[module.Lines.yields] = ctypes.cast(give_way, ctypes.c_void_p).value
    lines[module.Lines.awake], lines[module.Lines.asleep] = 1, asleep
    compiled_function(module._take_parts, "i8", module)(words.ctypes.data)
    assert bool(calls) != bool(asleep)
    assert not lines[module.Lines.awake]


def test_a_helper_that_is_left_alone_is_to_sleep_until_it_is_taken(team: Any) -> None:
    from foldbatch.engines.llvm import team as module  # noqa: PLC0415 - it needs llvmlite

    team.take()
    team._lines[module.Lines.stalls] += 1
    team.leave()
    assert team._lines[module.Lines.asleep]
    team._until = 0.0
    assert team.take()
    assert not team._lines[module.Lines.asleep]
    team.leave()
    assert not team._lines[module.Lines.asleep]
