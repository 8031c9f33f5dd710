"""Where compiled code is kept. That it is, and what happens where it cannot be: see `test_loop_compiler`."""

from __future__ import annotations

from pathlib import Path

import pytest

from foldbatch.engines.numba.compiling import cache_directory


def test_the_directory_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of our own goes before the desktop's, and may say that there is none."""
    monkeypatch.setenv("HOME", "/home/anna")
    monkeypatch.delenv("FOLDBATCH_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_directory() == Path("/home/anna/.cache/foldbatch")
    monkeypatch.setenv("XDG_CACHE_HOME", "/shared")
    assert cache_directory() == Path("/shared/foldbatch")
    monkeypatch.setenv("FOLDBATCH_CACHE", "/mine")
    assert cache_directory() == Path("/mine")
    monkeypatch.setenv("FOLDBATCH_CACHE", "")
    assert cache_directory() is None
