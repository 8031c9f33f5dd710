"""Op: a primitive, and the batch axis that its results run along.

Types leave the batch out; an `Axis` says which batch axis the rows of a tensor run along:

======================  =======================================================
``UNBATCHED`` (``1``)   one value for the whole batch: parameters, constants
``CALL`` (``N``)        one row per call of the cell
a ragged axis (``M``)   one row per element of a sequence argument of the call
======================  =======================================================

`OPS` is the table of all ops. Its entries stand in `foldbatch.static.ops`, one paragraph each;
how a backend spells them, in its room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, ParamSpec

from foldbatch.errors import GraphError
from foldbatch.types import TensorType


class Axis:
    """A batch axis; compared by identity. `rank` orders them: 0 unbatched, 1 calls, 2 ragged."""

    __slots__ = ("name", "rank")

    def __init__(self, name: str, rank: int) -> None:
        self.name = name
        self.rank = rank

    def __repr__(self) -> str:
        return self.name


UNBATCHED = Axis("1", 0)
CALL = Axis("N", 1)


def ragged(name: str = "M") -> Axis:
    """Return a new axis: the elements of one sequence argument, over all calls."""
    return Axis(name, 2)


Attrs = dict[str, Any]  # an op's static arguments: ints, tuples, dtypes, never tensors


@dataclass(frozen=True, slots=True)
class Sample:
    """Operands on which tests try an op: types, their axes (default: all `CALL`), attributes."""

    types: tuple[TensorType, ...]
    attrs: Attrs
    axes: tuple[Axis, ...] = ()
    positive: bool = False


@dataclass(frozen=True, slots=True)
class Op:
    """A primitive.

    `infer(types, attrs)` gives the result's type or raises GraphError; `evaluate(attrs, *arrays)`
    computes one instance in the obvious way; `vjp(g, y, *xs)` gives a cotangent per operand, linear in
    g; `axis(axes)` gives the result's batch axis. `bound(types, attrs)` names an operand of indices and
    the number they must stay below, or `OF_LIST`. Where `whole` is set, `evaluate` takes all elements of a
    sequence at once, ``[m, *]``. Of an op that only moves elements, ``copies(attrs, write, *reads)`` yields
    parts of its result, in order, each with the part of an operand that is copied there, or None for zeros.
    `body` says of an elementwise op, or one along a line, what it makes of elements; its language is that
    of `bodies`.

    The remaining fields say what passes and engines ask of ops: with them no module but the op's own needs
    its name.

    Attributes:
        view: of an op that only looks at its operand's memory in another way, how its elements follow each
            other there: in the operand's order (all or some of them), permuted, or repeated. A stage that
            reads a view computes it again instead of storing it.
        sequence: of an op on the elements of calls' sequences, the knowledge of a sequence that it needs: the
            `owner` of each element, where the op reads the row of an element's call and no other element, or
            the `bounds` of a call's elements. Kernels of such an op read the `segments` slot.
        product: whether it multiplies by matrices, or sums products into one.
        table: the operand that is a table, of which an id chooses one row (or matrix) for each call.
        keeps_values: whether the numbers of its operand are all numbers of its result, and no others are: so
            a bound on the ones is a bound on the others. Of casts, this holds between integers.
    """

    name: str
    infer: Callable[[tuple[TensorType, ...], Attrs], TensorType]
    evaluate: Callable[..., Any]
    vjp: Callable[..., tuple[Any, ...]] | None = None  # nodes, or None where nothing flows
    samples: tuple[Sample, ...] = ()
    axis: Callable[[tuple[Axis, ...], Attrs], Axis] | None = None
    elementwise: bool = False
    bound: Callable[[tuple[TensorType, ...], Attrs], tuple[int, int]] | None = None
    whole: bool = False
    copies: Callable[..., Iterator[tuple[Any, Any]]] | None = None
    body: str = ""
    view: Literal["", "in order", "permuted", "repeated"] = ""
    sequence: Literal["", "owner", "bounds"] = ""
    product: bool = False
    table: int | None = None
    keeps_values: bool = False


OPS: dict[str, Op] = {}


P = ParamSpec("P")


def _entering(make: Callable[P, Op]) -> Callable[P, None]:
    """Return a function that makes an op as `make` does, and enters it into the table of ops."""

    def define(*args: P.args, **options: P.kwargs) -> None:
        op = make(*args, **options)
        assert op.name not in OPS, f"op {op.name} is defined twice"
        OPS[op.name] = op

    return define


define = _entering(Op)  # makes an op, and enters it into the table


# Stands for the number that ids must stay below where they count the elements of a call's list, whose length
# differs from call to call. Such an id is 0 where the list has that element, else a negative code of 32 bits.
OF_LIST = 2**39
BEYOND = 2**30  # codes below its negative are of ids beyond the list's end


def id_of_code(code: int) -> str:
    """Return the id, as text, that a code of a missing element stands for; `ops.rows` makes such codes.

    >>> id_of_code(-1), id_of_code(-BEYOND - 3), id_of_code(-BEYOND - BEYOND // 2), id_of_code(1 - BEYOND)
    ('-1', '3', '536870912 or more', '-1073741823 or less')
    """
    if code > -BEYOND:
        return f"{code}{' or less' * (code == 1 - BEYOND)}"
    number = -BEYOND - code
    return f"{number}{' or more' * (number == BEYOND // 2)}"


def fail(op: str, expected: str, actual: str, fix: str = "") -> NoReturn:
    """Raise the error of a type rule."""
    raise GraphError(f"ops.{op}", expected, actual, fix)
