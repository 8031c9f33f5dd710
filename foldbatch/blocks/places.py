"""Places: which part of an example a call of a cell is for."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from foldbatch.blocks.tracer import Located, TracingProgram, joined
from foldbatch.model.columns import BadDataError


class _ReachedError(Exception):
    """The call that is looked for has been reached."""


def place_of(tracer: TracingProgram, example: Any, cell: int, call: int) -> str:
    """Return the part of an example that a call is for, as Python would index it.

    That is the part that holds all data that the call reads; of a call that reads none, the part that the
    innermost recursive block was given. It is empty for the whole example, and where the example does not
    make the call again.

    Args:
        tracer: the tracer of the program.
        example: what the root block reads.
        cell: the number of the cell.
        call: which of its calls, counted from 0.
    """
    model = tracer.model
    numbers = {*model.keys[cell], *(feed for _, feed in model.marks[cell])}
    data = [f"feed{cell}_{i}" for i in range(len(model.feeds[cell])) if i not in numbers]
    places = [_stopped(tracer, example, name, call) for name in data or [f"row{cell}"]]
    alike = takewhile(lambda parts: len(set(parts)) == 1, zip(*places, strict=False))
    return joined([parts[0] for parts in alike])


def _stopped(tracer: TracingProgram, example: Any, name: str, call: int) -> list[str]:
    """Return where the tracing program stands when it calls a global function once more than `call` times."""
    calls = iter(range(call))

    def adapt(bindings: dict[str, Any]) -> None:
        append = bindings[name]

        def stop(item: Any) -> None:
            if next(calls, None) is None:
                raise _ReachedError
            append(item)

        bindings[name] = stop

    try:
        tracer.walk(example, adapt)
    except Located as located:
        return located.places if isinstance(located.cause, _ReachedError) else []
    except BadDataError:
        pass
    return []
