"""Examples and their traces: an example that cannot have changed is traced once.

A `foldbatch.trees.Tree` cannot change, so its trace is kept as long as the tree lives. Other examples may be
changed by their owner; `Program.prepare` traces them once where they are not. The plan of a batch of a single
tree is kept too, as long as all such plans take little memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from foldbatch.blocks.lower import Lowered, holds_objects
from foldbatch.engines.planned import Planned, SubBatch
from foldbatch.errors import ExampleError, ExampleTypeError
from foldbatch.scheduler.trace import Trace
from foldbatch.trees import Tree, TreeNode
from foldbatch.types import describe_value

PLANNED_BYTES = 64_000_000  # for plans of single trees
PLAN_BYTES, CALL_BYTES = 20_000, 300  # about the size of a plan, and of each of its calls


@dataclass(frozen=True, slots=True, repr=False)
class Prepared:
    """An example traced ahead by `Program.prepare`; give it to the same program in its stead."""

    trace: Trace
    owner: object

    def __repr__(self) -> str:
        return f"Prepared({self.trace.size} calls)"


@dataclass(slots=True)
class _Known:
    """A tree traced before: its trace, and perhaps the plan of a batch of this tree alone."""

    tree: weakref.ref[Tree]
    trace: Trace
    parts: tuple[SubBatch, ...] | None = None

    @property
    def nbytes(self) -> int:
        return PLAN_BYTES + CALL_BYTES * self.trace.size


class Traces:
    """The traces of one program's examples.

    Args:
        lowered: the block, with its tracer.
        plan: makes a batch of one trace ready.
    """

    def __init__(self, lowered: Lowered, plan: Callable[[list[Trace]], tuple[SubBatch, ...]]) -> None:
        self._lowered = lowered
        self._plan = plan
        self._known: dict[int, _Known] = {}
        self._left = PLANNED_BYTES

    def work(self, examples: Iterable[Any] | Planned, owner: object) -> list[Trace] | tuple[SubBatch, ...]:
        """Return the traces of examples, or a plan of the batch where one is at hand; `owner` is the program.

        Raises:
            ExampleError: when an example does not fit the block, or was prepared or planned by another
                program.
        """
        if isinstance(examples, Planned):
            return _own(examples, owner).parts
        traces = self.all(examples, owner)
        if len(traces) == 1 and isinstance(examples, list | tuple):
            entry = self._known.get(id(examples[0]))
            if entry is not None and entry.trace is traces[0]:
                return self._planned(entry) or traces
        return traces

    def all(self, examples: Iterable[Any] | Planned, owner: object) -> list[Trace]:
        """Return the traces of examples; arguments and errors are those of `work`."""
        if isinstance(examples, Planned):
            return _own(examples, owner).traces
        if isinstance(examples, Tree | TreeNode | str | bytes | dict) or not isinstance(examples, Iterable):
            fix = "for a single example, pass a list of one"
            raise ExampleTypeError("examples", "an iterable of examples", describe_value(examples), fix)
        traces = []
        for number, example in enumerate(examples):
            entry = self._known.get(id(example))  # a tree, from the second epoch on
            if entry is not None and entry.tree() is example:
                traces.append(entry.trace)
            else:
                traces.append(self._trace(example, number, owner))
        return traces

    def _trace(self, example: Any, number: int, owner: object) -> Trace:
        if isinstance(example, Prepared):
            if example.owner is not owner:
                expected, found = "an example prepared by this program", "one of another program"
                raise ExampleError(f"example {number}", expected, found)
            return example.trace
        trace = self._lowered.tracer.trace(example, number)
        # a tree must not live as long as the program, nor the program as long as a tree
        if isinstance(example, Tree) and not holds_objects(self._lowered.model, trace):
            key, this = id(example), weakref.ref(self)

            def forget(_: weakref.ref[Tree]) -> None:
                traces = this()
                if traces is not None:
                    traces._forget(key)

            self._forget(key)  # if two threads trace a tree at once, the plan of the first is given back
            self._known[key] = _Known(weakref.ref(example, forget), trace)
        return trace

    def _planned(self, entry: _Known) -> tuple[SubBatch, ...] | None:
        """Return the plan of a batch of one tree; None where there is none, and no room for it."""
        if entry.parts is None and entry.nbytes <= self._left:
            entry.parts = self._plan([entry.trace])
            self._left -= entry.nbytes
        return entry.parts

    def _forget(self, key: int) -> None:
        entry = self._known.pop(key, None)
        if entry is not None and entry.parts is not None:
            self._left += entry.nbytes


def _own(planned: Planned, owner: object) -> Planned:
    if planned.owner is not owner:
        fix = "plan it with this one"
        raise ExampleError("examples", "a batch planned by this program", "one of another program", fix)
    return planned
