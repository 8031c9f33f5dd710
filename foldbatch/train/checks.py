"""Checks of the arguments of a `Trainer`, before anything runs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from foldbatch.errors import ExampleError, TrainingError, UnknownNameError, with_nearest
from foldbatch.program.program import Program
from foldbatch.program.traced import ATOMS, listed
from foldbatch.train.libraries import OutsideMetric, TorchMetric, is_torch_metric
from foldbatch.train.metrics import Metric, only_block
from foldbatch.train.pieces import Examples
from foldbatch.train.streams import Stream, naming_rows, stream_of
from foldbatch.trees import Tree
from foldbatch.trees.given import Row, rows_of
from foldbatch.types import describe_value

T = TypeVar("T")
NONE: Final = object()  # stands for the first row of an empty stream
LEARNT = 512  # rows of a stream that are learnt of at a time
NUMBERED = "the examples of this batch have the numbers {}"  # a note, see `noting`


def instance_of(name: str, value: object, kind: type[T], expected: str, fix: str) -> T:
    """Return an argument of `Trainer` that is of its type."""
    if not isinstance(value, kind):
        raise TrainingError(f"Trainer {name}", expected, describe_value(value), fix)
    return value


def all_of(name: str, values: object) -> list[Row]:
    """Return an argument of `Trainer` that takes several objects, such as `callbacks`, as a list."""
    if not isinstance(values, Iterable) or isinstance(values, str | Mapping):
        fix = f"write {name}=[...], also for one"
        raise TrainingError(f"Trainer {name}", f"a list of {name}", describe_value(values), fix)
    return list(values)


def check_metrics(
    program: Program, metrics: Sequence[Metric | OutsideMetric], *, learnt: bool = True
) -> list[Metric]:
    """Return metrics whose values the program collects, and whose names differ; torchmetrics' are wrapped."""
    blocks = sorted({name for names in program.model.metrics for name in names})
    names: set[str] = {"loss"}
    checked: list[Metric] = [
        TorchMetric(metric) if is_torch_metric(metric) else metric for metric in all_of("metrics", metrics)
    ]
    for number, metric in enumerate(checked):
        where = f"Trainer metrics[{number}]"
        if isinstance(metric, str) or not all(hasattr(metric, part) for part in ("of", "name", "compute")):
            fix = "for example fb.train.Accuracy('name of a Metric block')"
            raise TrainingError(where, "a metric", describe_value(metric), fix)
        if not metric.of and isinstance(metric, TorchMetric):
            if blocks or learnt or not program.lowered.grows:
                only_block(metric.name, blocks)
        elif metric.of not in blocks and (learnt or not program.lowered.grows):
            expected = f"the name of a Metric block, of {', '.join(blocks) or 'none'}"
            fix = "AllOf(scores, label) >> Metric(name) collects its values"
            if program.lowered.grows:
                expected = f"the name of a metric of the walk, of {', '.join(blocks) or 'none'}"
                fix = "fb.metric(name, scores, label=number) collects its values"
            raise UnknownNameError(f"{where} of", expected, with_nearest(metric.of, blocks), fix)
        if metric.name in names:
            fix = "give one of them another one, as in Accuracy(of, name='root_accuracy')"
            raise TrainingError(f"{where} name", "a name of its own", f"a second {metric.name!r}", fix)
        names.add(metric.name)
    return checked


def sequence_of(where: str, examples: Examples) -> Sequence[object]:
    """Return examples as something with a length and items, which is not empty.

    Raises:
        ExampleTypeError: when they are a single example.
        TrainingError: when there are none.
    """
    iterable: Any = examples_of(examples)
    indexed = hasattr(iterable, "__len__") and hasattr(iterable, "__getitem__")
    sequence: Sequence[object] = iterable if indexed else listed(iterable)
    if not len(sequence):  # an array has no truth
        raise TrainingError(where, "one example or more", "none", "look at what reads them")
    return sequence


def examples_of(examples: Examples) -> Iterable[Row]:
    """Return examples, refusing a single one."""
    rows: Any = rows_of(examples)
    is_iterable = isinstance(rows, Iterator) or hasattr(rows, "__getitem__")
    if is_iterable and not isinstance(rows, Tree | Mapping | str | bytes):
        return rows  # type: ignore[no-any-return] # it has items
    return listed(rows)


@contextmanager
def noting(note: str, *values: object) -> Iterator[None]:
    """Add a note to errors of examples that says in which sequence their numbers count.

    >>> try:
    ...     with noting("examples are counted from {}", 256):
    ...         raise ExampleError("root at example 3", "a label", "None")
    ... except ExampleError as error:
    ...     print(error.__notes__)
    ['examples are counted from 256']
    """
    try:
        yield
    except ExampleError as error:
        error.add_note(note.format(*values))
        raise


def fitting_examples(program: Program, name: str, examples: Any) -> Sequence[object] | Stream:
    """Return the examples for `Trainer.fit` as a sequence or a stream, after a first reading."""
    if (stream := stream_of(examples)) is not None:
        return _fitting_stream(program, name, stream)
    sequence = sequence_of(f"fit {name}", examples)
    why = "fit reads it once to look at it and once in each epoch"
    rereadable = (
        isinstance(sequence, list | tuple) or sequence[0] is sequence[0]
    )  # else each reading has a new one
    with noting("this is the first of fit's {}; losses and metrics need labels", name):
        program._read_first([sequence[0]], why if rereadable else "")
    # so that parameters are there, and their names depend on no order of batches; and no function of the user
    # takes from an example what later epochs read
    if program.lowered.grows or (rereadable and program.lowered.runs_functions):
        program._learn(sequence, why if rereadable else "")
    return sequence


def _fitting_stream(program: Program, name: str, stream: Stream) -> Stream:
    """Return a stream whose first row fits the program, which has learnt of all rows what it has to learn."""
    first = next(iter(stream), NONE)
    if first is NONE:
        raise TrainingError(f"fit {name}", "one row or more", "an empty stream", "look at what reads them")
    # else each reading makes new rows, from which functions may take what they like
    shared = not {*map(id, _objects_in(first))}.isdisjoint(map(id, _objects_in(next(iter(stream), NONE))))
    why = "fit reads a stream once to look at it and once in each epoch" if shared else ""
    with (
        naming_rows(stream, [stream.first]),
        noting("this is the first of fit's {}; losses and metrics need labels", name),
    ):
        program._read_first([first], why)
    if program.lowered.grows or (shared and program.lowered.runs_functions):  # as of a list
        count = 0
        for part in stream.of.parts(LEARNT):
            with naming_rows(stream.of, range(count, count + len(part))):
                program._read_first(part, why)
            count += len(part)
    return stream


def _objects_in(row: object, depth: int = 3) -> Iterator[object]:
    """Yield the objects that a row holds, but for plain values, and for lists and dicts, which are copied."""
    if depth and isinstance(row, list | tuple | dict):
        for part in [*row, *row.values()] if isinstance(row, dict) else row:
            yield from _objects_in(part, depth - 1)
    elif not isinstance(row, ATOMS):
        yield row
