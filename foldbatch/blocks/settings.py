"""Settings: what a thing was made with, found again under the names of its constructor's arguments."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from foldbatch.errors import BlockTypeError

PLAIN = (bool, int, float, str)
SIGNATURES: dict[type, inspect.Signature] = {}  # of constructors, which take long to find out


def signature_of(cls: type) -> inspect.Signature:
    """Return the signature of a constructor."""
    if cls not in SIGNATURES:
        SIGNATURES[cls] = inspect.signature(cls)
    return SIGNATURES[cls]


def settings_of(thing: object) -> dict[str, Any]:
    """Return the arguments that a thing was made with, by name, but for those that are the default.

    They are attributes of the arguments' names, as in scikit-learn.

    Raises:
        BlockTypeError: when an argument is no attribute.

    >>> from foldbatch.blocks.leaves import Vector
    >>> settings_of(Vector(3))
    {'size': 3}
    """
    settings = {}
    for name, parameter in signature_of(type(thing)).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD or not hasattr(thing, name):
            fix = f"write self.{name} = {name} in its constructor, or give the class a method settings()"
            expected = f"its argument {name} as an attribute of this name"
            raise BlockTypeError(type(thing).__name__, expected, "none", fix)
        value = getattr(thing, name)
        if not _same(value, parameter.default):
            settings[name] = value
    return settings


def make(cls: type, settings: Mapping[str, Any]) -> Any:
    """Return what a class makes of settings; the inverse of `settings_of`.

    Raises:
        TypeError: when the class has other arguments.

    >>> from foldbatch.blocks.leaves import Vector
    >>> make(Vector, {"size": 3})
    Vector(3, 'float32')
    """
    signature = signature_of(cls)
    unknown = settings.keys() - signature.parameters.keys()
    if unknown:
        raise TypeError(f"{cls.__name__} has no argument {', '.join(sorted(unknown))}")
    bound = inspect.BoundArguments(signature, OrderedDict(settings))
    return cls(*bound.args, **bound.kwargs)


def _same(value: object, default: object) -> bool:
    return value is default or (
        type(value) is type(default) and isinstance(value, PLAIN) and value == default
    )
