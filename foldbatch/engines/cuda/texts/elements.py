"""Texts that visit each element of places of one shape: fused loops, single ops, copies, zeros."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from foldbatch.engines.cuda.texts.expressions import KINDS, computed, literal
from foldbatch.engines.cuda.texts.kernel_text import KernelText, indented, offset_of
from foldbatch.engines.nests import Strides, merged
from foldbatch.static.op import CALL, OPS, UNBATCHED
from foldbatch.static.places import Place, aligned
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
) -> list[str]:
    """Return the lines that compute places of one shape, element by element.

    The last place that is read is not where an expression holds.
    """
    if 0 in shape:
        return []
    places = [*reads, *writes]
    axes = merged(shape, [Strides(place.row, place.strides) for place in places]) or [(1, (0,) * len(places))]
    vector = next(v for v in VECTORS if v == 1 or _divides(text, v, axes, places, len(reads)))
    *outer, (inner, strides) = axes
    axes = [*outer, (inner // vector, tuple(stride * vector for stride in strides))]
    names, indices = index_lines("e", [extent for extent, _ in axes])
    lines, values = list(indices), []
    for i, place in enumerate(reads):
        at = offset_of(place.offset, [(n, s[i]) for n, (_, s) in zip(names, axes, strict=True)])
        never = unless if i == len(reads) - 1 else ""
        values.append(_load(lines, text, place, at, f"x{i}", vector if strides[i] else 1, never))
    made = []
    for u in range(vector):
        more, results = compute([value(u) for value in values], f"_{u}" if vector > 1 else "")
        lines += more
        made.append(results)
    for i, place in enumerate(writes):
        s = [stride[len(reads) + i] for _, stride in axes]
        at = offset_of(place.offset, list(zip(names, s, strict=True)))
        kind, pointer = text.kind(place.slot), text.here(place.slot)
        if vector == 1:
            lines.append(f"{pointer}[{at}] = {made[0][i]};")
        else:
            lines.append(f"{kind}x{vector} z{i};")
            lines += [f"z{i}.v[{u}] = {made[u][i]};" for u in range(vector)]
            lines.append(f"*({kind}x{vector}*)({pointer} + {at}) = z{i};")
    return each(prod(extent for extent, _ in axes), lines)


def each(count: int, lines: Sequence[str], name: str = "e") -> list[str]:
    """Return a loop over so many elements, of which each thread takes its own."""
    if not lines:
        return []
    return [f"for (i8 {name} = lane; {name} < {count}; {name} += lanes) {{", *indented(lines), "}"]


def index_lines(name: str, extents: Sequence[int]) -> tuple[list[str], list[str]]:
    """Return names of the indices along axes, and the lines that make them of the number of an element."""
    if len(extents) == 1:
        return [name], []
    names, lines, rest = [f"{name}{i}" for i in range(len(extents))], [], name
    for i in range(len(extents) - 1, 0, -1):
        lines.append(f"const i8 {names[i]} = {rest} % {extents[i]};")
        rest = f"({rest} / {extents[i]})"
    return names, [*lines, f"const i8 {names[0]} = {rest};"]


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
    """Append a load; return the expression of each of the elements loaded, or of anything unless."""
    kind, pointer = text.kind(place.slot), text.here(place.slot)
    truth = " != 0" if kind == "b1" else ""
    if vector == 1:
        lines.append(f"const {kind} {name} = {f'{unless} ? 0 : ' * bool(unless)}{pointer}[{at}]{truth};")
        return lambda u: name
    wide = f"{kind}x{vector}"
    loaded = f"{name} = *(const {wide}*)({pointer} + {at});"
    lines += [f"{wide} {name} = {{{{0}}}};", f"if (!{unless})"] if unless else []
    lines.append(loaded if unless else f"const {wide} {loaded}")
    return lambda u: f"({name}.v[{u}]{truth})" if truth else f"{name}.v[{u}]"


def sweep_lines(text: KernelText, statement: Statement, sweep: Sweep) -> list[str]:
    """Return the lines of a sweep of a fused loop."""
    slots = statement.slots

    def place(element: Element) -> Place:
        axis = (CALL if statement.axis.rank else UNBATCHED) if element.row else UNBATCHED
        return Place(slots[element.buffer], axis, element.row, element.offset, sweep.shape, element.strides)

    def compute(loaded: Sequence[str], mark: str) -> tuple[list[str], list[str]]:
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


def op_lines(text: KernelText, statement: Statement, reads: Sequence[Place], write: Place) -> list[str]:
    """Return the lines of a single elementwise op."""
    dtype, *dtypes = (text.routine.slots[place.slot].type.dtype for place in (write, *reads))

    def compute(loaded: Sequence[str], mark: str) -> tuple[list[str], list[str]]:
        lines, value = computed(OPS[statement.op], dtype, loaded, dtypes, statement.attrs, mark)
        return lines, [value]

    return visit(text, write.shape, [aligned(read, write.shape) for read in reads], compute, [write])


def copy_lines(text: KernelText, read: Place, write: Place) -> list[str]:
    """Return the lines that copy a place to another, to whose shape it broadcasts."""
    return visit(text, write.shape, [aligned(read, write.shape)], lambda x, _: ([], list(x)), [write])


def zero_lines(text: KernelText, write: Place) -> list[str]:
    """Return the lines that fill a place with zeros."""
    return visit(text, write.shape, [], lambda x, _: ([], ["0"]), [write])
