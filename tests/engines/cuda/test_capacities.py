import random
from itertools import pairwise

import pytest

from foldbatch.engines.cuda.capacities import CLASSES, GROWTH, Fit, fit, learn
from foldbatch.scheduler.rooms import Item, Shape
from foldbatch.scheduler.schedule import ALL
from foldbatch.scheduler.trace import CellSignature, Operand

CELLS = [CellSignature(name, k, True, (Operand(0, (0,)),), (0,), 1) for k, name in enumerate("abc")]
NONE: frozenset = frozenset()


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


@pytest.mark.parametrize("change", [{"copies": {0}}, {"listed": (1, 0, 0)}, {"rest": (1,)}])
def test_what_is_not_of_one_level_must_fit_too(change):
    changed = {name: frozenset(value) if isinstance(value, set) else value for name, value in change.items()}
    (rooms,) = learn([_shape([8])], CELLS)
    assert not isinstance(fit([rooms], _shape([8])._replace(**changed)), Fit)
    (rooms,) = learn([_shape([8])._replace(**changed)], CELLS)
    assert isinstance(fit([rooms], _shape([8])), Fit)
