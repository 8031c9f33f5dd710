"""DataParallel: one program trained by several processes, each of which runs a part of every batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Any, TypeVar

from foldbatch.blocks.lower import holds_objects
from foldbatch.communicators import Communicator, find, share, together
from foldbatch.engines.planned import Planned
from foldbatch.errors import ProcessError, TrainingError
from foldbatch.params import Gradient
from foldbatch.program import Program
from foldbatch.scheduler.trace import Trace
from foldbatch.traced import Prepared, listed
from foldbatch.train.checks import noting
from foldbatch.train.contents import Digests, digests
from foldbatch.train.facts import Facts, text_of
from foldbatch.train.parallel.agreement import check_alike
from foldbatch.train.parallel.dealing import cost, deal, stretches
from foldbatch.train.parallel.exchange import counts_of, summed
from foldbatch.types import describe_value

T = TypeVar("T")


class DataParallel:
    """A program that several processes train together; give it to `Trainer` in the program's stead.

    Every process, a *rank*, compiles the same model with the same seed, and is given the same examples. Of
    each batch it runs a share. Losses and gradients are added in the order of ranks, so all ranks have the
    same numbers, to the bit, in every run; they are those of one process to rounding. `Dropout` drops what it
    drops in one process.

    Args:
        program: that of this process.
        communicator: by default what `foldbatch.communicators.find` returns: the processes that a launcher
            started.
        cost: what an example costs, a whole number; by default calls of prepared examples, nodes of trees,
            and 1 for what is neither.

    Attributes:
        sent: how many bytes of gradients this rank has sent in all.
        signal: the signal that a rank noted and all ranks have learnt of, or 0.

    Raises:
        TrainingError: when `program` is no program.
        BackendError: when there are several processes, and what connects them is not installed.

    >>> import foldbatch as fb
    >>> w = fb.Parameter([], init=3.0, name="w")
    >>> product = fb.Scalar() >> fb.Function(lambda x: w * x) >> fb.Loss()
    >>> def work(communicator):
    ...     parallel = DataParallel(fb.compile(product, "numpy"), communicator)
    ...     loss, gradients = parallel.value_and_grad([1, 2, 4])
    ...     return loss, float(gradients["w"]), [parallel.places([1, 2, 4])]
    >>> fb.communicators.in_threads(work, 2)
    [(21.0, 7.0, [[0, 2]]), (21.0, 7.0, [[1]])]
    """

    def __init__(
        self,
        program: Program,
        communicator: Communicator | None = None,
        *,
        cost: Callable[[Any], int] = cost,
    ) -> None:
        if not isinstance(program, Program):
            fix = "fb.compile(block) makes one"
            raise TrainingError("DataParallel program", "a program", describe_value(program), fix)
        self.program = program
        self.communicator = find() if communicator is None else communicator
        self.sent = 0
        self.signal = 0
        self._cost = cost

    def __repr__(self) -> str:
        return f"DataParallel({self.program!r}, rank {self.communicator.rank} of {self.communicator.size})"

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which prints and writes files."""
        return self.communicator.rank == 0

    @property
    def is_alone(self) -> bool:
        """Whether there is one process only."""
        return self.communicator.size == 1

    def places(self, examples: Sequence[Any]) -> list[int]:
        """Return the places, in a batch, of the examples that this rank runs, ascending."""
        costs = [self._cost(example) for example in examples]
        return deal(costs, self.communicator.size)[self.communicator.rank]

    def value_and_grad(self, examples: Iterable[Any]) -> tuple[float, dict[str, Gradient]]:
        """Return loss and gradients of a batch, as `Program.value_and_grad` does.

        All ranks give the whole batch.

        Raises:
            ExampleError: when an example of this rank's share does not fit the block.
            ProcessError: when another rank has failed or ended. No step is counted then.
        """
        examples = listed(examples)
        if self.is_alone:
            return self.program.value_and_grad(examples)
        with together(self.communicator):
            places = self.places(examples)
            with self.numbering(places):
                return self.sum_of([examples[place] for place in places], places)

    def sum_of(
        self, part: Sequence[Any] | Planned, places: Sequence[int] | None, signal: int = 0
    ) -> tuple[float, dict[str, Gradient]]:
        """Return loss and gradients of the batch of which this rank runs a part.

        Args:
            part: this rank's examples, or their plan.
            places: theirs in the batch; None where the part is the batch.
            signal: that this process has noted; after the call all ranks have the highest one in `signal`.

        Raises:
            ExampleError: when an example of the part does not fit the block; other ranks must be told, see
                `foldbatch.communicators.together`.
            ProcessError: when another rank has failed or ended.
        """
        program = self.program
        if self.is_alone or places is None:
            return program.value_and_grad(part)
        step = program.steps_drawn
        own, gradients = program.value_and_grad(part, step=step, numbers=places)
        header = (float(own), signal, counts_of(gradients))
        losses, signals, counts = zip(*share(self.communicator, header), strict=True)
        try:
            sums, sent = summed(self.communicator, gradients, counts, program.engine.sum_copies)
        except ProcessError:
            raise
        except Exception as error:  # noqa: BLE001 - others wait for what this rank does not send
            self.communicator.abort(f"{type(error).__name__}: {error}")
        program.steps_drawn = step + 1
        self.sent += sent
        self.signal = max(signals)
        return sum(losses, 0.0), sums

    def agree(self, value: T, signal: int = 0) -> list[T]:
        """Return the values of all ranks; `signal` is as for `sum_of`.

        Raises:
            ProcessError: when another rank has failed or ended.
        """
        values, signals = zip(*share(self.communicator, (value, signal)), strict=True)
        self.signal = max(signals)
        return list(values)

    def numbering(self, places: Sequence[int] | None) -> AbstractContextManager[None]:
        """Note, in errors of examples of a share, their numbers in the whole; there are none where it is all.

        >>> import foldbatch as fb
        >>> alone = DataParallel(fb.compile(fb.Scalar()), fb.communicators.Alone())
        >>> with alone.numbering(None):
        ...     pass
        """
        if places is None or self.is_alone:
            return nullcontext()
        rank = self.communicator.rank
        if isinstance(places, range):
            return noting("of rank {}, whose example 0 has the number {}", rank, places.start)
        return noting("of rank {}, whose examples have the numbers {}", rank, places)

    def stretch(self, examples: Sequence[Any]) -> range:
        """Return the places of this rank's part of examples whose order matters: neighbours, of even cost."""
        if self.is_alone:
            return range(len(examples))
        costs = [self._cost(example) for example in examples]
        return stretches(costs, self.communicator.size)[self.communicator.rank]

    def prepare(self, examples: Iterable[Any], *, processes: int | None = None) -> list[Prepared]:
        """Trace examples as `Program.prepare` does: each rank traces a part, and all ranks get all traces.

        All ranks need all of them, because every epoch deals its batches anew.

        Args:
            examples: the same on all ranks.
            processes: how many processes of its own a rank traces in; by default 1 where there are several
                ranks, because libraries that connect processes may fail in a forked one.

        Raises:
            TrainingError: when ranks have other examples.
            ExampleError: when an example of this rank's part does not fit the block.
            ProcessError: when another rank has failed or ended.
        """
        examples, program = listed(examples), self.program
        if self.is_alone:
            return program.prepare(examples, processes=processes)
        with together(self.communicator):
            check_alike(self.communicator, {}, {"examples": digests(examples)})
            places = self.stretch(examples)
            with self.numbering(places):
                part = [examples[place] for place in places]
                own = program.prepare(part, processes=processes or 1, progress=False)
            traces = [example.trace for example in own]
            # objects must stay the same objects, so examples that hold some are traced on every rank
            sent = None if any(holds_objects(program.model, trace) for trace in traces) else traces
            received: list[list[Trace] | None] = share(self.communicator, sent)
            if None in received:
                return program.prepare(examples, processes=processes or 1, progress=self.is_first)
        received[self.communicator.rank] = traces
        return [Prepared(trace, program) for trace in chain.from_iterable(filter(None, received))]

    def check_same(self, facts: Facts | None = None, rows: Mapping[str, Digests] | None = None) -> None:
        """Compare what must be the same on all ranks: parameters, steps drawn, and what is given.

        `Trainer.fit` calls it; a training loop of your own should, now and then.

        Args:
            facts: texts by name.
            rows: by name, digests of what has numbers, see `foldbatch.train.contents.digests`.

        Raises:
            TrainingError: at every rank, when something differs; it says what, and at which ranks.
            ProcessError: when another rank has failed or ended.
        """
        if self.is_alone:
            return
        own = {"steps drawn": str(self.program.steps_drawn), **(facts or {})}
        own |= {f"parameter {name}": text_of(array) for name, array in self.program.params.items()}
        check_alike(self.communicator, own, rows)
