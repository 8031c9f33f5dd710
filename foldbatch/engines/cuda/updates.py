"""Optimizers' steps on a device: one kernel a rule and dtype, made of the rule's lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from foldbatch.engines.cuda.arrays import DeviceArray
from foldbatch.engines.cuda.common import EACH, KINDS, bits
from foldbatch.engines.cuda.drivers.driver import ARGUMENTS
from foldbatch.engines.cuda.gradients import elementwise, flags_of, guards_of, on_device, places_of
from foldbatch.engines.cuda.parameters import device_value
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
def step_text(rule: Rule, kind: str) -> str:
    """Return all of the text that a rule's kernel is loaded from, see `kernel_text`."""
    return ROUNDED + kernel_text(rule, kind)


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
        """Change parameters and moments, all or none, without waiting."""
        with self.device.lock:
            try:  # whatever may fail comes before anything is changed or expected
                launches = [self._launch(change) for change in changes]
                there = [change for change in changes if isinstance(_values(change.gradient), DeviceArray)]
                arrays = [on_device(self.device, _values(change.gradient)) for change in there]
                flags = flags_of(self.device, arrays, there[0].factor if there else 1.0)
            except BaseException:
                undo()
                raise
            words = [guard.word for guard in guards_of(arrays)]
            self.device.faults.expect([change.name for change in there], undo, flags, words)
            for launch in launches:
                launch()

    def look(self) -> None:
        """Wait, and raise the error of the first bad update."""
        self.device.faults.look()

    def _launch(self, change: Change) -> Callable[[], None]:
        """Return what changes a parameter, all of it made ready."""
        device, gradient = self.device, change.gradient
        change.moments[:] = [on_device(device, moment) for moment in change.moments]
        tables = [device_value(device, change.parameter), *change.moments]
        rows, width = [], 1
        if isinstance(gradient, SparseRows) and change.by_rows:
            rows, width = [places_of(device, gradient)], tables[0].size // max(1, gradient.shape[0])
        elif isinstance(gradient, SparseRows):
            there = on_device(device, gradient.values)
            gradient = there.spread(replace(gradient, values=there))  # type: ignore[arg-type]
        g = on_device(device, _values(gradient))
        word = device.faults.word
        arguments = [table.pointer for table in (tables[0], g, *tables[1:])]
        arguments += [rows[0].pointer if rows else 0, g.size, width, word.pointer]
        arguments += map(bits, (change.factor, *change.numbers))
        kernel = device.kernel(step_text(change.rule, KINDS[tables[0].dtype.name]), "step")
        reads = [g, word, *tables, *rows]
        return partial(elementwise, device, kernel, g.size, arguments, reads=reads, writes=tables)


def _values(gradient: Any) -> Any:
    return gradient.values if isinstance(gradient, SparseRows) else gradient


def updates(device: Device) -> DeviceUpdates:
    """Return optimizers' steps on a device, for `foldbatch.store.ParameterStore.updates`."""
    return DeviceUpdates(device)
