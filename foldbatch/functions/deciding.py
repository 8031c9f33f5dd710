"""Deciding: the examples of a batch run until each waits for a number, a round computes, and they go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import partial
from types import CoroutineType
from typing import Any, Final, NamedTuple
from warnings import warn

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import ManyRoundsWarning, WalkError, frames_inside, install
from foldbatch.functions.cells import COUNTERS, Signature
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
    Lists,
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
from foldbatch.functions.rounds import Computing, Pending, Rounds
from foldbatch.functions.store import Store
from foldbatch.functions.suspended import Fiber, Fork, Join, Walked, greenlets
from foldbatch.functions.tracer import FunctionTracer
from foldbatch.functions.values import Value, by_hand, refuse_made
from foldbatch.model.rounds import SMALL_BATCH_VALUES
from foldbatch.scheduler.trace import Index
from foldbatch.system.processes import no_garbage
from foldbatch.types import Type

MAX_ROUNDS: Final = 10_000  # rounds in which an example waits for a number, after which it may never end
NEVER: Final = 2**62  # beyond all numbers


def decide(
    rounds: Rounds, computing: Computing, tracer: FunctionTracer, reading: Reading, *, careful: bool = False
) -> Notes:
    """Run a walk on examples, and return what they noted, example by example.

    They run one after the other as long as none asks for a number, and from then on in rounds. Where
    `careful`, each datum is checked when it is read.
    """
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
    """Run one walk after the other, in a fiber that waits where the first one asks for something."""
    notes, kind = Notes(COUNTERS[0]), greenlets()
    walks = InTurn(tracer.walk, notes, reading, tracer.max_calls)
    ask = partial(_asked, walks, kind and kind.getcurrent())
    fork = kind and partial(ask, what="fb.together")
    learnt = tracer.learnt
    learnt.install()
    with noting(notes, [*learnt.cells], ask, fork, careful=careful, accept=learnt.accept):
        fiber = Fiber(_NOBODY, walks.go, ())
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


_NOBODY: Final = Walked(-1, -1, -1)  # whose a fiber is that runs the walks of several examples


def _asked(walks: InTurn, hub: Any, thing: Value | Fork, what: str) -> Any:
    """Let a walk wait that runs in its turn, and is the first one to ask for something."""
    if not running():  # it is asked in another thread
        return unknown(thing, what)  # type: ignore[arg-type]
    if isinstance(thing, Value) and thing.n < COUNTERS[1] - walks.max_calls:
        raise leak(what, State.example)
    if hub is None:
        State.forced = what
        raise Forced(what)
    walks.waits = True
    return hub.switch(thing)


def results(
    rounds: Rounds,
    computing: Computing,
    tracer: FunctionTracer,
    reading: Reading,
    *,
    keep_going: bool = False,
    careful: bool = False,
) -> list[Any]:
    """Run a walk on examples in rounds, and return its results, with arrays in the place of values.

    With `keep_going` the result of an example whose walk raises an exception is the exception. The other
    arguments are those of `decide`.
    """

    def run() -> list[Any]:
        """Run the batch in rounds and return its results, with arrays in the place of values."""
        batch = UnderWay(rounds, computing, tracer, keep_going=keep_going)
        with no_garbage(), batch.noting(careful=careful or keep_going):
            batch.join(reading.examples, reading.numbers)
            batch.finish()
            batch.compute()  # what the results need and nobody asked for
        give_back(batch.notes)
        return batch.results()

    with computing.alone():
        return session(run, reading)


def few(
    rounds: Rounds, computing: Computing, tracer: FunctionTracer, notes: Notes, numbers: Sequence[int]
) -> list[Any] | None:
    """Return the results of a few examples whose walks have ended and read no number, computed as a round.

    What is new in their notes is learnt. None where they are no few: they noted much.
    """
    if COUNTERS[0] - notes.start > SMALL_BATCH_VALUES:
        return None
    rounds.read(tracer.learnt.replacements)
    rounds.store.clear()
    before, whose = rounds.linked, [*range(len(numbers))]
    if COUNTERS[0] > notes.start:
        rounds.compute(Pending(computing, notes, whose, notes.ends, [], numbers))
    if rounds.linked is not before:
        tracer.learn(notes, numbers)
    type_ = tracer.learnt.result
    results: list[Any] = []
    for place, result, number in zip(whose, notes.results, numbers, strict=True):
        type_, found = _shown(rounds.store, notes.start, type_, result, place, number)
        results.append(found)
    give_back(notes)
    return results


def _no_greenlets(what: str) -> WalkError:
    """Return the error for a walk that asks for a number, and cannot wait for it."""
    fix = f"{install('decide')}, or write the walk as an async def, with await value"
    expected = "the package greenlet, so that the walk can wait for a number"
    return WalkError(what, expected, "a Python without it", fix)


_WAITS: Final = object()  # what a walk says that waits already


class _Thrown(NamedTuple):
    """An error that a part of a walk has raised, for the walk that waits for it."""

    error: Exception


class UnderWay:
    """A batch under way; further examples may join between rounds."""

    def __init__(
        self,
        rounds: Rounds,  # what was learnt of the rounds of the walk
        computing: Computing,  # what computes them
        tracer: FunctionTracer,  # has the walk
        *,
        traced: bool = False,  # whether its complete notes are wanted, too
        keep_going: bool = False,  # whether others go on where the walk of one raises an exception
        notes: Notes | None = None,  # those of walks that it takes over, if it takes over some
    ) -> None:
        self._rounds, self._tracer = rounds, tracer
        rounds.read(tracer.learnt.replacements)
        self._traced, self._keep_going = traced, keep_going
        self.notes = Notes(COUNTERS[0]) if notes is None else notes
        self._start = self._first = self.notes.start
        self.store = rounds.store  # the values so far
        self._ready: list[tuple[Fiber, Any]] = []
        # of each turn since the last round: who had it, what lets them run, the number that they wait for, as
        # values have it, and whose the numbers up to another one are
        self._fibers: list[Fiber] = []
        self._switches: list[Callable[[Any], Any]] = []
        self._asked: list[int] = []
        self._others: list[int] = []  # the places of those that wait for none
        self._whose: list[int] = []
        self._ends: list[int] = []
        self._order: list[Fiber] = []  # who has a turn, the first one first
        # the turns that are left, the last one first: what lets them run, and what with; before all there is
        # the hub, the greenlet that lets fibers run
        self._turns: list[Callable[[Any], Any]] = []
        self._sent: list[Any] = []
        self._hub: Any = None
        self._direct = True  # whether all fibers can stop, so that one may let the next one run
        self._waits = self._first  # from this number on a value is waited for without the hub
        self._round = 0
        self._failures = False
        self._broken: BaseException | None = None  # what ends the run although a walk may have caught it
        self._result = tracer.learnt.result
        self._log: dict[Signature, Lists] = {}  # the notes of all rounds, where they are wanted
        self._numbers: list[int] = []
        self._pending = Pending(computing, self.notes, self._whose, self._ends, self._asked, self._numbers)
        self.walked: list[Walked] = []  # the examples
        self.over: list[Walked] = []  # those that have ended since somebody last looked

    @contextmanager
    def noting(self, *, careful: bool = False) -> Iterator[None]:
        """Return the context in which the batch runs; after an error no walk of it waits any more."""
        learnt = self._tracer.learnt
        learnt.install()
        with noting(self.notes, [*learnt.cells], careful=careful, accept=learnt.accept), self.entered():
            yield

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Return the context in which the batch runs, where its calls are noted already."""
        self.store.clear()
        kind = greenlets()
        self._hub = kind and kind.getcurrent()
        # up to here nobody has taken too many, see `_may_take`
        COUNTERS[1] = self._start + self._tracer.max_calls
        listen(self._read, self._ask, lambda: self._fiber.walked.number, self._may_take)
        try:
            yield
        except BaseException as error:
            self._waits, self._broken = NEVER, error
            for fiber in (*self._order, *self._fibers, *(fiber for fiber, _ in self._ready)):
                fiber.end()
                while fiber.join is not None:
                    fiber = fiber.join.fiber  # noqa: PLW2901 - it waits for this one
                    fiber.end()
            raise

    def take_over(self, walks: InTurn, first: Fiber, asked: Value | Fork | None) -> None:
        """Take in examples whose walks have run one after the other until one has asked for something.

        Args:
            walks: those that have run. Where one is to be awaited, it has not begun.
            first: runs them, and waits.
            asked: what it waits for.
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
        """Take in the turn of a fiber that was the example's at a place, and has asked for something."""
        self._fibers.append(fiber)
        self._switches.append(fiber.switch)
        self._whose.append(place)
        if not isinstance(asked, Value):
            self._others.append(len(self._asked))
        self._asked.append(asked.n if isinstance(asked, Value) else 0)
        self._ends.append(end)

    def join(self, examples: Sequence[Any], numbers: Sequence[int]) -> list[Walked]:
        """Take examples in, with their numbers in the batch."""
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
        """Let an example go on no more: nobody waits for its result."""
        self._failures, walked.error = True, CancelledError()

    def finish(self) -> bool:
        """Let all examples run to their ends; return whether one asked for a number."""
        asked = False
        while self.go():
            asked = True
        return asked

    def go(self) -> bool:
        """Let all examples run until each waits, and compute a round; return whether some go on."""
        while self._ready:
            self._order = fibers = [fiber for fiber, _ in self._ready]
            ready, self._ready = self._ready, []
            places = [fiber.walked.place for fiber in fibers]
            self._go(fibers, [fiber.switch for fiber in fibers], places, [sent for _, sent in ready])
        asked, fibers, switches, places = self._asked, self._fibers, self._switches, self._whose[:]
        for place in reversed(self._others):
            del fibers[place], switches[place], places[place], asked[place]
        self._fibers, self._switches = [], []
        self._others.clear()
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
        """The one that runs."""
        return self._order[-len(self._turns)]

    def _go(self, fibers: list[Any], switches: list[Any], places: list[Any], sent: list[Any]) -> None:
        """Let one fiber after the other run until it waits or ends, given what it has asked for."""
        self._waits = self._first if self._direct and not self._failures else NEVER
        if self._round >= MAX_ROUNDS - 1 and any(
            self._round - fiber.walked.began >= MAX_ROUNDS - 1 for fiber in fibers
        ):
            self._waits = NEVER
        self._fibers += fibers
        self._switches += switches
        self._whose += places
        self._order, self._sent = fibers, [_WAITS, *reversed(sent)]
        self._turns = turns = [self._hub and self._hub.switch, *reversed(switches)]
        while len(turns) > 1:
            self._run(turns.pop(), self._sent.pop())

    def _run(self, go_on: Callable[[Any], Any], sent: Any) -> None:
        """Let a fiber run, and those after it that it goes on to, see `_read`."""
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
                asked = error  # it is raised where it belongs
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
            elif asked.n < self._first:  # it was awaited, and is there already
                self._ready.append((fiber, None))
        waits = isinstance(asked, Value) and asked.n >= self._first
        if not waits:
            self._others.append(len(self._asked))
        self._asked.append(asked.n if waits else 0)
        self._ends.append(COUNTERS[0])

    def _ended(self, fiber: Fiber) -> None:
        """Take the result of a fiber: an example's result, or its part of the fork that waits for it.

        A coroutine as result is begun in the fiber's place.
        """
        if isinstance(fiber.result, CoroutineType):
            self._begin(Fiber(fiber.walked, fiber.result, (), fiber.join, fiber.place))
        elif fiber.join is None:
            fiber.walked.result = fiber.result
            self.over.append(fiber.walked)
        else:
            join = fiber.join
            join.results[fiber.place] = fiber.result
            join.left -= 1
            if not join.left:
                self._ready.append((join.fiber, join.results))

    def _failed(self, fiber: Fiber, error: Exception) -> None:
        """Take the error of a fiber: it goes to its fork, or ends its example, or breaks off the batch."""
        self._failures, self._waits = True, NEVER
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
        """Begin the parts of a fork; the fiber goes on when all have ended."""
        fiber.result = fork
        join = Join(fiber, [None] * len(fork.parts), len(fork.parts))
        if not fork.parts:
            self._ready.append((fiber, []))
        for place, part in enumerate(fork.parts):
            self._begin(Fiber(fiber.walked, part, (), join, place))

    # -- what walks ask for

    def _ask(self, fork: Fork) -> Any:
        return self._switched(fork, "fb.together")

    def _read(self, value: Value, what: str) -> Any:
        """Return the numbers of a value of the present example; it waits until they are there."""
        try:
            waits = value.n >= self._waits
        except (AttributeError, TypeError):
            raise by_hand(what) from None
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
                where, expected = f"walk at example {walked.number}", "a loop that ends after a few rounds"
                fix = "look for one without an end; the option max_calls stops it"
                warning = ManyRoundsWarning(
                    where, expected, f"{MAX_ROUNDS:,} numbers that it waited for", fix
                )
                warn(warning, stacklevel=frames_inside())
            return self._switched(value, what)
        number = value.n - self._start
        if number < 0 or self.store.example.item(number) != walked.place:
            raise leak(what, walked.number)
        return self.store.row(number)

    def _switched(self, thing: Value | Fork, what: str) -> Any:
        """Stop the walk that runs until what it asks for is there."""
        for over in (self._broken, self._fiber.over()):
            if over is not None:
                raise over  # it asks at its end
        if self._fiber.stops:
            return self._hub.switch(thing)
        if self._hub is not None:
            fix = f"write {what}(await value), and await fb.together(...)"
            raise WalkError(what, "a value that was awaited, as the walk is an async def", repr(thing), fix)
        raise _no_greenlets(what)

    # -- what they leave

    def _may_take(self, number: int) -> bool:
        """Whether the example that runs may take a number; up to `M` nobody takes too many from here on."""
        sizes = np.diff([self._first, *self._ends, number])
        whose, examples = self._whose[: len(sizes)], len(self.walked)
        taken = np.bincount(self.store.example[: self._first - self._start], minlength=examples)
        left = self._tracer.max_calls - taken - np.bincount(whose, sizes, examples).astype(np.int64)
        if left[whose[-1]] < 0:
            return False
        others = *self._fibers, *(fiber for fiber, _ in self._ready)
        COUNTERS[1] = number + max(0, min(int(left[fiber.walked.place]) for fiber in others))
        return True

    def compute(self) -> list[Any]:
        """Compute what is pending; return the numbers that are asked for, where they are read at once."""
        found: list[Any] = []
        if COUNTERS[0] == self._first:
            refuse_broken(self.notes, self._first)
        else:
            self._pending.first = self._first - self._start
            found = self._rounds.compute(self._pending)
        self._next()
        return found

    def _next(self) -> None:
        """Begin a round: lists of notes go on empty."""
        for signature, lists in self.notes.lists.items():
            if lists.rows:
                if self._traced:
                    if signature not in self._log:
                        self._log[signature] = lists_of(signature)
                    for kept, items in zip(self._log[signature].all, lists.all, strict=True):
                        kept.extend(items)
                for items in lists.all:
                    del items[:]
        self._first, State.drawn = COUNTERS[0], 0
        self._round += 1
        self._whose.clear()
        self._ends.clear()

    def complete(self) -> Notes:
        """Return the notes of the batch, example by example, as if each had run alone."""
        refuse_broken(self.notes, self._first)
        store = self.store
        store.set_owners(self._first - self._start, self._whose, self._ends, self._start)
        self._next()
        whose = store.example[: store.total]
        totals = np.bincount(whose, minlength=len(self.walked))
        ends = np.cumsum(totals)
        moved = (ends - totals).take(whose) + store.counted(0)

        def renumbered(walked: Walked, value: Value) -> Value:
            n = value.n - self._start
            if not 0 <= n < len(moved) or whose[n] != walked.place:
                raise kept_result(walked.number)
            return value.__class__(int(moved[n]) + self._start)

        notes = self.notes
        logged = {signature: self._log.get(signature, own) for signature, own in notes.lists.items()}
        found = noted_of(logged, self._start).values()
        notes.noted = {own.signature: self._in_order(own, moved, whose) for own in found}
        notes.ends = (ends + self._start).tolist()
        notes.results = [_replaced(walked.result, partial(renumbered, walked)) for walked in self.walked]
        return notes

    def _in_order(self, noted: Noted, moved: Index, whose: Index) -> Noted:
        """Return the calls of a cell in their complete order, given each number's new one, and example."""
        signature, rows = noted.signature, noted.rows
        values = 1 + len(signature.operands)
        read = rows[:, :values]
        if read.min(initial=0) < 0:
            raise leak(signature.title, self._numbers[int(whose[read[(read < 0).any(axis=1)][0, 0]])])
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
            [[given[place] for place in places] for given in kept] for kept in (noted.feeds, noted.labels)
        )
        return Noted(signature, rows.take(order, axis=0), elements, feeds, labels)

    def results(self) -> list[Any]:
        """Return the results of walks, with arrays in the place of values, or the errors that they raised."""
        return [self.shown(walked).result if walked.error is None else walked.error for walked in self.walked]

    def shown(self, walked: Walked) -> Walked:
        """Put arrays into the place of values in a result; they must have been computed."""
        given = self.store, self._start, self._result, walked.result
        self._result, walked.result = _shown(*given, walked.place, walked.number)
        return walked


def _shown(
    store: Store, start: int, type_: Type | None, result: Any, place: int, number: int
) -> tuple[Type | None, Any]:
    """Return the type of results, given that of others, and one with arrays in the place of values."""
    if type_ is OBJECTS and type(result) is list and ATOMS.issuperset(map(type, result)):
        return type_, [*result]  # as below, in a fifth of the time

    def array(value: Value) -> NDArray[Any]:
        refuse_made(value)
        n = value.n - start
        if not 0 <= n < store.total or store.example[n] != place:
            raise kept_result(number)
        return np.array(store.row(n), value.type.dtype)

    if isinstance(result, Value) and result.type is type_:  # as below, in half the time
        return type_, array(result)
    return joined_result(type_, result, 0, [], set(), number), _replaced(result, array)


def _replaced(x: Any, value: Callable[[Value], Any]) -> Any:
    """Return a result with something else in the place of values."""
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
