"""A bad update stops all later ones, and whoever reads next learns which gradient it was."""

import sys

import numpy as np
import pytest

from foldbatch.engines.cuda.device import Device, DeviceArray
from foldbatch.errors import ParameterError
from tests.engines.cuda.emulated import needs_compiler
from tests.engines.cuda.emulator import Emulator

pytestmark = needs_compiler


@pytest.fixture
def one():
    return Device(Emulator())


def update(one, flags, words=(), undone=None, number=0):
    """Enqueue an update of gradients a, b and so on."""
    names = [chr(ord("a") + i) for i in range(len(flags))]
    undo = (lambda: None) if undone is None else (lambda: undone.append(number))
    one.faults.tidy()
    code = one.faults.promised(names, undo)
    held = [one.put(np.array([number])) for number in (*flags, *words)]
    pointers = [array.pointer for array in held]
    told = one.put(np.array([one.faults.word.pointer, code, len(flags), len(words), *pointers]))
    one.launch("fault", 1, (1, 1), [told.pointer])


def test_good_updates_are_none_to_speak_of(one):
    update(one, [0, 0], [0])
    update(one, [])
    one.faults.look()
    assert np.asarray(DeviceArray(one, one.faults.word, (1,), "int64")).tolist() == [0]


def test_the_first_bad_gradient_is_named_and_what_came_after_is_taken_back(one):
    undone = []
    for number, flags in enumerate([[0, 0], [0, 0, 1, 1], [1], [0]]):
        update(one, flags, undone=undone, number=number)
    with pytest.raises(ParameterError, match=r"c gradient: expected finite numbers, .* nothing was changed"):
        one.faults.look()
    assert undone == [3, 2, 1]
    one.faults.look()
    update(one, [0, 0])
    one.faults.look()
    update(one, [0, 1])
    with pytest.raises(ParameterError, match="b gradient"):
        _ = np.asarray(one.put(np.zeros(2)))  # whatever is read


@pytest.mark.parametrize("count", [1, 12, 13, 30])
def test_a_bad_batch_is_told_from_a_bad_gradient(one, count):
    """However many batches the gradients are of."""
    update(one, [1, 0], [0] * (count - 1) + [5])
    with pytest.raises(ParameterError, match="gradients: expected ids within range"):
        one.faults.look()
    update(one, [0], [0] * (count - 1) + [5])
    one.faults.forget()
    one.faults.look()


def test_a_word_that_came_with_something_else_will_do(one):
    update(one, [1, 1])
    word = int(one.read(DeviceArray(one, one.faults.word, (1,), "int64"))[0])
    one.faults.look(0)
    with pytest.raises(ParameterError, match="a gradient"):
        one.faults.look(word)
    one.faults.look(word)  # the same word, copied twice
    update(one, [0])
    one.faults.look(word)
    one.faults.look()


def test_of_many_updates_that_nobody_asks_about_few_are_remembered(one, monkeypatch):
    monkeypatch.setattr(sys.modules[Device.__module__], "MAX_UPDATES", 3)
    for _ in range(3):
        update(one, [0])
    update(one, [1])
    assert len(one.faults._updates) == 1
    update(one, [0])
    update(one, [0])
    with pytest.raises(ParameterError):
        update(one, [0])
