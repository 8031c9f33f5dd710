"""Values: what calls in a walk return, numbers that stand for tensors until the batch runs."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar, NoReturn

from foldbatch.errors import WalkError
from foldbatch.operators import Deferred
from foldbatch.types import TensorType


class Value(Deferred):
    """A tensor that a call in a walk yields; each type has a class of its own.

    Its shape and dtype are there at once, its numbers only when the batch runs. Operators and functions of
    `foldbatch.ops` on it are calls of small cells.

    Attributes:
        n: its number; numbers run on through a process, so none is there twice.
        type: its shape and dtype.
    """

    __slots__ = ("n",)
    n: int
    type: ClassVar[TensorType]  # type: ignore[misc]  # each type has a class of its own

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, without the batch axis."""
        return self.type.shape

    @property
    def dtype(self) -> str:
        """The name of the dtype."""
        return self.type.dtype

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return len(self.type.shape)

    def __repr__(self) -> str:
        return f"<value {self.type}, known when the batch runs>"

    def __getitem__(self, key: Any) -> Any:
        return self._apply("getitem", key)

    def __len__(self) -> int:
        if not self.type.shape:
            raise WalkError("len", "a value of at least one axis", f"a {self.type}", "it is a scalar")
        return self.type.shape[0]

    def __iter__(self) -> Any:
        return iter([self[i] for i in range(len(self))])

    def __reduce__(self) -> NoReturn:
        raise WalkError("Value", "what can be pickled", repr(self), "return it from the walk instead")

    def _no_number(self, what: str) -> NoReturn:
        fix = "program.debug(example) shows it; to compute with it, use foldbatch.ops (ops.where chooses)"
        raise WalkError(what, "a number that is known in the walk", repr(self), fix)

    def __bool__(self) -> bool:  # noqa: PLE0304 - it never returns
        self._no_number("bool")

    def __int__(self) -> int:
        self._no_number("int")

    def __float__(self) -> float:
        self._no_number("float")

    def __index__(self) -> int:  # noqa: PLE0305 - it never returns
        self._no_number("index")

    def __contains__(self, item: object) -> bool:
        self._no_number("in")

    def __array__(self, *_: Any, **__: Any) -> Any:
        self._no_number("np.asarray")

    def item(self) -> Any:
        """Refuse: the number is not known yet."""
        self._no_number("item")

    def numpy(self) -> Any:
        """Refuse: the numbers are not known yet."""
        self._no_number("numpy")

    tolist = numpy


@cache
def value_class(type_: TensorType) -> type[Value]:
    """Return the class of values of a type."""
    name = f"Value[{type_}]"
    return type(name, (Value,), {"__slots__": (), "type": type_, "__module__": __name__})


class Label:
    """What stands for an object that a cell is given: in the cell's function it can label a metric."""

    __slots__ = ("number", "where")

    def __init__(self, number: int, where: str) -> None:
        self.number, self.where = number, where

    def __repr__(self) -> str:
        return f"<the object {self.where}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        fix = "give the cell numbers or arrays; what is the same in all calls can be a keyword-only argument"
        raise WalkError(self.where, "a tensor", f"an object whose {name!r} is read", fix)


class Held:
    """A label of any kind, as an object that no tensor is made of."""

    __slots__ = ("label",)

    def __init__(self, label: Any) -> None:
        self.label = label


def released(label: Any) -> Any:
    """Return a label as the user gave it."""
    return label.label if type(label) is Held else label
