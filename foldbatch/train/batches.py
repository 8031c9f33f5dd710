"""Batches on their way: what each process runs of them, planned ahead, trained on or evaluated."""

import atexit
import operator
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from queue import SimpleQueue
from typing import Any, Final

from foldbatch.engines.planned import Planned
from foldbatch.errors import DecidingError, TrainingError
from foldbatch.params.parameters import Gradient
from foldbatch.program.program import Program
from foldbatch.train.checks import noting, several
from foldbatch.train.metrics import Metric, Tally
from foldbatch.train.parallel import DataParallel
from foldbatch.trees.records import Records, chosen
from foldbatch.types import describe_value

END: Final = object()  # stands for the batch after the last
PATIENCE = 1.0  # seconds that closing waits for the thread, whose source may block


def prefetched(program: Program, batches: Iterable[Any], ahead: int = 2) -> Iterator[Any]:
    """Yield every batch planned, in order; one thread reads and plans those that follow.

    Batches of a plain function that reads numbers come as they are: what it calls depends on parameters.

    The thread starts with the first batch asked for, and has ended when the iterator has, also when
    that is closed early or dropped; but where reading `batches` blocks, only when that goes on, or with
    the process. It is in that thread that `batches` is read and that functions of
    the user's run while examples are traced. An error is raised where its batch would have come, with
    the traceback of where it arose; it ends the iterator, and so do batches that lie ready behind it.

    Args:
        program: the program that will run them.
        batches: of examples, as `foldbatch.Program.plan` takes them; it may be endless.
        ahead: how many batches may lie ready besides the one last yielded: memory for speed.

    Raises:
        TrainingError: when `ahead` is no whole number of 1 or more.
        ExampleError: when an example does not fit the block.

    >>> import foldbatch as fb
    >>> program = fb.compile(fb.Scalar() >> fb.Function(lambda x: x * x))
    >>> [[float(x) for x in program.run(plan)] for plan in prefetched(program, [[1, 2], [3]])]
    [[1.0, 4.0], [9.0]]
    """
    try:
        count = operator.index(ahead)
    except TypeError:
        count = 0
    if count < 1:
        expected = "a whole number of 1 or more"
        raise TrainingError("prefetched ahead", expected, describe_value(ahead), "2 is enough")
    return _prefetch(program, batches, count)


def _prefetch(program: Program, batches: Iterable[Any], ahead: int) -> Iterator[Any]:
    source = iter(batches)
    ready: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
    wanted, closed = threading.Semaphore(ahead), threading.Event()

    def work() -> None:
        planned: Any = None
        error: BaseException | None = None
        while planned is not END and error is None and wanted.acquire() and not closed.is_set():
            try:
                batch: Any = next(source, END)
                planned = batch
                if batch is not END and not program.lowered.decides:
                    with suppress(DecidingError):
                        planned = program.plan(batch)
            except BaseException as raised:  # noqa: BLE001 - it is raised where the batch would have come
                error = raised
            ready.put((planned, error))

    def close() -> None:
        closed.set()
        wanted.release()
        # The collector may find a dropped iterator in any thread, and the worker cannot wait for itself.
        if threading.current_thread() is not worker and not sys.is_finalizing():
            worker.join(PATIENCE)

    # A daemon, or the process could not end while the source blocks.
    worker = threading.Thread(target=work, name="foldbatch-prefetch", daemon=True)
    worker.start()
    atexit.register(close)
    try:
        while True:
            if not worker.is_alive() and ready.empty():
                expected, found = "the process that began to iterate", "a process forked from it"
                raise TrainingError("prefetched", expected, found, "begin in the process that trains")
            planned, error = ready.get()
            if error is not None:
                raise error
            if planned is END:
                return
            wanted.release()
            yield planned
    finally:
        atexit.unregister(close)
        close()
        error = None  # whose traceback holds this frame


@dataclass(slots=True)
class Batch:
    """The batch under way: its examples, their places in the training set, then loss and gradients."""

    indices: list[int]  # of the examples in the training set
    examples: Sequence[Any]  # of the batch
    loss: float = 0.0  # the sum over the batch, once it was run
    gradients: dict[str, Gradient] = field(default_factory=dict)  # of the sum, by parameter name


@dataclass(frozen=True, slots=True)
class Share:
    """What this process runs of a batch."""

    batch: Batch  # the whole batch
    # the places of this process's examples in the batch; None where it runs them all
    places: list[int] | None
    part: Sequence[Any] | Planned  # these examples, or their plan made ahead

    @property
    def indices(self) -> list[int]:
        """The places of this process's examples in the training set."""
        indices = self.batch.indices
        return indices if self.places is None else [indices[place] for place in self.places]


def share_of(parallel: DataParallel, batch: Batch) -> Share:
    """Return what this process runs of a batch."""
    places = None if parallel.is_alone else parallel.places(batch.examples)
    return Share(batch, places, batch.examples if places is None else chosen(batch.examples, places))


def shares(
    parallel: DataParallel, examples: Sequence[Any], batches: Sequence[list[int]], ahead: int
) -> Iterator[Share]:
    """Yield this process's share of each batch; with `ahead`, a thread plans so many shares ahead."""
    made = (share_of(parallel, Batch(indices, chosen(examples, indices))) for indices in batches)
    if not ahead:
        yield from made
        return
    waiting: deque[Share] = deque()  # whose plans are under way

    def parts() -> Iterator[Any]:  # read by the thread
        for share in made:
            waiting.append(share)
            yield share.part

    for plan in prefetched(parallel.program, parts(), ahead):
        yield replace(waiting.popleft(), part=plan)


EVALUATED = 256  # examples of a batch that is not trained on


def evaluate(
    parallel: DataParallel,
    metrics: Sequence[Metric],
    examples: Iterable[Any],
    noted: Callable[[], int],
    between: Callable[[], None],
) -> dict[str, Any]:
    """Return figures: the ``loss`` per example, and each metric by its name. All processes have the same."""
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
