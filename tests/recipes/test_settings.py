"""Every option says what it is, and its default is within its bounds."""

from __future__ import annotations

import msgspec

from foldbatch.recipes import settings
from foldbatch.recipes.configuration import describe_options


def test_every_option_is_described():
    options = list(describe_options())
    assert len(options) > 30
    assert [name for name, _, what in options if len(what) < 5] == []


def test_defaults_are_within_their_bounds():
    plain = msgspec.to_builtins(settings.Configuration())
    assert msgspec.convert(plain, settings.Configuration) == settings.Configuration()
