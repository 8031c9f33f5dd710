"""Training by several processes: shares of a batch, checks that ranks are alike, sums of gradients.

Gradients of all ranks are added in the order of ranks, so that all ranks have the same bits. Rows of sparse
gradients are sent to every rank, and each rank adds them. Dense gradients are one vector: each rank adds one
slice of it, and sends the sum to the others, so a rank sends less than twice the size of the vector, however
many ranks there are. Where each rank has a device that the communicator reaches, this vector stays there.
"""

import heapq
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import islice, pairwise
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from foldbatch.communicators import Communicator, find, share, together
from foldbatch.communicators.communicator import Bytes, DeviceCommunicator, mark_as_shared
from foldbatch.engines.batch import Planned
from foldbatch.engines.sums import total
from foldbatch.errors import ProcessError, SharedDeviceWarning, TrainingError
from foldbatch.model.columns import items_of
from foldbatch.params.gradients import BatchGradients
from foldbatch.params.parameters import Array, Gradient, RemoteUpdates, SparseRows, dense, numbers_of
from foldbatch.program.program import Program
from foldbatch.program.traced import Prepared, listed
from foldbatch.system.closed import Closed
from foldbatch.train.checks import NUMBERED, examples_of, noting
from foldbatch.train.metrics import Metric, Tally
from foldbatch.train.pieces import Examples
from foldbatch.train.resuming import AGAIN, DIGEST, Record, differences, digest, digests, text_of, traced
from foldbatch.train.streams import naming_rows, stream_of
from foldbatch.trees import Tree, TreeNode
from foldbatch.trees.given import Rows
from foldbatch.types import describe_value

ALIKE = "give all processes the same data, model, seed and settings, and let callbacks change them alike"


def check_alike(communicator: Communicator, record: Record) -> None:
    """Compare the records of all ranks."""
    if communicator.size == 1:
        return
    digested = {k: v if isinstance(v, str) else DIGEST + digest(v).hex() for k, v in record.items()}
    all_ranks = share(communicator, digested)
    if all(peer == digested for peer in all_ranks):
        return
    odd = {
        name: record[name] for name in digested if any(peer.get(name) != digested[name] for peer in all_ranks)
    }
    places = [f"at rank {rank}" for rank in range(communicator.size)]
    actual = differences(share(communicator, odd), places)  # all ranks come here
    error = TrainingError("training", "all ranks to have the same", actual, ALIKE)
    mark_as_shared(error)
    raise error


def cost(example: object) -> int:
    """Return the cost of an example: the calls of a prepared one, the nodes of a tree, else 1.

    Of an example that is a tuple, list or dict, such as a tree with its label, the dearest entry counts, and
    at least its length.

    >>> cost(([Tree.leaf(), Tree.leaf()], 3)), cost("a text")
    (2, 1)
    """
    if isinstance(example, Prepared):
        return example.trace.size
    if isinstance(example, Tree):
        return int(example.size)
    if isinstance(example, TreeNode):
        return int(example.tree.size)
    if isinstance(example, list | tuple | dict):
        entries = example.values() if isinstance(example, dict) else example
        return max([len(example), *map(cost, entries)])
    return 1


def deal(costs: Sequence[int], ranks: int) -> list[list[int]]:
    """Return, for each rank, the places of its examples in the batch, ascending.

    The dearest example is dealt first, each to the rank that has least; of equals the first one. The dearest
    share is at most 4/3 of what the best way to deal would reach.

    >>> deal([5, 1, 3, 3, 1, 1], 2)
    [[0, 1, 4], [2, 3, 5]]

    Source: Graham 1969, Bounds on multiprocessing timing anomalies.
    """
    shares: list[list[int]] = [[] for _ in range(ranks)]
    loads = [(0, rank) for rank in range(ranks)]
    for place in sorted(range(len(costs)), key=lambda place: (-costs[place], place)):
        load, rank = loads[0]
        shares[rank].append(place)
        heapq.heapreplace(loads, (load + costs[place], rank))
    return [sorted(share) for share in shares]


@dataclass(frozen=True, slots=True)
class Cut:
    """How a batch is cut: among ranks, and the share of one into parts that run one after the other."""

    rank: int
    ranks: int
    parts: int

    def places(self, examples: Sequence[object]) -> list[list[int]]:
        """Return, for each part of the rank's share, the places of its examples in the batch, ascending.

        >>> Cut(rank=0, ranks=1, parts=2).places("abc")
        [[0], [1, 2]]
        """
        places = [*range(len(examples))]
        if self.ranks > 1:
            places = deal([cost(example) for example in examples], self.ranks)[self.rank]
        parts = max(1, min(self.parts, len(places)))
        cuts = [len(places) * part // parts for part in range(parts + 1)]
        return [places[start:stop] for start, stop in pairwise(cuts)]


class PreparedShare(NamedTuple):
    """A rank's share of a batch, planned by a worker."""

    places: list[list[int]]  # of the examples of each part in the batch
    plans: list[Planned]  # of the parts


def note_of(places: Sequence[int], indices: Sequence[int] | None, rank: int, *, alone: bool) -> str:
    """Return the note that says how examples at some places of a batch are numbered.

    Args:
        places: the places.
        indices: of the batch's examples in the training set, where they are known.
        rank: that runs them.
        alone: whether there is one rank.
    """
    if indices is not None:
        return NUMBERED.format([indices[place] for place in places])
    if alone:
        return NUMBERED.format(places)
    return f"of rank {rank}, whose examples have the numbers {places}"


Counts = tuple[int, ...]  # for each gradient, how many rows it has; DENSE where it is an array
DENSE = -1
SumCopies = Callable[[str], Callable[..., None] | None]


def counts_of(gradients: Mapping[str, Gradient]) -> Counts:
    """Return how many rows each gradient has, in the order of names."""
    named = [gradients[name] for name in sorted(gradients)]
    return tuple([len(gradient.rows) if isinstance(gradient, SparseRows) else DENSE for gradient in named])


def summed(
    communicator: Communicator,
    gradients: Mapping[str, Gradient],
    counts: Sequence[Counts],
    sum_copies: SumCopies = lambda dtype: None,
    remote: RemoteUpdates | None = None,
) -> tuple[dict[str, Gradient], int]:
    """Return the sums over all ranks, and how many bytes this rank sent.

    Args:
        communicator: of the ranks.
        gradients: of this rank, by name.
        counts: of each rank, see `counts_of`.
        sum_copies: see `foldbatch.engines.sums.total`.
        remote: adds dense gradients where they lie, see `meeting_place`; None adds them on the host.
    """
    names = sorted(gradients)
    sparse = [i for i in range(len(names)) if all(of[i] != DENSE for of in counts)]
    dense_gradients = {
        name: gradients[name] for number, name in enumerate(names) if number not in set(sparse)
    }
    arrays: dict[str, Any] = {name: dense(g) for name, g in dense_gradients.items()}
    if remote is None:
        arrays = {name: np.asarray(array) for name, array in arrays.items()}
    sums: dict[str, Gradient] = {}
    sent = 0
    rows = [gradients[names[i]] for i in sparse]
    if rows:
        merged, sent = _sum_rows(communicator, rows, [[of[i] for i in sparse] for of in counts], sum_copies)
        sums |= zip([names[i] for i in sparse], merged, strict=True)
    for dtype in sorted({array.dtype for array in arrays.values()}, key=str):
        of_dtype = {name: array for name, array in arrays.items() if array.dtype == dtype}
        if remote is not None:
            device_sums, device_sent = remote.summed(
                list(of_dtype.values()), cast("DeviceCommunicator", communicator)
            )
            sums |= zip(of_dtype, device_sums, strict=True)
            sent += device_sent
            continue
        vector, slices_sent = _sum_slices(
            communicator, np.concatenate([array.reshape(-1) for array in of_dtype.values()])
        )
        sent += slices_sent
        ends = np.cumsum([array.size for array in of_dtype.values()])[:-1]
        for (name, array), part in zip(of_dtype.items(), np.split(vector, ends), strict=True):
            sums[name] = part.reshape(array.shape)
    return {name: sums[name] for name in gradients}, sent


def _sum_slices(communicator: Communicator, vector: Array) -> tuple[Array, int]:
    """Return the sum of the ranks' vectors ``[n]``, in the vector itself; each rank adds one slice."""
    size, rank = communicator.size, communicator.rank
    bounds = [len(vector) * i // size for i in range(size + 1)]
    slices = [vector[first:last] for first, last in pairwise(bounds)]
    sizes = [part.nbytes for part in slices]
    received = communicator.all_to_all(_as_bytes(vector), sizes)
    rank_sum = reduce(np.add, [part.view(vector.dtype) for part in received])
    for part, summed_part in zip(slices, communicator.all_gather(_as_bytes(rank_sum), sizes), strict=True):
        part[...] = summed_part.view(vector.dtype)
    return vector, sum(sizes) + sizes[rank] * (size - 2)


def _sum_rows(
    communicator: Communicator,
    gradients: Sequence[Any],
    counts: Sequence[Sequence[int]],
    sum_copies: SumCopies,
) -> tuple[list[Gradient], int]:
    """Return the sums of sparse gradients; `counts` has, for each rank, how many rows each gradient has."""
    widths = [np.dtype(g.values.dtype).itemsize * math.prod(g.shape[1:]) for g in gradients]
    sizes = [sum(count * (8 + width) for count, width in zip(of, widths, strict=True)) for of in counts]
    texts = [_as_bytes(g.rows) for g in gradients] + [_as_bytes(np.asarray(g.values)) for g in gradients]
    received = communicator.all_gather(np.concatenate(texts), sizes)
    parts: list[list[SparseRows]] = [[] for _ in gradients]
    for data, of in zip(received, counts, strict=True):
        ends = np.cumsum([8 * count for count in of] + [n * w for n, w in zip(of, widths, strict=True)])
        pieces = np.split(data, ends[:-1])
        for number, (gradient, count) in enumerate(zip(gradients, of, strict=True)):
            rows: NDArray[np.int64] = pieces[number].copy().view(np.int64)
            values = pieces[len(of) + number].copy().view(gradient.values.dtype)
            parts[number].append(SparseRows(rows, values.reshape(count, *gradient.shape[1:]), gradient.shape))
    sent = sizes[communicator.rank] * (communicator.size - 1)
    return [
        total(gradients_of_ranks, sum_copies(gradients_of_ranks[0].values.dtype.name))
        for gradients_of_ranks in parts
    ], sent


def _as_bytes(array: Array) -> Bytes:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def meeting_place(communicator: Communicator, updates: object, gpu: str) -> RemoteUpdates | None:
    """Return the adder of dense gradients where they lie; None where they must visit the host.

    They must unless each rank has a device of its own, which the communicator reaches. All ranks come here,
    and find the same.

    Args:
        communicator: of the ranks.
        updates: those of this rank's engine.
        gpu: see `warn_of_shared_gpus`.
    """
    remote, place = updates if isinstance(updates, RemoteUpdates) else None, ""
    reaching = cast("DeviceCommunicator", communicator) if hasattr(communicator, "reaches") else None
    if remote is not None and reaching is not None and remote.is_reached(reaching):
        place = gpu or f"{os.getpid()} {id(remote.device)}"
    places = share(communicator, place)
    return remote if all(places) and len(set(places)) == communicator.size else None


def warn_of_shared_gpus(communicator: Communicator, gpu: str, process: int) -> None:
    """Warn, at all ranks, of a GPU that several processes compute on.

    Args:
        communicator: of the ranks.
        gpu: what tells the GPU of this rank from all others; empty where it has none.
        process: the number of this rank's process.
    """
    places = share(communicator, (gpu, process))
    for shared in sorted({name for name, _ in places if name}):
        ranks = [str(rank) for rank, (name, _) in enumerate(places) if name == shared]
        if len({process for name, process in places if name == shared}) > 1:
            actual = f"ranks {', '.join(ranks)} on one, where each waits for the others"
            fix = "on each machine start as many processes as it has GPUs (nvidia-smi -L lists them)"
            warning = SharedDeviceWarning("DataParallel", "a GPU for each process", actual, fix)
            warnings.warn(warning, stacklevel=3)


T = TypeVar("T")


class DataParallel(Closed):
    """A program that several processes train together; give it to `Trainer` in the program's stead.

    Every process, a *rank*, compiles the same model with the same seed, and is given the same examples. Of
    each batch it runs a share. Losses and gradients are added in the order of ranks, so all ranks have the
    same numbers, to the bit, in every run; they are those of one process to rounding. `Dropout` drops what it
    drops in one process. Where a rank has failed, the others raise `ProcessError`, and no step is counted.

    Args:
        program: that of this process.
        communicator: by default what `foldbatch.communicators.find` returns: the processes that a launcher
            started.

    Attributes:
        sent: how many bytes of gradients this rank has sent in all.
        signal: the signal that a rank noted and all ranks have learnt of, or 0.

    Raises:
        TrainingError: when `program` is no program, or `communicator` no communicator.
        BackendError: when there are several processes, and what connects them is not installed.

    Warns:
        SharedDeviceWarning: when several processes compute on one GPU.

    >>> w = fb.Parameter([], init=3.0, name="w")
    >>> product = fb.Scalar() >> fb.Function(lambda x: w * x) >> fb.Loss()
    >>> parallel = DataParallel(fb.compile(product, "numpy"))  # one process here
    >>> loss, gradients = parallel.value_and_grad([1, 2, 4])
    >>> loss, float(gradients["w"]), parallel.places([1, 2, 4])
    (21.0, 7.0, [0, 1, 2])
    """

    def __init__(self, program: Program, communicator: Communicator | None = None) -> None:
        if not isinstance(program, Program):
            fix = "fb.compile(block) makes one"
            raise TrainingError("DataParallel program", "a program", describe_value(program), fix)
        if not (communicator is None or hasattr(communicator, "all_gather")):
            actual, fix = describe_value(communicator), "leave it out: a launcher says how many there are"
            raise TrainingError("DataParallel communicator", "a communicator", actual, fix)
        self.program = program
        self.communicator = find() if communicator is None else communicator
        self.sent = 0
        self.signal = 0
        self._remote: RemoteUpdates | None = None
        if self.communicator.size > 1:
            updates, gpu = program.engine.updates, program.engine.gpu
            self._remote = meeting_place(self.communicator, updates, gpu)
            warn_of_shared_gpus(self.communicator, gpu, os.getpid())

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

    def places(self, examples: Sequence[object]) -> list[int]:
        """Return the places, in a batch, of the examples that this rank runs, ascending."""
        costs = [cost(example) for example in examples]
        return deal(costs, self.communicator.size)[self.communicator.rank]

    def value_and_grad(self, examples: Iterable[object]) -> tuple[float, BatchGradients[str]]:
        """Return loss and gradients of a batch, as `Program.value_and_grad` does.

        All ranks give the whole batch; an `ExampleError` is of this rank's share.
        """
        examples = listed(examples)
        if self.is_alone:
            return self.program.value_and_grad(examples)
        with together(self.communicator):
            if self.program.lowered.grows:
                self.program.warm(examples)  # else ranks would learn what their shares bring
            return self.sum_of(examples)

    def sum_of(
        self,
        examples: Sequence[object],
        indices: Sequence[int] | None = None,
        signal: int = 0,
        parts: int = 1,
        weights: Array | None = None,
        first: int | None = None,
        prepared: PreparedShare | None = None,
    ) -> tuple[float, BatchGradients[str]]:
        """Return loss and gradients of a batch, of which this rank runs its share.

        Args:
            examples: of the batch.
            indices: theirs in the training set, for errors.
            signal: that this process has noted; after the call all ranks have the highest one in `signal`.
            parts: how many parts the share is run in, one after the other, to need less memory. Random draws
                are those of the batch run whole; gradients are, too, but for the order of sums.
            weights: what the losses of each example are multiplied by, ``[N]``.
            first: where each rank has read its own share, and `examples` are these, the place of the first
                one in the batch of all ranks.
            prepared: the share, planned ahead; then no example is asked for.

        Raises:
            ExampleError: when an example of the share does not fit the block; other ranks must be told, see
                `foldbatch.communicators.together`.
        """
        program = self.program
        if self.is_alone and parts == 1:
            weighing: dict[str, Any] = {} if weights is None else {"weights": weights}
            with nullcontext() if indices is None else noting(NUMBERED, indices):
                batch = examples if prepared is None else prepared.plans[0]
                return program.value_and_grad(batch, **weighing)
        step = program.steps_drawn
        work: list[tuple[list[int], Sequence[object] | Planned]]
        if prepared is None:
            rank, ranks = self.communicator.rank, self.communicator.size
            cut = Cut(rank, ranks, parts) if first is None else Cut(0, 1, parts)
            work = [(part, [examples[place] for place in part]) for part in cut.places(examples)]
        else:
            work = [*zip(*prepared, strict=True)]
        run = partial(self._part_of, indices=indices, step=step, weights=weights, first=first or 0)
        loss, gradients = run(*work[0])
        for part in work[1:]:
            part_loss, part_gradients = run(*part)
            loss = loss + part_loss
            gradients = _added(gradients, part_gradients, program.engine.sum_copies)
        if self.is_alone:
            program.steps_drawn = step + 1
            return loss, gradients
        unused = sorted(getattr(gradients, "unused", ()))
        header = (float(loss), signal, counts_of(gradients), self._names(gradients), unused)
        losses, signals, counts, names, idle = zip(*share(self.communicator, header), strict=True)
        if any(names_of_rank != names[0] for names_of_rank in names):
            number = next(rank for rank, names_of_rank in enumerate(names) if names_of_rank != names[0])
            actual = f"others at rank {number} than at rank 0"
            fix = "on all ranks, call program.warm(examples) with examples that reach all of the model"
            error = TrainingError("training", "all ranks to have learnt the same parameters", actual, fix)
            mark_as_shared(error)
            raise error
        try:
            sum_copies = program.engine.sum_copies
            sums, sent = summed(self.communicator, gradients, counts, sum_copies, self._remote)
        except ProcessError:
            raise
        except Exception as error:  # noqa: BLE001 - others wait for what this rank does not send
            self.communicator.abort(f"{type(error).__name__}: {error}")
        program.steps_drawn = step + 1
        self.sent += sent
        self.signal = max(signals)
        unused_by_all = set.intersection(*map(set, idle))
        return sum(losses, 0.0), BatchGradients(sums, unused_by_all)

    def _part_of(
        self,
        places: Sequence[int],
        examples: Sequence[object] | Planned,
        *,
        indices: Sequence[int] | None,
        step: int,
        weights: Array | None,
        first: int,
    ) -> tuple[float, BatchGradients[str]]:
        """Return loss and gradients of the examples at some places of a batch; the others are of `sum_of`.

        Examples draw random numbers, and are named in errors, as in the whole batch, where `first` is the
        place of the one at place 0.
        """
        rank = self.communicator.rank
        with noting("{}", note_of(places, indices, rank, alone=self.is_alone)):
            factors = None if weights is None else weights[places]
            numbers = [first + place for place in places]
            return self.program.value_and_grad(examples, step=step, numbers=numbers, weights=factors)

    def _names(self, gradients: Mapping[str, Gradient]) -> str:
        """Return a digest of the gradients' names where ranks may have different parameters, else ''."""
        return digest(sorted(gradients)).hex() if self.program.lowered.grows else ""

    def agree(self, value: T, signal: int = 0) -> list[T]:
        """Return the values of all ranks; `signal` is as for `sum_of`."""
        values, signals = zip(*share(self.communicator, (value, signal)), strict=True)
        self.signal = max(signals)
        return list(values)

    def prepare(self, examples: Iterable[object]) -> list[Prepared]:
        """Trace examples as `Program.prepare` does, all of them on each rank: epochs deal them anew.

        Args:
            examples: the same on all ranks.

        Raises:
            TrainingError: when ranks have other examples.
        """
        examples, program = listed(examples), self.program
        if self.is_alone:
            return program.prepare(examples)
        with together(self.communicator):
            first = traced(program, examples[:AGAIN])  # numbers of words, say
            check_alike(self.communicator, {"examples": digests(examples), "traces": first})
            return program.prepare(examples, progress=self.is_first)

    def check_same(self, record: Record | None = None) -> None:
        """Compare parameters, steps drawn and a record over all ranks, which must have the same.

        `Trainer.fit` calls it; a training loop of your own should, now and then.

        Args:
            record: texts by name, and digests of examples, see `foldbatch.train.resuming.digests`.

        Raises:
            TrainingError: at every rank, when something differs; it says what, and at which ranks.
        """
        if not self.is_alone:
            compared = {"steps drawn": str(self.program.steps_drawn), **(record or {})}
            compared |= {f"parameter {name}": text_of(array) for name, array in self.program.params.items()}
            check_alike(self.communicator, compared)


def _added(
    sums: BatchGradients[str], gradients: BatchGradients[str], sum_copies: SumCopies
) -> BatchGradients[str]:
    """Return the sums of gradients by name; a walk may have learnt of parameters that the sums have not."""
    names = dict.fromkeys([*sums, *gradients])
    parts = {name: [part[name] for part in (sums, gradients) if name in part] for name in names}
    unused = (sums.unused - gradients.keys()) | (gradients.unused - sums.keys())
    unused |= sums.unused & gradients.unused
    added = {
        name: total(arrays, sum_copies(numbers_of(arrays[0]).dtype.name)) for name, arrays in parts.items()
    }
    return BatchGradients(added, unused)


@dataclass(slots=True)
class Batch:
    """The batch under way: its examples, their places in the training set, then loss and gradients."""

    indices: list[int]  # of the examples in the training set
    examples: Sequence[
        Any
    ]  # of the batch; of a stream that ranks read in parts, those that this rank has read
    loss: float = 0.0  # the sum over the batch, once it was run
    gradients: dict[str, Gradient] = field(default_factory=dict)  # of the sum, by parameter name
    weights: Array | None = None  # what the losses of each example are multiplied by, ``[N]``
    # of a stream that ranks read in parts: the place of this rank's first example in the batch, and how many
    # all ranks have
    first: int | None = None
    of_ranks: int = 0
    prepared: PreparedShare | None = None  # the share that this process runs, where a worker has planned it
    # of a stream that workers read: a digest of the row that was read last, and one that all ranks must have
    last: str = ""
    text: str = ""

    @property
    def size(self) -> int:
        """How many examples the batch has, with those of other ranks."""
        return len(self.examples) if self.first is None else self.of_ranks


EVALUATED = 256  # examples of a batch that is not trained on


def evaluate(
    parallel: DataParallel,
    metrics: Sequence[Metric],
    examples: Examples,
    noted: Callable[[], int],
    between: Callable[[], None],
) -> dict[str, object]:
    """Return figures: the ``loss`` per example, and each metric by its name. All processes have the same."""
    tally, count = Tally(metrics), 0
    rank, size = parallel.communicator.rank, parallel.communicator.size
    stream = stream_of(examples)
    if stream is not None:
        stream = stream.shard(rank, size, size)
    cut, first = stream is not None and stream.ranks > 1, 0 if stream is None else stream.first
    if not parallel.is_alone and stream is None:
        every_example = list(examples_of(examples))
        count, stop = (len(every_example) * number // size for number in (rank, rank + 1))
        examples = every_example[count:stop]
    for number, part in enumerate(in_parts(examples if stream is None else stream)):
        # each rank reads a stream that is not cut, and runs its share of the parts
        if stream is None or cut or number % size == rank:
            numbers = range(first + count, first + count + len(part))
            with naming_rows(stream, numbers), noting("example 0 is the one of number {}", first + count):
                # draws, if there are any, are the same each time: figures differ by the parameters alone
                run = parallel.program.run(part, losses=True, metrics=bool(metrics), step=first + count)
                tally.add(run, len(part))
        count += len(part)
        if parallel.is_alone:
            between()
    if not parallel.is_alone:
        if stream is not None and not cut:
            check_alike(parallel.communicator, {"number of rows that are evaluated": str(count)})
        tally.join(parallel.agree(tally.parts(), noted()))
        between()
    if not tally.count:
        raise TrainingError("evaluate examples", "one example or more", "none", "look at what reads them")
    return tally.figures()


def in_parts(examples: Examples) -> Iterator[Sequence[object]]:
    """Yield the examples, as many at once as are run at once; a stream is read meanwhile."""
    if (stream := stream_of(examples)) is not None:
        yield from stream.parts(EVALUATED)
        return
    iterable = examples_of(examples)
    if isinstance(iterable, Rows):
        yield from (iterable[first : first + EVALUATED] for first in range(0, len(iterable), EVALUATED))
        return
    remaining = iter(items_of(iterable))
    while part := list(islice(remaining, EVALUATED)):
        yield part
