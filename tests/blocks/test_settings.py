"""Settings: they are found under the names of arguments, and make an equal thing again."""

from __future__ import annotations

import pytest

import foldbatch as fb
from foldbatch.blocks.settings import make, settings_of
from foldbatch.errors import BlockTypeError


class Several:
    def __init__(self, first, *others, last=0):
        self.first, self.others, self.last = first, others, last


class Forgetful:
    def __init__(self, size):
        self.width = size


class Open:
    def __init__(self, **options):
        self.options = options


def test_defaults_are_left_out_and_others_come_back():
    assert settings_of(fb.Linear(3)) == {"size": 3}
    assert settings_of(fb.Linear(3, "tanh", bias=False, name="out")) == {
        "size": 3,
        "activation": "tanh",
        "bias": False,
        "name": "out",
    }
    assert settings_of(fb.GetItem("x")) == {"key": "x"}
    assert settings_of(fb.GetItem("x", default=None)) == {"key": "x", "default": None}
    assert settings_of(fb.Embedding(2, 2, trainable=False))["trainable"] is False


def test_an_equal_default_of_another_type_is_no_default():
    assert settings_of(fb.GetItem(True)) == {"key": True}
    assert settings_of(Several(1, last=False)) == {"first": 1, "others": (), "last": False}


def test_positions_and_names_are_given_as_the_constructor_takes_them():
    made = make(Several, {"first": 1, "others": (2, 3), "last": 4})
    assert (made.first, made.others, made.last) == (1, (2, 3), 4)
    assert settings_of(make(Several, {"first": 1, "last": 4})) == {"first": 1, "others": (), "last": 4}


@pytest.mark.parametrize("thing", [Forgetful(2), Open(x=1)])
def test_an_argument_that_is_no_attribute_is_named(thing):
    with pytest.raises(BlockTypeError, match="as an attribute of this name, found none; write self"):
        settings_of(thing)


@pytest.mark.parametrize("settings", [{}, {"first": 1, "colour": 2}, {"others": (1,)}])
def test_other_arguments_are_refused(settings):
    with pytest.raises(TypeError):
        make(Several, settings)
