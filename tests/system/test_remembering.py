"""What is made of an object is made once, and goes with the object."""

import gc
import weakref
from functools import partial
from types import SimpleNamespace

import pytest

from foldbatch.system.processes import no_garbage, set_aside
from foldbatch.system.remembering import remembered


class Thing: ...


def test_it_is_made_once_for_all_that_decides_it() -> None:
    made = []

    @remembered
    def pair(thing: Thing, name: str, *, many: bool = False) -> list[object]:
        made.append(name)
        return [name, many]

    one, other = Thing(), Thing()
    assert pair(one, "a") is pair(one, "a")
    assert pair(one, "a") is not pair(other, "a")
    assert pair(one, "b") == ["b", False]
    assert pair(one, "a", many=True) == ["a", True]
    assert made == ["a", "a", "b", "a"]


def test_it_goes_with_the_object() -> None:
    @remembered
    def copy(thing: Thing) -> Thing:
        return Thing()

    thing = Thing()
    gone = weakref.ref(copy(thing))
    del thing

    assert gone() is None


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
    monkeypatch.setattr("foldbatch.system.processes.gc", fake)
    set_aside()
    assert calls == list(names)
