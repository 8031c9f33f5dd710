import random
from itertools import pairwise
from typing import NamedTuple

import pytest

from foldbatch.engines.cuda.captured import CLASSES, GROWTH, learn, merged, misfit, room_for
from foldbatch.planning.rooms import Measures
from foldbatch.scheduler.rooms import Item, Rooms, Shape
from foldbatch.scheduler.schedule import ALL
from foldbatch.scheduler.trace import CellSignature, Operand

CELLS = [CellSignature(name, k, True, (Operand(0, (0,)),), (0,), 1) for k, name in enumerate("abc")]
NONE: frozenset = frozenset()


class Fit(NamedTuple):
    """A class that a batch fits into, and the slot of each step."""

    rooms: Rooms
    slots: tuple[int, ...]


def fit(classes, shape):
    """Return the smallest class that a batch fits into, with its slots; else why none is."""
    ordered = sorted(classes, key=lambda rooms: len(rooms.shape.items))
    measures = Measures(CELLS, 1)
    sizes = measures.sizes_of(shape)
    number = measures.find(measures.classes(ordered), sizes)
    if number < 0:
        return misfit(ordered, shape)
    return Fit(ordered[number], tuple(sizes[len(sizes) - len(shape.items) :].tolist()))


def _shape(widths, kinds=None):
    """Return what a recursion over levels of some widths runs, after the leaves."""
    kinds = kinds or [1] * len(widths)
    items = [
        Item(0, ALL, widths[0], ()),
        *(Item(k, ("step",), w, ()) for k, w in zip(kinds, widths, strict=True)),
    ]
    return Shape(tuple(items), NONE, NONE, NONE, (0, 0, 0), (0,))


def _trees(count, dice):
    """Return batches of trees: half as many calls a level, 10 to 22 levels."""
    return [
        _shape([max(1, int(dice.gauss(900, 60) / 2**i)) for i in range(dice.randint(10, 22))])
        for _ in range(count)
    ]


def _chains(count, dice):
    return [_shape([64 - 2 * i for i in range(dice.randint(20, 30))]) for _ in range(count)]


def _fits(classes, shape):
    """Return the class that a batch fits into, after a look at its slots; or None."""
    found = fit(classes, shape)
    if not isinstance(found, Fit):
        assert found
        return None
    slots = found.rooms.shape.items
    assert all(left < right for left, right in pairwise(found.slots))
    for place, item in zip(found.slots, shape.items, strict=True):
        assert slots[place][:2] == item[:2]
        assert slots[place].calls >= item.calls
    return found.rooms


@pytest.mark.parametrize("kind", [_trees, _chains])
def test_a_handful_of_classes_has_room_for_new_batches_of_a_data_set(kind):
    dice = random.Random(0)
    batches = kind(150, dice)
    classes = learn(batches[:100], CELLS)
    assert 0 < len(classes) <= CLASSES
    assert all(_fits(classes, batch) for batch in batches[:100])
    founds = [_fits(classes, batch) for batch in batches[100:]]
    assert founds.count(None) <= 1
    empty = sum(
        len(rooms.shape.items) - len(batch.items)
        for rooms, batch in zip(founds, batches[100:], strict=True)
        if rooms
    )
    assert empty < 0.5 * sum(len(batch.items) for batch in batches[100:])


def test_random_batches_fit_or_it_is_told_why_not():
    dice = random.Random(1)
    for _ in range(60):
        lengths = [dice.randint(1, 12) for _ in range(6)]
        batches = [
            _shape([dice.randint(1, 40) for _ in range(n)], [dice.randrange(3) for _ in range(n)])
            for n in lengths
        ]
        classes = learn(batches[:4], CELLS)
        for batch in batches:
            _fits(classes, batch)
        assert all(len(rooms.shape.items) <= GROWTH * 13 for rooms in classes)


def test_a_batch_that_does_not_fit_is_told_why():
    (rooms,) = learn([_shape([8, 4, 2])], CELLS)
    reasons = {
        "it has more steps than any class": _shape([8, 4, 2, 1]),
        "it has more rows than a class has room for, or rows that lie otherwise": _shape([17, 4, 2]),
        "its steps come in an order that no class has": _shape([8], [2]),
    }
    for reason, shape in reasons.items():
        assert fit([rooms], shape) == reason
    assert fit([], _shape([8])) == "no class is learned yet"
    assert learn([], CELLS) == []


@pytest.mark.parametrize("change", [{"copies": {0}}, {"listed": (1, 0, 0)}, {"unsliced": (1,)}])
def test_what_is_not_of_one_level_must_fit_too(change):
    changed = {name: frozenset(value) if isinstance(value, set) else value for name, value in change.items()}
    (rooms,) = learn([_shape([8])], CELLS)
    assert not isinstance(fit([rooms], _shape([8])._replace(**changed)), Fit)
    (rooms,) = learn([_shape([8])._replace(**changed)], CELLS)
    assert isinstance(fit([rooms], _shape([8])), Fit)


def test_rows_that_follow_each_other_in_a_class_must_do_so_in_a_batch():
    whole = _shape([8])._replace(slices=frozenset({(1, 0)}), first=frozenset({(1, 0)}))
    (rooms,) = learn([whole], CELLS)
    assert not isinstance(fit([rooms], _shape([8])), Fit)
    assert not isinstance(fit([rooms], whole._replace(first=NONE)), Fit)
    (rooms,) = learn([whole._replace(first=NONE)], CELLS)
    assert isinstance(fit([rooms], whole), Fit)
    assert not isinstance(fit([rooms], _shape([8])), Fit)
    (rooms,) = learn([whole, _shape([8])], CELLS)
    assert rooms.shape.slices == NONE
    assert isinstance(fit([rooms], whole), Fit)


def test_rows_that_follow_each_other_in_a_batch_alone_are_among_the_others_of_its_class():
    whole = _shape([8])._replace(slices=frozenset({(1, 0)}), runs=(((1, 0), 0, 20),))
    assert whole.unsliced_beside(whole.slices) == (0,) and whole.unsliced_beside(NONE) == (20,)
    (rooms,) = learn([whole, whole], CELLS)
    assert rooms.full.arena_rows == (16,)  # the calls of the level
    (rooms,) = learn([whole, _shape([8])], CELLS)
    assert rooms.full.arena_rows[0] >= 20
    (rooms,) = learn([_shape([8])], CELLS)
    assert rooms.full.arena_rows == (0,)
    assert not isinstance(fit([rooms], whole), Fit)


def test_the_smallest_class_that_fits_is_taken():
    small, large = (learn([_shape([4] * count)], CELLS)[0] for count in (2, 5))
    assert fit([large, small], _shape([4, 4])).rooms is small
    assert fit([large, small], _shape([4] * 3)).rooms is large


def test_calls_with_elements_have_a_free_rank_behind_them():
    """There the elements of the last one end."""
    one = _shape([8])._replace(items=(Item(0, ALL, 16, (5,)),))
    cells = [CellSignature("a", 0, False, (), (0,), 1, (1,)), *CELLS[1:]]
    (rooms,) = learn([one], cells)
    assert rooms.shape.items == (Item(0, ALL, 32, (16,)),)
    measures = Measures(cells, 1)
    for calls, elements, number in ((31, 16, 0), (32, 16, -1), (31, 17, -1)):
        batch = measures.sizes_of(one._replace(items=(Item(0, ALL, calls, (elements,)),)))
        assert measures.find(measures.classes([rooms]), batch) == number


def test_orders_that_would_make_a_class_too_long_have_another():
    dice = random.Random(2)
    batches = [_shape([1] * 20, dice.sample([0, 1] * 10, 20)) for _ in range(20)]
    classes = learn(batches, CELLS)
    assert 1 < len(classes) <= CLASSES
    for rooms in classes:
        assert len(rooms.shape.items) <= GROWTH * 21
        assert any(_fits([rooms], batch) for batch in batches)


def test_a_merged_sequence_has_both_in_it():
    def within(items, sequence):
        rest = iter(sequence)
        return all(item in rest for item in items)

    dice = random.Random(3)
    for _ in range(200):
        left, right = ([dice.randrange(4) for _ in range(dice.randint(0, 9))] for _ in range(2))
        together = list(merged(left, right))
        assert within(left, together)
        assert within(right, together)
        assert len(together) <= len(left) + len(right)
    assert list(merged([0, 1, 2], [0, 1, 2])) == [0, 1, 2]


def test_room_is_four_deviations_above_the_mean():
    assert room_for([100, 100]) == 112
    assert room_for([90, 110]) == 144  # 100 + 4 * 10
    assert room_for([1] * 99 + [50]) == 64  # no less than the largest


def test_what_goes_through_all_calls_of_a_cell_stands_in_one_slot_that_each_batch_takes():
    """Else calls would be gone through twice: by the slot that a batch left, or by levels that did so already."""

    def shape(*kinds):
        items = (Item(k, stages, 4 * ("step" in stages), ()) for k, stages in kinds)
        return Shape(tuple(items), NONE, NONE, NONE, (0, 0, 0), (0,))

    before, step, whole = (0, ("before",)), (0, ("step",)), (0, ALL)
    cut, levels = shape(before, step, (1, ALL)), shape(whole, (1, ALL), whole)
    classes = learn([cut, levels], CELLS)
    assert len(classes) == 2
    assert _fits(classes, cut) is not _fits(classes, levels)
    assert None not in (_fits(classes, cut), _fits(classes, levels))
    assert _fits(classes, shape((1, ALL)))  # which has no calls of the other cell
    assert _fits(learn([cut], CELLS), shape(step, (1, ALL))) is None
    other = 1, ("before",)
    assert len(learn([shape(before, other), shape(other, before)], CELLS)) == 2
