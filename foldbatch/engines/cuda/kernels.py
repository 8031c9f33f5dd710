"""From a routine to the kernels and products that run a level of it, in order.

Parts that follow each other along one axis are one kernel, with barriers where a part reads what another
thread may have written. What is left are sums over rows and products, which stand alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from foldbatch.engines.bindings import Bound, KernelKey
from foldbatch.engines.cuda.matrices import Multiplied
from foldbatch.engines.cuda.parts import RoutineCut, RoutinePart
from foldbatch.engines.cuda.texts.kernel_text import CALLS, INDEX_AT, START, KernelText, Setting, indented
from foldbatch.engines.cuda.texts.lines import SHARED
from foldbatch.model.model import Model
from foldbatch.static.op import UNBATCHED, Axis
from foldbatch.static.statements import Routine

LARGE = 4096  # elements without rows that more than one block should compute
BLOCK = 256  # threads of a block
WIDE = 128  # threads that share a row, at most
SUMMED = (32, 32)  # threads of a block that adds up rows: columns, and rows at a time


@dataclass(frozen=True, slots=True)
class LevelTask:
    """A kernel, or a product, that a level runs.

    Attributes:
        name: of the kernel; empty for a product.
        axis: along which its rows run.
        threads: of a block, along the elements of a row and along rows.
        columns: of a kernel that is not cut along rows: how many elements it computes; else 0.
        taken: slots whose rows it copies together: where none lie apart there is nothing to do. Empty for
            kernels that do more.
        stored: `store` slots and results whose rows it brings to others that follow each other: where none
            do, or are computed there, there is nothing to do. Empty for kernels that do more.
        clears: whether it sets to zero what there is room for beyond the rows of a level.
        planned: the binding whose rows it adds by a plan; -1 for others.
        multiplied: the product.
    """

    name: str
    axis: Axis
    threads: tuple[int, int] = (BLOCK, 1)
    columns: int = 0
    taken: tuple[int, ...] = ()
    planned: int = -1
    multiplied: Multiplied | None = None
    stored: tuple[int, ...] = ()
    clears: bool = False


@dataclass(frozen=True, slots=True)
class Kernel:
    """What a level of a routine runs.

    Attributes:
        routine: the routine.
        setting: what its texts know besides.
        tasks: kernels and products, in order.
        text: of the kernels.
    """

    routine: Routine
    setting: Setting
    tasks: tuple[LevelTask, ...]
    text: str


def kernels_of(bound: Bound) -> list[Kernel]:
    """Return the kernels of all routines of a phase."""
    return [
        kernel_of(bound.model, key, routine, f"k{number}")
        for number, (key, routine) in enumerate(zip(bound.keys, bound.routines, strict=True))
    ]


def kernel_of(model: Model, key: KernelKey, routine: Routine, name: str) -> Kernel:
    """Return what a level of a routine runs; the names of its kernels begin with `name`."""
    widths, arenas = _operands(model, key, routine)
    cut = RoutineCut(routine, widths, arenas)
    parts = cut.cut()
    whole = key.stage in ("before", "after")
    setting = Setting(routine, key.cell, widths, frozenset(cut.copied), whole, cut.added)
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
    for number, (kind, which) in enumerate(bindings):
        result = number >= len(routine.slots)
        if kind in ("operand", "store") or (kind == "cotangent" and result):
            widths[number] = len(operands[which].columns) or 1
            if kind != "operand":
                arenas[number] = operands[which].arena
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
        """Append a part."""
        if part.planned >= 0:  # after what stores and adds to other arenas, so that this is one kernel
            self.planned.append(part)
        elif part.multiplied is not None:
            self._flush()
            self.tasks.append(LevelTask("", part.axis, multiplied=part.multiplied))
        elif part.whole or (part.axis is UNBATCHED and part.elements > LARGE and SHARED not in part.writes):
            self._flush()
            self._alone(part)
        else:
            if self.together and self.together[0].axis is not part.axis:
                self._flush()
            if part.adds >= 0 and self._meets(part):
                self.finish()
            self.together.append(part)

    def finish(self) -> None:
        """Write what is left."""
        self._flush()
        for part in self.planned:
            self._alone(part)
        self.planned.clear()

    def _meets(self, part: RoutinePart) -> bool:
        """Whether others that wait may write the rows of the arena to which a part adds."""
        others = [*self.together, *self.planned]
        written = {slot for other in self.together for slot in other.writes if slot in self.arenas}
        own = part.reads & written
        stores = any(self.arenas[slot] == part.adds for slot in written - own)
        return stores or any(other.adds == part.adds for other in others)

    def _flush(self) -> None:
        parts, self.together = self.together, []
        if not parts:
            return
        text = KernelText(self.setting)
        axis = parts[0].axis
        lines: list[str] = []
        read: set[int] = set()
        written: set[int] = set()
        done = 0
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
            done += 1
        if not done:
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
        x = min(WIDE, _power_of_two(max(part.elements for part in parts)))
        taken = tuple(part.taken for part in parts) if all(part.taken >= 0 for part in parts) else ()
        stored = tuple(part.stored for part in parts) if all(part.stored >= 0 for part in parts) else ()
        self._write(text, loop, LevelTask("", axis, (x, BLOCK // x), taken=taken, stored=stored))

    def _alone(self, part: RoutinePart) -> None:
        """Write a kernel of one part, cut along its elements."""
        text = KernelText(self.setting)
        body = part.lines(text)
        if not body:
            return
        if part.planned >= 0:
            x = min(WIDE, _power_of_two(part.elements))
            self._write(text, body, LevelTask("", part.axis, (x, BLOCK // x), planned=part.planned))
        elif part.clears:
            x = min(WIDE, _power_of_two(part.elements))
            self._write(text, body, LevelTask("", part.axis, (x, BLOCK // x), clears=True))
        elif part.whole:
            barrier = any("BARRIER" in line for line in body)
            threads = SUMMED if barrier else (BLOCK, 1)
            self._write(text, body, LevelTask("", part.axis, threads, part.elements))
        else:
            lanes = "const i8 r = 0, lane = BLOCK * LANES_X + LANE_X, lanes = BLOCKS * LANES_X;"
            lines = [lanes, "(void)r;", *text.declared(body)]
            self._write(text, lines, LevelTask("", part.axis, (BLOCK, 1), part.elements))

    def _write(self, text: KernelText, lines: Sequence[str], task: LevelTask) -> None:
        name = f"{self.name}_{len(self.texts)}"
        last = ", i8 plan" if task.planned >= 0 else ""
        kernel = "KERNEL" if task.threads[0] * task.threads[1] <= BLOCK else "KERNEL_WIDE"
        head = [
            "const i8 *t = (const i8*)table, *o = t + launch;",
            f"const i4* ints = (const i4*)t + t[{INDEX_AT}];",
            f"const i8 start = t[level + {START}], calls = t[level + {CALLS}];",
            *text.head,
        ]
        opens = f"{kernel} {name}(i8 table, i8 launch, i8 level{last}) {{"
        self.texts.append("\n".join([opens, *indented([*head, *lines]), "}"]))
        self.tasks.append(replace(task, name=name))


def _power_of_two(number: int) -> int:
    """Return the least power of two that is no smaller."""
    return 1 << max(0, number - 1).bit_length()
