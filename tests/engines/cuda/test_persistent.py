from foldbatch.engines.cuda.control import Call
from foldbatch.engines.cuda.persistent import Stretch, _stretches


class _Task:
    multiplied = object()


class _Step:
    task = _Task()


def test_a_direction_is_one_launch():
    calls = [Call(0, (), blocks) for blocks in (1, 7, 2, 3)]
    assert _stretches(calls, 2, lambda call: True) == [Stretch(0, 2, 7), Stretch(2, 4, 3)]
    assert _stretches(calls, 0, lambda call: True) == [Stretch(0, 4, 7)]


def test_wide_products_run_straight_between_walks():
    step = _Step()
    calls = [Call(0, (), 1), Call(0, (), 9, step), Call(0, (), 2), Call(0, (), 8, step)]
    assert _stretches(calls, 3, lambda call: call.blocks == 9) == [
        Stretch(0, 1, 1),
        Stretch(1, 2, 0, step),
        Stretch(2, 3, 2),
        Stretch(3, 4, 8),
    ]
