"""Optimizers' steps on a device: one kernel a rule and dtype, made of the rule's lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from foldbatch.engines.cuda.arrays import DeviceArray
from foldbatch.engines.cuda.common import EACH, KINDS, bits
from foldbatch.engines.cuda.drivers.driver import ARGUMENTS
from foldbatch.engines.cuda.gradients import elementwise, flags_of, guards_of, on_device, places_of
from foldbatch.engines.cuda.parameters import device_value
from foldbatch.engines.cuda.update_records import (
    CHANGE,
    CLEAR,
    FAULT,
    SPREAD,
    Update,
    blocks_for,
    owned,
    update_text,
)
from foldbatch.params import Parameter, SparseRows
from foldbatch.updates import Change, RemoteUpdates, Rule

if TYPE_CHECKING:
    from foldbatch.engines.cuda.device import Device

# The product with the factor is rounded, as it is when a gradient comes scaled: no sum may be merged with it.
ROUNDED = """\
#ifdef FB_CUDA
#define rounded_f4(a, b) __fmul_rn(a, b)
#define rounded_f8(a, b) __dmul_rn(a, b)
#else
#define rounded_f4(a, b) ((a) * (b))
#define rounded_f8(a, b) ((a) * (b))
#endif
"""

STEP = """\
KERNEL step({parameters}) {{
  if (*(const i8*)word_) return;
  {numbers}
  i8 n = n_;
  {each} {{
    i8 at_ = rows_ ? ((const i8*)rows_)[i / width_] * width_ + i % width_ : i;
    {f} g = rounded_{f}(((const {f}*)g_)[i], ({f})as_f8(factor_));
    {reads}
    {lines}
    {writes}
  }}
}}
"""


@cache
def kernel_text(rule: Rule, kind: str) -> str:
    """Return the text of a rule's kernel for ``f4`` or ``f8``.

    Its arguments are addresses of the parameter, the gradient, each moment and the rows (0 for all of them);
    how many numbers the gradient has, and a row; the address of a word that must be 0; the bits of the
    gradient's factor and of each number.

    >>> print(kernel_text(Rule(("m = keep * m + g", "p = p - sqrt(m)"), ("m",), ("keep",)), "f4"))
    KERNEL step(i8 p_, i8 g_, i8 m_, i8 rows_, i8 n_, i8 width_, i8 word_, i8 factor_, i8 keep_) {
      if (*(const i8*)word_) return;
      f4 keep = (f4)as_f8(keep_);
      i8 n = n_;
      for (i8 i = BLOCK * LANES_X + LANE_X; i < n; i += BLOCKS * LANES_X) {
        i8 at_ = rows_ ? ((const i8*)rows_)[i / width_] * width_ + i % width_ : i;
        f4 g = rounded_f4(((const f4*)g_)[i], (f4)as_f8(factor_));
        f4 p = ((f4*)p_)[at_], m = ((f4*)m_)[at_];
        m = keep * m + g;
        p = p - sqrtf(m);
        ((f4*)p_)[at_] = p; ((f4*)m_)[at_] = m;
      }
    }
    <BLANKLINE>
    """
    tables = ("p", *rule.moments)
    names = ["p", "g", *rule.moments, "rows", "n", "width", "word", "factor", *rule.numbers]
    assert len(names) <= ARGUMENTS, f"a kernel takes {ARGUMENTS} arguments at most: {names}"
    root = "sqrtf(" if kind == "f4" else "sqrt("
    lines = [re.sub(r"\bsqrt\(", root, line) + ";" for line in rule.lines]
    new = [name for name in rule.locals if name != "g"]
    return STEP.format(
        f=kind,
        parameters=", ".join(f"i8 {name}_" for name in names),
        numbers="\n  ".join(f"{kind} {name} = ({kind})as_f8({name}_);" for name in rule.numbers),
        each=EACH,
        reads=f"{kind} " + ", ".join([*(f"{name} = (({kind}*){name}_)[at_]" for name in tables), *new]) + ";",
        lines="\n    ".join(lines),
        writes=" ".join(f"(({kind}*){name}_)[at_] = {name};" for name in tables),
    )


class _Step(NamedTuple):
    """A change as a kernel's arguments; of what it reads, the gradient comes first."""

    text: str
    arguments: Sequence[int]
    reads: Sequence[DeviceArray]
    writes: Sequence[DeviceArray]
    spread: _Spread | None


class _Spread(NamedTuple):
    """A sparse gradient that becomes a whole one: rows of `width` numbers, and zeros elsewhere."""

    target: DeviceArray
    values: DeviceArray
    places: DeviceArray
    width: int

    @property
    def kind(self) -> int:
        """The number of the dtype in `KINDS`."""
        return list(KINDS).index(self.values.dtype.name)

    @property
    def arguments(self) -> tuple[int, ...]:
        """Those of the kernel ``spread``."""
        return (
            self.target.pointer,
            self.values.pointer,
            self.places.pointer,
            self.values.size,
            self.width,
        )

    def run(self, device: Device) -> None:
        """Spread the gradient now."""
        device.driver.fill(self.target.pointer, 0, self.target.nbytes, device.stream)
        name, reads = f"spread_{KINDS[self.values.dtype.name]}", [self.values, self.places]
        elementwise(device, name, self.values.size, self.arguments, reads=reads, writes=[self.target])


class DeviceUpdates(RemoteUpdates):
    """Optimizers' steps on a device; see `foldbatch.updates.RemoteUpdates`."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def full(self, parameter: Parameter, number: float) -> DeviceArray:
        """Return an array of the device, like a parameter, of one number."""
        made = self.device.empty(parameter.type.shape, parameter.type.dtype)
        kernel = f"fill_{KINDS[parameter.type.dtype]}"
        elementwise(self.device, kernel, made.size, [made.pointer, made.size, bits(number)], writes=[made])
        return made

    def apply(self, changes: Sequence[Change], undo: Callable[[], None]) -> None:
        """Change parameters and moments, all or none, without waiting.

        Where the gradients are those of the step that is due, the update is launched with it.
        """
        with self.device.lock:
            try:  # whatever may fail comes before anything is changed or expected
                steps = [self._step(change) for change in changes]
                there = [change for change in changes if isinstance(_values(change.gradient), DeviceArray)]
                arrays = [on_device(self.device, _values(change.gradient)) for change in there]
                if len(there) == len(changes) and self._with_due(steps, there, arrays, undo):
                    return
                flags = flags_of(self.device, arrays, there[0].factor if there else 1.0)
            except BaseException:
                undo()
                raise
            words = [guard.word for guard in guards_of(arrays)]
            self.device.faults.expect([change.name for change in there], undo, flags, words)
            for step in steps:
                if step.spread is not None:
                    step.spread.run(self.device)
                kernel = self.device.kernel(ROUNDED + step.text, "step")
                reads, size = [*step.reads, *step.writes], step.reads[0].size
                elementwise(self.device, kernel, size, step.arguments, reads=reads, writes=step.writes)

    def _with_due(
        self,
        steps: Sequence[_Step],
        changes: Sequence[Change],
        arrays: Sequence[DeviceArray],
        undo: Callable[[], None],
    ) -> bool:
        """Launch the step that is due with an update by its gradients, if this is one; return whether."""
        device, due = self.device, self.device.due
        # a factor above 1 may make a gradient infinite, which the step's own look does not see
        if not owned(due, arrays) or any(abs(change.factor) > 1 for change in changes):
            return False
        ops: dict[str, int] = {}
        records = [(ops.setdefault(step.text, len(ops)), step.arguments) for step in steps]
        counts = {step.text: len(step.arguments) for step in steps}
        text = update_text(tuple(counts.items()), ROUNDED)
        (status,) = guards_of(arrays)
        code = device.faults.promised([change.name for change in changes], undo)
        flags = [status.word.pointer + 8 * due.flags[id(array)] for array in arrays]
        fault = device.faults.word.pointer, code, len(flags), status.word.pointer, *flags
        spreads = [step.spread for step in steps if step.spread is not None]
        groups: list[tuple[str, Any]] = [(FAULT, [(0, fault)])]
        if spreads:
            groups += [
                (CLEAR, [(0, (spread.target.pointer, spread.target.nbytes // 4)) for spread in spreads])
            ]
            groups += [(SPREAD, [(spread.kind, spread.arguments) for spread in spreads])]
        groups.append((CHANGE, records))
        everything = [array for step in steps for array in (*step.reads, *step.writes)]
        everything += [array for spread in spreads for array in (spread.values, spread.places)]
        blocks = blocks_for([step.reads[0].size for step in steps])
        key = text, blocks, *(len(group) for _, group in groups)
        device.due = None
        kernels = [(device.kernel(text, name), group) for name, group in groups]
        due.fire(Update(kernels, blocks, everything, key))
        return True

    def look(self) -> None:
        """Wait, and raise the error of the first bad update."""
        self.device.faults.look()

    def _step(self, change: Change) -> _Step:
        """Return what changes a parameter, all of it made ready."""
        device, gradient = self.device, change.gradient
        change.moments[:] = [on_device(device, moment) for moment in change.moments]
        tables = [device_value(device, change.parameter), *change.moments]
        rows, width, spread = [], 1, None
        if isinstance(gradient, SparseRows) and change.by_rows:
            rows, width = [places_of(device, gradient)], tables[0].size // max(1, gradient.shape[0])
        elif isinstance(gradient, SparseRows):
            values, places = on_device(device, gradient.values), places_of(device, gradient)
            target = device.empty(gradient.shape, values.dtype.name)
            spread = _Spread(target, values, places, values.size // max(1, len(gradient.rows)))
            gradient = target
        g = on_device(device, _values(gradient))
        word = device.faults.word
        arguments = [table.pointer for table in (tables[0], g, *tables[1:])]
        arguments += [rows[0].pointer if rows else 0, g.size, width, word.pointer]
        arguments += map(bits, (change.factor, *change.numbers))
        text = kernel_text(change.rule, KINDS[tables[0].dtype.name])
        return _Step(text, arguments, [g, word, *rows], tables, spread)


def _values(gradient: Any) -> Any:
    return gradient.values if isinstance(gradient, SparseRows) else gradient


def updates(device: Device) -> DeviceUpdates:
    """Return optimizers' steps on a device, for `foldbatch.store.ParameterStore.updates`."""
    return DeviceUpdates(device)
