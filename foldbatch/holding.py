"""Examples held where they are trained: on a GPU, a batch is then a list of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import index
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from foldbatch.capacities import Capturing
from foldbatch.engines.planned import Planned, SubBatch
from foldbatch.errors import BlockValueError
from foldbatch.traced import Prepared
from foldbatch.types import describe_value

Numbers = slice | Sequence[int] | NDArray[np.integer]


@dataclass(frozen=True, slots=True, repr=False)
class Held:
    """Examples that `Program.hold` has taken; its items are examples, and batches of them.

    ``held[3]`` is an example, prepared. ``held[[3, 17]]``, with a list, an array or a slice, is a batch for
    `Program.value_and_grad`. On a GPU the batch's table is made there, of what it holds; only the numbers of
    the examples and a few more of each level go there. Elsewhere it is a list of prepared examples.

    Attributes:
        examples: all of them, prepared.
        program: whose they are.
        holding: how a GPU holds them; None elsewhere.
    """

    examples: list[Prepared]
    program: Any
    holding: Any = None

    @property
    def nbytes(self) -> int:
        """The bytes that a GPU holds; 0 elsewhere."""
        return 0 if self.holding is None else int(self.holding.nbytes)

    def __len__(self) -> int:
        return len(self.examples)

    def __repr__(self) -> str:
        where = f", {self.nbytes:,} bytes on the GPU" if self.holding is not None else ""
        return f"Held({len(self)} examples{where})"

    @overload
    def __getitem__(self, numbers: int) -> Prepared: ...
    @overload
    def __getitem__(self, numbers: Numbers) -> list[Prepared] | Planned: ...
    def __getitem__(self, numbers: Any) -> Any:
        """Return an example, or a batch.

        Raises:
            BlockValueError: when a number is none, or none of an example.
        """
        if isinstance(numbers, slice):
            chosen = list(range(len(self)))[numbers]
        elif isinstance(numbers, Sequence | np.ndarray) and not isinstance(numbers, str):
            chosen = [self._checked(number) for number in numbers]
        else:
            return self.examples[self._checked(numbers)]
        picked = [self.examples[number] for number in chosen]
        if self.holding is None or not chosen:
            return picked
        engine = self.program.engine
        ready = engine.ready_of(self.holding, np.array(chosen, np.int64))
        traces = [example.trace for example in picked]
        return Planned((SubBatch(0, traces, None, {}, (ready.batch, ready)),), self.program)

    def _checked(self, number: Any) -> int:
        try:
            place = -1 if isinstance(number, bool | np.bool_) else index(number)
        except TypeError:
            place = -1
        if not 0 <= place < len(self):
            expected = f"numbers of examples, from 0 to {len(self) - 1}"
            fix = "give a number, a list of them, or a slice"
            raise BlockValueError("held", expected, describe_value(number), fix)
        return place


class Holds(Capturing):
    """A program whose examples may be held where they are trained."""

    def hold(self, examples: Iterable[Any]) -> Held:
        """Return examples that the GPU holds, so that a batch of them is a list of numbers.

        They are traced and planned once, here. For a batch, the GPU makes index arrays and data by adding
        offsets to what it holds; see docs/gpu.md. Other backends hold prepared examples and plan each batch.

        Args:
            examples: the data set.

        Raises:
            ExampleError: when an example does not fit the block.
            BackendError: when the examples cannot be held on the GPU: a cell reads a sequence of any length
                in one call, draws random numbers, computes ids of a table that is trained, or reads a value
                twice where one launch adds both cotangents.

        >>> import foldbatch as fb
        >>> w = fb.Parameter([], init=2.0, name="w")
        >>> program = fb.compile(fb.Scalar() >> fb.Function(lambda x: w * x) >> fb.Loss(), "numpy")
        >>> held = program.hold([1, 2, 3])
        >>> program.value_and_grad(held[[0, 2]])[0]
        8.0
        """
        runner = self._runner
        traces = self._trace_all(examples)
        prepared = [Prepared(trace, self) for trace in traces]
        hold = getattr(runner.engine, "hold", None)
        if hold is None or not traces:
            return Held(prepared, self)
        plain = replace(runner.options, layout="producer", share=None)
        return Held(prepared, self, hold(runner.scheduled(traces, plain)))
