"""Writing the lines of the tracing program, each with the block that it comes from.

Every line remembers the block it is for and where in the data it looks, at no cost while it runs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from foldbatch.blocks.drafts import Line, Procedure, Region
from foldbatch.blocks.values import Object, Place
from foldbatch.errors import BlockValueError

LONGEST = 60  # characters of a block's repr in an error
PRINTED = 12  # blocks printed at most: then the repr is longer than an error shows
LOOPS = 20  # loops inside each other: the most that Python compiles
DEEP = 50  # indentation from which choices become functions of their own: Python compiles 100 levels


class Writer:
    """Writes the function of the tracing program that is being built, region by region."""

    def __init__(self, root: object, *, inferring: bool) -> None:
        self.inferring = inferring
        self.globals: dict[str, Any] = {}
        self._path: list[object] = [root]
        self._function: Procedure | None = None
        self._regions: list[Region] = []
        self._indent = 1
        self._loops = 0
        self._names = 0

    @property
    def region(self) -> Region:
        """The region being built."""
        return self._regions[-1]

    # -- where we are

    @property
    def root(self) -> object:
        """The beginning of paths: a string, or an object that prints as one."""
        return self._path[0]

    @root.setter
    def root(self, root: object) -> None:
        self._path[0] = root

    @property
    def path(self) -> str:
        """The path by which the root reaches the present block, as Python would index it."""
        self._path[0] = str(self._path[0])  # printed once: every line asks, and the root may be a large block
        return "".join(map(str, self._path))

    @contextmanager
    def at(self, segment: str) -> Iterator[None]:
        """Extend the path while a part of a block is built."""
        self._path.append(segment)
        try:
            yield
        finally:
            self._path.pop()

    def where(self, block: object) -> str:
        """Return how errors name a block at the present place."""
        path, name = self.path, shown(block)
        return path if len(self._path) == 1 and path.endswith(name) else f"{path} {name}"

    # -- lines and names

    def fresh(self, stem: str = "t") -> str:
        """Return a variable name not used before."""
        self._names += 1
        return f"{stem}{self._names}"

    def constant(self, stem: str, value: object) -> str:
        """Make a Python object visible to the program; return its name."""
        name = self.fresh(f"{stem}_")
        self.globals[name] = value
        return name

    def line(
        self,
        text: str,
        subject: Object | None = None,
        expected: str = "",
        *,
        where: str = "",
        calls: str = "",
    ) -> None:
        """Add a line to the program; on an error it is blamed on the present block and `subject`."""
        assert self._function is not None
        line = Line("    " * self._indent + text, where or self.path, subject, expected, calls)
        self._function.lines.append(line)

    def assign(
        self,
        expression: str,
        place: Place,
        subject: Object,
        expected: str = "",
        *,
        where: str = "",
        calls: str = "",
    ) -> Object:
        """Add a line that computes an object from `subject`; return it."""
        name = self.fresh()
        self.line(f"{name} = {expression}", subject, expected, where=where, calls=calls)
        return Object(name, place)

    @contextmanager
    def indented(self, header: str, subject: Object | None = None, expected: str = "") -> Iterator[Region]:
        """Build a nested region under a line such as ``if ...:`` or ``for ...:``."""
        is_loop = header.startswith(("for", "while"))
        self._loops += is_loop
        if self._loops > LOOPS:
            fix = "make what is inside a ForwardDeclaration of its own"
            raise BlockValueError(self.path, f"up to {LOOPS} sequences inside each other", "more", fix)
        self.line(header, subject, expected)
        self._regions.append(Region())
        try:
            with self.shifted(1):
                yield self.region
                self.line("pass")
        finally:
            self._regions.pop()
            self._loops -= is_loop

    @contextmanager
    def shifted(self, levels: int) -> Iterator[None]:
        """Indent what is written meanwhile by some levels more."""
        self._indent += levels
        try:
            yield
        finally:
            self._indent -= levels

    @property
    def deep(self) -> bool:
        """Whether lines are indented so far that a choice should go on in a function of its own."""
        return self._indent > DEEP


class _Printing(threading.local):
    left: int | None = None  # blocks that may still be printed; None: all of them


_printing = _Printing()


def shown(block: object) -> str:
    """Return a block's `repr` for errors: its kind alone where it is long.

    >>> shown(1), shown("long" * 20)
    ('1', 'str(...)')
    """
    outer, _printing.left = _printing.left, PRINTED
    try:
        text = repr(block)
        cut = _printing.left < 0
    finally:
        _printing.left = outer
    return f"{type(block).__name__}(...)" if cut or len(text) > LONGEST else text


def enough() -> bool:
    """Count one more block as printed; return whether these are too many for an error message.

    Every block's `repr` asks first.
    """
    if _printing.left is None:
        return False
    _printing.left -= 1
    return _printing.left < 0
