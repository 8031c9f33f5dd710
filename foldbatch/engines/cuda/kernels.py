"""From a routine, taken apart, to the kernels and products that run a level of it, in order.

A `RoutinePart` computes a row from the same row of other slots (or, along calls, from the elements of the
call's sequence). So a kernel may do several parts of one axis one after the other, with a barrier between at
most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod

from foldbatch.engines.bindings import Bound, KernelKey
from foldbatch.engines.cuda import row_texts
from foldbatch.engines.cuda.kernel_text import CALLS, INDEX_AT, START, KernelText, Setting, indented
from foldbatch.engines.cuda.line_texts import (
    SHARED,
    along,
    copy_lines,
    line_lines,
    long_phases,
    op_lines,
    product_lines,
    sweep_lines,
    zero_lines,
)
from foldbatch.engines.cuda.matrices import Multiplied, multiplied
from foldbatch.model.model import Model
from foldbatch.static.op import CALL, OPS, UNBATCHED, Axis
from foldbatch.static.ops.lists import OF_LISTS
from foldbatch.static.places import Place, contiguous
from foldbatch.static.statements import Routine, Statement, axis_of

Lines = Callable[[KernelText], list[str]]


# When a kernel has anything to do: where the rows of a slot lie apart, which it copies together; where the
# rows of a `store` slot or a result are brought to others that follow each other; where there is room beyond
# the rows of a level, which it sets to zero; where calls share ranks, so that a row has several readers.
APART, STORED, ROOM, SHARING = "apart", "stored", "room", "sharing"
When = tuple[tuple[str, int], ...]  # any of these, each of a binding; none where there always is something


@dataclass(frozen=True, slots=True)
class RoutinePart:
    """A step of a routine."""

    axis: Axis  # along which its rows run
    lines: Lines = lambda text: []  # writes its text
    reads: frozenset[int] = frozenset()  # the slots that it reads
    writes: frozenset[int] = frozenset()  # the slots that it writes
    elements: int = 1  # how many elements of a row threads can compute side by side
    all_rows: bool = False  # whether it looks at all rows of the level, and so has a kernel of its own
    multiplied: Multiplied | None = None  # a product that a library does; there are no lines then
    adds: int = -1  # the arena of cotangents that it writes; -1 if it writes none
    planned: int = -1  # the binding whose rows it adds by a plan; -1 if there is none
    when: When = ()


@dataclass(slots=True)
class RoutineCut:
    """A routine under way to parts."""

    routine: Routine  # the routine
    widths: Mapping[int, int]  # by slot and result, how many rows of an arena one row is
    arenas: Mapping[int, int]  # by `store` slot and cotangent result, the arena that it is for
    copied: set[int] = field(default_factory=set)  # see `kernel_text.Setting`
    # by slot that one product fills, and nothing else reads, the `store` slot or the result that it is: where
    # its rows follow each other, the product adds to the arena itself
    added: dict[int, int] = field(default_factory=dict)
    by_reader: bool = False  # whether values are written by reader, see `trials.TRIALS`
    # the `cotangent` slots that are summed in parts, which are written over the first cotangent of each
    in_parts: frozenset[int] = frozenset()
    parts: list[RoutinePart] = field(default_factory=list)  # the parts so far
    _taken: set[int] = field(default_factory=set)

    def cut(self) -> list[RoutinePart]:
        """Return the parts, in order."""
        self.copied |= {n for n in self._operands() if self.widths.get(n, 1) > 1}
        parts = [part for statement in self.routine.statements for part in self._statement(statement)]
        for part in parts:
            if part.multiplied is not None:
                self.copied |= part.reads.intersection(self._operands())
        self.added |= dict(self._added(parts))
        for part in [*parts, *self._results()]:
            self._add(part)
        return self.parts

    def _added(self, parts: Sequence[RoutinePart]) -> Iterator[tuple[int, int]]:
        """Yield the pairs of `added`: a slot, and the cotangent that a product adds it to."""
        slots = self.routine.slots
        ends = [(n, n) for n, slot in enumerate(slots) if slot.binding.kind == "store"]
        results = list(enumerate(self.routine.results, len(slots)))
        for number, (kind, _), place in ((n, result.binding, result.place) for n, result in results):
            is_complete = place.offset == 0 and place.strides == contiguous(place.shape)
            if kind == "cotangent" and is_complete and prod(place.shape) == slots[place.slot].type.size:
                ends.append((place.slot, number))
        brought = [result.place.slot for _, result in results]
        for slot, number in ends:
            writers = [part for part in parts if slot in part.writes]
            alone = slots[slot].axis.rank > 0 and not any(slot in part.reads for part in parts)
            once = len(writers) == 1 and brought.count(slot) == (slot != number)
            if alone and once and _is_complete(writers[0].multiplied, slots[slot].type.size):
                yield slot, number

    def _operands(self) -> list[int]:
        slots = enumerate(self.routine.slots)
        return [n for n, slot in slots if slot.binding.kind in ("operand", "cotangent")]

    def _add(self, part: RoutinePart) -> None:
        """Append a part; before it, those that copy rows together that it reads."""
        for number in sorted(part.reads - self._taken - {SHARED}):
            slot = self.routine.slots[number]
            if number in self.copied or slot.binding.kind == "cotangent":
                self._taken.add(number)
                writes, size, in_parts = frozenset({number}), slot.type.size, number in self.in_parts
                if in_parts:
                    lines: Lines = partial(row_texts.partial_sum_lines, number=number)
                    part_of_all = RoutinePart(slot.axis, lines, writes=writes, elements=size, all_rows=True)
                    self.parts.append(replace(part_of_all, when=((SHARING, number),)))
                lines, when = (
                    partial(row_texts.take_lines, number=number, in_parts=in_parts),
                    ((APART, number),),
                )
                self.parts.append(RoutinePart(slot.axis, lines, writes=writes, elements=size, when=when))
        self.parts.append(part)

    # -- statements

    def _statement(self, statement: Statement) -> Iterator[RoutinePart]:
        """Yield the parts that a statement is cut into."""
        name = statement.op
        if statement.loop is not None:
            yield from self._loop(statement)
        elif phases := long_phases(statement):
            for phase in phases:
                part = self._part(statement, phase, prod(statement.reads[0].shape))
                writes = part.writes | {SHARED}
                yield replace(part, reads=part.reads | writes, writes=writes)
        elif name in PIECES:
            yield from PIECES[name](self, statement)
        elif name == "sum_batch" and axis_of(statement, statement.reads) is UNBATCHED:
            yield self._part(statement, copy_lines, prod(statement.result.shape))
        elif name in ON_ALL_ROWS:
            yield self._on_all_rows(statement)
        elif name in ALONE or OPS[name].elementwise:
            yield self._part(statement, ALONE.get(name, op_lines), prod(statement.result.shape))
        else:
            axis = CALL if OPS[name].sequence else None
            yield self._part(statement, line_lines, prod(along(statement).shape), axis)

    def _part(
        self, statement: Statement, lines: Callable[..., list[str]], elements: int, axis: Axis | None = None
    ) -> RoutinePart:
        """Return a part that writes the elements of a statement's result one by one."""
        places = [*statement.reads, *([statement.write] if statement.write else [])]
        reads = frozenset(place.slot for place in statement.reads)
        writes = frozenset({statement.write.slot}) if statement.write else frozenset[int]()
        lines = partial(lines, statement=statement)
        return RoutinePart(axis or axis_of(statement, places), lines, reads, writes, elements)

    def _on_all_rows(self, statement: Statement) -> RoutinePart:
        shape = statement.result.shape
        elements = shape if OPS[statement.op].bound is None else shape[1:]  # ids choose along the first axis
        return replace(self._part(statement, ON_ALL_ROWS[statement.op], prod(elements)), all_rows=True)

    def _loop(self, statement: Statement) -> Iterator[RoutinePart]:
        """Yield a part for each sweep of a fused loop."""
        assert statement.loop is not None
        for sweep in statement.loop.sweeps:
            yield RoutinePart(
                statement.axis,
                partial(sweep_lines, statement=statement, sweep=sweep),
                frozenset(statement.slots[element.buffer] for element in sweep.loads),
                frozenset(statement.slots[element.buffer] for _, element in sweep.stores),
                prod(sweep.shape),
            )

    # -- results

    def _results(self) -> Iterator[RoutinePart]:
        """Yield the parts that bring results away; cotangents in the order of operands."""
        stores = {n: slot for n, slot in enumerate(self.routine.slots) if slot.binding.kind == "store"}
        results = dict(enumerate(self.routine.results, len(self.routine.slots)))
        ends = {int(slot.binding.key): n for n, slot in stores.items()}
        ends |= {int(r.binding.key): n for n, r in results.items() if r.binding.kind == "cotangent"}
        for _, number in sorted(ends.items()):
            if number in stores:
                slot = stores[number]
                shape = slot.type.shape
                place = Place(number, slot.axis, slot.type.size, 0, shape, contiguous(shape))
                lines: Lines = partial(row_texts.store_lines, number=number)
            else:
                place = results[number].place
                width = self.widths.get(number, 1)
                lines = partial(row_texts.cotangent_lines, number=number, place=place, width=width)
            yield from self._cotangent(number, place, lines)
        for number, result in results.items():
            if result.binding.kind != "cotangent":
                yield self._result(number, result.binding.kind, result.place)
        for number, result in results.items():
            if result.binding.kind == "value" and self.by_reader:
                place, size = result.place, prod(result.place.shape)
                lines = partial(row_texts.value_by_reader_lines, number=number, place=place)
                reads = frozenset({place.slot})
                yield RoutinePart(CALL, lines, reads, elements=size, all_rows=True, when=((SHARING, number),))

    def _cotangent(self, number: int, place: Place, lines: Lines) -> Iterator[RoutinePart]:
        """Yield the parts that store a cotangent, or add it to what its rows hold."""
        axis, size = place.axis if place.axis.rank else CALL, prod(place.shape)
        width = self.widths.get(number, 1)
        part = RoutinePart(axis, lines, frozenset({place.slot}), elements=size, adds=self.arenas[number])
        if number not in self.added.values():
            yield replace(part, when=((STORED, number),))
        lines = partial(row_texts.add_planned_lines, number=number, place=place, width=width)
        yield replace(part, lines=lines, elements=size // width, all_rows=True, planned=number)

    def _result(self, number: int, kind: str, place: Place) -> RoutinePart:
        """Return the part that brings a value, a gradient or a kept value away."""
        axis = place.axis if place.axis.rank else CALL
        lines: Lines
        match kind:
            case "value":
                lines = partial(row_texts.value_lines, number=number, place=place, shared=not self.by_reader)
            case "gradient":
                axis = UNBATCHED
                lines = partial(row_texts.gradient_lines, number=number, place=place)
            case _:
                lines = partial(row_texts.ranked_lines, number=number, place=place, axis=axis)
        return RoutinePart(axis, lines, frozenset({place.slot}), elements=prod(place.shape))


def _is_complete(product: Multiplied | None, size: int) -> bool:
    """Whether a product fills all_rows rows of so many elements, and reads none of them."""
    if product is None or product.adds or product.by != "m":
        return False
    return (product.m, product.count, product.n, product.c.lead, product.c.offset) == (1, 1, size, size, 0)


def _check(cut: RoutineCut, statement: Statement) -> Iterator[RoutinePart]:
    ids, *segments = statement.reads
    axis = CALL if segments or ids.axis.rank == 0 else None
    yield cut._part(statement, row_texts.check_lines, prod(ids.shape), axis)


def _linear(cut: RoutineCut, statement: Statement) -> Iterator[RoutinePart]:
    """Yield the parts of a statement ``linear``: products of a library where these fit, else lines."""
    products = [] if len(statement.reads) > 2 else multiplied(cut.routine, statement)
    if products:
        yield from (_product(statement, product) for product in products)
    else:
        yield cut._part(statement, row_texts.product_lines, prod(statement.result.shape))


def _sum_outer(cut: RoutineCut, statement: Statement) -> Iterator[RoutinePart]:
    """Yield the parts of a sum of outer products: matrix products, behind one that clears empty rows."""
    products = multiplied(cut.routine, statement) if statement.op == "sum_outer" else []
    if not products:
        yield cut._on_all_rows(statement)
        return
    slots = frozenset(place.slot for place in statement.reads if place.axis.rank)
    if slots:
        size = max(cut.routine.slots[slot].type.size for slot in slots)
        lines = partial(row_texts.clear_lines, slots=sorted(slots))
        clear = RoutinePart(products[0].axis, lines, slots, slots, size, all_rows=True)
        yield replace(clear, when=((ROOM, -1),))
    yield from (_product(statement, product) for product in products)


def _product(statement: Statement, product: Multiplied) -> RoutinePart:
    """Return the part that a library's product of matrices is."""
    return RoutinePart(
        product.axis,
        reads=frozenset(place.slot for place in statement.reads),
        writes=frozenset({statement.result.slot}),
        all_rows=True,
        multiplied=product,
    )


def _of_list(cut: RoutineCut, statement: Statement) -> Iterator[RoutinePart]:
    yield cut._part(statement, product_lines, prod(statement.reads[1].shape), CALL)


PIECES: dict[str, Callable[[RoutineCut, Statement], Iterator[RoutinePart]]] = {
    "check_range": _check,
    **dict.fromkeys(("linear", "linear_by", "matmul"), _linear),
    **dict.fromkeys(("sum_outer", "sum_outer_by"), _sum_outer),
    **dict.fromkeys(OF_LISTS, _of_list),
}
# Of a text and a `statement`: what a thread computes of one row for each element, and what looks at all rows.
ALONE: dict[str, Callable[..., list[str]]] = {
    "copy": copy_lines,
    "zero": zero_lines,
    "gather": row_texts.gather_lines,
    "random": row_texts.random_lines,
    "order": row_texts.order_lines,
}
ON_ALL_ROWS: dict[str, Callable[..., list[str]]] = {
    "sum_batch": row_texts.sum_batch_lines,
    "sum_rows": row_texts.sum_rows_lines,
    "sum_outer": row_texts.sum_outer_lines,
    "sum_outer_by": row_texts.sum_outer_lines,
}


LARGE = 4096  # elements without rows that more than one block should compute
BLOCK = 256  # threads of a block
ROW_THREADS = 128  # threads that share a row that is cleared, or added by a plan, at most
SUMMED = (8, 128)  # threads of a block that adds up rows: columns (32 bytes of a row), and rows at a time


@dataclass(frozen=True, slots=True)
class LevelTask:
    """A kernel, or a product, that a level runs."""

    name: str  # of the kernel; empty for a product
    axis: Axis  # along which its rows run
    threads: tuple[int, int] = (BLOCK, 1)  # of a block, along the elements of a row and along rows
    columns: int = 0  # of a kernel that is not cut along rows: how many elements it computes; else 0
    planned: int = -1  # the binding whose rows it adds by a plan; -1 for others
    multiplied: Multiplied | None = None  # the product
    when: When = ()


@dataclass(frozen=True, slots=True)
class Kernel:
    """The launches of a level of a routine."""

    routine: Routine  # the routine
    setting: Setting  # what its texts know besides
    tasks: tuple[LevelTask, ...]  # kernels and products, in order
    text: str  # of the kernels


def kernels_of(bound: Bound, trials: frozenset[str] = frozenset()) -> list[Kernel]:
    """Return the launches of a level of each routine.

    Args:
        bound: the routines.
        trials: the kernels on trial that are used, see `trials`.
    """
    by_reader = "readers" in trials
    cotangents = Counter(
        (key.cell, slot.binding.key)
        for key, routine in zip(bound.keys, bound.routines, strict=True)
        for slot in routine.slots
        if slot.binding.kind == "cotangent"
    )
    kernels = []
    for number, (key, routine) in enumerate(zip(bound.keys, bound.routines, strict=True)):
        # the sums of parts are written over cotangents, so no other routine may read these
        in_parts = frozenset(
            place
            for place, slot in enumerate(routine.slots)
            if by_reader and slot.binding.kind == "cotangent" and cotangents[key.cell, slot.binding.key] == 1
        )
        kernels.append(
            kernel_of(bound.model, key, routine, f"k{number}", by_reader=by_reader, in_parts=in_parts)
        )
    return kernels


def kernel_of(
    model: Model,
    key: KernelKey,
    routine: Routine,
    name: str,
    *,
    by_reader: bool = False,
    in_parts: frozenset[int] = frozenset(),
) -> Kernel:
    """Return the launches of a level of a routine; the names of its kernels begin with `name`.

    `RoutineCut` says what `by_reader` and `in_parts` are.
    """
    widths, arenas = _operands(model, key, routine)
    cut = RoutineCut(routine, widths, arenas, by_reader=by_reader, in_parts=in_parts)
    parts = cut.cut()
    all_calls = key.stage in ("before", "after")
    setting = Setting(routine, key.cell, widths, frozenset(cut.copied), all_calls, cut.added)
    writer = _KernelWriter(setting, name, arenas)
    for part in parts:
        writer.add(part)
    writer.finish()
    return Kernel(routine, setting, tuple(writer.tasks), "\n".join(writer.texts))


def _operands(model: Model, key: KernelKey, routine: Routine) -> tuple[dict[int, int], dict[int, int]]:
    """Return, by slot and result, rows of an arena in one row; and the arenas that cotangents go to."""
    operands = model.signatures[key.cell].operands
    bindings = [slot.binding for slot in routine.slots] + [result.binding for result in routine.results]
    widths, arenas = {}, {}
    for number, (kind, operand) in enumerate(bindings):
        result = number >= len(routine.slots)
        if kind in ("operand", "store") or (kind == "cotangent" and result):
            widths[number] = len(operands[operand].columns) or 1
            if kind != "operand":
                arenas[number] = operands[operand].arena
    return widths, arenas


@dataclass(slots=True)
class _KernelWriter:
    """Collects parts until one does not fit, and then writes a kernel of them."""

    setting: Setting
    name: str
    arenas: Mapping[int, int]
    tasks: list[LevelTask] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    together: list[RoutinePart] = field(default_factory=list)
    planned: list[RoutinePart] = field(default_factory=list)

    def add(self, part: RoutinePart) -> None:
        """Add a part: to the kernel under way if nothing it reads is still to be written by others."""
        if part.planned >= 0:  # after what stores and adds to other arenas, so that this is one kernel
            self.planned.append(part)
        elif part.multiplied is not None:
            self._flush()
            self.tasks.append(LevelTask("", part.axis, multiplied=part.multiplied))
        elif part.all_rows or (
            part.axis is UNBATCHED and part.elements > LARGE and SHARED not in part.writes
        ):
            self._flush()
            self._alone(part)
        else:
            if self.together and self.together[0].axis is not part.axis:
                self._flush()
            if part.adds >= 0 and self._meets(part):
                self.finish()
            self.together.append(part)

    def finish(self) -> None:
        self._flush()
        for part in self.planned:
            self._alone(part)
        self.planned.clear()

    def _meets(self, part: RoutinePart) -> bool:
        """Return whether parts that wait for a kernel may write rows of the arena to which a part adds."""
        waiting = [*self.together, *self.planned]
        written = {
            slot for waiting_part in self.together for slot in waiting_part.writes if slot in self.arenas
        }
        read_here = part.reads & written
        stores = any(self.arenas[slot] == part.adds for slot in written - read_here)
        return stores or any(waiting_part.adds == part.adds for waiting_part in waiting)

    def _flush(self) -> None:
        """End the kernel under way, and write its text."""
        parts, self.together = self.together, []
        if not parts:
            return
        text = KernelText(self.setting)
        axis = parts[0].axis
        lines: list[str] = []
        read: set[int] = set()
        written: set[int] = set()
        count = 0
        for part in parts:
            body = part.lines(text)
            if not body:
                text.used.clear()
                continue
            if (part.reads | part.writes) & written or part.writes & read:
                lines += ["}", "BARRIER();", "if (q < rows) {"]
                read, written = set(), set()
            lines += ["  {", *indented(text.declared(body), 2), "  }"]
            read |= part.reads
            written |= part.writes
            count += 1
        if not count:
            return
        number = text.numbered(axis, "q")
        loop = [
            f"const i8 rows = {text.rows(axis)}, lane = LANE_X, lanes = LANES_X;",
            "for (i8 r0 = BLOCK * LANES_Y; r0 < rows; r0 += BLOCKS * LANES_Y) {",
            f"  const i8 q = r0 + LANE_Y, r = {number if number == 'q' else f'q < rows ? {number} : 0'};",
            "  if (q < rows) {",
            *indented(lines),
            "  }",
            *(["  BARRIER();"] if any(SHARED in part.writes for part in parts) else []),
            "}",
        ]
        x = min(BLOCK, _power_of_two(max(part.elements for part in parts)))
        when = (
            [condition for part in parts for condition in part.when]
            if all(part.when for part in parts)
            else []
        )
        self._write(text, loop, LevelTask("", axis, (x, BLOCK // x), when=tuple(when)))

    def _alone(self, part: RoutinePart) -> None:
        """Write a part as a kernel of its own."""
        text = KernelText(self.setting)
        body = part.lines(text)
        if not body:
            return
        if part.planned >= 0 or part.when:
            x = min(ROW_THREADS, _power_of_two(part.elements))
            apart = LevelTask("", part.axis, (x, BLOCK // x), planned=part.planned, when=part.when)
            self._write(text, body, apart)
        elif part.all_rows:
            threads = SUMMED if any("BARRIER" in line for line in body) else (BLOCK, 1)
            self._write(text, body, LevelTask("", part.axis, threads, part.elements))
        else:
            lanes = "const i8 r = 0, lane = BLOCK * LANES_X + LANE_X, lanes = BLOCKS * LANES_X;"
            lines = [lanes, "(void)r;", *text.declared(body)]
            self._write(text, lines, LevelTask("", part.axis, (BLOCK, 1), part.elements))

    def _write(self, text: KernelText, lines: Sequence[str], task: LevelTask) -> None:
        """Write the text of a kernel, and add its task."""
        name = f"{self.name}_{len(self.texts)}"
        last = ", i8 plan" if task.planned >= 0 else ""
        kernel = "KERNEL" if task.threads[0] * task.threads[1] <= BLOCK else "KERNEL_WIDE"
        head = [
            "OVERLAP();",
            "const i8 *t = (const i8*)table, *o = t + launch;",
            f"const i4* ints = (const i4*)t + t[{INDEX_AT}];",
            f"const i8 start = t[level + {START}], calls = t[level + {CALLS}];",
            *text.head,
            "AFTER_LAST();",
        ]
        opens = f"{kernel} {name}(i8 table, i8 launch, i8 level{last}) {{"
        self.texts.append("\n".join([opens, *indented([*head, *lines]), "}"]))
        self.tasks.append(replace(task, name=name))


def _power_of_two(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()
