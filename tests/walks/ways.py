"""Ways to make parts of random walks: read a type, choose, recurse, loop, compute, or hang losses and metrics beside it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import foldbatch as fb
from foldbatch.errors import FoldbatchError
from foldbatch.types import TensorType
from tests.programs.recipes import FLAG, FLOAT, ID, PAIR, SCALAR, SQUARE, TENSORS, TRIPLE, Data, Source
from tests.walks.exact import cell, layer, loss, metric, ops, parts_of, tensor
from tests.walks.maker import (
    LABELS,
    STATICS,
    Deep,
    Given,
    Many,
    Nest,
    Number,
    Part,
    Walks,
    function_of,
    nothing,
)


def directly(maker: Walks, type_: TensorType, depth: int, given: Given) -> Part:
    if type_ in given and maker.number(2) == 0:
        at = given.index(type_)
        return Part(lambda x, *given: given[at], nothing)
    shape, size = type_.shape, type_.size
    match maker.number(8):
        case 1:
            of_data = [maker.number_read() for _ in range(1 + maker.number(2))]
            read = maker.cell(of_data, type_, static=maker.number(5) == 4)
            return _called(read, of_data)
        case 2:
            constant = np.full(shape, 0.25)
            return Part(lambda x, *given: tensor(constant, FLOAT), nothing)
        case 3:
            alone = cell(function_of(0, lambda _: maker_free(), False)) if not shape else None
            owned = maker.free(shape or (2,))

            def maker_free() -> Any:
                return fb.ops.sum(owned)

            if alone is not None:
                return Part(lambda x, *given: alone(), nothing)
            whole = cell(function_of(0, lambda _: owned, False))
            return Part(lambda x, *given: whole(), nothing)
        case 4 | 5 if len(shape) == 1:
            embed = layer(maker.layer("embedding", size), 1)
            if maker.number(2):  # an id that stands in a dict, read by a cell together with a number
                both = cell(function_of(2, lambda xs: embed(xs[0]["id"]) * fb.ops.cast(xs[1], FLOAT), False))
                return Part(
                    lambda x, *given: both({"id": x[0]}, x[1]),
                    lambda source, depth: [source.number(3), source.number(9) / 8],
                )
            return Part(lambda x, *given: embed(x), lambda source, depth: source.number(3))
        case 6:
            spread = maker.cell([SCALAR], type_)
            return Part(
                lambda x, *given: spread(tensor(float(len(x)), FLOAT) * 0.25),
                lambda source, depth: [None] * source.number(4),
            )
        case 7:  # read as float32, made wider in the walk
            return Part(
                lambda x, *given: ops().cast(tensor(x), FLOAT),
                lambda source, depth: (source.rng.integers(-8, 9, shape) / 8).tolist(),
            )
    return Part(lambda x, *given: tensor(x, FLOAT), lambda source, depth: source.floats(shape))


def _called(read: Any, of_data: list[Number]) -> Part:
    """Return a part that calls a cell on data, and on a static argument where it takes one."""
    static = "kind" in read.__code__.co_freevars or _takes_kind(read)
    draw: Data = lambda source, depth: [number.draw(source) for number in of_data]  # noqa: E731
    if not static:
        return Part(lambda x, *given: read(*x), draw)
    return Part(
        lambda x, *given: read(*x[1], kind=STATICS[x[0]]),
        lambda source, depth: [source.number(len(STATICS)), draw(source, depth)],
    )


def _takes_kind(read: Any) -> bool:
    body = dict(zip(read.__code__.co_freevars, read.__closure__ or (), strict=True))["body"].cell_contents
    return "kind" in body.__code__.co_varnames


def read_nest(maker: Walks, type_: Nest | Deep, depth: int, given: Given) -> Part:
    """Read a structure item by item."""
    if type_ in given and maker.number(2) == 0:
        at = given.index(type_)
        return Part(lambda x, *given: given[at], nothing)
    parts, data = maker.several(type_.items, depth, given)
    return Part(lambda x, *given: type_.made([p.run(x[i], *given) for i, p in enumerate(parts)]), data)


def read_many(maker: Walks, type_: Many, depth: int, given: Given) -> Part:
    """Read a list, often an empty one."""
    if type_ in given and maker.number(2) == 0:
        at = given.index(type_)
        return Part(lambda x, *given: given[at], nothing)
    each = maker.part(type_.element, depth, given)
    data: Data = lambda source, depth: [each.data(source, depth) for _ in range(source.number(4))]  # noqa: E731
    match maker.number(3):
        case 1:
            return Part(lambda x, *given: list(map(lambda i: each.run(i, *given), x)), data)  # noqa: C417
        case 2:

            def visited(x: Any, given: Any) -> Any:
                for item in x:
                    yield each.run(item, *given)

            return Part(lambda x, *given: list(visited(x, given)), data)
    return Part(lambda x, *given: [each.run(item, *given) for item in x], data)


def growing(maker: Walks, type_: Many, depth: int, given: Given) -> Part:
    """Make a list of states, each of the one before."""
    if not isinstance(type_.element, TensorType):
        return read_many(maker, type_, depth, given)
    first = maker.part(type_.element, depth, given)
    each = maker.part(PAIR, depth, given)
    step = maker.cell([type_.element, PAIR], type_.element)

    def run(x: Any, *given: Any) -> Any:
        state, found = first.run(x[0], *given), []
        for item in x[1]:
            state = step(state, each.run(item, *given))
            found.append(state)
        return found[::-1] if len(found) % 2 else found

    return Part(
        run,
        lambda source, depth: [
            first.data(source, depth),
            [each.data(source, depth) for _ in range(source.number(4))],
        ],
    )


def item_of(maker: Walks, type_: Any, depth: int, given: Given) -> Part:
    """Read whole numbers or bools."""
    match maker.number(4):
        case 1 if type_ == FLAG:
            parts, data = maker.several([SCALAR, SCALAR], depth, given)
            return Part(lambda x, *given: parts[0].run(x[0], *given) < parts[1].run(x[1], *given), data)
    if type_ == FLAG:
        return Part(lambda x, *given: tensor(x), lambda source, depth: bool(source.number(2)))
    return Part(lambda x, *given: tensor(x), lambda source, depth: source.number(3))


def chosen(maker: Walks, type_: Any, depth: int, given: Given) -> Part:
    """Read a type in one of several ways, as the example says."""
    cases = [maker.part(type_, depth, given) for _ in range(1 + maker.number(3))]

    def run(x: Any, *given: Any) -> Any:
        for number, case in enumerate(cases):
            if x["kind"] == number:
                return case.run(x["x"], *given)
        raise AssertionError(x)

    def data(source: Source, depth: int) -> Any:
        which = source.number(len(cases))
        return {"kind": which, "x": cases[which].data(source, depth)}

    return Part(run, data)


def tried(maker: Walks, type_: Any, depth: int, given: Given) -> Part:
    """Try what Python or foldbatch refuses, and go on otherwise."""
    main = maker.part(type_, depth, given)
    other = maker.part(SQUARE, depth, given)

    def run(x: Any, *given: Any) -> Any:
        try:
            y = x["other"]
        except KeyError:
            return main.run(x["x"], *given)
        square = other.run(y, *given)
        try:
            ops().matmul(square, ops().reshape(square, (4,)))
        except (FoldbatchError, ValueError):
            return main.run(x["x"], *given)
        raise AssertionError(square)

    def data(source: Source, depth: int) -> Any:
        drawn = {"x": main.data(source, depth)}
        return drawn | {"other": other.data(source, depth)} if source.number(2) else drawn

    return Part(run, data)


class _Declared(NamedTuple):
    call: Part
    given: Given
    type: Any


def recursive(maker: Walks, type_: Any, depth: int, given: Given) -> Part:
    """A function that calls itself on parts of the data; two of them may call each other."""
    found: list[Part] = []

    def visit(x: Any, *given: Any) -> Any:
        if not x["more"]:
            return found[0].run(x["x"], *given)
        return found[1].run(x["x"], *given)

    def data(source: Source, depth: int) -> Any:
        source.left -= 1
        further = depth > 0 and source.left > 0 and source.number(4) > 0
        return {"more": further, "x": found[further].data(source, depth - further)}

    me = _Declared(Part(visit, data), given, type_)
    found.append(maker.part(type_, depth - 1, given))
    maker.declared.append(me)  # type: ignore[arg-type]
    found.append(_body(maker, me, depth))
    maker.declared.remove(me)  # type: ignore[arg-type]
    return me.call


def _body(maker: Walks, me: _Declared, depth: int) -> Part:
    """Return what goes on: a cell of what it finds deeper, and of other things."""
    again = me.call
    if isinstance(me.type, Many):
        return again
    if me.type == PAIR and maker.number(3) == 0:
        return _with_layer(maker, depth, me.given, again)
    count = 1 + maker.number(3)
    others: list[_Declared] = [d for d in maker.declared if d.given == me.given]  # type: ignore[misc]
    sides = [again] + [maker.one_of([again, *[d.call for d in others]]) for _ in range(count - 1)]
    types = [me.type] + [next((d.type for d in others if d.call is side), me.type) for side in sides[1:]]
    for part_type in [maker.operand(depth) for _ in range(maker.number(2))]:
        sides.append(maker.part(part_type, depth - 1, me.given))
        types.append(part_type)
    numbers = [maker.number_read() for _ in range(maker.number(2))]
    static = maker.number(5) == 4
    join = maker.cell([*types, *numbers], me.type, static=static)
    many = maker.number(3) == 2
    summed = maker.cell([Many(types[0])], me.type) if many else None

    def data(source: Source, depth: int) -> Any:
        parts = [side.data(source, depth) for side in sides]
        drawn = [number.draw(source) for number in numbers]
        kids = [again.data(source, depth) for _ in range(source.number(3))] if many else []
        return [parts, drawn, source.number(len(STATICS)), kids]

    def run(x: Any, *given: Any) -> Any:
        parts, drawn, kind, kids = x
        values = [side.run(part, *given) for side, part in zip(sides, parts, strict=True)]
        if summed is not None and len(kids) != 1:
            values[0] = summed([again.run(kid, *given) for kid in kids])
        return join(*values, *drawn, kind=STATICS[kind]) if static else join(*values, *drawn)

    return Part(run, data)


def called(maker: Walks, type_: Any, depth: int, given: Given) -> Part:
    found: list[_Declared] = [d for d in maker.declared if (d.type, d.given) == (type_, given)]  # type: ignore[misc]
    return maker.one_of(found).call if found else recursive(maker, type_, depth, given)


def let(maker: Walks, type_: Any, depth: int, given: Given) -> Part:
    """Compute something here, to be used further inside, perhaps several times."""
    held = given[-1:]
    bound = maker.one_of([*TENSORS, Many(PAIR), maker.nest()])
    head, body = maker.part(bound, depth, given), maker.part(type_, depth, (*held, bound))

    def run(x: Any, *given: Any) -> Any:
        return body.run(x[1], *given[-1:], head.run(x[0], *given))

    return Part(run, lambda source, depth: [head.data(source, depth), body.data(source, depth)])


def again(maker: Walks, type_: Any, depth: int, given: Given) -> Part:
    made: list[Any] = [p for t, g, p in maker.made if (t, g) == (type_, given)]
    return maker.one_of(made) if made else chosen(maker, type_, depth, given)


def derived(maker: Walks, type_: Any, depth: int, given: Given) -> Part:
    """Compute a type with a cell of values, data, nothing, and perhaps a label."""
    types = [maker.operand(depth) for _ in range(1 + maker.number(3))]
    parts, data = maker.several(types, depth, given)
    numbers = [maker.number_read() for _ in range(maker.number(2))]
    label, static = maker.number(4) == 3, maker.number(6) == 5
    compute = maker.cell([*types, *numbers], type_, static=static, label=label)
    missing = maker.number(len(types)) if len(types) > 1 and maker.number(4) == 3 else -1

    def run(x: Any, *given: Any) -> Any:
        of_parts, drawn, way = x
        values = [part.run(item, *given) for part, item in zip(parts, of_parts, strict=True)]
        if missing >= 0 and way % 2:
            values[missing] = None
        more = [LABELS[way % len(LABELS)]] if label else []
        options = {"kind": STATICS[way]} if static else {}
        return compute(*values, *drawn, *more, **options)

    return Part(
        run,
        lambda source, depth: [
            data(source, depth),
            [number.draw(source) for number in numbers],
            source.number(len(STATICS)),
        ],
    )


# numbers that an op is given by turns; some are equal, and of other types
TWINS: list[tuple[Any, Any]] = [(0.5, 2.0), (1.0, 3.0), (1, 3), (2, 1), (2.0, 1.0), (True, False)]


def loosely(maker: Walks, type_: TensorType, depth: int, given: Given) -> Part:
    """Compute a tensor in the walk, op by op."""
    a, b = maker.part(type_, depth, given), maker.part(type_, depth, given)
    way, number, size = maker.number(20), maker.one_of([0.5, 2, -0.25]), type_.size
    square = size ** len(type_.shape or (1,)) if len(type_.shape) == 1 else 0
    weight = maker.free((size, size)) if square else None
    constant = np.full(type_.shape, 0.125)

    def run(x: Any, *given: Any) -> Any:
        p = a.run(x[0], *given)
        if way < 4:
            return [ops().tanh(p), p * number, number - p, ops().sigmoid(p + x[2])][way]
        q = b.run(x[1], *given)
        match way:
            case 4:
                return ops().where(ops().less(p, q), p, ops().tanh(q))
            case 5:
                return ops().segment_sum([p, q, p])
            case 6:
                return ops().segment_mean([p] if x[2] > 0 else [p, q])
            case 7 if type_.shape:
                return ops().stack([p[0], *list(q)[1:]])
            case 8 if type_.shape:
                return ops().concat([p[:1], q[1:]])
            case 9 if weight is not None:
                return ops().tanh(p @ weight)
            case 10 if type_.shape:
                return ops().softmax(p, axis=-1) * q
            case 11:
                return ops().reshape(ops().maximum(p, constant) - q, type_.shape)
            case 12:
                return -(p / (q * q + 1.0)) + ops().mean(q)
            case 13:
                return ops().tanh(p) ** 2 - q * np.float64(0.5)
            case 14 if len(type_.shape) == 2 and type_.shape[0] == type_.shape[1]:
                return ops().transpose(ops().tanh(p)) @ q
            case 15:
                return ops().minimum(p, number) + constant
            case 16:
                return p + ops().cast(ops().where(ops().less(p, q), *TWINS[x[3]]), FLOAT)
            case 17:
                return q - ops().tanh(p) ** TWINS[x[3] % 5][1]
            case 18:
                return p * ops().cast(tensor(x[3]) - int(TWINS[x[3]][0]), FLOAT)
            case 19 if type_.shape:
                return q + p[-x[3] % 2 :][0] * p[x[3] % 2]
        return p + q

    def data(source: Source, depth: int) -> Any:
        numbers = [source.number(9) / 8 - 0.5, source.number(len(TWINS))]
        return [a.data(source, depth), b.data(source, depth), *numbers]

    return Part(run, data)


def layered(maker: Walks, type_: TensorType, depth: int, given: Given) -> Part:
    """Compute a tensor with a layer, in a cell, in the walk or in a method of a module."""
    if not type_.shape:
        return loosely(maker, type_, depth, given)
    if type_ == PAIR and maker.number(2):
        return _with_layer(maker, depth, given, None)
    match maker.number(5):
        case 1:
            read, made = type_, maker.layer("layer norm", type_.shape[-1])
        case 2 if maker.dropout:
            read, made = type_, fb.Dropout(0.5)
        case 3 if len(type_.shape) == 1:
            attention = layer(maker.layer("attention", *type_.shape, *type_.shape), 2)
            parts, data = maker.several([type_, Many(type_)], depth, given)
            return Part(
                lambda x, *given: attention(
                    parts[0].run(x[0], *given), parts[1].run(x[1], *given) or [parts[0].run(x[0], *given)]
                ),
                data,
            )
        case _:
            read = TensorType((*type_.shape[:-1], maker.one_of([2, 3])), FLOAT)
            made = maker.layer("linear", read.shape[-1], type_.shape[-1])
    part = maker.part(read, depth, given)
    match maker.number(3):
        case 1:
            applied = layer(made, 1)
        case 2:
            applied = _method(made)
        case _:
            applied = cell(function_of(1, lambda xs: fb.ops.tanh(made(xs[0])), False))
    return Part(lambda x, *given: applied(part.run(x, *given)), part.data)


def _method(held: Any) -> Any:
    """Return a method of a module that is a cell."""

    class Holder(fb.Module):
        def __init__(self) -> None:
            self.held = [held]

        @fb.cell
        def applied(self, x: Any) -> Any:
            return self.held[0](x) * 0.5

    holder = Holder()
    return cell(function_of(1, lambda xs: held(xs[0]) * 0.5, False), holder.applied)


def _with_layer(maker: Walks, depth: int, given: Given, child: Part | None) -> Part:
    """Join states of children, one more input, or none, by a cell of the literature; return its h."""
    kind = maker.one_of(["tree lstm", "child sum", "lstm", "gru", "tree rnn", "tree gru", "rntn"])
    loose = maker.number(2)
    x_part = maker.part(TRIPLE, depth, given)
    kid = child or maker.part(PAIR, depth, given)
    two = kind in ("tree lstm", "child sum", "lstm")
    of_layer = maker.layer(kind, 3, 2)
    first: Callable[[Any], Any] = {"lstm": lambda y: y[1][0], "gru": lambda y: y[1]}.get(
        kind, (lambda y: y[0]) if two else (lambda y: y)
    )
    if kind in ("tree lstm", "tree rnn", "rntn"):
        apply = lambda x, kids: of_layer(x, kids)  # noqa: E731
        count = 2
    elif kind in ("child sum", "tree gru"):
        apply, count = lambda x, kids: of_layer(x, kids), None  # type: ignore[assignment]
    else:
        apply, count = lambda x, kids: of_layer(x, kids), 1
    whole = layer(of_layer, 2) if loose else cell(function_of(2, lambda xs: apply(*xs), False))

    in_tuple = count == 2 or maker.number(2)  # any number of children is a list of them, or a tuple

    def state(value: Any) -> Any:
        return (value, value) if two else value

    def run(x: Any, *given: Any) -> Any:
        kids = [state(kid.run(item, *given)) for item in x[1]]
        word = x_part.run(x[0], *given)
        if count == 1:
            return first(whole(word, kids[0]))
        return first(whole(word, tuple(kids) if in_tuple else kids))

    def data(source: Source, depth: int) -> Any:
        number = source.number(4) if count is None else count
        return [x_part.data(source, depth), [kid.data(source, depth) for _ in range(number)]]

    return Part(run, data)


def summarised(maker: Walks, type_: Any, depth: int, given: Given) -> Part:
    """Compute a type of a list, by a cell of all, or by a loop."""
    element = maker.out() if maker.number(2) else type_
    many = maker.part(Many(element), depth, given)
    if maker.number(2):
        compute = maker.cell([Many(element)], type_)
        if maker.number(2):
            both = maker.cell([PAIR, Many(element)], type_)
            spread = maker.part(PAIR, depth, given)
            return Part(
                lambda x, *given: both(spread.run(x[0], *given), many.run(x[1], *given)),
                lambda source, depth: [spread.data(source, depth), many.data(source, depth)],
            )
        return Part(lambda x, *given: compute(many.run(x, *given)), many.data)
    start = maker.part(type_, depth, given)
    step = maker.cell([type_, element], type_)

    def run(x: Any, *given: Any) -> Any:
        state = start.run(x["start"], *given)
        for number, value in enumerate(many.run(x["all"], *given)):
            if number == x["skip"]:
                continue
            if number == x["stop"]:
                break
            state = step(state, value)
        return state

    return Part(
        run,
        lambda source, depth: {
            "start": start.data(source, depth),
            "all": many.data(source, depth),
            "skip": source.number(4),
            "stop": source.number(6),
        },
    )


def stacked(maker: Walks, type_: Any, depth: int, given: Given) -> Part:
    """Shift and reduce along a list of actions, with a stack."""
    each = maker.part(type_, depth, given)
    join = maker.cell([type_, type_], type_)

    def run(x: Any, *given: Any) -> Any:
        stack: list[Any] = []
        for action in x:
            if action is None:
                right = stack.pop()
                stack.append(join(stack.pop(), right))
            else:
                stack.append(each.run(action[0], *given))
        return stack[-1]

    def data(source: Source, depth: int) -> Any:
        found: list[Any] = []
        height = 0
        for _ in range(1 + source.number(4)):
            found.append([each.data(source, depth)])
            height += 1
            while height > 1 and source.number(2):
                found.append(None)
                height -= 1
        return found

    return Part(run, data)


def remembered(maker: Walks, type_: Any, depth: int, given: Given) -> Part:
    """Visit objects that stand in several places once, by a dict of what is known."""
    each = maker.part(type_, depth, given)
    compute = maker.cell([Many(type_)], type_)

    def run(x: Any, *given: Any) -> Any:
        known: dict[int, Any] = {}
        for item in x:
            if id(item) not in known:
                known[id(item)] = each.run(item[0], *given)
        return compute([known[id(item)] for item in x])

    def data(source: Source, depth: int) -> Any:
        pool = [[each.data(source, depth)] for _ in range(1 + source.number(3))]
        return [pool[source.number(len(pool))] for _ in range(1 + source.number(4))]

    return Part(run, data)


def beside(maker: Walks, type_: Any, depth: int, given: Given) -> Part:
    """A loss, a metric, or a call whose result nobody reads, beside the value."""
    main = maker.part(type_, depth, given)
    way = maker.number(7)
    side = maker.part(TRIPLE if way in (3, 4) else SCALAR if way < 2 else maker.one_of(TENSORS), depth, given)
    name, weight = maker.one_of(["loss", "walk", "other"]), maker.one_of([1.0, 0.25, -1.0])
    scores = cell(function_of(2, lambda xs: loss(fb.ops.cross_entropy(*xs), "entropy"), False))
    both = maker.number(2)

    def run(x: Any, *given: Any) -> Any:
        before = main.run(x[0], *given) if both else None
        value = side.run(x[1], *given)
        label = x[2].number
        match way:
            case 0:
                loss(value, name, weight)
            case 1:
                loss(ops().tanh(value), name)
            case 2:
                metric(f"metric of {side_type(value)}", value, None if label is None else ("at", label))
            case 3:
                scores(value, label)
            case 4:
                loss(ops().cross_entropy(value, label), "entropy", weight)
            case 5 if label is not None:
                metric("numbers", label, LABELS[label])
        return before if both else main.run(x[0], *given)

    def data(source: Source, depth: int) -> Any:
        drawn = [main.data(source, depth), side.data(source, depth)]
        label = source.number(3) if source.number(5) else None
        return [*drawn, Kept(None if source.poisoned and way in (3, 4) else label)]

    return Part(run, data)


@dataclass
class Kept:
    """A label of an example, or None where it has none."""

    number: int | None


def side_type(value: Any) -> str:
    return str(value.shape)


OF_BOTH: list[Any] = [chosen, recursive, recursive, let, again, called, tried, beside, beside]
OF_FLOATS: list[Any] = [derived, derived, derived, summarised, summarised, stacked, remembered]
WAYS: dict[type, list[Any]] = {
    TensorType: [directly, *OF_BOTH, *OF_FLOATS, loosely, loosely, layered, layered],
    Nest: [read_nest, *OF_BOTH, *OF_FLOATS],
    Deep: [read_nest, read_nest, chosen, let, again, tried],
    Many: [read_many, read_many, growing, chosen, let, again, tried, beside],
}


def result_of(maker: Walks, depth: int, nested: int = 2) -> Part:
    """Return a part that yields what a walk may return."""
    match maker.number(8 if nested else 2):
        case 2:
            nest = maker.nest()
            part = maker.part(nest, depth)
            return Part(lambda x: tuple(parts_of(part.run(x))[2]), part.data)  # type: ignore[index]
        case 3:
            part = maker.part(Many(maker.one_of(TENSORS)), depth)
            return Part(lambda x: part.run(x), part.data)
        case 4:
            each = result_of(maker, depth - 1, nested - 1)
            return Part(
                lambda x: [each.run(item) for item in x],
                lambda source, depth: [each.data(source, depth) for _ in range(source.number(4))],
            )
        case 5:
            parts = [result_of(maker, depth - 1, nested - 1) for _ in range(1 + maker.number(3))]
            return Part(
                lambda x: tuple([part.run(item) for part, item in zip(parts, x, strict=True)]),
                lambda source, depth: [part.data(source, depth) for part in parts],
            )
        case 6:
            return Part(lambda x: x, lambda source, depth: f"text {source.number(5)}")
        case 7:
            part = maker.part(maker.one_of(TENSORS), depth)

            def unused(x: Any) -> None:
                part.run(x)

            return Part(unused, part.data)
        case 1:
            kind = maker.one_of([ID, FLAG])
            return item_of(maker, kind, depth, ())
    return maker.part(maker.one_of(TENSORS), depth)


def walk_of(maker: Walks, depth: int) -> Part:
    """Return a whole walk: mostly with a loss of something that it computes."""
    result = result_of(maker, depth)
    if maker.number(4) == 3:
        return result
    seen = maker.out()
    main, scored = maker.part(seen, depth), maker.cell([seen], SCALAR)

    def run(x: Any) -> Any:
        loss(scored(main.run(x[0])), "main")
        return result.run(x[1])

    return Part(run, lambda source, depth: [main.data(source, depth), result.data(source, depth)])
