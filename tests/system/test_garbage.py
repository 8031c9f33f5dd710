"""The search for garbage goes on afterwards, if it did before."""

import gc
from functools import partial
from types import SimpleNamespace

import pytest

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


def test_what_was_set_aside_is_looked_through_once_more(monkeypatch) -> None:
    calls: list[str] = []
    names = ("unfreeze", "collect", "freeze")  # called in earnest they would look through all of the tests
    fake = SimpleNamespace(**{name: partial(calls.append, name) for name in names})
    monkeypatch.setattr("foldbatch.system.garbage.gc", fake)
    set_aside()
    assert calls == list(names)
