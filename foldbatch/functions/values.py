"""Values: what calls in a walk return, numbers that stand for tensors until the batch runs."""

from __future__ import annotations

import sys
from collections.abc import Generator
from functools import cache
from typing import Any, ClassVar, Final, NoReturn, TypeAlias

import msgspec
import numpy as np
from numpy.typing import DTypeLike, NDArray

from foldbatch.errors import WalkError
from foldbatch.operators import FUNCTIONS, Deferred
from foldbatch.system.closed import from_outside
from foldbatch.types import TensorType

FOREVER: Final = 1 << 62  # larger than the number of any value
INTEGERS: Final = frozenset(["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"])


class ValueOfAWalk:
    """A base class that no encoder of msgspec accepts, so that none writes a value's number for the value."""

    __slots__ = ()


class Value(Deferred, msgspec.Struct, gc=False, eq=False):
    """A tensor that a call in a walk yields; each type has a class of its own.

    Its shape and dtype are there at once, its numbers only when the batch runs. Operators and functions of
    `foldbatch.ops` on it are calls of small cells. Where Python asks for the numbers, as `float`, `bool`,
    `int` and `numpy` do, the example waits until the calls noted of all examples have run as a batch.
    """

    n: int  # its number; numbers run on through a process, so none is there twice
    unknown: ValueOfAWalk = ValueOfAWalk()  # stands for its numbers
    # its shape and dtype
    type: ClassVar[TensorType]  # type: ignore[misc]  # each type has a class of its own
    is_array: ClassVar[bool]  # whether its numbers are read as an array; else as a number of Python

    def __repr__(self) -> str:
        return f"<value {self.type}, known when the batch runs>"

    def __reduce__(self) -> NoReturn:
        raise WalkError("Value", "what can be pickled", repr(self), "return it from the walk instead")

    def __copy__(self) -> Value:
        return self  # nothing changes it

    def __deepcopy__(self, memo: object) -> Value:
        return self

    def __bool__(self) -> bool:
        return bool(self._number("bool") if self.is_array else Reading.read(self, "bool"))

    def __int__(self) -> int:
        return int(self._number("int") if self.is_array else Reading.read(self, "int"))

    def __float__(self) -> float:
        return float(self._number("float") if self.is_array else Reading.read(self, "float"))

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def __index__(self) -> int:
        if self.type.dtype not in INTEGERS:
            raise WalkError("index", "a value of integers", f"a {self.type}", "use int(value)")
        return int(self._number("index"))

    def __eq__(self, other: object) -> Noted:
        """Compare elements, as other operators do; `is` tells whether both are one value."""
        return False if other is None else FUNCTIONS["equal"](self, other)

    def __ne__(self, other: object) -> Noted:
        return True if other is None else FUNCTIONS["not_equal"](self, other)

    __hash__ = object.__hash__

    def __contains__(self, item: object) -> bool:
        return item in self.numpy()

    def __array__(
        self,
        dtype: DTypeLike | None = None,
        copy: bool | None = None,  # noqa: FBT001 - NumPy's
    ) -> NDArray[np.generic]:
        caller = sys._getframe(1)
        if caller.f_globals.get("__name__", "").startswith("numpy."):  # as np.mean([value, value])
            fix = "make one of them, as in np.mean(np.stack(values), axis=0); np.asarray reads numbers"
            raise WalkError(f"NumPy ({caller.f_code.co_name})", "a value", "a list of values", fix)
        return np.array(self._read("np.asarray"), dtype)

    def __await__(self) -> Generator[Value, object, Value]:
        """Wait for the numbers, in a walk that is an ``async def``; the value itself comes back."""
        yield self
        return self

    def item(self) -> Numbers:
        """Return the number of a scalar; the example waits for it."""
        return self._number("item").item()

    def numpy(self) -> Numbers:
        """Return a copy of the numbers; the example waits for them."""
        return np.array(self._read("numpy"))

    def tolist(self) -> Numbers:
        """Return the numbers as lists; the example waits for them."""
        return self._read("tolist").tolist()

    def _number(self, where: str) -> Numbers:
        if self.type.size != 1:
            fix = "index or reduce it, for example with ops.max; numpy() has all its numbers"
            raise WalkError(where, "a scalar", f"a {self.type}", fix)
        number = self._read(where)
        return number.reshape(()) if self.type.shape else number

    def _read(self, where: str) -> Numbers:
        number = Reading.read(self, where)
        return number if self.is_array else np.asarray(number, self.type.dtype)[()]


# what calls in a walk return: values, alone, or in tuples, lists and nests
Noted: TypeAlias = Any
Numbers: TypeAlias = Any  # of a value: an array, or a number of Python where it has no axes


def by_hand(where: str) -> WalkError:
    """Return the error for a value that no call has returned."""
    expected = "values that cells, layers and fb.tensor have returned"
    fix = "let a call return it; a class of values is only to be asked for"
    return WalkError(where, expected, "one made by hand", fix)


def refuse_made(argument: object, where: str = "walk") -> None:
    """Refuse a value that no call has returned, or a nest or list of arguments that holds one.

    A class of values can be called, and so yields one whose number is negative, no number, or missing.

    Raises:
        WalkError: when there is such a value.
    """
    stack, seen = [argument], set[int]()
    while stack:
        part = stack.pop()
        if isinstance(part, Value):
            number = getattr(part, "n", None)
            if type(number) is not int or not 0 <= number < FOREVER:
                raise by_hand(where)
        elif id(part) not in seen:
            seen.add(id(part))
            fields = getattr(part, "__dataclass_fields__", ())
            items = (
                part.values() if isinstance(part, dict) else part if isinstance(part, tuple | list) else ()
            )
            stack.extend(items)  # not `+=`, which a list's class of the user's own may take over
            stack.extend(getattr(part, name, None) for name in fields)


class Reading:
    """The function that reads the numbers of a value, given the reader's name, too; each run sets it.

    It returns a number of Python, or an array that must not be changed.
    """

    @staticmethod
    def read(value: Value, reader: str) -> Numbers:
        """Refuse to read: no walk runs, or a run that computes nothing."""
        fix = "program.debug(example) shows it; to compute with it, use foldbatch.ops (ops.where chooses)"
        raise WalkError(reader, "a number that is known in the walk", repr(value), fix)


@cache
def value_class(type_: TensorType) -> type[Value]:
    """Return the class of values of a type."""
    namespace: dict[str, object] = {"type": type_, "is_array": bool(type_.shape)}
    if not type_.shape:  # most walks wait in this method, so it does not ask for the type
        kind = "int" if type_.dtype in INTEGERS else "float" if type_.is_float else "bool"
        namespace[f"__{kind}__"] = lambda value: Reading.read(value, kind)
        # so `word in {1, 2}` looks for the number, as `word in [1, 2]` does
        namespace["__hash__"] = lambda value: hash(Reading.read(value, kind))
    class_: type[Value] = typed_class(f"Value[{type_}]", (Value,), namespace)
    return class_


def typed_class(name: str, bases: tuple[type[Value], ...], namespace: dict[str, object]) -> Any:
    """Return a class of values: a struct, as that is made in less time than an object with slots."""
    return msgspec.defstruct(name, (), bases=bases, namespace=namespace, module=__name__, gc=False, eq=False)


class GivenObject:
    """A stand-in for an object among a cell's arguments: in the cell's function it can label a metric."""

    __slots__ = ("number", "where")

    def __init__(self, number: int, where: str) -> None:
        self.number, self.where = number, where

    def __repr__(self) -> str:
        return f"<the object {self.where}>"

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Its class; a cell's function asks for that of the object, as `isinstance` does."""
        return self.__getattr__("__class__") if from_outside() else GivenObject

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in (*LOOKS, "__class__"):
            raise AttributeError(name)
        fix = (
            "give the cell numbers or arrays; what chooses or is the same in all calls can be a keyword-only"
            " argument, whose values have a cell each; a method's own object must be called self"
        )
        raise WalkError(self.where, "a tensor", f"an object whose {name!r} is read", fix)


LOOKS: Final = [f"__{x}__" for x in ("bool", "eq", "format", "getitem", "hash", "iter", "len", "str")]
for _name in LOOKS:  # a comparison would else be false, whatever the objects are
    setattr(GivenObject, _name, lambda stand_in, *_, name=_name: stand_in.__getattr__(name))
GivenObject.__name__ = "object of an example"  # as errors say


class LabelObject:
    """A wrapper of a label: cells take it for an object, whatever the label is."""

    __slots__ = ("label",)

    def __init__(self, label: object) -> None:
        self.label = label


def released(label: object) -> object:
    """Return a label as the user gave it."""
    return label.label if type(label) is LabelObject else label
