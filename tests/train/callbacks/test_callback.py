"""Callbacks: a subclass says what it does; the rest does nothing."""

from __future__ import annotations

from typing import Any

from foldbatch.train import Callback


def test_a_callback_does_nothing_by_default():
    callback, trainer = Callback(), object()
    moments: list[Any] = [getattr(callback, name) for name in dir(callback) if name.startswith("on_")]
    assert len(moments) == 8
    assert all(moment(trainer) is None for moment in moments)
    assert callback.state() == {}
