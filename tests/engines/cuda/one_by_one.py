"""A launcher that runs each call by itself, and products as ever: what is due is seen without what runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from foldbatch.engines.cuda.control import Call, records_of
from foldbatch.engines.cuda.launching import Launched
from foldbatch.engines.cuda.row_kernels import MOVES
from foldbatch.engines.cuda.texts.functions import LANES, THREAD, as_functions
from foldbatch.engines.cuda.texts.records import TEXT

_AT = """\
KERNEL at_{name}(i8 table, i8 call) {{
  SHARED f8 shared_[2048];
  const i8* a = (const i8*)table + ((const i8*)table)[3] + 8 * call;
  if (a[0] >= 0) {name}({x}, shared_, table{arguments});
}}
"""


class Each(NamedTuple):
    """Calls in order, with their records."""

    calls: Sequence[Call]
    records: NDArray[Any]


class OneByOne:
    """See `foldbatch.engines.cuda.launching.Launcher`."""

    def __init__(self, engine: Any, *, training: bool = True) -> None:
        self.device = engine.device
        phase = engine.training if training else engine.inference
        ops = [op for op in phase.ops.ops if "_p" not in op.name]
        kernels = "\n".join(kernel.text for kernel in phase.kernels)
        wrappers = [
            _AT.format(name=op.name, x=op.x, arguments="".join(f", a[{1 + k}]" for k in range(op.arguments)))
            for op in ops
        ]
        moves = as_functions("\n".join(MOVES.values()))
        text = "\n".join([THREAD, LANES, moves, TEXT, as_functions(kernels), *wrappers])
        module = self.device.driver.load(text)
        self.ops = phase.ops.ops
        self.functions = {op.name: module.function(f"at_{op.name}") for op in ops}
        self.launched = self.updates = 0  # batches, and those with an update

    def arranged(self, forward: Sequence[Call], backward: Sequence[Call], numbers: Any = None) -> Each:
        calls = [*forward, *backward]
        return Each(calls, records_of(calls))

    def launch(self, arranged: Each, launched: Launched) -> int:
        driver, stream = self.device.driver, self.device.stream
        for number, call in enumerate(arranged.calls):
            if call.step is not None and call.step.task.multiplied is not None:
                launched.straight(call.step)
                continue
            function = self.functions[self.ops[call.op].name]
            arguments = launched.table.pointer, number
            driver.launch(function, call.blocks, (256, 1), arguments, stream, launched.touched)
        for function, blocks, threads, rest in (
            launched.update.launches(len(arranged.calls)) if launched.update else ()
        ):
            driver.launch(
                function, blocks, threads, (launched.table.pointer, *rest), stream, launched.touched
            )
        self.launched += 1
        self.updates += launched.update is not None
        return len(arranged.calls)
