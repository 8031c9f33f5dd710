"""Seconds of one example follow from runs over several."""

from __future__ import annotations

from foldbatch.gain.figures import Seconds, seconds_of


def test_seconds_are_of_one_example() -> None:
    """The median, the quickest and the slowest run."""
    assert seconds_of([4.0, 2.0, 9.0, 6.0], 2) == Seconds(2.5, 1.0, 4.5)
    assert seconds_of([4.0], 4).rate == 1
