"""Evaluating: losses and metrics of many examples, part by part; of several processes each runs a stretch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from foldbatch.errors import TrainingError
from foldbatch.train.checks import noting, several
from foldbatch.train.metrics import Metric, Tally
from foldbatch.train.parallel import DataParallel
from foldbatch.trees.records import Records

EVALUATED = 256  # examples of a batch that is not trained on


def evaluate(
    parallel: DataParallel,
    metrics: Sequence[Metric],
    examples: Iterable[Any],
    noted: Callable[[], int],
    between: Callable[[], None],
) -> dict[str, Any]:
    """Return figures: the ``loss`` per example, and each metric by its name. All processes have the same.

    Args:
        parallel: the program, and the processes that share the examples.
        metrics: whose figures are wanted.
        examples: with labels; the same for all processes.
        noted: returns the signal that came to this process, or 0.
        between: is called after each part of the examples; of several processes once, at the end.

    Raises:
        TrainingError: when there are no examples.
        ExampleError: when an example does not fit the model.
        ProcessError: when another process has failed or ended.
    """
    tally, count = Tally(metrics), 0
    if not parallel.is_alone:
        everything = list(several(examples))
        places = parallel.stretch(everything)
        examples, count = [everything[place] for place in places], places.start
    for part in in_parts(examples):
        with noting("example 0 is the one of number {}", count):
            tally.add(parallel.program.run(part, losses=True, metrics=bool(metrics)), len(part))
        count += len(part)
        if parallel.is_alone:
            between()
    if not parallel.is_alone:
        tally.join(parallel.agree(tally.parts(), noted()))
        between()
    if not tally.count:
        raise TrainingError("evaluate examples", "one example or more", "none", "look at what reads them")
    return tally.figures()


def in_parts(examples: Iterable[Any]) -> Iterator[Sequence[Any]]:
    """Yield the examples, as many at once as are run at once."""
    given = several(examples)
    if isinstance(given, Records):
        yield from (given[first : first + EVALUATED] for first in range(0, len(given), EVALUATED))
        return
    left = iter(given)
    while part := list(islice(left, EVALUATED)):
        yield part
