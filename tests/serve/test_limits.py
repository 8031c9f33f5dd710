"""Limits are plain numbers."""

from __future__ import annotations

from dataclasses import astuple

from foldbatch.serve.limits import Limits


def test_every_limit_lets_something_through():
    assert all(value > 0 for value in astuple(Limits()))
    assert Limits().batch_nodes <= Limits().queue_nodes
