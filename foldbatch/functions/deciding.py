"""Deciding: examples run until each waits for a number; a round computes all of these, and they go on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import partial
from types import CoroutineType
from typing import Any, Final, NamedTuple
from warnings import warn

import numpy as np

from foldbatch.errors import ExamplePlace, ManyRoundsWarning, WalkError, frames_inside, install
from foldbatch.functions.cells import COUNTERS, Signature
from foldbatch.functions.loose import RECORDER
from foldbatch.functions.noted import (
    ATOMS,
    OBJECTS,
    Noted,
    is_named,
    joined_result,
    kept_result,
    leak,
    noted_of,
    replaced,
)
from foldbatch.functions.notes import (
    Forced,
    InTurn,
    Notes,
    State,
    give_back,
    listen,
    lists_of,
    may_go_deeper,
    name_example,
    noting,
    refuse_broken,
    running,
    session,
    unknown,
)
from foldbatch.functions.readings import Reading
from foldbatch.functions.rounds import Computing, RoundNotes, Rounds
from foldbatch.functions.store import Store
from foldbatch.functions.suspended import Fiber, Fork, Greenlet, Join, Walked, greenlets
from foldbatch.functions.tracer import FunctionTracer
from foldbatch.functions.values import Numbers, Value, by_hand, refuse_made
from foldbatch.model.tracer import ExamplesNoted, ExamplesRead, Tracer
from foldbatch.params.parameters import Array
from foldbatch.recorder.lists import CallLists
from foldbatch.scheduler.trace import Index
from foldbatch.system.processes import no_garbage
from foldbatch.types import Type

MAX_ROUNDS: Final = 10_000  # rounds in which an example waits for a number, after which it may never end
NEVER: Final = 2**62  # a number, or a round, that no batch reaches


def decide(
    rounds: Rounds, computing: Computing, tracer: Tracer, reading: ExamplesRead, *, careful: bool = False
) -> Notes:
    """Run a walk on the examples of a reading, and return their notes, example by example, for tracing.

    The examples run one after the other until one asks for a number, and from then on in rounds. With
    `careful`, each datum is checked at the call that reads it.
    """
    assert isinstance(tracer, FunctionTracer), "blocks ask for no numbers"
    assert isinstance(reading, Reading), "a walk reads examples"
    if tracer.decides:
        with computing.alone():
            return session(partial(_in_rounds, rounds, computing, tracer, reading, careful), reading)
    try:
        return session(partial(_in_turn, rounds, computing, tracer, reading, careful), reading)
    except Forced as forced:
        raise _no_greenlets(forced.reader) from None


def _in_rounds(
    rounds: Rounds,
    computing: Computing,
    tracer: FunctionTracer,
    reading: Reading,
    careful: bool,  # noqa: FBT001 - given by partial application
) -> Notes:
    """Return the notes of a walk that is known to decide, with all examples in rounds from the beginning."""
    batch = UnderWay(rounds, computing, tracer, traced=True)
    with no_garbage(), batch.noting(careful=careful):
        batch.join(reading.examples, reading.numbers)
        batch.finish()
    return batch.complete()


def _in_turn(
    rounds: Rounds,
    computing: Computing,
    tracer: FunctionTracer,
    reading: Reading,
    careful: bool,  # noqa: FBT001 - given by partial application
) -> Notes:
    """Return the notes of a walk that may decide, with the examples one after the other until one asks.

    They run in a single fiber. Where a walk asks for a number or forks, the fiber waits, and all examples go
    over to a batch: those that have ended, the one that waits, and the remaining ones.
    """
    notes, kind = Notes(COUNTERS[0]), greenlets()
    walks = InTurn(tracer.walk, notes, reading, tracer.max_calls)
    ask = partial(_wait_in_turn, walks, kind and kind.getcurrent())
    fork = kind and partial(ask, reader="fb.together")
    learnt = tracer.learnt
    learnt.install()
    with noting(notes, [*learnt.cells], RECORDER, ask, fork, careful=careful, accept=learnt.accept):
        fiber = Fiber(_NO_EXAMPLE, walks.go, ())
        asked = fiber.switch(None)
        if asked is None and walks.coroutine is None:
            refuse_broken(notes, notes.start)
            return notes
        with computing.alone():
            batch = UnderWay(rounds, computing, tracer, traced=True, notes=notes)
            with batch.entered():
                batch.take_over(walks, fiber, asked)
                learnt.decides |= batch.finish() or asked is None
    return batch.complete()


# in place of the example of a fiber: that fiber runs the walks of all examples, in turn
_NO_EXAMPLE: Final = Walked(-1, -1, -1)


def _wait_in_turn(walks: InTurn, hub: Greenlet, request: Value | Fork, reader: str) -> Numbers:
    """Stop the first walk that asks for a number or forks, and return the answer once a round has it.

    Args:
        walks: the walks that run one after the other.
        hub: the greenlet that waits for the request; None where walks cannot stop.
        request: the value to be read, or the fork to be run.
        reader: the name of the function that asks, for errors, as ``float``.

    Raises:
        WalkError: when the value is one of an earlier example.
        Forced: when walks cannot stop.
    """
    if not running():  # another thread asks
        return unknown(request, reader)  # type: ignore[arg-type]
    if isinstance(request, Value) and request.n < COUNTERS[1] - walks.max_calls:
        raise leak(reader, State.example)
    if hub is None:
        State.forced = reader
        raise Forced(reader)
    walks.waits = True
    return hub.switch(request)


def results(
    rounds: Rounds,
    computing: Computing,
    tracer: FunctionTracer,
    reading: Reading,
    *,
    keep_going: bool = False,
    careful: bool = False,
) -> list[object]:
    """Run a walk on examples in rounds, and return its results, with arrays in the place of values.

    It is for inference, where results are wanted and no traces. With `keep_going`, an exception that the walk
    raises becomes the result of its example. The other arguments are those of `decide`.
    """

    def run() -> list[object]:
        """Run the batch in rounds and return its results, with arrays in the place of values."""
        batch = UnderWay(rounds, computing, tracer, keep_going=keep_going)
        with no_garbage(), batch.noting(careful=careful or keep_going):
            batch.join(reading.examples, reading.numbers)
            batch.finish()
            batch.compute()  # values of results that no walk has asked for
        give_back(batch.notes)
        return batch.results()

    with computing.alone():
        return session(run, reading)


def small_batch_results(
    rounds: Rounds,
    computing: Computing,
    tracer: FunctionTracer,
    asides: Collection[str],
    notes: ExamplesNoted,
    numbers: Sequence[int],
) -> list[object] | None:
    """Return the results of a small batch whose walks have ended without reading a number.

    All calls in the notes are computed as a single round; None where they must run as any batch, see
    `Rounds.run_small`, and before anything is learnt.
    """
    assert isinstance(notes, Notes), "walks have noted them"
    type_ = tracer.learnt.result
    if type_ is None:
        return None
    rounds.read(tracer.learnt.replacements)
    rounds.store.clear()
    places = [*range(len(numbers))]
    round_notes = RoundNotes(computing, notes, places, notes.ends, [], numbers)
    if not rounds.run_small(round_notes, tracer.learnt, asides):
        return None
    results: list[object] = []
    for place, result, number in zip(places, notes.results, numbers, strict=True):
        type_, shown = _shown(rounds.store, notes.start, type_, result, place, number)
        results.append(shown)
    give_back(notes)
    return results


def _no_greenlets(reader: str) -> WalkError:
    """Return the error for a walk that cannot wait for a number, given the name of the function that asks."""
    fix = f"{install('decide')}, or write the walk as an async def, with await value"
    expected = "the package greenlet, so that the walk can wait for a number"
    return WalkError(reader, expected, "a Python without it", fix)


_WAITS: Final = object()  # returned by a walk whose request is noted already: it has let the next fiber run


class _Thrown(NamedTuple):
    """An error of a part of a walk; a fiber that is sent one raises it where it waits for its parts."""

    error: Exception


class UnderWay:
    """A batch under way; further examples may join between rounds."""

    def __init__(
        self,
        rounds: Rounds,  # the model that computes rounds of the walk
        computing: Computing,  # the engine that runs the model
        tracer: FunctionTracer,  # the tracer of the walk
        *,
        traced: bool = False,  # whether `complete` is called at the end: the notes of all rounds are kept
        keep_going: bool = False,  # whether an exception of a walk ends its example alone, not the batch
        notes: Notes | None = None,  # the notes of walks that `take_over` takes over
    ) -> None:
        self._rounds = rounds
        self._tracer = tracer
        rounds.read(tracer.learnt.replacements)
        self._traced = traced
        self._keep_going = keep_going
        self.notes = Notes(COUNTERS[0]) if notes is None else notes
        self._start = self.notes.start  # the first number of the batch
        self._first = self._start  # the first number of the present round
        self.store = rounds.store  # the values so far
        self._ready: list[tuple[Fiber, Any]] = []  # fibers that can go on, with what they are sent
        # Lists with an item for each turn since the last round: the fiber, the function that lets it go on,
        # the number of the value that it waits for (0: none), the place of its example, and the number after
        # the last one that it has taken.
        self._fibers: list[Fiber] = []
        self._switches: list[Callable[[Any], Any]] = []
        self._asked: list[int] = []
        self._places: list[int] = []
        self._ends: list[int] = []
        self._numberless: list[int] = []  # the turns, as indices of these lists, that wait for no number
        self._order: list[Fiber] = []  # the fibers that have a turn, the first one first
        # The remaining turns, the last one first: the function that lets the fiber go on, and its argument.
        # The first item is that of the hub, the greenlet that lets fibers run.
        self._turns: list[Callable[[Any], Any]] = []
        self._sent: list[Any] = []
        self._hub: Greenlet = None
        self._direct = True  # whether all fibers can stop, so that a fiber may let the next one run
        self._waits = self._first  # from this number on a value is waited for without the hub
        self._round = 0
        self._failures = False
        self._broken: BaseException | None = None  # it ends the run, even if a walk has caught it
        self._result = tracer.learnt.result
        self._log: dict[Signature, CallLists] = {}  # the notes of all earlier rounds, where `traced`
        self._numbers: list[int] = []
        lists = self._places, self._ends, self._asked, self._numbers
        self._round_notes = RoundNotes(computing, self.notes, *lists)
        self.walked: list[Walked] = []  # the examples
        self.over: list[Walked] = []  # the examples that have ended; a reader of the list empties it

    @contextmanager
    def noting(self, *, careful: bool = False) -> Iterator[None]:
        """Return the context in which the batch runs and its calls are noted.

        An error in it ends all walks that wait. With `careful`, each datum is checked at its call.
        """
        learnt = self._tracer.learnt
        learnt.install()
        signatures, accept = [*learnt.cells], learnt.accept
        with noting(self.notes, signatures, RECORDER, careful=careful, accept=accept), self.entered():
            yield

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Return the context in which the batch runs, for a caller that notes calls already; see `noting`."""
        self.store.clear()
        kind = greenlets()
        self._hub = kind and kind.getcurrent()
        # up to this number no example has taken more than its limit, see `_may_take`
        COUNTERS[1] = self._start + self._tracer.max_calls
        listen(self._read, self._ask, lambda: self._fiber.walked.number, self._may_take)
        try:
            yield
        except BaseException as error:
            self._waits, self._broken = NEVER, error
            for fiber in (*self._order, *self._fibers, *(fiber for fiber, _ in self._ready)):
                fiber.end()
                while fiber.join is not None:
                    fiber = fiber.join.fiber  # noqa: PLW2901 - the fiber that waits for this one
                    fiber.end()
            raise

    def take_over(self, walks: InTurn, first: Fiber, asked: Value | Fork | None) -> None:
        """Take in all examples of walks that have run one after the other, until one asked or is a coroutine.

        Args:
            walks: the walks, with the reading, and the notes of those that have ended. A coroutine among them
                has not begun.
            first: the fiber that has run them, and waits.
            asked: the value or the fork that it waits for; None for a coroutine.
        """
        reading, notes = walks.reading, walks.notes
        place = len(notes.ends)
        for number, end, result in zip(reading.numbers, notes.ends, notes.results, strict=False):
            ended = Walked(len(self.walked), number, 0, result)
            self._numbers.append(number)
            self.walked.append(ended)
            self.over.append(ended)
            self._stretch(first, ended.place, None, end)
        waiting = Walked(place, reading.numbers[place], 0)
        self._numbers.append(waiting.number)
        self.walked.append(waiting)
        first.walked = waiting
        self._direct &= first.stops
        self._stretch(first, place, asked, COUNTERS[0])
        if walks.coroutine is not None:
            self._begin(Fiber(waiting, walks.coroutine, ()))
        elif isinstance(asked, Fork):
            self._fork(first, asked)
        self.join(reading.examples[place + 1 :], reading.numbers[place + 1 :])

    def _stretch(self, fiber: Fiber, place: int, asked: Value | Fork | None, end: int) -> None:
        """Note a turn that is over: fiber, place of the example, request, the number after its last one."""
        self._fibers.append(fiber)
        self._switches.append(fiber.switch)
        self._places.append(place)
        if not isinstance(asked, Value):
            self._numberless.append(len(self._asked))
        self._asked.append(asked.n if isinstance(asked, Value) else 0)
        self._ends.append(end)

    def join(self, examples: Sequence[object], numbers: Sequence[int]) -> list[Walked]:
        """Take in examples, with their numbers in the batch for errors; return their states, in that order.

        Their walks begin with the next `go`.
        """
        new = []
        for example, number in zip(examples, numbers, strict=True):
            walked = Walked(len(self.walked), number, self._round)
            self._numbers.append(number)
            self.walked.append(walked)
            new.append(walked)
            self._begin(Fiber(walked, self._tracer.walk, (example,)))
        return new

    def _begin(self, fiber: Fiber) -> None:
        self._direct &= fiber.stops
        self._ready.append((fiber, None))

    def leave(self, walked: Walked) -> None:
        """End an example whose result is not wanted any more."""
        self._failures = True
        walked.error = CancelledError()

    def finish(self) -> bool:
        """Run rounds until the walks of all examples have ended; return whether any asked for a number."""
        asked = False
        while self.go():
            asked = True
        return asked

    def go(self) -> bool:
        """Let all examples run until each waits or has ended, compute a round, and let those that wait go on.

        Return whether there was a round: without one all examples have ended.
        """
        while self._ready:
            self._order = fibers = [fiber for fiber, _ in self._ready]
            ready, self._ready = self._ready, []
            places = [fiber.walked.place for fiber in fibers]
            self._go(fibers, [fiber.switch for fiber in fibers], places, [sent for _, sent in ready])
        asked, fibers, switches, places = self._asked, self._fibers, self._switches, self._places[:]
        for turn in reversed(self._numberless):
            del fibers[turn], switches[turn], places[turn], asked[turn]
        self._fibers, self._switches = [], []
        self._numberless.clear()
        if not asked:
            return False
        self._order = fibers
        sent = self.compute() or self.store.read(asked, self._start)
        asked.clear()
        self._go(fibers, switches, places, sent)
        return True

    # -- fibers

    @property
    def _fiber(self) -> Fiber:
        """The fiber that runs."""
        return self._order[-len(self._turns)]

    def _go(self, fibers: list[Any], switches: list[Any], places: list[Any], sent: list[Any]) -> None:
        """Give each fiber a turn, in which it runs until it waits or ends.

        Args:
            fibers: the fibers, in the order of their turns.
            switches: the functions that let them go on.
            places: the places of their examples.
            sent: the arguments of the functions: the numbers that the fibers have asked for.
        """
        self._waits = self._first if self._direct and not self._failures else NEVER
        if self._round >= MAX_ROUNDS - 1 and any(
            self._round - fiber.walked.began >= MAX_ROUNDS - 1 for fiber in fibers
        ):
            self._waits = NEVER
        self._fibers += fibers
        self._switches += switches
        self._places += places
        self._order, self._sent = fibers, [_WAITS, *reversed(sent)]
        self._turns = turns = [self._hub and self._hub.switch, *reversed(switches)]
        while len(turns) > 1:
            self._run(turns.pop(), self._sent.pop())

    def _run(self, go_on: Callable[[Any], object], sent: object) -> None:
        """Let the next fiber run, and note its request or its end; it may let others run, see `_read`."""
        asked: Any = None
        fiber = self._fiber
        walked = fiber.walked
        State.example = walked.number
        if self._failures and fiber.over() is not None:
            fiber.end()
        else:
            try:
                asked = fiber.throw(sent.error) if sent.__class__ is _Thrown else go_on(sent)
            except Exception as error:
                if may_go_deeper(error):
                    raise
                asked = error  # for `_failed`
            if self._broken is not None:
                raise self._broken
            if asked is _WAITS:
                return
            fiber = self._fiber
            if asked is None:
                self._ended(fiber)
            elif asked.__class__ is Fork:
                self._fork(fiber, asked)
            elif isinstance(asked, Exception):
                self._failed(fiber, asked)
            elif asked.n < self._first:  # an awaited value that is computed already
                self._ready.append((fiber, None))
        waits = isinstance(asked, Value) and asked.n >= self._first
        if not waits:
            self._numberless.append(len(self._asked))
        self._asked.append(asked.n if waits else 0)
        self._ends.append(COUNTERS[0])

    def _ended(self, fiber: Fiber) -> None:
        """Keep the result of a fiber that has ended: as the result of its example, or of its part of a fork.

        Where the result is a coroutine, a fiber that runs it takes the place of the one that has ended.
        """
        if isinstance(fiber.result, CoroutineType):
            self._begin(Fiber(fiber.walked, fiber.result, (), fiber.join, fiber.place))
        elif fiber.join is None:
            fiber.walked.result = fiber.result
            self.over.append(fiber.walked)
        else:
            join = fiber.join
            join.results[fiber.place] = fiber.result
            join.remaining -= 1
            if not join.remaining:
                self._ready.append((join.fiber, join.results))

    def _failed(self, fiber: Fiber, error: Exception) -> None:
        """Take the error of a fiber: it goes to its fork, or ends its example, or breaks off the batch."""
        self._failures = True
        self._waits = NEVER
        if fiber.join is not None:
            fiber.join.error = error
            self._ready.append((fiber.join.fiber, _Thrown(error)))
            return
        name_example(error, fiber.walked.number)
        if not self._keep_going:
            raise error
        fiber.walked.error = error
        self.over.append(fiber.walked)

    def _fork(self, fiber: Fiber, fork: Fork) -> None:
        """Start the parts of a fork, each in a fiber of its own; the fiber that forks waits for all."""
        fiber.result = fork
        join = Join(fiber, [None] * len(fork.parts), len(fork.parts))
        if not fork.parts:
            self._ready.append((fiber, []))
        for place, part in enumerate(fork.parts):
            self._begin(Fiber(fiber.walked, part, (), join, place))

    # -- requests of walks

    def _ask(self, fork: Fork) -> Any:
        return self._switched(fork, "fb.together")

    def _read(self, value: Value, reader: str) -> Numbers:
        """Return the numbers of a value to the walk that asks for them, which waits until they are computed.

        Most walks wait here without the hub: the next fiber is let run from within.

        Args:
            value: the value, which must be one of the present example.
            reader: the name of the function that asks, for errors, as ``float``.
        """
        try:
            waits = value.n >= self._waits
        except (AttributeError, TypeError):
            raise by_hand(reader) from None
        if waits:
            try:
                self._asked.append(value.n)
                self._ends.append(COUNTERS[0])
                go_on, sent = self._turns.pop(), self._sent.pop()  # without the hub between
            except BaseException as error:  # of a handler of signals: it ends the run, whatever the walk does
                self._failures, self._broken = True, error
                raise
            return go_on(sent)
        walked = self._fiber.walked
        if value.n >= self._first:
            if self._round - walked.began >= MAX_ROUNDS - 1:
                walked.began = NEVER
                where, expected = ExamplePlace("walk", walked.number), "a loop that ends after a few rounds"
                fix = "look for one without an end; the option max_calls stops it"
                warning = ManyRoundsWarning(
                    where, expected, f"{MAX_ROUNDS:,} numbers that it waited for", fix
                )
                warn(warning, stacklevel=frames_inside())
            return self._switched(value, reader)
        number = value.n - self._start
        if number < 0 or self.store.example.item(number) != walked.place:
            raise leak(reader, walked.number)
        return self.store.row(number)

    def _switched(self, request: Value | Fork, reader: str) -> Numbers:
        """Stop the walk that asks for a value's numbers or for the results of a fork, and return these to it.

        Raises:
            WalkError: when the walk cannot stop.
        """
        for error in (self._broken, self._fiber.over()):
            if error is not None:
                raise error  # the example has ended, and its walk asks in a finally clause
        if self._fiber.stops:
            return self._hub.switch(request)
        if self._hub is not None:
            fix = f"write {reader}(await value), and await fb.together(...)"
            expected = "a value that was awaited, as the walk is an async def"
            raise WalkError(reader, expected, repr(request), fix)
        raise _no_greenlets(reader)

    # -- rounds, and notes and results at the end

    def _may_take(self, number: int) -> bool:
        """Whether the example that runs may take a number, and all others those up to a new limit.

        The limit is set in `COUNTERS`: up to it no walk needs to ask again.
        """
        sizes = np.diff([self._first, *self._ends, number])
        places = self._places[: len(sizes)]
        examples = len(self.walked)
        taken = np.bincount(self.store.example[: self._first - self._start], minlength=examples)
        remaining = self._tracer.max_calls - taken - np.bincount(places, sizes, examples).astype(np.int64)
        if remaining[places[-1]] < 0:
            return False
        fibers = *self._fibers, *(fiber for fiber, _ in self._ready)
        COUNTERS[1] = number + max(0, min(int(remaining[fiber.walked.place]) for fiber in fibers))
        return True

    def compute(self) -> list[object]:
        """Compute a round, which has the calls noted since the last one, and begin the next.

        The values are in the store then. Where the engine has read the numbers that walks wait for in the
        same call, it returns them, in the order in which the walks asked; else an empty list.
        """
        values: list[object] = []
        if COUNTERS[0] == self._first:
            refuse_broken(self.notes, self._first)
        else:
            self._round_notes.first = self._first - self._start
            values = self._rounds.compute(self._round_notes)
        self._next()
        return values

    def _next(self) -> None:
        """Begin a round: the lists of notes are emptied, after their contents are kept where `traced`."""
        for signature, lists in self.notes.lists.items():
            if lists.rows:
                if self._traced:
                    if signature not in self._log:
                        self._log[signature] = lists_of(signature)
                    for kept, items in zip(self._log[signature].all, lists.all, strict=True):
                        kept.extend(items)
                lists.clear()
        self._first, State.drawn = COUNTERS[0], 0
        self._round += 1
        self._places.clear()
        self._ends.clear()

    def complete(self) -> Notes:
        """Return the notes of the batch, example by example, as if each had run alone."""
        refuse_broken(self.notes, self._first)
        store = self.store
        store.set_owners(self._first - self._start, self._places, self._ends, self._start)
        self._next()
        example_of = store.example[: store.total]
        totals = np.bincount(example_of, minlength=len(self.walked))
        ends = np.cumsum(totals)
        moved = (ends - totals).take(example_of) + store.counted(0)

        def renumbered(walked: Walked, value: Value) -> Value:
            n = value.n - self._start
            if not 0 <= n < len(moved) or example_of[n] != walked.place:
                raise kept_result(walked.number)
            return value.__class__(int(moved[n]) + self._start)

        notes = self.notes
        logged = {signature: self._log.get(signature, lists) for signature, lists in notes.lists.items()}
        by_cell = noted_of(logged, self._start)
        notes.noted = {
            signature: self._in_order(noted, moved, example_of) for signature, noted in by_cell.items()
        }
        notes.ends = (ends + self._start).tolist()
        notes.results = [_replaced(walked.result, partial(renumbered, walked)) for walked in self.walked]
        return notes

    def _in_order(self, noted: Noted, moved: Index, example_of: Index) -> Noted:
        """Return the calls of a cell example by example, renumbered, for the notes of `complete`.

        Args:
            noted: the calls in the order of rounds; its arrays are written to.
            moved: ``[numbers] int64``: the new number of each number.
            example_of: ``[numbers] int64``: the place of the example that has taken each number.
        """
        signature, rows = noted.signature, noted.rows
        values = 1 + len(signature.operands)
        read = rows[:, :values]
        if read.min(initial=0) < 0:
            raise leak(signature.title, self._numbers[int(example_of[read[(read < 0).any(axis=1)][0, 0]])])
        rows[:, :values] = moved.take(read)
        order, elements = np.argsort(rows[:, 0], kind="stable"), list[Index]()
        for s, flat in enumerate(noted.elements):
            lengths = rows[:, values + s]
            begins = np.cumsum(lengths) - lengths
            sizes = lengths.take(order)
            index = np.repeat(begins.take(order) - (np.cumsum(sizes) - sizes), sizes)
            elements.append(moved.take(flat.take(index + np.arange(len(index)), axis=0)))
        for _, i in signature.draft.marks:
            noted.feeds[i] = moved.take(np.array(noted.feeds[i], np.int64)).tolist()
        places = order.tolist()
        feeds, labels = (
            [[column[place] for place in places] for column in columns]
            for columns in (noted.feeds, noted.labels)
        )
        return Noted(signature, rows.take(order, axis=0), elements, feeds, labels)

    def results(self) -> list[object]:
        """Return for each example its result, with arrays in the place of values, or its walk's error."""
        return [self.shown(walked).result if walked.error is None else walked.error for walked in self.walked]

    def shown(self, walked: Walked) -> Walked:
        """Put arrays into the place of values in the result of an example, whose last round is computed."""
        self._result, walked.result = _shown(
            self.store, self._start, self._result, walked.result, walked.place, walked.number
        )
        return walked


def _shown(
    store: Store, start: int, type_: Type | None, result: object, place: int, number: int
) -> tuple[Type | None, object]:
    """Return the type of results so far and of this one, and the result with arrays in the place of values.

    Args:
        store: the computed values.
        start: the first number of the batch.
        type_: the type of results so far; None before the first.
        result: the result of a walk.
        place: the place of its example in the batch.
        number: the number of the example, for errors.

    Raises:
        WalkError: when the result has a value of another example or batch.
    """
    if type_ is OBJECTS and type(result) is list and ATOMS.issuperset(map(type, result)):
        return type_, [*result]  # as below, in a fifth of the time

    def array(value: Value) -> Array:
        refuse_made(value)
        n = value.n - start
        if not 0 <= n < store.total or store.example[n] != place:
            raise kept_result(number)
        return np.array(store.row(n), value.type.dtype)

    if isinstance(result, Value) and result.type is type_:  # as below, in half the time
        return type_, array(result)
    return joined_result(type_, result, 0, [], set(), number), _replaced(result, array)


def _replaced(x: object, value: Callable[[Value], object]) -> object:
    """Return a result of a walk with the outcome of a function in the place of each value in it."""
    if type(x) in ATOMS:
        return x
    match x:
        case Value():
            return value(x)
        case tuple() if type(x) is tuple or not is_named(x):
            return tuple([_replaced(item, value) for item in x])
        case list() if {*map(type, x)} <= ATOMS:
            return [*x]
        case list():
            return [_replaced(item, value) for item in x]
    return replaced(x, lambda part: _replaced(part, value))
