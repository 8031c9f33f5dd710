"""How results show themselves: as text where they are printed, as they look best in a notebook."""

import inspect
from html import escape
from os import PathLike


class Printed:
    """What a notebook shows as `print` does, not as a `repr` of one line."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


class Drawing(str):
    """A picture as text, SVG or a page of HTML, which a notebook shows as a picture.

    >>> Drawing("<svg></svg>")._repr_html_()
    '<svg></svg>'
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        return str(self)


class Described:
    """What is made with settings: its `repr` has those that differ from the defaults.

    >>> class Rate(Described):
    ...     def __init__(self, first: float, every: int = 1) -> None:
    ...         self.first, self.every = first, every
    >>> Rate(0.5), Rate(0.5, every=3)
    (Rate(0.5), Rate(0.5, every=3))
    """

    def __repr__(self) -> str:
        shown = []
        for name, parameter in inspect.signature(type(self)).parameters.items():
            value = getattr(self, name, getattr(self, f"_{name}", parameter.default))
            if parameter.default is parameter.empty and isinstance(value, str | int | float | PathLike):
                shown.append(repr(str(value) if isinstance(value, PathLike) else value))
            elif isinstance(value, str | int | float | dict) and value not in ({}, parameter.default):
                shown.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"
