"""Loops inside each other: as few as possible."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from foldbatch.static.loops import Element, nest


def _numbers(place: Element, shape: tuple[int, ...], rows: int) -> list[int]:
    return [
        r * place.row + sum(i * s for i, s in zip(at, place.strides, strict=True))
        for r in range(rows)
        for at in itertools.product(*map(range, shape))
    ]


@given(st.data())
def test_a_nest_visits_every_element_in_order(data: st.DataObject) -> None:
    """With any strides, whatever axes are merged."""
    shape = tuple(data.draw(st.lists(st.integers(1, 3), max_size=3)))
    stride = st.sampled_from([0, 1, 2, 3, 4, 6, 9])
    places = [
        Element(0, data.draw(stride), 0, tuple(data.draw(stride) for _ in shape))
        for _ in range(data.draw(st.integers(1, 3)))
    ]
    rows = data.draw(st.integers(0, 3))
    for by_rows in (True, False):
        found = nest(shape, places, by_rows=by_rows)
        turns = [t * (rows if by_rows and i == 0 else 1) for i, t in enumerate(found.turns)]
        for place, strides in zip(places, found.strides, strict=True):
            visited = [
                sum(i * s for i, s in zip(at, strides, strict=True))
                for at in itertools.product(*map(range, turns))
            ]
            assert visited == _numbers(place, shape, rows if by_rows else 1)


def test_whole_buffers_are_one_loop() -> None:
    """All rows and all axes; a value that is the same in all rows parts the rows."""
    whole, bias = Element(0, 6, 0, (3, 1)), Element(1, 0, 0, (3, 1))
    assert nest((2, 3), [whole, whole], by_rows=True).turns == (6,)
    assert nest((2, 3), [whole, bias], by_rows=True).turns == (1, 6)
    assert nest((2, 3), [whole, bias], by_rows=False).turns == (6,)
