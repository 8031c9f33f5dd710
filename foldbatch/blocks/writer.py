"""Writing the statements of the tracing program, each with the block that it comes from.

Every statement remembers the block it is for and where in the data it looks, at no cost while it runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from foldbatch.blocks.drafts import Object, Procedure, Region
from foldbatch.blocks.tracing import Apply, Assign, Blame, Constant, Expression, Place, Read, Statement
from foldbatch.errors import BlockValueError
from foldbatch.model.reading_paths import Through
from foldbatch.system.showing import shown

LOOPS = 20  # loops inside each other: the most that Python compiles
MAX_INDENTATION = (
    50  # indentation from which choices become functions of their own: Python compiles 100 levels
)


class Writer:
    """Writes the function of the tracing program that is being built, region by region."""

    def __init__(self, root: object, *, inferring: bool) -> None:
        self.inferring = inferring
        self._path: list[object] = [root]
        self._function: Procedure | None = None
        self._regions: list[Region] = []
        self._body: list[Statement] = []
        self._levels = 0  # how many bodies the present one stands in
        self._loops = 0
        self._names = 0

    @property
    def region(self) -> Region:
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
        self._path[0] = str(self._path[0])  # printed once: all statements ask, and the root may be large
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

    # -- statements and names

    def fresh(self, stem: str = "t") -> str:
        """Return a variable name not used before."""
        self._names += 1
        return f"{stem}{self._names}"

    def constant(self, stem: str, value: object) -> Constant:
        """Return a constant of the tracing program with a name of its own."""
        return Constant(self.fresh(f"{stem}_"), value)

    def blame(
        self, subject: Object | None = None, expected: str = "", *, where: str = "", calls: str = ""
    ) -> Blame:
        """Return the parts of an error that a statement may cause; it blames the present block by default."""
        if subject is None:
            return Blame(where or self.path, None, (), expected, calls)
        return Blame(where or self.path, subject.expression, subject.place, expected, calls)

    def add(self, statement: Statement) -> None:
        self._body.append(statement)

    def assign(self, variable: str, value: Expression) -> None:
        self.add(Assign(self.blame(), (variable,), value))

    def apply(
        self,
        function: Constant,
        subject: Object,
        *additional: Expression,
        place: Place | None = None,
        expected: str = "",
        where: str = "",
        calls: str = "",
    ) -> Object:
        """Add a call of a function on an object and additional arguments; return the object that it makes."""
        name = self.fresh()
        blame = self.blame(subject, expected, where=where, calls=calls)
        self.add(Apply(blame, name, function, (subject.expression, *additional)))
        return Object(name, (*subject.place, Through(function.value)) if place is None else place)

    def item(
        self,
        subject: Object,
        key: object,
        default: Constant | None = None,
        place: Place | None = None,
        expected: str = "",
        where: str = "",
    ) -> Object:
        """Add the reading of an item of an object; return the item."""
        name = self.fresh()
        # an enum's repr is no expression, though it be a str or an int
        constant = Constant("", key) if type(key) in (str, int) else self.constant("key", key)
        blame = self.blame(subject, expected, where=where)
        if isinstance(key, str):
            blame = replace(blame, item=key)
        self.add(Read(blame, name, subject.expression, constant, default))
        return Object(name, subject.place if place is None else place)

    @contextmanager
    def inside(self, levels: int = 1, *, loop: bool = False) -> Iterator[list[Statement]]:
        """Open a nested region, for the body of a branch or a loop; yield the list of its statements.

        Statements that are added in the ``with`` go there.

        Args:
            levels: by how many levels the body will be indented.
            loop: whether it is the body of a loop.
        """
        self._loops += loop
        if self._loops > LOOPS:
            fix = "make what is inside a ForwardDeclaration of its own"
            raise BlockValueError(self.path, f"up to {LOOPS} sequences inside each other", "more", fix)
        outer, self._body, depth = self._body, [], len(self._regions)
        self._regions.append(Region())
        self._levels += levels
        try:
            yield self._body
        finally:
            self._body = outer
            self._levels -= levels
            del self._regions[depth:]  # an interrupt may have left others, or fewer
            self._loops -= loop

    @property
    def deep(self) -> bool:
        """Whether bodies are nested so deeply that a choice should become a function of its own."""
        return self._levels > MAX_INDENTATION
