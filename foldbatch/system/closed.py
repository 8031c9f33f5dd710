"""Closed objects: of what the package makes, nothing is assigned in silence that no code would read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar

from foldbatch.errors import UnknownNameError, with_nearest

PACKAGE = __name__.partition(".")[0]
Check = Callable[[str, object], object]  # given where it is and a value, refuses it or returns it


class Closed:
    """An object that is complete once made: code outside the package assigns only methods and settings.

    Settings are those that `settable` names, with their checks, and fields of a dataclass that have one in
    their metadata. Classes that are derived elsewhere have what else they like.
    """

    __slots__ = ()
    settable: ClassVar[Mapping[str, Check | None]] = {}

    def __setattr__(self, name: str, value: object) -> None:
        kind: Any = type(self)
        settings = _settings(kind)
        if name in settings:
            check = settings[name]
            value = check(f"{kind.__name__} {name}", value) if check else value
        elif name[:1] != "_" and kind.__module__.partition(".")[0] == PACKAGE:
            member = getattr(kind, name, None)
            if not callable(member) and getattr(member, "fset", None) is None and from_outside():
                expected = f"an assignment to {', '.join(settings)}" if settings else "no assignment"
                actual = f"one to {with_nearest(name, settings)}"
                fix = "what else there is, it is made with: make another"
                raise UnknownNameError(kind.__name__, expected, actual, fix)
        object.__setattr__(self, name, value)


@cache
def _settings(kind: Any) -> Mapping[str, Check | None]:
    fields = getattr(kind, "__dataclass_fields__", {}).values()
    return {f.name: f.metadata["check"] for f in fields if "check" in f.metadata} | dict(kind.settable)


def from_outside() -> bool:
    """Whether code outside the package uses the method that asks."""
    frame = sys._getframe(2)
    # a class between, or one of abc
    while frame.f_code.co_name in ("__setattr__", "__instancecheck__") and frame.f_back is not None:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")).partition(".")[0] != PACKAGE
