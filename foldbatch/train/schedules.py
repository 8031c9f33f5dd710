"""Learning-rate schedules: functions from a count of steps or epochs to a factor of the learning rate.

The callback `foldbatch.train.Schedule` calls one at each step or epoch. A setting that is out of range raises
`TrainingError`.
"""

import math
from collections.abc import Callable, Sequence
from itertools import accumulate

from foldbatch.errors import TrainingError
from foldbatch.train.numbers import number, whole_number
from foldbatch.types import describe_value

Factor = Callable[[int], float]
COUNTS, FACTOR = "it counts steps or epochs", "it multiplies the learning rate"


def stepwise(every: int, factor: float = 0.1) -> Factor:
    """Return the learning-rate schedule that is multiplied by a factor after every so many counts.

    >>> [stepwise(2, 0.5)(count) for count in range(5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """
    whole_number("stepwise every", every, 1, COUNTS)
    number("stepwise factor", factor, 0, fix=FACTOR)
    return lambda count: float(factor) ** (count // every)


def exponential(factor: float) -> Factor:
    """Return the learning-rate schedule that is multiplied by a factor at every count.

    >>> [exponential(0.5)(count) for count in range(3)]
    [1.0, 0.5, 0.25]
    """
    number("exponential factor", factor, 0, fix=FACTOR)
    return lambda count: float(factor) ** count


def warm_up(length: int, start: float = 0.1) -> Factor:
    """Return the learning-rate schedule that rises linearly from `start` to 1 in `length` counts, and stays.

    >>> [warm_up(2, 0.5)(count) for count in range(4)]
    [0.5, 0.75, 1.0, 1.0]
    """
    whole_number("warm_up length", length, 1, COUNTS)
    number("warm_up start", start, 0, fix=FACTOR)
    return lambda count: start + (1 - start) * min(count / length, 1.0)


def cosine(length: int, end: float = 0.0) -> Factor:
    """Return the learning-rate schedule that falls from 1 to `end` along half a cosine wave, and stays.

    It takes `length` counts of steps or epochs to fall.

    >>> [round(cosine(4)(count), 3) for count in range(6)]
    [1.0, 0.854, 0.5, 0.146, 0.0, 0.0]

    Source: Loshchilov and Hutter 2017, equation 5, without restarts.
    """
    whole_number("cosine length", length, 1, COUNTS)
    number("cosine end", end, 0, fix=FACTOR)
    return lambda count: _between(1.0, end, min(count / length, 1.0))


def one_cycle(length: int, rise: float = 0.3, start: float = 0.04, end: float = 4e-6) -> Factor:
    """Return the learning-rate schedule that rises from `start` to 1 and falls to `end`, along half waves.

    Args:
        length: how many steps there are in all; the last has the factor `end`.
        rise: the share of the steps in which it rises.
        start: the first factor.
        end: the last factor.

    >>> [round(one_cycle(6, rise=0.5)(count), 3) for count in range(6)]
    [0.04, 0.52, 1.0, 0.75, 0.25, 0.0]

    Source: Smith and Topin 2018; the shape is that of torch's OneCycleLR.
    """
    whole_number("one_cycle length", length, 2, COUNTS)
    number("one_cycle rise", rise, 0, 1, "for example 0.3", above=True)
    number("one_cycle start", start, 0, fix=FACTOR)
    number("one_cycle end", end, 0, fix=FACTOR)
    top, last = max(rise * length - 1, 0.0), length - 1

    def factor(count: int) -> float:
        if count < top:
            return _between(start, 1.0, count / top)
        return _between(1.0, end, min((count - top) / (last - top), 1.0))

    return factor


def chained(schedules: Sequence[Factor], lengths: Sequence[int]) -> Factor:
    """Return the schedule that follows one schedule after the other; each begins to count at 0.

    Args:
        schedules: one or more.
        lengths: how many counts each but the last one rules.

    >>> [round(chained([warm_up(2, 0.5), cosine(2)], [2])(count), 3) for count in range(5)]
    [0.5, 0.75, 1.0, 0.5, 0.0]
    """
    arguments: tuple[object, ...] = schedules, lengths
    if not all(isinstance(value, Sequence) for value in arguments) or not all(map(callable, schedules)):
        actual = " and ".join(map(describe_value, arguments))
        fix = "as in chained([warm_up(100), cosine(900)], [100])"
        raise TrainingError("chained", "a list of schedules and one of lengths", actual, fix)
    if len(lengths) != len(schedules) - 1:
        fix = "the last schedule rules from there on"
        raise TrainingError("chained lengths", "one less than schedules", f"{len(lengths)} lengths", fix)
    for length in lengths:
        whole_number("chained lengths", length, 1, COUNTS)
    begins = [0, *accumulate(lengths)]

    def factor(count: int) -> float:
        place = sum(begin <= count for begin in begins) - 1
        return schedules[place](count - begins[place])

    return factor


def _between(first: float, last: float, share: float) -> float:
    """Return the height of half a wave of the cosine from `first` to `last`."""
    return last + (first - last) * (1 + math.cos(math.pi * share)) / 2
