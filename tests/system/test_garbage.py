"""The search for garbage goes on afterwards, if it did before."""

from __future__ import annotations

import gc
from functools import partial
from types import SimpleNamespace

import pytest

import foldbatch as fb
from foldbatch.system.garbage import no_garbage, set_aside


@pytest.mark.parametrize("enabled", [True, False])
def test_what_was_before_is_so_again(enabled: bool) -> None:
    """Also after an error, and within each other."""
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(ValueError, match="x"), no_garbage():
            with no_garbage():
                assert not gc.isenabled()
            assert not gc.isenabled()
            raise ValueError("x")
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()


def test_tracing_and_planning_a_long_chain_search_for_none() -> None:
    """Ten thousand words would be searched through a dozen times; what Python counts in between is its own."""
    searches: list[dict[str, int]] = []
    chain = fb.Map(fb.Scalar()) >> fb.Fold(fb.Function(lambda a, b: a + b), fb.Zeros([]))
    program = fb.compile(chain, "numpy", threads=1)
    example = [float(i) for i in range(10_000)]
    gc.collect()
    gc.callbacks.append(lambda phase, info: searches.append(info) if phase == "start" else None)
    try:
        program.plan([example])
    finally:
        gc.callbacks.pop()
    assert len(searches) < 12


def test_what_was_set_aside_is_looked_through_once_more(monkeypatch) -> None:
    calls: list[str] = []
    names = ("unfreeze", "collect", "freeze")  # called in earnest they would look through all of the tests
    fake = SimpleNamespace(**{name: partial(calls.append, name) for name in names})
    monkeypatch.setattr("foldbatch.system.garbage.gc", fake)
    set_aside()
    assert calls == list(names)
