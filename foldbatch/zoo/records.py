"""Nested records: the block of a schema, and a layer between it and the scores."""

from __future__ import annotations

from foldbatch.blocks import Linear
from foldbatch.errors import BlockValueError
from foldbatch.zoo.tasks import AnyBlock, Task, of_example, scorer


def json(record: AnyBlock, task: Task, *, hidden: int = 64) -> AnyBlock:
    """Return a model of pairs ``(record, label)``.

    Args:
        record: from a record to a vector, for example the block of a schema inferred from samples.
        task: what is to be told: ``class`` or ``number``.
        hidden: extent of the layer between the record's vector and the scores.

    Raises:
        BlockValueError: when the task reads trees.

    Source: Mandlik, Racinsky, Lisy and Pevny 2022, JsonGrinder.jl: automated differentiable neural
    architecture for embedding arbitrary JSON data.

    >>> from foldbatch import GetItem, Vector, compile
    >>> model = json(GetItem("sizes") >> Vector(3), Task("number"))
    >>> compile(model, "numpy").run([({"sizes": [1, 2, 3]}, None)])[0].shape
    ()
    """
    if task.reads_tree:
        fix = "use Task('class') or Task('number')"
        raise BlockValueError("json", "a task whose examples are pairs", task.kind, fix)
    return of_example(record >> Linear(hidden, "relu"), scorer(task), task)
