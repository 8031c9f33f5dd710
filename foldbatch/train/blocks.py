"""Changes of parameters on the host: in one call where an engine compiles steps, else block by block."""

import ast
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from foldbatch.errors import ParameterError
from foldbatch.params.parameters import Array, SparseRows
from foldbatch.params.updates import Change, Rule, Updates
from foldbatch.train.gradients import check_numbers

FUNCTIONS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
}
SCOPE = {name: getattr(np, name) for name in (*FUNCTIONS.values(), "positive", "sqrt")}


class Formula(NamedTuple):
    """A rule for NumPy's arrays."""

    # changes a block: ``(p, g, each moment, each number, each scratch array)``, arrays of one shape. The
    # gradient stays as it is.
    apply: Callable[..., None]
    scratch: int  # how many scratch arrays it takes
    text: str  # of the function


@cache
def formula(rule: Rule) -> Formula:
    """Return a rule as a function of arrays.

    >>> print(formula(Rule(("p = p - rate * (g + m)",), ("m",), ("rate",))).text)
    def apply(p, g, m, rate, s0_):
        add(g, m, s0_)
        multiply(rate, s0_, s0_)
        subtract(p, s0_, p)
    """
    places = {name: f"{name}_" for name in rule.locals}  # arrays of their own: `g` is the caller's
    calls: list[str] = []
    names: dict[str, str] = {}
    deepest = 0
    for line in rule.lines:
        statement = ast.parse(line).body[0]
        assert isinstance(statement, ast.Assign)
        (target,) = statement.targets
        assert isinstance(target, ast.Name)
        place = places.get(target.id, target.id)
        value, depth = _spell(statement.value, place, 0, names, calls)
        if value != place:
            calls.append(f"positive({value}, {place})")
        names[target.id] = place
        deepest = max(deepest, depth)
    scratch = [*places.values(), *(f"s{i}_" for i in range(deepest))]
    text = "\n    ".join(
        [f"def apply({', '.join(['p', 'g', *rule.moments, *rule.numbers, *scratch])}):", *(calls or ["pass"])]
    )
    scope: dict[str, Any] = dict(SCOPE)
    exec(text, scope)  # noqa: S102 - the text is our own
    return Formula(scope["apply"], len(scratch), text)


def _spell(
    node: ast.expr, place: str | None, level: int, names: dict[str, str], calls: list[str]
) -> tuple[str, int]:
    """Append the calls that compute an expression; return where it is then, and how many places it took."""
    match node:
        case ast.Name(name):
            return names.get(name, name), level
        case ast.Call(ast.Name("sqrt"), [argument]):
            operand, depth = _spell(argument, None, level, names, calls)
            function, operands = "sqrt", [operand]
        case ast.BinOp(left, operator, right):
            # the left operand may be where the result shall be, unless the right one reads what is there
            read = {names.get(part.id, part.id) for part in ast.walk(right) if isinstance(part, ast.Name)}
            there = None if place in read else place
            first, depth = _spell(left, there, level, names, calls)
            free = level + (first == f"s{level}_")
            second, deeper = _spell(right, None, free, names, calls)
            depth = max(depth, deeper)
            function, operands = FUNCTIONS[type(operator)], [first, second]
        case _:
            raise AssertionError(f"no formula: {ast.unparse(node)}")
    made = f"s{level}_" if place is None else place
    calls.append(f"{function}({', '.join([*operands, made])})")
    return made, max(depth, level + (place is None))


BLOCK = 32_768  # elements; five float32 blocks (parameter, gradient, two moments, work) fit in 1 MiB of cache


def cuts(table: Array) -> Iterator[tuple[int, int]]:
    """Yield first and last (excluded) rows of the blocks of a table ``[n, *]``, of about `BLOCK` elements."""
    rows = len(table)
    step = max(1, BLOCK * rows // max(1, table.size))
    return ((start, min(start + step, rows)) for start in range(0, rows, step))


class ParameterBlocks:
    """Changes parameters of the host, as `RemoteUpdates` those of a device, by an engine or NumPy."""

    def __init__(self) -> None:
        self.updates: Updates | None = None
        self._buffers: dict[tuple[int, np.dtype[Any]], Array] = {}  # temporary arrays, for the next step, too

    def full(self, parameter: Array, number: float) -> Array:
        """Return an array like a parameter, of one number."""
        return np.full_like(parameter, number)

    def apply(self, changes: Sequence[Change], undo: Callable[[], None]) -> None:
        """Change parameters' arrays and their moments in place."""
        updates = self.updates
        try:
            if updates is None:
                _look(changes)
            left = changes if updates is None else updates.apply(changes, _look)
        except ParameterError:
            undo()
            raise
        for change in left:
            tables: list[Array] = [change.parameter, *change.moments]
            if not tables[0].ndim:
                tables = [table.reshape(1) for table in tables]
            if isinstance(change.gradient, SparseRows) and change.by_rows:
                self._rows(change, tables)
            else:
                self._all(change, updates, tables)

    def _all(self, change: Change, updates: Updates | None, tables: Sequence[Array]) -> None:
        for start, stop in cuts(tables[0]):
            p, *moments = block = [table[start:stop] for table in tables]
            g = self._gradient(change, p, start, stop)
            part = change._replace(parameter=p, moments=moments, gradient=g, factor=1.0)
            if updates is None or updates.apply([part], None):
                self._apply(change, block, g)

    def _gradient(self, change: Change, p: Array, start: int, stop: int) -> Array:
        gradient, factor = change.gradient, change.factor
        if isinstance(gradient, SparseRows):
            g = self._scratch(0, p)
            first, last = np.searchsorted(gradient.rows, (start, stop))
            g.fill(0)
            g[gradient.rows[first:last] - start] = gradient.values[first:last] * factor
            return g
        block: Array = gradient[start:stop]
        return block if factor == 1 else np.multiply(block, factor, out=self._scratch(0, p))

    def _rows(self, change: Change, tables: Sequence[Array]) -> None:
        gradient = change.gradient
        for start, stop in cuts(gradient.values):
            rows = gradient.rows[start:stop]
            block = [table[rows] for table in tables]
            self._apply(change, block, gradient.values[start:stop] * change.factor)
            for table, changed in zip(tables, block, strict=True):
                table[rows] = changed

    def _apply(self, change: Change, block: Sequence[Array], g: Array) -> None:
        made = formula(change.rule)
        scratch = (self._scratch(1 + slot, g) for slot in range(made.scratch))
        made.apply(block[0], g, *block[1:], *change.numbers, *scratch)

    def _scratch(self, slot: int, like: Array) -> Array:
        """Return an array of the shape and dtype of `like`, with any content; one per slot."""
        buffer = self._buffers.get((slot, like.dtype))
        if buffer is None or buffer.size < like.size:
            buffer = self._buffers[slot, like.dtype] = np.empty(max(BLOCK, like.size), like.dtype)
        return buffer[: like.size].reshape(like.shape)


def _look(changes: Sequence[Change]) -> None:
    check_numbers([(change.name, change.gradient) for change in changes])
