import random
from itertools import pairwise

import pytest

from foldbatch.engines.cuda.capacities import (
    CLASSES,
    GROWTH,
    TURNS,
    Capacities,
    Item,
    Miss,
    Signature,
    Slot,
    fit,
    learn,
    merged,
    room_for,
)

COPY, PRODUCT, GATES, LOSS, SUMS = range(5)


def _signature(widths, *, copies=0.5, dice=None):
    """Return what a recursion over levels of some widths runs: copies of rows are left out at random."""
    dice = dice or random.Random(len(widths))

    def level(width):
        ops = [*([COPY] if dice.random() < copies else []), PRODUCT, GATES]
        return [Item(op, width) for op in ops]

    forward = [item for width in widths for item in level(width)]
    backward = [item for width in widths[::-1] for item in level(width)]
    return Signature((*forward, Item(LOSS, 1)), (*backward, Item(SUMS, widths[0])))


def _tree_batches(count, dice):
    """Return widths of levels of batches of trees: half as many a level, 10 to 22 levels."""
    return [
        [max(1, int(dice.gauss(900, 60) / 2**i)) for i in range(dice.randint(10, 22))] for _ in range(count)
    ]


def _chains(count, dice):
    return [[64 - 2 * i for i in range(dice.randint(20, 30))] for _ in range(count)]


def _subsequence(items, ops):
    rest = iter(ops)
    return all(item in rest for item in items)


def _assert_placed(found, signature):
    """Assert that the calls in their slots, in order, are exactly the calls of the batch."""
    items = [*signature.forward, *signature.backward]
    slots = found.chosen.slots
    assert len(found.places) == len(items)
    assert all(left < right for left, right in pairwise(found.places))
    assert [slots[place].op for place in found.places] == [item.op for item in items]
    assert all(
        item.size <= TURNS * slots[place].capacity for place, item in zip(found.places, items, strict=True)
    )
    directions = len(found.chosen.forward)
    assert sum(place < directions for place in found.places) == len(signature.forward)


@pytest.mark.parametrize("kind", [_tree_batches, _chains])
def test_a_handful_of_classes_has_room_for_new_batches_of_a_data_set(kind):
    dice = random.Random(0)
    batches = [_signature(widths, dice=dice) for widths in kind(150, dice)]
    classes = learn(batches[:100])
    assert 0 < len(classes) <= CLASSES
    for batch in batches[:100]:
        _assert_placed(fit(classes, batch), batch)
    founds = [fit(classes, batch) for batch in batches[100:]]
    assert sum(isinstance(found, Miss) for found in founds) <= 1
    empty = [len(found.chosen.slots) - len(found.places) for found in founds if not isinstance(found, Miss)]
    assert sum(empty) < 0.5 * sum(batch.calls for batch in batches[100:])


def test_random_batches_fit_exactly_or_tell_why_not():
    dice = random.Random(1)
    for _ in range(60):
        batches = [
            Signature(
                *(
                    tuple(Item(dice.randrange(3), dice.randint(1, 40)) for _ in range(dice.randint(0, 12)))
                    for _ in range(2)
                )
            )
            for _ in range(6)
        ]
        classes = learn(batches[:4])
        fits = [fit(classes, batch) for batch in batches]
        for batch, found in zip(batches, fits, strict=True):
            if isinstance(found, Miss):
                assert found.reason
                for chosen in classes:  # what one direction alone decides
                    enough = [slot.capacity * TURNS for slot in chosen.slots]
                    both = [slot.op for slot in chosen.forward], [slot.op for slot in chosen.backward]
                    in_order = all(
                        _subsequence([item.op for item in items], ops)
                        for items, ops in zip(batch, both, strict=True)
                    )
                    largest = max(item.size for items in batch for item in items)
                    assert not in_order or largest > min(enough)
            else:
                _assert_placed(found, batch)
        longest = max(batch.calls for batch in batches[:4])
        assert all(len(chosen.slots) <= GROWTH * 2 * longest for chosen in classes)


def test_backward_levels_are_counted_from_the_leaves():
    deep, flat = _signature([64, 32, 16, 8, 4, 2, 1], copies=1), _signature([64, 32, 16, 8, 4, 2], copies=1)
    (chosen,) = learn([deep, flat])
    rooms = [slot.capacity for slot in chosen.backward if slot.op == GATES]
    assert rooms == [1, 2, 4, 8, 16, 32, 64]


def test_a_batch_that_does_not_fit_is_told_why():
    (chosen,) = learn([_signature([8, 4, 2], copies=0)])
    reasons = {
        "it has more calls than any class": _signature([8, 4, 2, 1], copies=0),
        "it has more rows than a class has room for": _signature([17, 4, 2], copies=0),
        "its calls come in an order that no class has": _signature([8], copies=1),
    }
    for reason, signature in reasons.items():
        assert fit([chosen], signature) == Miss(reason)
    assert fit([], _signature([8])) == Miss("no class is learned yet")
    assert learn([]) == []


def test_the_smallest_class_that_fits_is_taken():
    small, large = (Capacities((Slot(GATES, 4),) * count, ()) for count in (2, 5))
    assert fit([large, small], Signature((Item(GATES, 4),) * 2, ())).chosen is small
    assert fit([large, small], Signature((Item(GATES, 4),) * 3, ())).chosen is large


def test_orders_that_would_make_a_class_too_long_are_left_out():
    dice = random.Random(2)
    batches = [Signature(tuple(Item(op, 1) for op in dice.sample([0, 1] * 10, 20)), ()) for _ in range(20)]
    (chosen,) = learn(batches)
    assert len(chosen.slots) <= GROWTH * 20
    fits = [fit([chosen], batch) for batch in batches]
    assert 0 < sum(not isinstance(found, Miss) for found in fits)


def test_a_merged_sequence_has_both_in_it():
    dice = random.Random(3)
    for _ in range(200):
        left, right = ([dice.randrange(4) for _ in range(dice.randint(0, 9))] for _ in range(2))
        together = list(merged(left, right))
        assert _subsequence(left, together)
        assert _subsequence(right, together)
        assert len(together) <= len(left) + len(right)
    assert list(merged([0, 1, 2], [0, 1, 2])) == [0, 1, 2]


def test_room_is_four_deviations_above_the_mean():
    assert room_for([100, 100]) == 100 + 4  # rounded up to a class
    assert room_for([90, 110]) == 144  # 100 + 4 * 10
    assert room_for([1] * 99 + [50]) == 52  # no less than the largest
