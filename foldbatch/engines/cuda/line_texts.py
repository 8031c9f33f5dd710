"""Texts that visit elements of places of one shape, or go along lines: of an axis, of sequences; sums.

What they do stands in the bodies of ops. A thread computes a whole line. Where each row has one line of an
axis, and that is long, the threads of the row share it: each goes along every so many elements and leaves
what it found in memory that the block shares. After a barrier all threads put these together, in the order
of threads. So there is a *phase* for each sum or greatest number, and one more. Sums are of float64.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import NamedTuple

from foldbatch.engines.cuda.kernel_text import (
    KINDS,
    SUFFIX,
    KernelText,
    Term,
    computed,
    converted,
    indented,
    literal,
    offset_of,
    term,
)
from foldbatch.static.bodies import line_of, lines_of
from foldbatch.static.op import CALL, OPS, UNBATCHED
from foldbatch.static.ops.reduce import TOTAL
from foldbatch.static.places import Place, aligned, merged, without
from foldbatch.static.statements import Element, Statement, Sweep

# What makes lines and values of loaded values; the last argument makes the names of variables differ.
Compute = Callable[[Sequence[str], str], tuple[list[str], list[str]]]

VECTORS = (4, 2, 1)  # elements that a thread loads or stores at once
WORD = 16  # bytes that a load takes at most


def visit(
    text: KernelText,
    shape: Sequence[int],
    reads: Sequence[Place],
    compute: Compute,
    writes: Sequence[Place],
    unless: str = "",
    stored: Sequence[str] = (),
) -> list[str]:
    """Return the lines that compute places of one shape, element by element.

    The last place that is read is not where an expression holds. Each element is written as often as a loop
    says, which `stored` opens.
    """
    if 0 in shape:
        return []
    places = [*reads, *writes]
    axes = merged(shape, [place.strides for place in places]) or [(1, (0,) * len(places))]
    vector = next(v for v in VECTORS if v == 1 or _divides(text, v, axes, places, len(reads)))
    *outer, (inner, strides) = axes
    axes = [*outer, (inner // vector, tuple(stride * vector for stride in strides))]
    names, indices = index_lines("e", [extent for extent, _ in axes])
    lines, values = list(indices), []
    for i, place in enumerate(reads):
        at = offset_of(place.offset, [(n, s[i]) for n, (_, s) in zip(names, axes, strict=True)])
        never = unless if i == len(reads) - 1 else ""
        values.append(_load(lines, text, place, at, f"x{i}", vector if strides[i] else 1, never))
    computed_results = []
    for u in range(vector):
        computing, results = compute([value(u) for value in values], f"_{u}" if vector > 1 else "")
        lines += computing
        computed_results.append(results)
    stores = []
    for i, place in enumerate(writes):
        s = [stride[len(reads) + i] for _, stride in axes]
        at = offset_of(place.offset, list(zip(names, s, strict=True)))
        kind, pointer = text.kind(place.slot), text.here(place.slot)
        if vector == 1:
            stores.append(f"{pointer}[{at}] = {computed_results[0][i]};")
        else:
            lines.append(f"{kind}x{vector} z{i};")
            lines += [f"z{i}.v[{u}] = {computed_results[u][i]};" for u in range(vector)]
            stores.append(f"*({kind}x{vector}*)({pointer} + {at}) = z{i};")
    lines += [*stored, *indented(stores), "}"] if stored else stores
    return element_loop(prod(extent for extent, _ in axes), lines)


def element_loop(count: int | str, lines: Sequence[str]) -> list[str]:
    """Return a loop over so many elements, of which each thread takes its own."""
    if not lines:
        return []
    return [f"for (i8 e = lane; e < {count}; e += lanes) {{", *indented(lines), "}"]


def index_lines(name: str, extents: Sequence[int]) -> tuple[list[str], list[str]]:
    """Return names of the indices along axes, and the lines that make them of the number of an element."""
    if len(extents) < 2:
        return [name] * len(extents), []
    names, lines, remainder = [f"{name}{i}" for i in range(len(extents))], [], name
    for i in range(len(extents) - 1, 0, -1):
        lines.append(f"const i8 {names[i]} = {remainder} % {extents[i]};")
        remainder = f"({remainder} / {extents[i]})"
    return names, [*lines, f"const i8 {names[0]} = {remainder};"]


Lying = tuple[int, Sequence[int]]  # where elements lie: the first, and how far apart along each axis


def element_lines(name: str, shape: Sequence[int], places: Sequence[Lying]) -> tuple[list[str], list[str]]:
    """Return where an element of a shape lies in places, and lines that tell its indices by its number."""
    axes = merged(shape, [strides for _, strides in places])
    names, lines = index_lines(name, [extent for extent, _ in axes])
    offsets = [
        offset_of(offset, [(n, along[i]) for n, (_, along) in zip(names, axes, strict=True)])
        for i, (offset, _) in enumerate(places)
    ]
    return offsets, lines


def lying(places: Iterable[Place]) -> list[Lying]:
    """Return where the elements of places lie in a row."""
    return [(place.offset, place.strides) for place in places]


def _divides(
    text: KernelText,
    vector: int,
    axes: Sequence[tuple[int, Sequence[int]]],
    places: Sequence[Place],
    reads: int,
) -> bool:
    """Whether so many elements lie side by side, at addresses that are multiples of their bytes."""
    extent, strides = axes[-1]
    if extent % vector or all(stride == 0 for stride in strides):
        return False
    for i, place in enumerate(places):
        step = strides[i]
        if step == 0 and i < reads:
            continue
        before = [s[i] for _, s in axes[:-1]] + [place.offset, place.row, text.grain(place.slot)]
        if step != 1 or vector * text.item(place.slot) > WORD or any(number % vector for number in before):
            return False
    return True


def _load(
    lines: list[str], text: KernelText, place: Place, at: str, name: str, vector: int, unless: str
) -> Callable[[int], str]:
    """Append a load; return the expression of each of the elements loaded, or of anything unless.

    A bfloat16 is loaded as it is, and its expression is a float.
    """
    kind, pointer = text.kind(place.slot), text.here(place.slot)
    truth = " != 0" if kind == "b1" else ""
    value = "f4_of_b2({})" if kind == "b2" else "{}"
    if vector == 1:
        lines.append(f"const {kind} {name} = {f'{unless} ? 0 : ' * bool(unless)}{pointer}[{at}]{truth};")
        return lambda u: value.format(name)
    wide = f"{kind}x{vector}"
    loaded = f"{name} = *(const {wide}*)({pointer} + {at});"
    lines += [f"{wide} {name} = {{{{0}}}};", f"if (!{unless})"] if unless else []
    lines.append(loaded if unless else f"const {wide} {loaded}")
    return lambda u: f"({name}.v[{u}]{truth})" if truth else value.format(f"{name}.v[{u}]")


def sweep_lines(text: KernelText, statement: Statement, sweep: Sweep) -> list[str]:
    """Return the lines of a sweep of a fused loop, an element a turn."""
    slots = statement.slots

    def place(element: Element) -> Place:
        axis = (CALL if statement.axis.rank else UNBATCHED) if element.row else UNBATCHED
        return Place(slots[element.buffer], axis, element.row, element.offset, sweep.shape, element.strides)

    def compute(loaded: Sequence[str], mark: str) -> tuple[list[str], list[str]]:
        """Return the lines that compute an element, and the names of its results."""
        values, lines = list(loaded), []
        for i, operation in enumerate(sweep.operations):
            node = operation.node
            operands = [values[x] if isinstance(x, int) else literal(x) for x in operation.operands]
            dtypes = [x.dtype for x in node.inputs]
            before, value = computed(node.op, node.dtype, operands, dtypes, node.attrs, f"_{i}{mark}")
            lines += [*before, f"const {KINDS[node.dtype]} y{i}{mark} = {value};"]
            values.append(f"y{i}{mark}")
        return lines, [values[value] for value, _ in sweep.stores]

    reads = [place(element) for element in sweep.loads]
    return visit(text, sweep.shape, reads, compute, [place(element) for _, element in sweep.stores])


def op_lines(text: KernelText, statement: Statement) -> list[str]:
    """Return the lines of an elementwise op."""
    reads, write = statement.reads, statement.result
    dtype, *dtypes = (text.routine.slots[place.slot].type.dtype for place in (write, *reads))

    def compute(loaded: Sequence[str], mark: str) -> tuple[list[str], list[str]]:
        lines, value = computed(OPS[statement.op], dtype, loaded, dtypes, statement.attrs, mark)
        return lines, [value]

    return visit(text, write.shape, [aligned(read, write.shape) for read in reads], compute, [write])


def copy_lines(text: KernelText, statement: Statement) -> list[str]:
    """Return the lines that copy a place to another, to whose shape it broadcasts."""
    (read,), write = statement.reads, statement.result
    return visit(text, write.shape, [aligned(read, write.shape)], lambda x, _: ([], list(x)), [write])


def zero_lines(text: KernelText, statement: Statement) -> list[str]:
    return visit(text, statement.result.shape, [], lambda x, _: ([], ["0"]), [statement.result])


LONG = 64  # elements from which on threads share a line
SHARED = -1  # stands for the memory that a block shares, where slots are told apart

# Whether an element is greater than those before: of equal ones the last is, and so is a NaN; or the first.
# What threads left is joined in their order, so that the first may come later.
_GREATER = {"greatest": "(v >= {top}) | (v != v)", "first": "(v > {top}) | ((v != v) & ({top} == {top}))"}
_JOINED = {
    "greatest": _GREATER["greatest"],
    "first": _GREATER["first"] + " | (((v == {top}) | ((v != v) & ({top} != {top}))) & (k < {at}))",
}
_TAKEN = "if ({new} | {greater}) {{ {at} = k; {top} = v; }}"


class Piece(NamedTuple):
    """Lines of a body up to a sum or a greatest number: to find it, leave it to other threads, join these.

    ``EACH`` goes along all elements, or those of a thread, from ``BEGIN`` on; the line begins at ``FIRST``,
    and has ``LENGTH``. What follows ``ONCE`` is done by one thread.
    """

    find: list[str]
    leave: list[str]
    join: list[str]
    memory: list[str]  # the declarations of what it is left in


def _pieces(body: str, x: str, y: str, *, shared: bool) -> list[Piece]:  # noqa: PLR0915 - a case a form
    """Return a body in pieces. A line's elements are A(k), of its result B(k), its label is C."""
    names = {"x": Term("A(0)", x), "x[k]": Term("A(k)", x), "y[k]": Term("B(k)", y)}
    names |= {"t": Term("", y), "x[label]": Term("A(min_i8(max_i8(C, 0), LENGTH - 1))", x)}
    names["k"] = Term("(k - FIRST)", "i8")
    pieces, before, along, after = list[Piece](), list[str](), list[str](), list[str]()

    def finish(declared: str, join: Sequence[str], partial_results: Mapping[str, tuple[str, str]]) -> None:
        """End a piece: the lines up to here, and the partial results that threads leave behind."""
        loop = ["EACH {", *indented(along), "}"] if along else []
        opened = [declared] * bool(declared)
        leave = [f"{name}[HERE] = ({kind}){value};" for name, (kind, value) in partial_results.items()]
        memory = [_shared(kind, name) for name, (kind, _) in partial_results.items()]
        pieces.append(
            Piece([*before, *opened, *loop, *after], leave, [*before, *opened * bool(join), *join], memory)
        )
        for lines in (before, along, after):
            lines.clear()

    for line in lines_of(body):
        assert isinstance(line, ast.Assign), f"{body} has a line that is no assignment"
        target = ast.unparse(line.targets[0]).strip("()")
        match line.value, target:
            case ast.Call(func=ast.Name(id="sum"), args=[inner]), _:
                value = term(inner, names)
                total = total_of(value.kind)
                names[target] = Term(target, total)
                declared = f"{total} {target} = 0;"
                along.append(added(value.kind, value.text, target))
                kind = _wide(total)
                place = f"shared_{kind}{len(pieces)}"
                part = f"{place}[LANE_Y * LANES_X + i]"
                plus = "|=" if total == "b1" else "+="
                combine = f"for (i8 i = 0; i < LANES_X; i++) {target} {plus} ({total}){part};"
                finish(declared, [combine], {place: (kind, target)})
            case ast.Call(func=ast.Name(id="greatest" | "first" as name), args=[inner]), _:
                *outputs, best = target.split(", ")
                at = outputs[0] if outputs else f"{best}_at"
                names |= {best: Term(best, x), at: Term(f"({at} - FIRST)", "i8")}
                declared = f"{f'i8 {at} = -1; ' * (shared or bool(outputs))}{x} {best} = 0;"
                taken, join = (
                    _TAKEN.format(new=new, greater=way[name].format(at=at, top=best), at=at, top=best)
                    for new, way in (("(k == BEGIN)", _GREATER), (f"({at} < 0)", _JOINED))
                )
                taken = taken if shared or outputs else taken.replace(f"{at} = k; ", "")
                along += [f"const {x} v = {term(inner, names).text};", taken]
                wide = _wide(x)
                top, last = f"shared_{wide}{len(pieces)}", f"last{len(pieces)}"
                joined = [
                    "for (i8 i = 0; i < LANES_X; i++) {",
                    f"  const i8 place = LANE_Y * LANES_X + i, k = {last}[place];",
                    f"  const {x} v = ({x}){top}[place];",
                    f"  if (k >= 0) {join}",
                    "}",
                ]
                finish(declared, joined, {top: (wide, best), last: ("i8", at)})
            case value, "y[k]":
                along.append(f"B(k) = {converted(term(value, names), y).text};")
            case value, "y[label]":
                after.append(f"ONCE if ((u8)C < (u8)LENGTH) B(C) = {converted(term(value, names), y).text};")
            case value, "y":
                after.append(f"ONCE B(0) = {converted(term(value, names), y).text};")
            case value, _:
                value_term = term(value, names)
                before.append(
                    f"{'' if target in names else f'{value_term.kind} '}{target} = {value_term.text};"
                )
                names[target] = Term(target, value_term.kind)
    finish("", [], {})
    return pieces


def _body(lines: Sequence[str], first: str, end: str, begin: str = "", step: str = "1") -> list[str]:
    """Return the lines of pieces, for a thread that begins with one element and goes on in steps."""
    words = {"EACH": f"for (i8 k = BEGIN; k < {end}; k += {step})", "BEGIN": begin or first}
    words |= {" - FIRST": f" - {first}" if first != "0" else "", "LENGTH": end}
    words["ONCE "] = "if (lane == 0) " if begin else ""
    replaced = []
    for line in lines:
        for word, text in words.items():
            line = line.replace(word, text)  # noqa: PLW2901 - word by word
        replaced.append(line)
    return replaced


class Along(NamedTuple):
    """Where the lines of a statement lie."""

    body: str
    length: int  # elements of a line; of a call's sequence the launch tells how many
    places: dict[str, Place]  # of the names of the body, without the axes along the line
    inner: dict[str, list[tuple[int, int]]]  # these: extents and strides, the innermost last

    @property
    def shape(self) -> tuple[int, ...]:
        return next(iter(self.places.values())).shape


def along(statement: Statement) -> Along:
    """Return where the lines of an op that goes along lines lie."""
    op, write = OPS[statement.op], statement.result
    body = op.body
    if op.sequence:
        return Along(body, 1, {"x": statement.reads[0], "y": write}, {})
    if statement.op == "sum":
        (x,), axes = statement.reads, statement.attrs["axes"]
        extents = [x.shape[axis] for axis in axes]
        inner = merged(extents, [[x.strides[axis] for axis in axes]]) if prod(extents) else []
        for axis in sorted(axes, reverse=True):
            x = without(x, axis)
        return Along(body, prod(extents), {"x": x, "y": write}, {"x": [(n, step) for n, (step,) in inner]})
    line = line_of(body, statement)
    steps = {name: [(line.length, step)] for name, step in line.steps.items()}
    return Along(body, line.length, line.places, steps)


def line_lines(text: KernelText, statement: Statement) -> list[str]:
    """Return the lines of an op along lines, a thread a line: of an axis, or of call ``r``'s sequence."""
    line = along(statement)
    if 0 in line.shape or not (line.length or line.body == TOTAL):
        return []
    find_lines = [
        row for piece in _pieces(line.body, *_kinds(text, line), shared=False) for row in piece.find
    ]
    if not OPS[statement.op].sequence:
        return element_loop(prod(line.shape), _defined(text, line, _body(find_lines, "0", str(line.length))))
    lines = element_loop(prod(line.shape), _defined(text, line, _body(find_lines, "lower", "upper")))
    return [*bounds(text, statement.reads[1]), *lines]


def _defined(text: KernelText, line: Along, lines: Sequence[str]) -> list[str]:
    """Return lines, and what A, B and C are in them: ``x``, ``y`` and ``label``, at place ``k``."""
    letters = {"x": "A(k)", "y": "B(k)", "label": "C"}
    offsets, defined = element_lines("e", line.shape, lying(line.places.values()))
    for at, (name, place) in zip(offsets, line.places.items(), strict=True):
        if line.inner:
            inside = offset_of(0, [(at, 1), *_inside(line.inner.get(name, []))])
            element = f"{text.here(place.slot)}[{inside}]"
        else:
            row = "(k)" if f"{name}[k]" in line.body else "r"
            element = f"({text.row(place.slot, row)}[{at}])"
        if name == "label":
            element = f"(i8){element.replace('(k)', '0')}"
        defined.append(f"#define {letters[name]} {element}")
    return [*defined, *lines, *(f"#undef {letters[name][0]}" for name in line.places)]


def _inside(axes: Sequence[tuple[int, int]]) -> Iterator[tuple[str, int]]:
    """Yield the indices of element ``k`` of a line along its axes, and their strides."""
    remainder = "(k)"
    for extent, step in reversed(axes[1:]):
        yield f"({remainder} % {extent})", step
        remainder = f"({remainder} / {extent})"
    yield from ((remainder, step) for _, step in axes[:1])


def bounds(text: KernelText, segments: Place) -> list[str]:
    """Return the line that declares the rows of the elements of call ``r``."""
    axis = text.routine.slots[segments.slot].axis
    g = f"g{text.ragged(axis)}"
    return [f"const i8 lower = {g}[r] - {g}[0], upper = {g}[r + 1] - {g}[0];"]


def product_lines(text: KernelText, statement: Statement) -> list[str]:
    """Return the lines of a product of call ``r``'s row with the elements of its sequence; see `ops.lists`.

    A thread makes dots of every so many elements; of mixtures and what is spread, every so many columns.
    """
    *reads, segments = statement.reads
    write, wide = statement.result, reads[1]
    shape, kind, places = wide.shape, text.kind(write.slot), [*reads, write]
    lines, dot = bounds(text, segments), statement.op == "segment_dot"
    layouts = [
        (place.offset, place.strides if len(place.shape) == len(shape) else (*place.strides, 0))
        for place in places
    ]
    lead = prod(shape[:-1])
    if not prod(write.shape):
        return []
    if dot:
        at, indices = element_lines("l", shape[:-1], [(first, along[:-1]) for first, along in layouts])
        x, q = (
            f"{text.row(place.slot, '(k)') if place.axis.rank == 2 else text.here(place.slot)}"
            f"[{offset} + i * {along[-1]}]"
            for place, offset, (_, along) in zip(reads, at[:2], layouts[:2], strict=True)
        )
        inside = [
            f"const i8 l = e % {lead}, k = lower + e / {lead};",
            *indices,
            "f8 total = 0;",
            f"for (i8 i = 0; i < {shape[-1]}; i++) total += (f8)({x} * {q});",
            f"{text.row(write.slot, '(k)')}[{at[2]}] = ({kind})total;",
        ]
        return [*lines, *element_loop(f"(upper - lower) * {lead}", inside)]
    at, indices = element_lines("e", shape, layouts)
    elements = [
        f"{text.row(place.slot, '(k)') if place.axis.rank == 2 else text.here(place.slot)}[{offset}]"
        for place, offset in zip(places, at, strict=True)
    ]
    terms = [f"{a} * {b}" for a, b in zip(elements[:-1:2], elements[1:-1:2], strict=True)]
    loop = "for (i8 k = lower; k < upper; k++)"
    if statement.op == "segment_mix":
        inside = ["f8 total = 0;", f"{loop} total += (f8)({terms[0]});", f"{elements[-1]} = ({kind})total;"]
    else:
        inside = [f"{loop} {elements[-1]} = {' + '.join(terms)};"]
    return [*lines, *element_loop(prod(shape), [*indices, *inside])]


Phase = Callable[..., list[str]]  # of a text and the `statement`, writes the lines of one phase


def long_phases(statement: Statement) -> list[Phase]:
    """Return the phases of an op along one long line of each row; none where lines are short, or many."""
    op = OPS.get(statement.op)
    line = along(statement) if op is not None and "x[k]" in op.body and not op.sequence else None
    if line is None or line.length < LONG or prod(line.shape) != 1 or not prod(statement.result.shape):
        return []
    pieces = range(len(_pieces(line.body, "f4", "f4", shared=True)))
    return [partial(_phase, number=number) for number in pieces]


def _phase(text: KernelText, statement: Statement, number: int) -> list[str]:
    """Return the lines of code of one phase of an op along a long axis, as a softmax of thousands of numbers.

    Many threads work on one line, and join their parts between phases.

    Args:
        text: the kernel that is written.
        statement: the op.
        number: the number of the phase.
    """
    line = along(statement)
    pieces = _pieces(line.body, *_kinds(text, line), shared=True)
    joined = [line_text for piece in pieces[:number] for line_text in piece.join]
    body = [*joined, *pieces[number].find, *pieces[number].leave]
    for declared in (line_text for piece in pieces[: number + 1] for line_text in piece.memory):
        text.once(declared)
    lines = _defined(text, line, _body(body, "0", str(line.length), "lane", "lanes"))
    return [line_text.replace("HERE", "LANE_Y * LANES_X + LANE_X") for line_text in lines]


def _kinds(text: KernelText, line: Along) -> tuple[str, str]:
    places = line.places
    return text.kind(places.get("x", places["y"]).slot), text.kind(places["y"].slot)


def _wide(kind: str) -> str:
    """Return the type in which threads leave numbers of a kind; a double has too few digits for all."""
    return "f8" if kind in SUFFIX else "i8"


def _shared(kind: str, name: str) -> str:
    return f"SHARED {kind} {name}[256];"


def total_of(kind: str) -> str:
    """Return the type in which numbers of a kind are added up; whole numbers wrap around."""
    return {"f4": "f8", "f8": "f8", "b1": "b1"}.get(kind, "u8")


def added(kind: str, value: str, total: str = "total") -> str:
    """Return the statement that adds a value to a total; bools are joined by "or", as NumPy has it."""
    return f"{total} |= {value} != 0;" if kind == "b1" else f"{total} += ({total_of(kind)}){value};"


def increased(kind: str, element: str, value: str) -> str:
    """Return the statement that adds a value to an element of memory, as `added` does."""
    if kind == "b1":
        return f"{element} |= {value} != 0;"
    if total_of(kind) == "u8":
        return f"{element} = ({kind})((u8){element} + (u8){value});"
    return f"{element} += {value};"
